"""Instructions on numbers of 16, 32 and 64 bits, and conversions between all kinds."""

import math
import random
import struct
from fractions import Fraction

import exact
from exact import BF16, F16, F32, F64
from integers import signed
from kernels import DOUBLES, FLOATS, HALVES, Case

ROUNDINGS = ("rn", "rz", "rm", "rp")
FORMATS = {"f16": F16, "f32": F32, "f64": F64}


def sass_rounding(rounding):
    return "" if rounding == "rn" else "." + rounding.upper()


def any_nan(kind, wanted, got):
    """Which NaN of 64 bits is not part of the definition."""
    return kind == "f64" and exact.is_nan(F64, wanted) and exact.is_nan(F64, got)


def which_nan(form):
    """Nor is it where a number stays in its format."""
    return lambda kind, wanted, got: exact.is_nan(form, wanted) and exact.is_nan(form, got)


def near(units):
    """Approximate instructions: within some units of the last place of the number rounded right."""
    def same(kind, wanted, got):
        form = FORMATS[kind]
        if exact.is_nan(form, wanted) or exact.is_nan(form, got):
            return exact.is_nan(form, wanted) and exact.is_nan(form, got)
        return abs(exact.ordered(form, wanted) - exact.ordered(form, got)) <= units
    return same


def arithmetic():
    for kind, op in (("f32", "F"), ("f64", "D")):
        form = FORMATS[kind]
        for rounding in ROUNDINGS:
            mode = sass_rounding(rounding)
            yield Case(f"{op.lower()}add_{rounding}", f"{kind} {kind}", kind, f"add.{rounding}.{kind} x, a, b;",
                       f"{op}ADD{mode}", lambda a, b, f=form, r=rounding: exact.add(f, a, b, r), same=any_nan)
            yield Case(f"{op.lower()}mul_{rounding}", f"{kind} {kind}", kind, f"mul.{rounding}.{kind} x, a, b;",
                       f"{op}MUL{mode}", lambda a, b, f=form, r=rounding: exact.multiply(f, a, b, r), same=any_nan)
            yield Case(f"{op.lower()}fma_{rounding}", f"{kind} {kind} {kind}", kind,
                       f"fma.{rounding}.{kind} x, a, b, c;", f"{op}FMA{mode}",
                       lambda a, b, c, f=form, r=rounding: exact.multiply_add(f, a, b, c, r), same=any_nan)
        yield Case(f"{op.lower()}sub", f"{kind} {kind}", kind, f"sub.rn.{kind} x, a, b;", f"{op}ADD",
                   lambda a, b, f=form: exact.add(f, a, b ^ f.sign), same=any_nan)
        yield Case(f"{op.lower()}fma_negated", f"{kind} {kind} {kind}", kind,
                   f"neg.{kind} a, a; neg.{kind} c, c; fma.rn.{kind} x, a, b, c;", f"{op}FMA",
                   lambda a, b, c, f=form: exact.multiply_add(f, a ^ f.sign, b, c ^ f.sign), same=any_nan)
        yield Case(f"{op.lower()}add_absolute", f"{kind} {kind}", kind,
                   f"abs.{kind} a, a; add.rn.{kind} x, a, b;", f"{op}ADD",
                   lambda a, b, f=form: exact.add(f, a & ~f.sign, b), same=any_nan)
        for name in ("lt", "le", "gt", "ge", "eq", "ne", "ltu", "leu", "gtu", "geu", "equ", "neu", "num", "nan"):
            yield Case(f"{op.lower()}setp_{name}", f"{kind} {kind}", "u32",
                       f"setp.{name}.{kind} p0, a, b; selp.b32 x, 1, 0, p0;", f"{op}SETP",
                       lambda a, b, f=form, n=name: int(exact.compare(f, n, a, b)))
        yield Case(f"{op.lower()}setp_two", f"{kind} {kind} u32", "u32",
                   f"setp.ne.u32 p1, c, 7; setp.lt.or.{kind} p0|p2, a, b, p1; selp.b32 x, 1, 0, p0;"
                   "selp.b32 t0, 2, 0, p2; or.b32 x, x, t0;", f"{op}SETP.OR",
                   lambda a, b, c, f=form: int(exact.compare(f, "lt", a, b) or c != 7) |
                   2 * int(not exact.compare(f, "lt", a, b) or c != 7))
        yield Case(f"{op.lower()}minimum", f"{kind} {kind}", f"{kind} {kind}",
                   f"min.{kind} x, a, b; max.{kind} y, a, b;", "FMNMX" if op == "F" else "DSETP.MIN DSETP.MAX",
                   lambda a, b, f=form: (exact.smaller(f, a, b), exact.smaller(f, a, b, True)), same=any_nan)
    for suffix, change in (("ftz", exact.flushed), ("sat", exact.saturated)):
        def flush(bits, suffix=suffix):
            return exact.flushed(F32, bits) if suffix == "ftz" else bits
        def after(bits, change=change):
            return change(F32, bits)
        mods = {"ftz": "rn.ftz", "sat": "rn.sat"}[suffix]
        yield Case(f"fadd_{suffix}", "f32 f32", "f32", f"add.{mods}.f32 x, a, b;", f"FADD.{suffix.upper()}",
                   lambda a, b, i=flush, o=after: o(exact.add(F32, i(a), i(b))))
        yield Case(f"fmul_{suffix}", "f32 f32", "f32", f"mul.{mods}.f32 x, a, b;", f"FMUL.{suffix.upper()}",
                   lambda a, b, i=flush, o=after: o(exact.multiply(F32, i(a), i(b))))
        yield Case(f"ffma_{suffix}", "f32 f32 f32", "f32", f"fma.{mods}.f32 x, a, b, c;", f"FFMA.{suffix.upper()}",
                   lambda a, b, c, i=flush, o=after: o(exact.multiply_add(F32, i(a), i(b), i(c))))
    yield Case("fsetp_ftz", "f32 f32", "u32", "setp.gt.ftz.f32 p0, a, b; selp.b32 x, 1, 0, p0;", "FSETP.FTZ",
               lambda a, b: int(exact.compare(F32, "gt", exact.flushed(F32, a), exact.flushed(F32, b))))
    yield Case("fmnmx_ftz", "f32 f32", "f32", "min.ftz.f32 x, a, b;", "FMNMX.FTZ",
               lambda a, b: exact.smaller(F32, exact.flushed(F32, a), exact.flushed(F32, b)))
    yield Case("fset", "f32 f32", "f32 u32", "set.lt.f32.f32 x, a, b; set.geu.u32.f32 y, a, b;", "FSET.BF FSET",
               lambda a, b: (exact.one(F32) if exact.compare(F32, "lt", a, b) else 0,
                             -int(exact.compare(F32, "geu", a, b))))
    yield Case("fsel", "f32 f32 f32", "f32", "setp.gt.f32 p0, c, 0f3F800000; neg.f32 b, b; selp.f32 x, a, b, p0;", "FSEL",
               lambda a, b, c: a if exact.compare(F32, "gt", c, 0x3F800000) else b ^ F32.sign)
    yield Case("fadd_constant", "f32", "f32", "add.rn.f32 x, a, 0f3DCCCCCD;", "FADD",
               lambda a: exact.add(F32, a, 0x3DCCCCCD))
    yield Case("dadd_constant", "f64", "f64", "add.rn.f64 x, a, 0d3FF8000000000000;", "DADD",
               lambda a: exact.add(F64, a, 0x3FF8000000000000), same=any_nan)


