"""Small kernels in PTX, one for each test: their text, their machine code, their runs and the comparison."""

import concurrent.futures
import dataclasses
import hashlib
import itertools
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import machine_code  # noqa: E402
from device_elements import kernels as kernels_of, sections  # noqa: E402

BLOCK = 64
MOST_SAMPLES = 384
KERNELS_OF_A_MODULE = 60
LONGEST_RUN = 300  # seconds; a usual one takes 10 ms, a kernel that hangs takes this
INTEGERS = (0, 1, 2, 3, 7, 31, 32, 33, 0x80, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF)
WIDE = (0, 1, 2, 63, 64, 0xFFFFFFFF, 0x100000000, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF,
        0xFFFFFFFF00000000, 0x80000000)
FLOATS = (0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F800001, 0x3F000000,
          0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x4B800001, 0x33800000, 0x40490FDB)
DOUBLES = (0, 1 << 63, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x3FF0000000000000, 0xBFF0000000000000,
           0x3FF0000000000001, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000,
           0x3CA0000000000000, 0x41DFFFFFFFC00000, 0x43E0000000000000, 0x400921FB54442D18)
HALVES = (0, 0x8000, 1, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x3C01, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x1400, 0x4248)


@dataclasses.dataclass
class Case:
    """A test of instructions.

    `inputs` and `outputs`: the kinds of the numbers of a thread, such as "u32 f64"; the kernel's body finds them in the
    registers a, b, c, d and leaves results in x, y, z, v. It may also use t0..t9 (32 bits), w0..w9 (64), h0..h9 (16),
    p0..p9 (predicates), `thread` (of the grid), `tid` (of the block), `m` (the address of `memory`), and s0, s1, ...
    (scalars of the launch, which the compiler knows to be the same for all threads).
    `covers`: instructions that must be in the machine code: an opcode and some of its modifiers.
    `expected`: what one thread gets, from its inputs; with `whole`, what all get, from the list of all inputs; with
    `memory` both that and the words of the memory afterwards.
    """
    name: str
    inputs: str
    outputs: str
    body: str
    covers: str
    expected: typing.Callable
    samples: list = None
    scalars: tuple = ()
    memory: list = None
    whole: bool = False
    block: int = BLOCK
    same: typing.Callable = None  # (kind, wanted, got): for results that are not exact
    declarations: str = ""  # before the entry
    refused: str = ""  # the run must end with one of these words in its message, separated by "|"
    listing: str = ""  # what the machine reads instead of the kernel's own listing
    arch: int = 75  # the first that has the instruction


def bits_of(kind):
    return int(re.sub(r"\D", "", kind))


def edges(kind):
    return {"f32": FLOATS, "f64": DOUBLES, "u64": WIDE, "f16": HALVES, "h2": INTEGERS}.get(kind, INTEGERS)


def samples_of(case):
    """The inputs of all threads: edges with edges, then random ones; a whole number of blocks."""
    if case.samples is not None:
        found = [one if isinstance(one, tuple) else (one,) for one in case.samples]
    else:
        found = mixed(case.name, case.inputs.split())
    return found + found[:1] * (-len(found) % case.block)


def mixed(seed, kinds):
    chance = random.Random(seed)
    lists = [edges(kind) for kind in kinds]
    every = list(itertools.product(*lists)) if len(kinds) <= 2 else []
    found = chance.sample(every, MOST_SAMPLES - 64) if len(every) > MOST_SAMPLES - 64 else every
    while len(found) < (MOST_SAMPLES if kinds else BLOCK):
        found.append(tuple(chance.choice(some) if chance.random() < 0.5 else random_number(chance, kind)
                           for kind, some in zip(kinds, lists)))
    return found


def random_number(chance, kind):
    """Any bits, or floating-point numbers near one, whose sums and products round."""
    bits = bits_of(kind)
    if kind[0] != "f" or chance.random() < 0.3:
        return chance.getrandbits(bits)
    near = chance.choice((1.0, 1.0, 1e3, 1e-3, 1e6)) * chance.uniform(-2, 2)
    return int.from_bytes(struct.pack({16: "<e", 32: "<f", 64: "<d"}[bits], near), "little")


# ---- the text of kernels

NAMES, RESULTS = "abcd", "xyzv"


