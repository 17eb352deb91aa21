"""Estimates how close a kernel comes to the bandwidth of a device's memory. Nothing here is measured.

For each element four times are taken, in clocks of one multiprocessor:
  memory        bytes read at least once and bytes written at least once / share of the memory's bandwidth,
                of which 93 % can be reached
  instructions  executed PTX instructions x (instructions of the machine code / instructions of PTX) / 128 lanes;
                arithmetic in fp64 and conversions from and to fp64 take their own, lower rates
  accesses      each access takes a lane's slot of 32, one of more than 4 bytes its share of 128 bytes
  latency       times that a thread uses a loaded value before it has issued its next load, 700 clocks each for bytes
                that were not loaded before and 40 for others, and 30 for a barrier / threads that are resident
The estimate is the memory's time at full bandwidth / root of the sum of squares of the four: they overlap, but not
perfectly.
"""

import dataclasses
import re

REACHED = 0.93
LATENCY, LATENCY_AGAIN, BARRIER = 700, 40, 30
LANES = 128


@dataclasses.dataclass
class Device:
    name: str
    bytes_a_clock: float  # of one multiprocessor
    shared: int           # bytes
    fp64_lanes: int
    conversion_lanes: int = 16
    registers: int = 65536
    threads: int = 2048
    blocks: int = 32


DEVICES = {"sm_80": Device("A100 80 GB", 2039e9 / 108 / 1.41e9, 164 << 10, 32),
           "sm_90": Device("H100 SXM", 3350e9 / 132 / 1.83e9, 228 << 10, 64)}


def resident_blocks(device, code, threads):
    """What a device holds at once, as the occupancy API computes it."""
    registers = -(-code.registers // 8) * 8 * 32 * -(-threads // 32)  # given to whole warps, eight at a time
    shared = code.shared + 1024
    return min(device.registers // registers, device.shared // shared, device.threads // threads, device.blocks)


def waits(instructions, hits):
    """How often threads use a value of a load, and how often they stand at a barrier."""
    loading, used, barriers = set(), 0, 0
    for instruction, count in zip(instructions, hits):
        if not count:
            continue
        names = re.findall(r"%\w+", " ".join(instruction.operands))
        if instruction.parts[:2] == ["ld", "global"]:
            results = re.findall(r"%\w+", instruction.operands[0])
            if loading.intersection(names[len(results):]):
                used, loading = used + count, set()
            loading.update(results)
        elif loading.intersection(names):
            used, loading = used + count, set()
        barriers += count if instruction.parts[0] == "bar" and "sync" in instruction.parts else 0
    return used, barriers


def instruction_clocks(device, work, ratio):
    clocks = 0.0
    for instruction, count in zip(work.instructions, work.hits):
        parts = instruction.parts
        lanes = LANES
        if parts[0] == "cvt" and "f64" in parts:
            lanes = device.conversion_lanes
        elif "f64" in parts and parts[0] not in ("ld", "st", "mov"):
            lanes = device.fp64_lanes
        clocks += count * (ratio if lanes == LANES else 1.0) / lanes
    return clocks / work.elements


def instructions_per_element(code, work):
    return sum(work.hits) * ratio_of(code, work) / work.elements


def ratio_of(code, work):
    return code.instructions / len(work.instructions)


def estimate(code, work):
    """(fraction of the roofline, blocks that are resident)."""
    device = DEVICES[code.arch]
    blocks = resident_blocks(device, code, work.threads)
    roof = work.distinct / work.elements / device.bytes_a_clock
    accesses = sum(size / (bits // 8) * max(1 / 32, bits / 8 / 128) for (_, bits), size in work.traffic.items())
    loaded = sum(size for (direction, _), size in work.traffic.items() if direction == "ld")
    fresh = min(1.0, work.distinct / max(loaded, 1))
    used, barriers = waits(work.instructions, work.hits)
    latency = used * (fresh * LATENCY + (1 - fresh) * LATENCY_AGAIN) + barriers * BARRIER
    times = (roof / REACHED, instruction_clocks(device, work, ratio_of(code, work)), accesses / work.elements,
             latency / (blocks * work.threads) / work.elements)
    return roof / sum(time * time for time in times) ** 0.5, blocks
