"""Each modifier of the instructions with many: comparisons, and what ptxas seldom writes. The listings are written."""

import exact
from exact import F16, F32, F64
from floats import both_halves, pairs
from integers import MASK, signed
from kernels import Case
from uniforms import written

FLOATING = ("LT", "EQ", "LE", "GT", "NE", "GE", "LTU", "EQU", "LEU", "GTU", "NEU", "GEU", "NUM", "NAN", "F", "T")
JOINS = {"AND": lambda p, q: p and q, "OR": lambda p, q: p or q, "XOR": lambda p, q: p != q}


def compared(form, name, a, b):
    return name == "T" if name in ("F", "T") else exact.compare(form, name.lower(), a, b)


def floating():
    """The second condition is true where the third input is odd."""
    odd = "LOP3.LUT R30, {c}, 0x1, RZ, 0xc0, !PT; ISETP.NE.AND P3, PT, R30, RZ, PT;"
    show = "SEL {x}, RZ, 0x1, !P0; SEL {y}, RZ, 0x1, !P1;"
    for name in FLOATING:
        for join, both in JOINS.items():
            def answer(form, a, b, c, name=name, both=both):
                hit = compared(form, name, a, b)
                return int(bool(both(hit, c & 1))), int(bool(both(not hit, c & 1)))
            for opcode, kind, form in (("FSETP", "f32", F32), ("DSETP", "f64", F64)):
                yield written(f"{opcode.lower()}_{name}_{join}", f"{kind} {kind} u32", "u32 u32",
                              odd + f"{opcode}.{name}.{join} P0, P1, {{a}}, {{b}}, P3;" + show, f"{opcode}.{name}.{join}",
                              lambda a, b, c, f=form, answer=answer: answer(f, a, b, c))
            yield written(f"hsetp2_{name}_{join}", "u32 u32 u32", "u32 u32",
                          odd + f"HSETP2.{name}.{join} P0, P1, {{a}}, {{b}}, P3;" + show, f"HSETP2.{name}.{join}",
                          lambda a, b, c, answer=answer: (answer(F16, a & 0xFFFF, b & 0xFFFF, c)[0],
                                                          answer(F16, a >> 16, b >> 16, c)[0]), samples=pairs(name, 3))
            yield written(f"fset_{name}_{join}", "f32 f32 u32", "f32 u32",
                          odd + f"FSET.BF.{name}.{join} {{x}}, {{a}}, {{b}}, P3; FSET.{name}.{join} {{y}}, {{a}}, {{b}}, P3;",
                          f"FSET.BF.{name}.{join}", lambda a, b, c, answer=answer: (
                              exact.one(F32) if answer(F32, a, b, c)[0] else 0, -answer(F32, a, b, c)[0]))
            yield written(f"hset2_{name}_{join}", "u32 u32 u32", "u32 u32",
                          odd + f"HSET2.BF.{name}.{join} {{x}}, {{a}}, {{b}}, P3; HSET2.{name}.{join} {{y}}, {{a}}, {{b}}, P3;",
                          f"HSET2.BF.{name}.{join}", lambda a, b, c, answer=answer: tuple(
                              both_halves(lambda p, q: answer(F16, p, q, c)[0] * number)(a, b) for number in (0x3C00, 0xFFFF)),
                          samples=pairs(name, 3))
    yield written("fset_ftz", "f32 f32", "u32", "FSET.FTZ.LT.AND {x}, {a}, {b}, PT;", "FSET.FTZ",
                  lambda a, b: -int(exact.compare(F32, "lt", exact.flushed(F32, a), exact.flushed(F32, b))))