def entry(case):
    """The PTX of a case."""
    ins, outs = case.inputs.split(), case.outputs.split()
    parameters = [f".param .u64 p_{name}" for name, _ in zip(NAMES, ins)]
    parameters += [f".param .u64 p_{name}" for name, _ in zip(RESULTS, outs)]
    parameters += [".param .u64 p_m"] if case.memory is not None else []
    parameters += [f".param .u{bits_of(kind)} p_s{n}" for n, (kind, _) in enumerate(case.scalars)]
    lines = [".reg .b32 thread, tid, block, t<10>; .reg .b64 place, m, w<10>; .reg .b16 h<10>; .reg .pred p<10>;"]
    for name, kind in [*zip(NAMES, ins), *zip(RESULTS, outs)]:
        lines.append(f".reg .b{bits_of(kind)} {name};")
    for n, (kind, _) in enumerate(case.scalars):
        lines += [f".reg .b{bits_of(kind)} s{n};", f"ld.param.u{bits_of(kind)} s{n}, [p_s{n}];"]
    lines += ["mov.u32 tid, %tid.x;", "mov.u32 block, %ctaid.x;", f"mad.lo.u32 thread, block, {case.block}, tid;"]
    if case.memory is not None:
        lines += ["ld.param.u64 m, [p_m];", "cvta.to.global.u64 m, m;"]
    for name, kind in zip(NAMES, ins):
        lines += [address(name, kind), f"ld.global.b{bits_of(kind)} {name}, [place];"]
    lines.append(case.body)
    for name, kind in zip(RESULTS, outs):
        lines += [address(name, kind), f"st.global.b{bits_of(kind)} [place], {name};"]
    lines.append("ret;")
    return f".visible .entry {case.name}({', '.join(parameters)})\n{{\n" + "\n".join(lines) + "\n}\n"


def address(name, kind):
    return (f"ld.param.u64 place, [p_{name}]; cvta.to.global.u64 place, place; "
            f"mad.wide.u32 place, thread, {bits_of(kind) // 8}, place;")


def module(cases, architecture):
    """A PTX file with the kernels of all cases."""
    head = f".version 8.0\n.target {architecture}\n.address_size 64\n"
    declared = "\n".join(dict.fromkeys(case.declarations for case in cases if case.declarations))
    return head + declared + "\n" + "\n".join(entry(case) for case in cases)


# ---- machine code

class Code:
    """The assembled kernels of some cases: a folder as FAKE_CUDA_CODE wants it, and the instructions of each."""

    def __init__(self, cases, architecture, cache):
        texts = [module(cases[at:at + KERNELS_OF_A_MODULE], architecture)
                 for at in range(0, len(cases), KERNELS_OF_A_MODULE)]
        key = hashlib.sha256(repr(texts).encode()).hexdigest()[:20]
        self.folder = pathlib.Path(cache) / "instructions" / key
        if not (self.folder / "index.txt").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                names = pool.map(lambda item: self.make(f"module{item[0]}", item[1], architecture), enumerate(texts))
                index = "".join(names)
            (self.folder / "index.txt").write_text(index, encoding="utf-8")
        self.instructions, other = {}, {case.name: case.listing for case in cases}
        for listing in self.folder.glob("*.listing"):
            cubin = listing.with_suffix(".cubin").read_bytes()
            for name, text in functions(listing.read_text(encoding="utf-8")):
                text = other.get(name) or text
                self.instructions[name] = opcodes(text)
                give_listing(cache, name, cubin, text)

    def make(self, stem, text, architecture):
        """Assembles one module; its lines of the index."""
        (self.folder / f"{stem}.ptx").write_text(text, encoding="utf-8")
        complaints = []
        for ptxas in reversed(machine_code.tools("ptxas")):  # triton's first: it is always there
            command = [ptxas, f"-arch={architecture}", f"{stem}.ptx", "-o", f"{stem}.cubin"]
            code, said = machine_code.run(command, self.folder)
            if code == 0:
                break
            complaints.append(f"{ptxas}: {said}")
        else:
            raise machine_code.Missing("no ptxas assembles the tests: one comes with triton, which torch of "
                                       "requirements.txt brings\n" + "\n".join(complaints))
        _, listing = machine_code.run([machine_code.cuobjdump(), "-sass", f"{stem}.cubin"], self.folder)
        (self.folder / f"{stem}.listing").write_text(listing, encoding="utf-8")
        names = kernels_of((self.folder / f"{stem}.cubin").read_bytes())
        return "".join(f"{name} {stem}.cubin\n" for name in names)


def functions(listing):
    """(name, text) of each function of a listing of cuobjdump."""
    for part in listing.split("Function : ")[1:]:
        yield part.split()[0], part


def opcodes(text):
    """The instructions of a listing, each as (opcode, modifiers)."""
    found = re.findall(r"/\*[0-9a-f]{4,}\*/ +\{? *(?:@!?U?P\w+ +)?([A-Z][A-Za-z0-9_.]*)", text)
    split = [opcode.split(".") for opcode in found]
    return [(words[0], set(words[1:])) for words in split]


