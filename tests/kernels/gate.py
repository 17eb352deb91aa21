"""What the machine code of every kernel must keep to, and the table of benchmarks/results/kernels.md. scripts/kernels runs it."""

import re

import roofline
from cuda_tools import skip
from machine_code import codes_of
from replay import replay

PAGE = "benchmarks/results/kernels.md"
BEGIN = "<!-- scripts/kernels writes from here -->"
END = "<!-- to here -->"
ARCHITECTURES = ("sm_80", "sm_90")
WIDE = 128  # bits of an access
BULK = 0.1  # of the bytes that a kernel reads, or writes: accesses of one width that carry less are no bulk
FEW = 0.02  # of a kernel's bytes: what writes less, such as a sum, has no bulk
# Kernels with a fixed, small number of elements, whose accesses are no bulk.
SMALL = {"advance_kernel", "conclude_kernel", "decide_kernel", "lamb_trust", "mean_loss_kernel", "prepare_kernel",
         "totals_kernel"}
ODD = "for rows that are no whole packs of eight elements or do not begin at multiples of 16 bytes"
# Narrower accesses that are allowed, and why: kernel -> (bits of loads, bits of stores, reason).
NARROW = {
    "bias_gelu_kernel": (16, 16, ODD),
    "bias_gelu_backward_kernel": (16, 16, ODD),
    "join_parts_kernel": (32, 32, "one column a thread; a warp reads whole lines"),
    "norm_kernel": (16, 16, ODD),
    "norm_backward_kernel": (16, 16, ODD),
    "norm_parts_kernel": (16, 32, ODD),
}


def widths(work):
    """The narrowest loads and stores of the executed PTX that carry bulk; 0 where there are none."""
    whole = sum(work.traffic.values())
    found = {"ld": 0, "st": 0}
    for direction in found:
        own = {bits: size for (to, bits), size in work.traffic.items() if to == direction}
        if own and sum(own.values()) >= FEW * whole:
            found[direction] = min(bits for bits, size in own.items() if size >= BULK * sum(own.values()))
    return found["ld"], found["st"]


def row_of(code, work, result):
    """A row of build/kernels.json; of kernels without counted work the numbers an element are None."""
    row = {"kernel": code.kernel, "arch": code.arch, "registers": code.registers, "spill_bytes": code.spill_bytes,
           "local_accesses": code.local_accesses, "load_bits": None, "store_bits": None, "bytes_per_element": None,
           "instructions_per_element": None, "blocks": None, "roofline_estimate": None,
           "ptx_bits_equal": not result.problems, "case": None, "wide_accesses": code.accesses["ld", WIDE] +
           code.accesses["st", WIDE]}
    if work:
        row["case"] = work.case
        row["load_bits"], row["store_bits"] = widths(work)
        row["bytes_per_element"] = round(work.distinct / work.elements, 2)
        row["instructions_per_element"] = round(roofline.instructions_per_element(code, work), 1)
        fraction, row["blocks"] = roofline.estimate(code, work)
        row["roofline_estimate"] = round(fraction, 2)
    return row


def rows_of(program, objects, counted):
    """(rows, problems). `counted`: runs no PTX but that of launches which count work."""
    results = replay(program, objects, counted=counted)
    problems = []
    for name, result in results.items():
        if counted and not result.launches:
            result.problems = []  # the ctest entry kernels.ptx runs all launches
        problems += [f"{name}: {problem}" for problem in result.problems]
    codes = [code for path in objects for code in codes_of(path)]
    for arch in ARCHITECTURES:
        found = {code.kernel for code in codes if code.arch == arch}
        if not found:
            skip(f"this build has no machine code for {arch}: LOCKSTEP_CUDA_ARCHITECTURES")
        problems += [f"{name}: there is no machine code for {arch}" for name in sorted(set(results) - found)]
    rows = []
    for code in sorted(codes, key=lambda code: (code.kernel, code.arch)):
        result = results[code.kernel]
        work = max(result.work, key=lambda work: work.elements, default=None)
        rows.append(row_of(code, work, result))
    return rows, problems


def broken(rows):
    """A line for each rule that a row breaks."""
    for row in rows:
        name = f"{row['kernel']} for {row['arch']}"
        if row["spill_bytes"] or row["local_accesses"]:
            yield (f"{name}: threads keep {row['spill_bytes']} bytes in memory, with {row['local_accesses']} accesses: "
                   "registers are spilled, or an array has an index of run time")
        if row["kernel"].partition("<")[0] in SMALL:
            continue
        if row["roofline_estimate"] is None:
            yield f"{name}: no case of tests/kernels/launches.cpp counts its work"
            continue
        allowed = NARROW.get(row["kernel"], (WIDE, WIDE, ""))
        for what, bits in (("load", allowed[0]), ("store", allowed[1])):
            if 0 < row[f"{what}_bits"] < bits:
                yield f"{name}: {what}s of {row[f'{what}_bits']} bits, not {bits}"
        if max(row["load_bits"], row["store_bits"]) == WIDE and not row["wide_accesses"]:
            yield f"{name}: the PTX has accesses of {WIDE} bits, the machine code has none"


def compiler_of(text):
    """The version of nvcc that the page names, or None."""
    found = re.search(r"^Made by nvcc (\S+):$", text, re.M)
    return found and found[1]


def table(rows, compiler):
    """The table of kernels, one line each for both architectures."""
    lines = [f"Made by nvcc {compiler}:", "", "| kernel | registers sm_80 / sm_90 | blocks at once | loads / stores, bits | bytes an element "
             "| instructions an element | estimated roofline A100 / H100 |", "|---|---|---|---|---|---|---|"]
    kernels = {}
    for row in rows:
        kernels.setdefault(row["kernel"], {})[row["arch"]] = row
    for name, by_arch in kernels.items():
        both = [by_arch[arch] for arch in ARCHITECTURES]

        def pair(key, form="{}"):
            values = [row[key] for row in both]
            return " / ".join(form.format(value) for value in values) if values[0] is not None else ""

        widths = f"{both[0]['load_bits']} / {both[0]['store_bits'] or 'none'}" if both[0]["load_bits"] else ""
        moved = both[0]["bytes_per_element"]
        lines.append(f"| {name.replace('_kernel', '')} | {pair('registers')} | {pair('blocks')} | {widths} "
                     f"| {'' if moved is None else moved} | {pair('instructions_per_element')} "
                     f"| {pair('roofline_estimate', '{:.2f}')} |")
    notes = [f"- {name.replace('_kernel', '')}: {reason}." for name, (_, _, reason) in sorted(NARROW.items())]
    return "\n".join(lines + ([""] + ["Narrower accesses, and why:"] + notes if notes else []))


def with_table(text, rows, compiler):
    """The page's text with this table in its place."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(rows, compiler)}\n{END}{after}"