def divisions():
    for kind, covers in (("f32", "FCHK MUFU.RCP"), ("f64", "MUFU.RCP64H")):
        form = FORMATS[kind]
        yield Case(f"divide_{kind}", f"{kind} {kind}", kind, f"div.rn.{kind} x, a, b;", covers,
                   lambda a, b, f=form: quotient(f, a, b), same=any_nan)
        yield Case(f"root_{kind}", kind, kind, f"sqrt.rn.{kind} x, a;",
                   "MUFU.RSQ" if kind == "f32" else "MUFU.RSQ64H", lambda a, f=form: root(f, a), same=any_nan)
        yield Case(f"reciprocal_{kind}", kind, kind, f"rcp.rn.{kind} x, a;",
                   "MUFU.RCP" if kind == "f32" else "MUFU.RCP64H", lambda a, f=form: quotient(f, exact.one(f), a),
                   same=any_nan)
    functions = {"ex2": (lambda v: 2.0 ** v if v < 200 else math.inf, "EX2"), "lg2": (log2, "LG2"),
                 "rcp": (lambda v: math.copysign(math.inf, v) if v == 0 else 1 / v, "RCP"),
                 "rsqrt": (lambda v: math.nan if v < 0 else math.copysign(math.inf, v) if v == 0 else v ** -0.5, "RSQ"),
                 "sqrt": (lambda v: math.nan if v < 0 else math.sqrt(v), "SQRT|RSQ"),
                 "sin": (lambda v: math.nan if math.isinf(v) else math.sin(v), "SIN"),
                 "cos": (lambda v: math.nan if math.isinf(v) else math.cos(v), "COS"),
                 "tanh": (math.tanh, "TANH")}
    for name, (function, mufu) in functions.items():
        trigonometric = name in ("sin", "cos")
        numbers = FLOATS
        if trigonometric:
            numbers = [n for n in numbers if n & 0x7FFFFFFF < 0x42000000]
        near_one = [struct.unpack("<I", struct.pack("<f", (n - 40) / 7))[0] for n in range(100)]
        ftz = "" if name == "tanh" else ".ftz"
        yield Case(f"mufu_{name}", "f32", "f32", f"{name}.approx{ftz}.f32 x, a;", f"MUFU.{mufu}",
                   lambda a, f=function: from_float(f, a), samples=[*numbers, *near_one],
                   same=absolute(3e-6) if trigonometric else near(4) if name != "tanh" else absolute(5e-4))