def give_listing(cache, kernel, cubin, text):
    """Puts a kernel's listing where the machine keeps it (machine/machine_code.cpp), since each call of cuobjdump
    costs a tenth of a second; also the way to give the machine an instruction that no assembler would write."""
    offset, size = next(found[1:] for found in sections(cubin) if found[0] == f".text.{kernel}")
    number = 0xCBF29CE484222325
    for part in (kernel.encode(), cubin[offset:offset + size]):
        for byte in part:
            number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        number = (number ^ 0x100) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    (pathlib.Path(cache) / f"{number:016x}.sass").write_text(text, encoding="utf-8")


def lacks(case, instructions):
    """The instructions that a case means to test and that its kernel does not have; "A|B" is one of the two."""
    def there(wanted):
        opcode, *modifiers = wanted.split(".")
        return any(opcode == name and set(modifiers) <= found for name, found in instructions)
    return [wanted for wanted in case.covers.split() if not any(map(there, wanted.split("|")))]


def tested(case, instructions):
    """Those of a kernel that its results, or its refusal, depend on."""
    if case.refused:
        return [(words[0], set(words[1:])) for words in (one.split(".") for one in case.covers.split())]
    return instructions


# ---- runs

class Machine:
    """Runs kernels by the command-line program machine/run_kernel."""

    def __init__(self, program, code, cache, architecture):
        self.program = program
        self.environment = dict(os.environ, FAKE_CUDA_CODE=str(code.folder), FAKE_CUDA_CACHE=str(cache),
                                FAKE_CUDA_CC=architecture[3:], CUOBJDUMP=machine_code.cuobjdump())

    def run(self, case, samples):
        """(outputs of each kind, memory afterwards) or the message of a failure."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            arguments, written = [], []
            for number, kind in enumerate(case.inputs.split()):
                path = folder / f"in{number}"
                path.write_bytes(packed(kind, [sample[number] for sample in samples]))
                arguments.append(f"in={path}")
            for number, kind in enumerate(case.outputs.split()):
                path = folder / f"out{number}"
                arguments.append(f"out={path}:{len(samples) * bits_of(kind) // 8}")
                written.append((path, kind))
            if case.memory is not None:
                path = folder / "memory"
                path.write_bytes(packed("u32", case.memory))
                arguments.append(f"inout={path}")
                written.append((path, "u32"))
            arguments += [f"{kind}={value}" for kind, value in case.scalars]
            blocks = len(samples) // case.block
            command = [self.program, case.name, str(blocks), str(case.block), "0", *arguments]
            try:
                done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False,
                                      timeout=LONGEST_RUN)
            except subprocess.TimeoutExpired:
                return None, f"it still runs after {LONGEST_RUN} seconds"
            if done.returncode != 0:
                return None, (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"
            return [unpacked(kind, path.read_bytes()) for path, kind in written], ""


def packed(kind, numbers):
    size = bits_of(kind) // 8
    return b"".join((number & (1 << 8 * size) - 1).to_bytes(size, "little") for number in numbers)


def unpacked(kind, data):
    size = bits_of(kind) // 8
    return [int.from_bytes(data[at:at + size], "little") for at in range(0, len(data), size)]


def wanted_of(case, samples):
    """What the run must give: a list for each output, then the memory."""
    if case.whole:
        found = case.expected(samples)
        rows, memory = found if case.memory is not None else (found, None)
    else:
        rows, memory = [case.expected(*sample) for sample in samples], None
    rows = [row if isinstance(row, tuple) else (row,) for row in rows]
    columns = [list(column) for column in zip(*rows)] if case.outputs else []
    return columns + ([memory] if case.memory is not None else [])


def differences(case, samples, results):
    """Lines that say where the results are not those wanted."""
    kinds = case.outputs.split() + (["u32"] if case.memory is not None else [])
    for kind, wanted, got in zip(kinds, wanted_of(case, samples), results):
        mask = (1 << bits_of(kind)) - 1
        for number, (right, seen) in enumerate(zip(wanted, got)):
            if right is None or right & mask == seen:
                continue
            if case.same and case.same(kind, right & mask, seen):
                continue
            inputs = " ".join(f"{value:#x}" for value in samples[number]) if number < len(samples) else ""
            yield f"element {number}, inputs {inputs}: expected {right & mask:#x}, got {seen:#x}"


def failures(case, code, machine):
    """What is wrong with a case, a list of lines."""
    lacking = lacks(case, code.instructions[case.name])
    found = [f"the kernel has no {wanted}" for wanted in lacking]
    samples = samples_of(case)
    results, message = machine.run(case, samples)
    if case.refused:
        said = results is None and any(word in message for word in case.refused.split("|"))
        return found + ([] if said else [f"not refused by name ({case.refused}): {message or 'it ran'}"])
    if results is None:
        return found + [message]
    wrong = list(differences(case, samples, results))
    return found + wrong[:4] + ([f"... and {len(wrong) - 4} more"] if len(wrong) > 4 else [])
