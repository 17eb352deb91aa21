"""What PTX's arithmetic instructions do to arrays with one element a thread."""

import ctypes
import ctypes.util

import numpy as np

from ptx_code import BITS

DTYPES = {"b8": "u1", "u8": "u1", "s8": "i1", "b16": "u2", "u16": "u2", "s16": "i2", "f16": "f2", "b32": "u4", "u32": "u4",
          "s32": "i4", "f32": "f4", "b64": "u8", "u64": "u8", "s64": "i8", "f64": "f8"}
LIBM = ctypes.CDLL(ctypes.util.find_library("m"))
LIBM.fma.restype, LIBM.fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3
ROUNDED = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}
COMPARED = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
            "ge": np.greater_equal}


def dtype_of(kind):
    return np.dtype(bool) if kind == "pred" else np.dtype(DTYPES[kind])


def fused(kind, a, b, c):
    """a * b + c, rounded once."""
    if kind == "f64":
        arrays = (array.tolist() for array in np.broadcast_arrays(a, b, c))
        return np.array([LIBM.fma(*each) for each in zip(*arrays)], "f8")
    product, c = a.astype("f8") * b, np.asarray(c, "f8")  # exact
    total = product + c
    other = total - product
    lost = (product - (total - other)) + (c - other)
    # Rounded to odd in fp64, so that rounding to fp32 is the only one that shows.
    bits = total.view("i8") + np.where((lost > 0) == (total > 0), 1, -1)
    odd = np.isfinite(total) & (lost != 0) & (total.view("i8") & 1 == 0)
    return np.where(odd, bits.view("f8"), total).astype("f4")


def truncated_quotient(a, b):
    safe = np.where(b == 0, 1, b).astype(a.dtype)
    if a.dtype.kind == "u":
        return a // safe
    return (np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe))).astype(a.dtype)


def shifted(parts, kind, value, by):
    most = BITS[kind] - 1
    held = np.minimum(by, most).astype(value.dtype)
    if parts[0] == "shl":
        return np.where(by > most, value.dtype.type(0), value << held)
    if kind[0] == "s":
        return value >> held
    return np.where(by > most, value.dtype.type(0), value >> held)


def compared(parts, kind, a, b):
    how = parts[1]
    if kind[0] != "f":
        return COMPARED[{"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(how, how)](a, b)
    unordered = np.isnan(a) | np.isnan(b)
    if how in ("nan", "num"):
        return unordered if how == "nan" else ~unordered
    result = COMPARED[how[:2]](a, b)
    return result | unordered if how.endswith("u") else result & ~unordered


def converted(parts, value):
    to, source = parts[-2], parts[-1]
    modes = parts[1:-2]
    if source[0] == "f":
        rounding = next((mode for mode in modes if mode in ROUNDED), None)
        if to[0] != "f":
            limits = np.iinfo(DTYPES[to])
            whole = ROUNDED[rounding](value.astype("f8"))
            # The largest fp64 below 2^63 stands for the limit: one more would not be in range.
            inside = np.clip(whole, float(limits.min), np.nextafter(float(limits.max) + 1.0, 0.0))
            result = np.where(np.isnan(whole), 0.0, inside).astype(DTYPES[to])
            return np.where(whole > limits.max, limits.max, result).astype(DTYPES[to])
        if rounding:
            return ROUNDED[rounding](value)
        if BITS[to] < BITS[source] and "rn" not in modes:
            return towards_zero(value, DTYPES[to], modes)
    return value.astype(DTYPES[to])


def towards_zero(value, dtype, modes):
    if "rz" not in modes:
        raise NotImplementedError("rounding " + ".".join(modes))
    nearest = value.astype(dtype)
    below = np.nextafter(nearest, np.dtype(dtype).type(0))
    return np.where(np.abs(nearest.astype(value.dtype)) > np.abs(value), below, nearest)


def permuted(a, b, selection):
    """prmt.b32: each half byte of the selection names one of eight bytes; its highest bit spreads that byte's sign."""
    both = a.astype("u8") | b.astype("u8") << np.uint64(32)
    selection = np.asarray(selection).astype("u8")
    result = np.zeros_like(both | selection)
    for place in range(4):
        chosen = selection >> np.uint64(4 * place) & np.uint64(15)
        byte = both >> (chosen & np.uint64(7)) * np.uint64(8) & np.uint64(255)
        sign = (byte >> np.uint64(7)) * np.uint64(255)
        result |= np.where(chosen & np.uint64(8), sign, byte) << np.uint64(8 * place)
    return result.astype("u4")


def reciprocal(parts, value):
    result = value.dtype.type(1) / value
    if "approx" in parts:  # of fp64 the upper half: the code that follows refines such a start
        return (result.view("u8") & np.uint64(0xFFFFFFFF00000000)).view("f8")
    return result


def product(parts, kind, a, b):
    if "wide" in parts:
        return a.astype(f"{DTYPES[kind][0]}{BITS[kind] // 4}") * b.astype(f"{DTYPES[kind][0]}{BITS[kind] // 4}")
    if "hi" in parts:
        raise NotImplementedError("mul.hi")
    return a * b


PLAIN = {"add": np.add, "sub": np.subtract, "sqrt": np.sqrt, "neg": np.negative, "abs": np.absolute,
         "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
PREDICATES = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not}
EXACT = ("add", "sub", "mul", "div", "sqrt", "fma", "rcp")  # must say .rn for floating point


def compute(parts, kind, values):
    """The result of one instruction; its dtype may be wider than the destination's type."""
    name = parts[0]
    if kind[0] == "f" and name in EXACT and "rn" not in parts and "approx" not in parts:
        raise NotImplementedError("rounding of " + ".".join(parts))
    if kind == "pred":
        return PREDICATES[name](*values)
    if name in PLAIN:
        return PLAIN[name](*values)
    if name == "mul":
        return product(parts, kind, *values)
    if name == "mad" and kind[0] != "f" and "lo" in parts:
        return values[0] * values[1] + values[2]
    if name == "div":
        return values[0] / values[1] if kind[0] == "f" else truncated_quotient(*values)
    if name == "rem":
        return values[0] - truncated_quotient(*values) * values[1]
    if name == "fma":
        return fused(kind, *values)
    if name == "mad" and parts[1] == "lo":
        return values[0] * values[1] + values[2]
    if name == "rcp":
        return reciprocal(parts, values[0])
    if name in ("min", "max"):
        both = {"min": (np.fmin, np.minimum), "max": (np.fmax, np.maximum)}[name]
        return both[kind[0] != "f"](*values)
    if name == "not":
        return ~values[0]
    if name in ("shl", "shr"):
        return shifted(parts, kind, *values)
    raise NotImplementedError(".".join(parts))