def integers():
    for name, value in (("F", False), ("T", True)):
        yield written(f"isetp_{name}", "u32 u32", "u32 u32", f"ISETP.{name}.AND P0, P1, {{a}}, {{b}}, PT; SEL {{x}}, RZ, 0x1, "
                                                             f"!P0;"
                      "SEL {y}, RZ, 0x1, !P1;", f"ISETP.{name}", lambda a, b, v=value: (int(v), int(not v)))
        yield written(f"uisetp_{name}", "u32 u32", "u32", f"UISETP.{name}.AND UP0, UPT, {{ua}}, {{ub}}, UPT; USEL UR12, URZ, "
                                                          f"0x1, !UP0;"
                      "MOV {x}, UR12;", f"UISETP.{name}", lambda a, b, v=value: int(v))
    yield written("uimad_forms", "u32 u32 u32", "u32 u32 u32", "UIMAD.MOV.U32 UR12, URZ, URZ, {ua}; MOV {x}, UR12;"
                  "UIMAD.SHL.U32 UR12, {ub}, 0x10, URZ; MOV {y}, UR12; UIMAD.IADD UR12, {ua}, 0x1, {uc}; MOV {z}, UR12;",
                  "UIMAD.MOV UIMAD.SHL UIMAD.IADD", lambda a, b, c: (a, b << 4, a + c))
    yield written("uimad_high", "u32 u32 u32", "u32 u32", "UIMAD.HI.U32 UR12, {ua}, {ub}, URZ; MOV {x}, UR12;"
                  "UIMAD.HI UR12, {ua}, {ub}, URZ; MOV {y}, UR12;", "UIMAD.HI.U32",
                  lambda a, b, c: (a * b >> 32, signed(a) * signed(b) >> 32))
    yield written("uimad_carry", "u32 u32 u32", "u32", "UIADD3 UR13, UP1, {ua}, {ub}, URZ; UIMAD.X UR12, {ua}, 0x3, {uc}, UP1;"
                  "MOV {x}, UR12;", "UIMAD.X", lambda a, b, c: a * 3 + c + (a + b >> 32))
    yield written("uniform_wraps", "u32 u32", "u32 u32", "USHF.L.W.U32 UR12, {ua}, {ub}, URZ; MOV {x}, UR12; "
                                                         "USGXT.W.U32 UR12, {ua}, {ub};"
                  "MOV {y}, UR12;", "USHF.W USGXT.W", lambda a, b: (a << b % 32, a & (1 << b % 32) - 1))


def constants():
    """Parts of a scalar, which lies at 0x170 of bank 0."""
    scalar = 0x8899AABB_CCDDEEFF
    for kind, place in (("U8", 1), ("S8", 3), ("U16", 2), ("S16", 4), ("64", 0)):
        size = int(kind.strip("US")) // 8
        number = scalar >> 8 * place & (1 << 8 * size) - 1
        number = signed(number, 8 * size) if kind[0] == "S" else number
        output = "u64" if kind == "64" else "u32"
        move = "MOV {x}, UR12;" + (" MOV {x1}, UR13;" if kind == "64" else "")
        yield written(f"constant_uniform_{kind}", "u32", output, f"ULDC.{kind} UR12, c[0x0][{0x170 + place:#x}];" + move,
                      f"ULDC.{kind}", lambda a, n=number: n, scalars=(("u64", scalar),))
        yield written(f"constant_indexed_{kind}", "u32", output, f"MOV R30, {place:#x}; LDC.{kind} {{x}}, c[0x0][R30+0x170];",
                      f"LDC.{kind}", lambda a, n=number: n, scalars=(("u64", scalar),))


def warps():
    """Votes over 32 threads."""
    samples = [(n % 5 == 2,) for n in range(64)] + [(1,)] * 32 + [(0,)] * 32
    for mode, check in (("ALL", all), ("ANY", any), ("EQ", lambda votes: len(set(votes)) == 1)):
        for opcode, predicate, register in (("VOTE", "P1", "R30"), ("VOTEU", "UP1", "UR12")):
            def expected(rows, check=check):
                warps_of = [[bool(a) for a, in rows[n:n + 32]] for n in range(0, len(rows), 32)]
                return [(int(check(votes)), sum(v << n for n, v in enumerate(votes))) for votes in warps_of for _ in votes]
            yield written(f"{opcode.lower()}_{mode}", "u32", "u32 u32", "ISETP.NE.AND P0, PT, {a}, RZ, PT;"
                          f"{opcode}.{mode} {register}, {predicate}, P0; MOV {{y}}, {register}; MOV {{x}}, RZ;"
                          f"@{predicate} MOV {{x}}, 0x1;", f"{opcode}.{mode}", expected, block=32, samples=samples, whole=True)
    yield written("match_all", "u32", "u32 u32", "MATCH.ALL P1, {x}, {a}; SEL {y}, RZ, 0x1, !P1;", "MATCH.ALL",
                  lambda rows: [(MASK, 1) if len(set(rows[n // 32 * 32:][:32])) == 1 else (0, 0) for n in range(len(rows))],
                  block=32, samples=samples, whole=True)


def halves_of_registers():
    """Integers of 16 bits in the high half."""
    for kind, number in (("S16", lambda a: signed(a >> 16, 16)), ("U16", lambda a: a >> 16)):
        yield written(f"i2f_high_{kind}", "u32", "u32", f"I2F.{kind} {{x}}, {{a}}.H1;", f"I2F.{kind}",
                      lambda a, number=number: exact.from_integer(F32, number(a)))


CASES: list[Case] = [*floating(), *integers(), *constants(), *warps(), *halves_of_registers()]
