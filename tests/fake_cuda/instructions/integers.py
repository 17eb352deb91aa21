"""Instructions on integers and predicates."""

import exact
from kernels import Case

MASK, MASK64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def signed(number, bits=32):
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def shifted_left(a, b):
    return a << min(b, 64)


def shifted_right(a, b):
    return a >> min(b, 64)


def funnel(low, high, by, left, wraps):
    by = by % 32 if wraps else min(by, 32)
    both = high << 32 | low
    return both << by >> 32 if left else both >> by


def permuted(a, b, selector):
    both, found = b << 32 | a, 0
    for place in range(4):
        chosen = selector >> 4 * place & 15
        byte = both >> 8 * (chosen & 7) & 255
        found |= (255 * (byte >> 7) if chosen & 8 else byte) << 8 * place
    return found


def logic(table):
    """The function of a lookup table of three bits, on 32 bits at once."""
    def apply(a, b, c):
        found = 0
        for row in range(8):
            if table >> row & 1:
                found |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        return found
    return apply


def highest(a):
    return a.bit_length() - 1 if a else MASK


def highest_signed(a):
    return highest(~a & MASK if a >> 31 else a)


def reversed_bits(a):
    return int(f"{a & MASK:032b}"[::-1], 2)


def field(a, position, length, is_signed=False):
    position, length = position & 255, length & 255
    if length == 0:
        return 0
    wide = signed(a) if is_signed else a
    found = wide >> position & (1 << length) - 1
    if is_signed:
        top = wide >> min(position + length - 1, 31) & 1
        used = max(0, min(length, 32 - position))
        found = (a >> min(position, 32) & (1 << used) - 1) | (-top << used if top else 0)
    return found


def inserted(a, b, position, length):
    position, length = position & 255, length & 255
    mask = (1 << length) - 1 << position & MASK
    return b & ~mask | a << position & mask


def compares(kind, name):
    bits = int(kind[1:])
    def apply(a, b):
        if kind[0] == "s":
            a, b = signed(a, bits), signed(b, bits)
        return {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b, "eq": a == b, "ne": a != b}[name]
    return apply


SETP = "setp.{0}.{1} p0, a, b; selp.b32 x, 1, 0, p0;"
NEAR = [(a, b) for a in (0, 1, 5, 0x7FFFFFFF, 0x80000000, MASK, 1 << 32, 1 << 63, MASK64, (1 << 63) - 1, 5 << 32 | 7)
        for b in (0, 1, 5, 0x80000000, MASK, 1 << 32, 1 << 63, MASK64, 5 << 32 | 6, 5 << 32 | 7, 4 << 32 | 9)]


def comparisons():
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        for kind in ("s32", "u32"):
            # Equality has no sign: the compiler writes the same for both.
            if name not in ("eq", "ne") or kind == "u32":
                check = compares(kind, name)
                sign = ".U32" if kind == "u32" and name not in ("eq", "ne") else ""
                yield Case(f"isetp_{name}_{kind}", "u32 u32", "u32", SETP.format(name, kind), f"ISETP{sign}",
                           lambda a, b, check=check: int(check(a, b)))
        for kind in ("s64", "u64"):
            check = compares(kind, name)
            yield Case(f"isetp_{name}_{kind}", "u64 u64", "u32", SETP.format(name, kind), "ISETP.EX",
                       lambda a, b, check=check: int(check(a, b)), samples=NEAR)


def combinations():
    """A comparison with a second condition, and both of its results."""
    for name, join in (("and", lambda p, q: p and q), ("or", lambda p, q: p or q), ("xor", lambda p, q: p != q)):
        yield Case(f"isetp_{name}", "u32 u32 u32", "u32",
                   f"setp.ne.u32 p1, c, 7; setp.lt.{name}.s32 p0|p2, a, b, p1;"
                   "selp.b32 x, 1, 0, p0; selp.b32 t0, 2, 0, p2; or.b32 x, x, t0;",
                   f"ISETP.{name.upper()}",
                   lambda a, b, c, join=join: int(join(signed(a) < signed(b), c != 7)) |
                   2 * int(join(signed(a) >= signed(b), c != 7)))