def absolute(limit):
    def same(kind, wanted, got):
        x, y = (struct.unpack("<f", struct.pack("<I", bits))[0] for bits in (wanted, got))
        return abs(x - y) <= limit or (x != x and y != y)
    return same


def log2(v):
    return math.nan if v < 0 else -math.inf if v == 0 else math.log2(v)


def from_float(function, bits):
    """A function of Python's floats on 32 bits; subnormal numbers are zero, as with .FTZ."""
    v = struct.unpack("<f", struct.pack("<I", exact.flushed(F32, bits)))[0]
    if math.isnan(v):
        return F32.nan
    result = struct.unpack("<Q", struct.pack("<d", function(v)))[0]
    return exact.flushed(F32, exact.converted(F64, F32, result))


def quotient(form, a, b):
    if exact.is_nan(form, a) or exact.is_nan(form, b):
        return form.nan
    sign = (a ^ b) & form.sign
    zeros, infinities = [x & ~form.sign == 0 for x in (a, b)], [exact.is_infinite(form, x) for x in (a, b)]
    if all(zeros) or all(infinities):
        return form.nan
    if infinities[0] or zeros[1]:
        return sign | form.infinity
    if infinities[1] or zeros[0]:
        return sign
    return exact.rounded(form, exact.value(form, a) / exact.value(form, b))


