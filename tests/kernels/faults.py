"""Plants faults in the PTX of kernels and expects replay.py to find each: the test of that test.

  faults.py --program build/tests/kernels/kernels_launches --objects build/amp/cuda_*_cu.o
"""

import argparse
import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True

from ptx_code import closing  # noqa: E402
from recording import launches, short_names  # noqa: E402
from replay import Kernels, ptx_of, replayed  # noqa: E402

# What is planted, in which kernel: a pattern of PTX and what takes its place. Each changes one instruction.
FAULTS = [
    ("a changed constant", "wide_bias_gelu_kernel", r"(mul\.rn\.f32 [^;]*, 0f3DD2D3E)8", r"\g<1>9"),
    ("a dropped store", "accumulate_kernel", r"st\.global\.wb\.v4\.u32 [^;]*;", ""),
    ("a wrong rounding mode", "cast_kernel", r"cvt\.rn\.f16\.f32", "cvt.rz.f16.f32"),
    ("an exchange with another lane", "norm_kernel", r"(shfl\.sync\.bfly\.b32 [^,]*, [^,]*), [^,]*,", r"\1, 2,"),
    ("a comparison that is off by one", "average_kernel", r"(?s)((?:setp\.ge\.s64.*?){2}setp)\.ge\.s64", r"\1.gt.s64"),
    ("a wrong place", "squares_kernel", r"(ld\.global\.v4\.f32 [^;]*)\+16\]", r"\1+32]"),
    ("an access that is not aligned", "accumulate_kernel", r"(ld\.global\.v4\.f32 [^;]*)\+16\]", r"\1+20]"),
    ("a sum in another order", "totals_kernel", r"(ld\.shared\.f64 [^;]*)\+1024\]", r"\1+512]"),
    ("a lost result of pow", "prepare_kernel<AdamWUpdate>", r"ld\.param\.f64 (%\w+), \[retval0\+0\]", r"mov.f64 \1, 0d3FE0000000000000"),
    ("a wrong quotient", "cross_entropy_backward_kernel", r"div\.rn\.f64", "mul.rn.f64"),
    ("a wrong root", "narrow_update_kernel<AdamUpdate>", r"sqrt\.rn\.f32", "mov.f32"),
    ("a wrong decision", "decide_kernel", r"setp\.neu\.f64", "setp.equ.f64"),
]


def changed(text, kernel, pattern, replacement):
    """The module's text with the first such instruction of the kernel changed, or None where it has none."""
    for found in re.finditer(r"\.entry\s+([\w$]+)", text):
        if short_names([found[1]]) == [kernel]:
            end = closing(text, text.index("{", found.end()) + 1)
            body, count = re.subn(pattern, replacement, text[found.end():end], count=1)
            return text[:found.end()] + body + text[end:] if count else None
    return None


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--program", required=True)
    options.add_argument("--objects", nargs="+", required=True)
    chosen = options.parse_args()
    texts = ptx_of(chosen.objects)
    with tempfile.TemporaryDirectory() as folder:
        recorded = list(launches(chosen.program, str(pathlib.Path(folder) / "launches")))
    wrong = []
    for what, kernel, pattern, replacement in FAULTS:
        text = next((text for text in (changed(text, kernel, pattern, replacement) for text in texts) if text), None)
        if text is None:
            wrong.append(f"{what}: {kernel} has no instruction {pattern}")
            continue
        kernels = Kernels([text])
        kernels.found = {kernel: kernels.found[kernel]}
        own = [launch for launch in recorded if launch.kernel == kernel]
        problems = replayed(kernels, own)[kernel].problems
        print(f"{what} in {kernel}: {problems[0] if problems else 'NOT FOUND'}")
        if not problems:
            wrong.append(f"{what} in {kernel} is not found")
    kernels = Kernels([texts[0]])
    without = [name for name, result in replayed(kernels, []).items() if not result.problems]
    print("a kernel without a launch:", "NOT FOUND" if without else "found")
    wrong += [f"{name} is in no launch, and nothing says so" for name in without]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