CASES = [
    Case("add", "u32 u32", "u32", "add.u32 x, a, b;", "IADD3", lambda a, b: a + b),
    Case("add_three", "u32 u32 u32", "u32", "add.u32 t0, a, b; add.u32 x, t0, c;", "IADD3", lambda a, b, c: a + b + c),
    Case("subtract", "u32 u32 u32", "u32", "sub.u32 t0, a, b; sub.u32 x, t0, c;", "IADD3", lambda a, b, c: a - b - c),
    Case("add_constant", "u32", "u32", "add.u32 x, a, -77;", "IADD3", lambda a: a - 77),
    Case("add_wide", "u64 u64", "u64", "add.u64 x, a, b;", "IADD3 IADD3.X", lambda a, b: a + b),
    Case("subtract_wide", "u64 u64", "u64", "sub.u64 x, a, b;", "IADD3 IADD3.X", lambda a, b: a - b),
    Case("add_carries", "u32 u32 u32 u32", "u32 u32 u32",
         "add.cc.u32 x, a, b; addc.cc.u32 y, c, d; addc.u32 z, 0, 0;", "IADD3.X",
         lambda a, b, c, d: (a + b, c + d + (a + b >> 32), c + d + (a + b >> 32) >> 32)),
    Case("subtract_borrows", "u32 u32 u32 u32", "u32 u32 u32",
         "sub.cc.u32 x, a, b; subc.cc.u32 y, c, d; subc.u32 z, 0, 0;", "IADD3.X",
         lambda a, b, c, d: (a - b, c - d - (a < b), -(c - d - (a < b) < 0))),
    Case("add_three_wide", "u64 u64 u64", "u64", "add.u64 w0, a, b; add.u64 x, w0, c;", "IADD3 IADD3.X",
         lambda a, b, c: a + b + c),
    Case("negate_wide", "u64", "u64", "neg.s64 x, a;", "IADD3.X", lambda a: -a),
    Case("multiply", "u32 u32", "u32", "mul.lo.u32 x, a, b;", "IMAD", lambda a, b: a * b),
    Case("multiply_add", "u32 u32 u32", "u32", "mad.lo.u32 x, a, b, c;", "IMAD", lambda a, b, c: a * b + c),
    Case("multiply_subtract", "u32 u32 u32", "u32", "mul.lo.u32 t0, a, b; sub.u32 x, t0, c;", "IMAD",
         lambda a, b, c: a * b - c),
    Case("multiply_negated", "u32 u32 u32", "u32", "mul.lo.u32 t0, a, b; sub.u32 x, c, t0;", "IMAD",
         lambda a, b, c: c - a * b),
    Case("multiply_high_unsigned", "u32 u32", "u32", "mul.hi.u32 x, a, b;", "IMAD.HI.U32", lambda a, b: a * b >> 32),
    Case("multiply_high_signed", "u32 u32", "u32", "mul.hi.s32 x, a, b;", "IMAD.HI",
         lambda a, b: signed(a) * signed(b) >> 32),
    Case("multiply_high_add", "u32 u32 u32", "u32", "mad.hi.u32 x, a, b, c;", "IMAD.HI.U32",
         lambda a, b, c: (a * b >> 32) + c),
    Case("multiply_wide_unsigned", "u32 u32", "u64", "mul.wide.u32 x, a, b;", "IMAD.WIDE.U32", lambda a, b: a * b),
    Case("multiply_wide_signed", "u32 u32", "u64", "mul.wide.s32 x, a, b;", "IMAD.WIDE",
         lambda a, b: signed(a) * signed(b)),
    Case("multiply_wide_add", "u32 u32 u64", "u64", "mad.wide.s32 x, a, b, c;", "IMAD.WIDE",
         lambda a, b, c: signed(a) * signed(b) + c),
    Case("multiply_wide_add_unsigned", "u32 u32 u64", "u64", "mad.wide.u32 x, a, b, c;", "IMAD.WIDE.U32",
         lambda a, b, c: a * b + c),
    Case("multiply_64", "u64 u64", "u64", "mul.lo.u64 x, a, b;", "IMAD.WIDE.U32", lambda a, b: a * b),
    Case("multiply_high_64", "u64 u64", "u64", "mul.hi.u64 x, a, b;", "IMAD.WIDE.U32.X", lambda a, b: a * b >> 64),
    Case("multiply_high_64_signed", "u64 u64", "u64", "mul.hi.s64 x, a, b;", "IMAD.WIDE.U32",
         lambda a, b: signed(a, 64) * signed(b, 64) >> 64),
    Case("multiply_add_carries", "u32 u32 u32 u32", "u32 u32",
         "mad.lo.cc.u32 x, a, b, c; madc.hi.u32 y, a, b, d;", "IMAD",
         lambda a, b, c, d: (a * b + c, (a * b >> 32) + d + ((a * b & MASK) + c >> 32))),
    Case("multiply_16", "u32 u32", "u32", "and.b32 t0, a, 65535; and.b32 t1, b, 65535; mul.lo.u32 x, t0, t1;", "IMAD",
         lambda a, b: (a & 65535) * (b & 65535)),
    Case("divide_unsigned", "u32 u32", "u32 u32", "div.u32 x, a, b; rem.u32 y, a, b;", "I2F.U32.RP F2I.U32.TRUNC",
         lambda a, b: (a // b, a % b) if b else (MASK, None)),
    Case("divide_signed", "u32 u32", "u32 u32", "div.s32 x, a, b; rem.s32 y, a, b;", "IABS I2F.RP",
         lambda a, b: (None, None) if signed(b) == 0 else
         (trunc(signed(a), signed(b)), signed(a) - signed(b) * trunc(signed(a), signed(b)))),
    Case("divide_64", "u64 u64", "u64 u64", "div.u64 x, a, b; rem.u64 y, a, b;", "I2F.U64.RP F2I.U64.TRUNC CALL.REL RET",
         lambda a, b: (a // b, a % b) if b else (None, None)),
    Case("and_", "u32 u32", "u32", "and.b32 x, a, b;", "LOP3.LUT", lambda a, b: a & b),
    Case("or_not", "u32 u32", "u32", "not.b32 t0, b; or.b32 x, a, t0;", "LOP3.LUT", lambda a, b: a | ~b),
    Case("exclusive_or_constant", "u32", "u32", "xor.b32 x, a, 0xdeadbeef;", "LOP3.LUT", lambda a: a ^ 0xDEADBEEF),
    *[Case(f"logic_{table:02x}", "u32 u32 u32", "u32", f"lop3.b32 x, a, b, c, {table:#x};", "LOP3.LUT", logic(table))
      for table in (0x01, 0x96, 0xE8, 0xCA, 0x40, 0x1D, 0xF8)],
    Case("logic_tests", "u32 u32", "u32", "and.b32 t0, a, b; setp.ne.u32 p0, t0, 0; selp.b32 x, 1, 0, p0;", "LOP3.LUT",
         lambda a, b: int(a & b != 0)),
    Case("predicates", "u32 u32 u32", "u32 u32",
         "setp.lt.s32 p0, a, 5; setp.eq.u32 p1, b, 7; setp.gt.s32 p2, c, 9; and.pred p3, p0, p1; xor.pred p4, p3, p2;"
         "not.pred p5, p2; or.pred p6, p3, p5; selp.b32 x, 11, 22, p4; selp.b32 y, 33, 44, p6;", "ISETP",
         lambda a, b, c: (11 if (signed(a) < 5 and b == 7) != (signed(c) > 9) else 22,
                          33 if signed(a) < 5 and b == 7 or signed(c) <= 9 else 44)),
    Case("predicate_table", "f32 f32 f32", "u32 u32",
         "setp.lt.f32 p0, a, 0f40A00000; setp.gt.f32 p1, b, 0f3F800000; setp.leu.f32 p2, c, 0f41100000;"
         "@p0 add.f32 a, a, b; @p1 add.f32 b, b, c; @p2 add.f32 c, c, a; and.pred p3, p0, p1; not.pred p4, p0;"
         "and.pred p4, p4, p2; or.pred p5, p3, p4; xor.pred p6, p5, p1; selp.b32 x, 5, 6, p5; selp.b32 y, 7, 8, p6;",
         "PLOP3.LUT", lambda a, b, c: predicate_table(a, b, c)),
    Case("shift_left", "u32 u32", "u32", "shl.b32 x, a, b;", "SHF.L.U32", shifted_left),
    Case("shift_right", "u32 u32", "u32", "shr.u32 x, a, b;", "SHF.R.U32.HI", shifted_right),
    Case("shift_right_signed", "u32 u32", "u32", "shr.s32 x, a, b;", "SHF.R.S32.HI",
         lambda a, b: shifted_right(signed(a), b)),
    Case("shift_left_64", "u64 u32", "u64", "shl.b64 x, a, b;", "SHF.L.U64.HI", shifted_left),
    Case("shift_right_64", "u64 u32", "u64", "shr.u64 x, a, b;", "SHF.R.U64", shifted_right),
    Case("shift_right_64_signed", "u64 u32", "u64", "shr.s64 x, a, b;", "SHF.R.S64",
         lambda a, b: shifted_right(signed(a, 64), b)),
    *[Case(f"funnel_{direction}_{mode}", "u32 u32 u32", "u32", f"shf.{direction}.{mode}.b32 x, a, b, c;",
           f"SHF.{direction.upper()}" + (".W" if mode == "wrap" else ""),
           lambda a, b, c, left=direction == "l", wraps=mode == "wrap": funnel(a, b, c, left, wraps),
           samples=[(a, b, c) for a in (0, 1, 0x80000001, 0xDEADBEEF) for b in (0, 1, 0xCAFEBABE, MASK)
                    for c in (0, 1, 8, 31, 32, 33, 64, 65, MASK)])
      for direction in ("l", "r") for mode in ("wrap", "clamp")],
    Case("minimum_signed", "u32 u32", "u32 u32", "min.s32 x, a, b; max.s32 y, a, b;", "IMNMX",
         lambda a, b: (min(signed(a), signed(b)), max(signed(a), signed(b)))),
    Case("minimum_unsigned", "u32 u32", "u32 u32", "min.u32 x, a, b; max.u32 y, a, b;", "IMNMX.U32",
         lambda a, b: (min(a, b), max(a, b))),
    Case("permute", "u32 u32 u32", "u32", "prmt.b32 x, a, b, c;", "PRMT", permuted),
    Case("permute_constant", "u32 u32", "u32", "prmt.b32 x, a, b, 0x9c53;", "PRMT",
         lambda a, b: permuted(a, b, 0x9C53)),
    Case("select", "u32 u32 u32", "u32", "setp.gt.u32 p0, c, 77; selp.b32 x, a, b, p0; not.b32 x, x;", "SEL|ISETP",
         lambda a, b, c: ~(a if c > 77 else b)),
    Case("absolute", "u32", "u32", "abs.s32 x, a;", "IABS", lambda a: abs(signed(a))),
    Case("absolute_64", "u64", "u64", "abs.s64 x, a;", "IMAD.X|IADD3.X", lambda a: abs(signed(a, 64))),
    Case("scaled_add", "u32 u32", "u32", "shl.b32 t0, a, 5; add.u32 x, t0, b;", "LEA|IMAD", lambda a, b: (a << 5) + b),
    Case("scaled_subtract", "u32 u32", "u32", "shl.b32 t0, a, 3; sub.u32 x, b, t0;", "", lambda a, b: b - (a << 3)),
    Case("scaled_subtract_64", "u64 u64", "u64", "shl.b64 w0, a, 3; sub.u64 x, b, w0;", "LEA",
         lambda a, b: b - (a << 3)),
    Case("scaled_add_64", "u64 u64", "u64", "shl.b64 w0, a, 3; add.u64 x, w0, b;", "LEA LEA.HI.X",
         lambda a, b: (a << 3) + b),
    Case("scaled_add_signed", "u32 u64", "u64", "cvt.s64.s32 w0, a; shl.b64 w0, w0, 2; add.u64 x, w0, b;",
         "LEA.HI.X|LEA.HI.X.SX32|IMAD.WIDE", lambda a, b: (signed(a) << 2) + b),
    Case("divide_by_power", "u32", "u32",
         "shr.s32 t0, a, 31; shr.u32 t0, t0, 29; add.u32 t0, t0, a; shr.s32 x, t0, 3;", "LEA.HI",
         lambda a: trunc(signed(a), 8)),
    Case("divide_by_power_64", "u64", "u64", "div.s64 x, a, 16;", "LEA.HI", lambda a: trunc(signed(a, 64), 16)),
    Case("add_top_bits", "u32 u32", "u32", "shr.u32 t0, a, 29; add.u32 x, t0, b;", "LEA.HI",
         lambda a, b: (a >> 29) + b),
    Case("add_top_bits_signed", "u32 u32", "u32", "shr.s32 t0, a, 29; add.u32 x, t0, b;", "LEA.HI.SX32",
         lambda a, b: (signed(a) >> 29) + b),
    Case("highest_bit", "u32", "u32", "bfind.u32 x, a;", "FLO.U32", highest),
    Case("highest_bit_signed", "u32", "u32", "bfind.s32 x, a;", "FLO", highest_signed),
    Case("shift_amount", "u32", "u32", "bfind.shiftamt.u32 x, a;", "FLO.U32.SH",
         lambda a: 31 - highest(a) if a else MASK),
    Case("leading_zeros", "u32", "u32", "clz.b32 x, a;", "FLO.U32", lambda a: 32 - a.bit_length()),
    Case("leading_zeros_64", "u64", "u32", "clz.b64 x, a;", "FLO.U32", lambda a: 64 - a.bit_length()),
    Case("highest_bit_64_signed", "u64", "u32", "bfind.s64 x, a;", "FLO",
         lambda a: highest(~a & MASK64 if a >> 63 else a)),
    Case("count_bits", "u32", "u32", "popc.b32 x, a;", "POPC", lambda a: a.bit_count()),
    Case("count_bits_64", "u64", "u32", "popc.b64 x, a;", "POPC", lambda a: a.bit_count()),
    Case("reverse_bits", "u32", "u32", "brev.b32 x, a;", "BREV", reversed_bits),
    Case("extract_field", "u32 u32 u32", "u32", "bfe.u32 x, a, b, c;", "", lambda a, b, c: field(a, b, c)),
    Case("extract_field_signed", "u32 u32 u32", "u32", "bfe.s32 x, a, b, c;", "",
         lambda a, b, c: field(a, b, c, True)),
    Case("insert_field", "u32 u32 u32 u32", "u32", "bfi.b32 x, a, b, c, d;", "", inserted),
    Case("bit_mask", "u32 u32", "u32 u32", "bmsk.clamp.b32 x, a, b; bmsk.wrap.b32 y, a, b;", "BMSK BMSK.W",
         lambda a, b: ((1 << min(b, 32)) - 1 << min(a, 32), (1 << b % 32) - 1 << a % 32)),
    Case("extend_sign", "u32 u32", "u32 u32", "szext.clamp.s32 x, a, b; szext.wrap.s32 y, a, b;", "SGXT SGXT.W",
         lambda a, b: (extended(a, min(b, 32), True), extended(a, b % 32, True))),
    Case("extend_zero", "u32 u32", "u32 u32", "szext.clamp.u32 x, a, b; szext.wrap.u32 y, a, b;", "SGXT.U32 SGXT.W.U32",
         lambda a, b: (extended(a, min(b, 32), False), extended(a, b % 32, False))),
    Case("dot_bytes", "u32 u32 u32", "u32 u32", "dp4a.u32.u32 x, a, b, c; dp4a.s32.s32 y, a, b, c;", "IDP.4A",
         lambda a, b, c: (dot(a, b, c, 8, False), dot(a, b, c, 8, True))),
    Case("pack_saturated", "u32 u32 u32", "u32", "cvt.pack.sat.s8.s32.b32 x, a, b, c;", "I2IP.S8.S32.SAT",
         lambda a, b, c: (byte(a) << 8 | byte(b)) | c << 16),
    Case("pack_saturated_unsigned", "u32 u32 u32", "u32", "cvt.pack.sat.u8.s32.b32 x, a, b, c;", "I2IP.U8.S32.SAT",
         lambda a, b, c: (min(max(signed(a), 0), 255) << 8 | min(max(signed(b), 0), 255)) | c << 16),
    *comparisons(),
    *combinations(),
]


def predicate_table(a, b, c):
    less, greater, not_greater = (exact.compare(exact.F32, name, number, limit) for name, number, limit in
                                  (("lt", a, 0x40A00000), ("gt", b, 0x3F800000), ("leu", c, 0x41100000)))
    chosen = greater if less else not_greater
    return 5 if chosen else 6, 7 if chosen != greater else 8


def trunc(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def extended(a, width, is_signed):
    if width == 0:
        return 0
    low = a & (1 << width) - 1
    return signed(low, width) if is_signed else low


def dot(a, b, c, width, is_signed):
    def parts(number):
        found = [number >> at & (1 << width) - 1 for at in range(0, 32, width)]
        return [signed(part, width) for part in found] if is_signed else found
    return c + sum(x * y for x, y in zip(parts(a), parts(b)))


def byte(a):
    return min(max(signed(a), -128), 127) & 255