def root(form, a):
    if exact.is_nan(form, a) or a & form.sign and a != form.sign:
        return form.nan
    if a & ~form.sign == 0 or exact.is_infinite(form, a):
        return a
    number = exact.value(form, a)
    # Enough bits that a rest of the integer root decides the rounding.
    scale = 4 ** 1200
    down = math.isqrt(number.numerator * scale // number.denominator)
    sticky = Fraction(down * down) != number * scale
    return exact.rounded(form, Fraction(2 * down + sticky, 2 * 2 ** 1200))


def conversions():
    kinds = {"s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64, "u64": 64}
    for kind, form in FORMATS.items():
        prepare = "cvt.u16.u32 h0, a;" if kind == "f16" else ""
        source = "h0" if kind == "f16" else "a"
        register = "u32" if kind == "f16" else kind
        for integer, width in kinds.items():
            wide = "u64" if width == 64 else "u32"
            is_signed = integer[0] == "s"
            for rounding in (("rzi", "rni", "rmi", "rpi") if width >= 32 else ("rzi",)):
                target = {8: "t0", 16: "h1"}.get(width, "x")
                finish = {8: "and.b32 x, t0, 255;", 16: "cvt.u32.u16 x, h1;"}.get(width, "")
                name = f"f2i_{kind}_{integer}_{rounding}"
                yield Case(name, register, wide,
                           f"{prepare} cvt.{rounding}.{integer}.{kind} {target}, {source}; {finish}", "F2I",
                           lambda a, f=form, w=width, s=is_signed, r=rounding[:2]:
                           exact.to_integer(f, a & (1 << f.bits) - 1, w, s, r),
                           samples=float_samples(kind))
            for rounding in (ROUNDINGS if width >= 32 else ("rn",)):
                if kind == "f64" and width < 64 and rounding != "rn":
                    continue
                load = {8: "cvt.u16.u32 h1, a;", 16: "cvt.u16.u32 h1, a;"}.get(width, "")
                origin = "h1" if width <= 16 else "a"
                target, finish = ("h0", "cvt.u32.u16 x, h0;") if kind == "f16" else ("x", "")
                yield Case(f"i2f_{integer}_{kind}_{rounding}", wide, register,
                           f"{load} cvt.{rounding}.{kind}.{integer} {target}, {origin}; {finish}", "I2F",
                           lambda a, f=form, w=width, s=is_signed, r=rounding:
                           exact.from_integer(f, signed(a, w) if s else a & (1 << w) - 1, r))
        for rounding in ("rzi", "rni", "rmi", "rpi"):
            target, finish = ("h0", "cvt.u32.u16 x, h0;") if kind == "f16" else ("x", "")
            yield Case(f"frnd_{kind}_{rounding}", register, register,
                       f"{prepare} cvt.{rounding}.{kind}.{kind} {target}, {source}; {finish}", "FRND",
                       lambda a, f=form, r=rounding[:2]: exact.to_whole(f, a & (1 << f.bits) - 1, r), same=which_nan(form))
    for rounding in ROUNDINGS:
        yield Case(f"f2f_f32_f64_{rounding}", "f64", "f32", f"cvt.{rounding}.f32.f64 x, a;", "F2F.F32.F64",
                   lambda a, r=rounding: exact.converted(F64, F32, a, r))
        if rounding in ("rn", "rz"):
            yield Case(f"f2f_f16_f32_{rounding}", "f32", "u32", f"cvt.{rounding}.f16.f32 h0, a; cvt.u32.u16 x, h0;",
                       "F2F.F16.F32", lambda a, r=rounding: exact.converted(F32, F16, a, r),
                       samples=float_samples("f32") + [h << 13 for h in range(0x1BFFF, 0x1C400, 7)])
    yield Case("f2f_f64_f32", "f32", "f64", "cvt.f64.f32 x, a;", "F2F.F64.F32",
               lambda a: exact.converted(F32, F64, a), same=any_nan)
    yield Case("f2f_f16_f64", "f64", "u32", "cvt.rn.f16.f64 h0, a; cvt.u32.u16 x, h0;", "F2F.F16.F64",
               lambda a: exact.converted(F64, F16, a))
    yield Case("f2f_f32_f16", "u32", "f32", "cvt.u16.u32 h0, a; cvt.f32.f16 x, h0;", "HADD2.F32",
               lambda a: exact.converted(F16, F32, a & 0xFFFF), samples=range(0, 0x10000, 37))
    yield Case("f2f_f64_f16", "u32", "f64", "cvt.u16.u32 h0, a; cvt.f64.f16 x, h0;", "F2F.F64",
               lambda a: exact.converted(F16, F64, a & 0xFFFF), samples=range(0, 0x10000, 91), same=any_nan)
    yield Case("f2f_ftz", "f32", "u32", "cvt.rn.ftz.f16.f32 h0, a; cvt.u32.u16 x, h0;", "F2F.F16.F32",
               lambda a: exact.converted(F32, F16, exact.flushed(F32, a)))
    yield Case("f2f_ftz_f64", "f32", "f64", "cvt.ftz.f64.f32 x, a;", "F2F.F64.F32",
               lambda a: exact.converted(F32, F64, exact.flushed(F32, a)), same=any_nan)
    yield Case("frnd_ftz", "f32", "f32", "cvt.rpi.ftz.f32.f32 x, a;", "FRND.FTZ.CEIL",
               lambda a: exact.to_whole(F32, exact.flushed(F32, a), "rp"), same=which_nan(F32))
    yield Case("f2i_ftz", "f32", "u32", "cvt.rpi.ftz.s32.f32 x, a;", "F2I.FTZ.CEIL",
               lambda a: exact.to_integer(F32, exact.flushed(F32, a), 32, True, "rp"), samples=float_samples("f32"))


def float_samples(kind):
    """Numbers about the limits of the integers, halves that round to even, and edges."""
    form = FORMATS[kind]
    numbers = [sign * (2.0 ** power + offset) for power in (0, 1, 7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1)
               for offset in (-1, -0.5, 0, 0.5, 1)]
    numbers += [n / 4 for n in range(-12, 13)]
    found = [exact.rounded(form, Fraction(number)) for number in numbers]
    return found + list({"f16": range(0, 0x10000, 509), "f32": FLOATS, "f64": DOUBLES}[kind])


def both_halves(function):
    """Applies a function of 16-bit numbers to the halves of words."""
    def apply(*words):
        low, high = function(*(w & 0xFFFF for w in words)), function(*(w >> 16 for w in words))
        return high << 16 | low
    return apply


def pairs(seed, number):
    chance = random.Random(seed)
    def half():
        return chance.choice(HALVES) if chance.random() < 0.5 else chance.getrandbits(16)
    return [tuple(half() << 16 | half() for _ in range(number)) for _ in range(384)]


def halves():
    def case(name, count, body, covers, function, **options):
        return Case(name, " ".join(["u32"] * count), "u32", body, covers, function, samples=pairs(name, count), **options)
    yield case("hadd2", 2, "add.rn.f16x2 x, a, b;", "HADD2|HFMA2", both_halves(lambda a, b: exact.add(F16, a, b)))
    yield case("hmul2", 2, "mul.rn.f16x2 x, a, b;", "HMUL2|HFMA2", both_halves(lambda a, b: exact.multiply(F16, a, b)))
    yield case("hfma2", 3, "fma.rn.f16x2 x, a, b, c;", "HFMA2",
               both_halves(lambda a, b, c: exact.multiply_add(F16, a, b, c)))
    yield case("hsub2", 2, "sub.rn.f16x2 x, a, b;", "HADD2|HFMA2",
               both_halves(lambda a, b: exact.add(F16, a, b ^ 0x8000)))
    yield case("hadd2_sat", 2, "add.rn.sat.f16x2 x, a, b;", "HADD2.SAT|HFMA2.SAT",
               both_halves(lambda a, b: exact.saturated(F16, exact.add(F16, a, b))))
    yield case("hadd2_ftz", 2, "add.rn.ftz.f16x2 x, a, b;", "HADD2.FTZ|HFMA2.FTZ",
               both_halves(lambda a, b: exact.flushed(F16, exact.add(F16, exact.flushed(F16, a), exact.flushed(F16, b)))))
    yield case("hfma2_relu", 3, "fma.rn.relu.f16x2 x, a, b, c;", "HFMA2.RELU", both_halves(
        lambda a, b, c: relu(exact.multiply_add(F16, a, b, c))), arch=80)
    yield case("hadd_single", 2, "cvt.u16.u32 h0, a; shr.u32 t0, b, 16; cvt.u16.u32 h1, t0; add.rn.f16 h2, h0, h1;"
               "cvt.u32.u16 x, h2;", "HADD2|HFMA2", lambda a, b: exact.add(F16, a & 0xFFFF, b >> 16))
    yield case("hadd_constant", 1, "mov.b32 t0, 0x4248b800; add.rn.f16x2 x, a, t0;", "HADD2|HFMA2",
               lambda a: exact.add(F16, a >> 16, 0x4248) << 16 | exact.add(F16, a & 0xFFFF, 0xB800))
    for name in ("lt", "leu", "gt", "geu", "eq", "neu", "num", "nan"):
        yield case(f"hsetp2_{name}", 2, f"setp.{name}.f16x2 p0|p1, a, b; selp.b32 x, 1, 0, p0; selp.b32 t0, 2, 0, p1;"
                   "or.b32 x, x, t0;", "HSETP2",
                   lambda a, b, n=name: int(exact.compare(F16, n, a & 0xFFFF, b & 0xFFFF)) |
                   2 * int(exact.compare(F16, n, a >> 16, b >> 16)))
    yield case("hset2", 2, "set.lt.f16x2.f16x2 x, a, b;", "HSET2.BF",
               both_halves(lambda a, b: 0x3C00 if exact.compare(F16, "lt", a, b) else 0))
    yield case("hmnmx2", 2, "min.f16x2 x, a, b;", "HMNMX2", both_halves(lambda a, b: exact.smaller(F16, a, b)), arch=80)
    for suffix, change in (("ftz", exact.flushed), ("sat", exact.saturated)):
        first = exact.flushed if suffix == "ftz" else lambda form, bits: bits
        yield case(f"hmul2_{suffix}", 2, f"mul.rn{'.ftz' if suffix == 'ftz' else '.sat'}.f16x2 x, a, "
                                         f"b;", f"HMUL2.{suffix.upper()}|HFMA2.{suffix.upper()}",
                   both_halves(lambda a, b, i=first, o=change: o(F16, exact.multiply(F16, i(F16, a), i(F16, b)))))
        yield case(f"hfma2_{suffix}", 3, f"fma.rn.{suffix}.f16x2 x, a, b, c;", f"HFMA2.{suffix.upper()}", both_halves(
            lambda a, b, c, i=first, o=change: o(F16, exact.multiply_add(F16, i(F16, a), i(F16, b), i(F16, c)))))
    yield case("bf16_minimum", 2, "min.bf16x2 x, a, "
                                  "b;", "HMNMX2.BF16_V2", both_halves(lambda a, b: exact.smaller(BF16, a, b)), arch=80)
    yield Case("minimum_with_nan", "f32 f32", "f32 f32", "min.NaN.f32 x, a, b; max.NaN.f32 y, a, b;", "FMNMX.NAN",
               lambda a, b: (F32.nan,) * 2 if exact.is_nan(F32, a) or exact.is_nan(F32, b) else
               (exact.smaller(F32, a, b), exact.smaller(F32, a, b, True)), arch=80)
    yield case("hmnmx2_nan", 2, "max.NaN.f16x2 x, a, b;", "HMNMX2.NAN", both_halves(
        lambda a, b: F16.nan if exact.is_nan(F16, a) or exact.is_nan(F16, b) else exact.smaller(F16, a, b, True)), arch=80)
    yield case("bf16_fma", 3, "fma.rn.bf16x2 x, a, b, c;", "HFMA2.BF16_V2",
               both_halves(lambda a, b, c: exact.multiply_add(BF16, a, b, c)), arch=80)
    for rounding in ("rn", "rz"):
        yield Case(f"f2fp_f16_{rounding}", "f32 f32", "u32", f"cvt.{rounding}.f16x2.f32 x, a, b;", "F2FP",
                   lambda a, b, r=rounding: exact.converted(F32, F16, a, r) << 16 | exact.converted(F32, F16, b, r), arch=80)
        yield Case(f"f2fp_bf16_{rounding}", "f32 f32", "u32", f"cvt.{rounding}.bf16x2.f32 x, a, b;", "F2FP.BF16",
                   lambda a, b, r=rounding: exact.converted(F32, BF16, a, r) << 16 | exact.converted(F32, BF16, b, r),
                   arch=80)
    yield Case("f2fp_relu", "f32 f32", "u32", "cvt.rn.relu.bf16x2.f32 x, a, b;", "F2FP.BF16.RELU",
               lambda a, b: relu(exact.converted(F32, BF16, a), BF16) << 16 | relu(exact.converted(F32, BF16, b), BF16), arch=80)


def relu(bits, form=F16):
    return bits if exact.is_nan(form, bits) else 0 if bits & form.sign else bits


CASES = [*arithmetic(), *divisions(), *conversions(), *halves()]
