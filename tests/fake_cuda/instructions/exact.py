"""Floating-point arithmetic by integers: what an instruction must give, to the bit, in each format and rounding."""

import dataclasses
from fractions import Fraction


@dataclasses.dataclass(frozen=True)
class Format:
    """A binary interchange format."""
    bits: int
    fraction: int  # bits of the mantissa that are stored
    nan: int  # the NaN that a device makes

    @property
    def exponents(self):
        return (1 << (self.bits - 1 - self.fraction)) - 1

    @property
    def bias(self):
        return self.exponents >> 1

    @property
    def sign(self):
        return 1 << (self.bits - 1)

    @property
    def infinity(self):
        return self.exponents << self.fraction


F16 = Format(16, 10, 0x7FFF)
BF16 = Format(16, 7, 0x7FFF)
F32 = Format(32, 23, 0x7FFFFFFF)
F64 = Format(64, 52, 0xFFF8000000000000)


def is_nan(kind, bits):
    return bits & ~kind.sign > kind.infinity


def is_infinite(kind, bits):
    return bits & ~kind.sign == kind.infinity


def is_negative(kind, bits):
    return bits & kind.sign != 0


def value(kind, bits):
    """A finite number, exactly."""
    exponent = bits >> kind.fraction & kind.exponents
    mantissa = bits & (1 << kind.fraction) - 1
    if exponent == 0:
        exponent = 1
    else:
        mantissa |= 1 << kind.fraction
    shift = exponent - kind.bias - kind.fraction
    number = Fraction(mantissa << shift) if shift >= 0 else Fraction(mantissa, 1 << -shift)
    return -number if bits & kind.sign else number


def whole(number, rounding):
    """A Fraction to an integer. Roundings: rn to even, rz to zero, rm down, rp up."""
    down, rest = divmod(number.numerator, number.denominator)
    if rest == 0:
        return down
    if rounding == "rn":
        twice = 2 * rest
        return down + (twice > number.denominator or twice == number.denominator and down % 2 == 1)
    up = rounding == "rp" or rounding == "rz" and down < 0
    return down + up


def rounded(kind, number, rounding="rn", negative_zero=False):
    """The bits of a Fraction in a format."""
    if number == 0:
        return kind.sign if negative_zero else 0
    sign = kind.sign if number < 0 else 0
    size = abs(number)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if (Fraction(2) ** exponent if abs(exponent) < 5000 else 0) > size:
        exponent -= 1
    exponent = max(exponent, 1 - kind.bias)
    unit = Fraction(2) ** (exponent - kind.fraction)
    mantissa = abs(whole(number / unit, rounding))
    if mantissa >> (kind.fraction + 1):
        mantissa >>= 1
        exponent += 1
    if exponent > kind.bias:
        outward = rounding == "rn" or rounding == ("rm" if sign else "rp")
        return sign | (kind.infinity if outward else kind.infinity - 1)
    if mantissa >> kind.fraction == 0:  # subnormal
        return sign | mantissa
    return sign | (exponent + kind.bias) << kind.fraction | mantissa & (1 << kind.fraction) - 1


def flushed(kind, bits):
    """Subnormal numbers become zero, with their sign (.FTZ)."""
    return bits & kind.sign if bits & kind.infinity == 0 else bits


def add(kind, a, b, rounding="rn"):
    return multiply_add(kind, a, one(kind), b, rounding)


def multiply(kind, a, b, rounding="rn"):
    negative = is_negative(kind, a) != is_negative(kind, b)
    return multiply_add(kind, a, b, kind.sign if negative else 0, rounding)


def one(kind):
    return kind.bias << kind.fraction


def multiply_add(kind, a, b, c, rounding="rn"):
    """a * b + c with one rounding."""
    if is_nan(kind, a) or is_nan(kind, b) or is_nan(kind, c):
        return kind.nan
    negative = is_negative(kind, a) != is_negative(kind, b)
    if is_infinite(kind, a) or is_infinite(kind, b):
        if a & ~kind.sign == 0 or b & ~kind.sign == 0:
            return kind.nan
        if is_infinite(kind, c) and is_negative(kind, c) != negative:
            return kind.nan
        return kind.infinity | (kind.sign if negative else 0)
    if is_infinite(kind, c):
        return c
    product, addend = value(kind, a) * value(kind, b), value(kind, c)
    if product == 0 and addend == 0:
        same = negative == is_negative(kind, c)
        return rounded(kind, Fraction(0), rounding, negative if same else rounding == "rm")
    total = product + addend
    return rounded(kind, total, rounding, rounding == "rm")


def saturated(kind, bits):
    """To the interval from 0 to 1; NaN becomes +0 (.SAT)."""
    if is_nan(kind, bits) or is_negative(kind, bits):
        return 0
    return min(bits, one(kind))


def ordered(kind, bits):
    """A key that sorts as the numbers do; both zeros are equal."""
    size = bits & ~kind.sign
    return -size if bits & kind.sign else size


def compare(kind, name, a, b):
    """lt, le, gt, ge, eq, ne; with u: true if one is NaN; num, nan: whether none or any is NaN."""
    odd = is_nan(kind, a) or is_nan(kind, b)
    if name in ("num", "nan"):
        return odd == (name == "nan")
    if odd:
        return name.endswith("u")
    x, y = ordered(kind, a), ordered(kind, b)
    return {"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y}[name.removesuffix("u")]


def smaller(kind, a, b, largest=False):
    """The minimum; NaN only if both are; -0 is less than +0."""
    if is_nan(kind, a) and is_nan(kind, b):
        return kind.nan
    if is_nan(kind, a) or is_nan(kind, b):
        return b if is_nan(kind, a) else a
    def key(bits):
        return ordered(kind, bits), not is_negative(kind, bits)
    return max(a, b, key=key) if largest else min(a, b, key=key)


def converted(source, target, bits, rounding="rn"):
    """From one format to another."""
    sign = target.sign if is_negative(source, bits) else 0
    if is_nan(source, bits):
        return target.nan
    if is_infinite(source, bits):
        return target.infinity | sign
    return rounded(target, value(source, bits), rounding, sign != 0)


def to_integer(source, bits, width, signed, rounding="rz"):
    """Converts with saturation. NaN: 0, but the top bit alone if one of the two sides has 64 bits (so PTX's cvt)."""
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    if is_nan(source, bits):
        return 1 << (width - 1) if width == 64 or source.bits == 64 else 0
    if is_infinite(source, bits):
        number = low if is_negative(source, bits) else high
    else:
        number = min(max(whole(value(source, bits), rounding), low), high)
    return number & (1 << width) - 1


def to_whole(source, bits, rounding):
    """Rounds to an integer in the same format."""
    if is_nan(source, bits):
        return source.nan
    if is_infinite(source, bits):
        return bits
    return rounded(source, Fraction(whole(value(source, bits), rounding)), "rn", is_negative(source, bits))


def from_integer(target, number, rounding="rn"):
    return rounded(target, Fraction(number), rounding)
