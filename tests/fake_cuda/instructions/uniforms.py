"""Instructions that ptxas does not write for a small kernel: those on registers that are the same for a whole warp, and
some that only long kernels need. Their listings are written here, and the machine finds them in its cache."""

from integers import MASK, MASK64, highest, highest_signed, logic, permuted, reversed_bits, signed
from kernels import Case, bits_of

# Registers of a written kernel: inputs with their uniform twins, and outputs.
GENERAL = {"a": 10, "b": 12, "c": 14, "d": 16, "x": 20, "y": 22, "z": 24, "v": 26}
UNIFORM = {"a": 4, "b": 6, "c": 8, "d": 10}
# What is assembled in its place: needs as many registers.
FOURS = [f"{{r{n}, r{n + 1}, r{n + 2}, r{n + 3}}}" for n in range(0, 40, 4)]
CARRIER = (".reg .b32 r<40>; ld.param.u64 place, [p_x]; cvta.to.global.u64 place, place;" +
           " ".join(f"ld.volatile.global.v4.u32 {four}, [place];" for four in FOURS) +
           " ".join(f"st.volatile.global.v4.u32 [place], {four};" for four in FOURS))


def listing(inputs, outputs, body, block):
    """The text of a kernel: a thread loads its inputs, runs the body, stores the results."""
    lines = ["S2R R0, SR_CTAID.X", "S2R R1, SR_TID.X", f"IMAD R0, R0, {block:#x}, R1"]
    for number, (name, kind) in enumerate([*zip("abcd", inputs), *zip("xyzv", outputs)]):
        size, register = bits_of(kind) // 8, GENERAL[name]
        place = [f"MOV R1, {size:#x}", f"IMAD.WIDE.U32 R2, R0, R1, c[0x0][{0x160 + 8 * number:#x}]"]
        wide = ".64" if size == 8 else ""
        if name in UNIFORM:
            lines += [*place, f"LDG.E{wide}.SYS R{register}, [R2]", f"R2UR UR{UNIFORM[name]}, R{register}"]
            lines += [f"R2UR UR{UNIFORM[name] + 1}, R{register + 1}"] if size == 8 else []
        else:
            lines += [*place, f"STG.E{wide}.SYS [R2], R{register}"]
    first_store = len(lines) - 3 * len(outputs)
    words = {name: f"R{register}" for name, register in GENERAL.items()}
    words |= {name + "1": f"R{register + 1}" for name, register in GENERAL.items()}
    words |= {"u" + name: f"UR{register}" for name, register in UNIFORM.items()}
    words |= {"u" + name + "1": f"UR{register + 1}" for name, register in UNIFORM.items()}
    lines[first_store:first_store] = [line.strip() for line in body.format(**words).split(";") if line.strip()]
    lines += ["EXIT"]
    return "\n".join(f"        /*{16 * n:04x}*/                   {line} ;    /* 0x{0:016x} */"
                     for n, line in enumerate(lines))


def written(name, inputs, outputs, body, covers, expected, block=1, **options):
    """A case with a listing of its own. Uniform registers hold the inputs of a warp's first thread: so one thread."""
    return Case(name, inputs, outputs, CARRIER, covers, expected, block=block,
                listing=listing(inputs.split(), outputs.split(), body, block), **options)


def cases():
    def uniform(name, inputs, body, covers, expected, outputs="u32", **options):
        move = "MOV {x}, UR12;" + (" MOV {x1}, UR13;" if outputs == "u64" else "")
        return written("uniform_" + name, inputs, outputs, body + move, covers, expected, **options)

    yield uniform("add", "u32 u32 u32", "UIADD3 UR12, {ua}, {ub}, -{uc};", "UIADD3", lambda a, b, c: a + b - c)
    yield uniform("add_wide", "u64 u64", "UIADD3 UR12, UP1, {ua}, {ub}, URZ; UIADD3.X UR13, {ua1}, {ub1}, URZ, UP1, !UPT;",
                  "UIADD3 UIADD3.X", lambda a, b: a + b, "u64")
    yield uniform("subtract_wide", "u64 u64", "UIADD3 UR12, UP1, {ua}, -{ub}, URZ;"
                  "UIADD3.X UR13, {ua1}, ~{ub1}, URZ, UP1, !UPT;", "UIADD3 UIADD3.X", lambda a, b: a - b, "u64")
    yield uniform("multiply", "u32 u32 u32", "UIMAD UR12, {ua}, {ub}, {uc};", "UIMAD", lambda a, b, c: a * b + c)
    yield uniform("multiply_wide", "u32 u32 u64", "UIMAD.WIDE.U32 UR12, {ua}, {ub}, {uc};", "UIMAD.WIDE.U32",
                  lambda a, b, c: a * b + c, "u64")
    yield uniform("multiply_wide_signed", "u32 u32 u64", "UIMAD.WIDE UR12, {ua}, {ub}, {uc};", "UIMAD.WIDE",
                  lambda a, b, c: signed(a) * signed(b) + c, "u64")
    for table in (0x96, 0xE8, 0xCA, 0x3C):
        yield uniform(f"logic_{table:02x}", "u32 u32 u32", f"ULOP3.LUT UR12, {{ua}}, {{ub}}, {{uc}}, {table:#x}, !UPT;",
                      "ULOP3.LUT", logic(table))
    yield uniform("logic_tests", "u32 u32", "ULOP3.LUT UP2, UR14, {ua}, {ub}, URZ, 0xc0, !UPT; USEL UR12, UR14, 0x7, UP2;",
                  "ULOP3.LUT USEL", lambda a, b: a & b or 7)
    for direction, kind, function in (("L", "U32", lambda a, b: a << min(b, 32)),
                                      ("R", "U32.HI", lambda a, b: a >> min(b, 32)),
                                      ("R", "S32.HI", lambda a, b: signed(a) >> min(b, 32))):
        operands = "{ua}, {ub}, URZ" if direction == "L" else "URZ, {ub}, {ua}"
        yield uniform(f"shift_{direction}_{kind[:3]}", "u32 u32", f"USHF.{direction}.{kind} UR12, {operands};",
                      f"USHF.{direction}.{kind}", function)
    yield uniform("shift_wide", "u64 u32", "USHF.L.U64.HI UR13, {ua}, {ub}, {ua1}; USHF.L.U32 UR12, {ua}, {ub}, URZ;",
                  "USHF.L.U64.HI USHF.L.U32", lambda a, b: (a << min(b, 64)) & MASK64 if b < 64 else 0, "u64")
    yield uniform("shift_right_wide", "u64 u32", "USHF.R.S64 UR12, {ua}, {ub}, {ua1}; USHF.R.S32.HI UR13, URZ, {ub}, {ua1};",
                  "USHF.R.S64 USHF.R.S32.HI", lambda a, b: signed(a, 64) >> min(b, 63), "u64")
    yield uniform("scaled_add", "u32 u32", "ULEA UR12, {ua}, {ub}, 0x3;", "ULEA", lambda a, b: (a << 3) + b)
    yield uniform("scaled_add_wide", "u64 u64", "ULEA UR12, UP0, {ua}, {ub}, 0x3; ULEA.HI.X UR13, {ua}, {ub1}, {ua1}, 0x3, UP0;",
                  "ULEA ULEA.HI.X", lambda a, b: (a << 3) + b, "u64")
    yield uniform("scaled_add_signed", "u32 u64", "ULEA UR12, UP0, {ua}, {ub}, 0x2; ULEA.HI.X.SX32 UR13, {ua}, {ub1}, 0x2, UP0;",
                  "ULEA ULEA.HI.X.SX32", lambda a, b: (signed(a) << 2) + b, "u64")
    yield uniform("add_top_bits", "u32 u32", "ULEA.HI UR12, {ua}, {ub}, URZ, 0x5;", "ULEA.HI", lambda a, b: (a >> 27) + b)
    yield uniform("add_top_bits_signed", "u32 u32", "ULEA.HI.SX32 UR12, {ua}, {ub}, 0x5;", "ULEA.HI.SX32",
                  lambda a, b: (signed(a) >> 27) + b)
    choose = "USEL UR12, {ua}, 0x4d, UP3;"
    for name, check in (("LT", lambda a, b: a < b), ("LE", lambda a, b: a <= b), ("GT", lambda a, b: a > b),
                        ("GE", lambda a, b: a >= b), ("EQ", lambda a, b: a == b), ("NE", lambda a, b: a != b)):
        yield uniform(f"compare_{name}", "u32 u32", f"UISETP.{name}.AND UP3, UPT, {{ua}}, {{ub}}, UPT;" + choose,
                      f"UISETP.{name}.AND USEL", lambda a, b, f=check: a if f(signed(a), signed(b)) else 77)
        yield uniform(f"compare_{name}_unsigned", "u32 u32", f"UISETP.{name}.U32.AND UP3, UPT, {{ua}}, {{ub}}, UPT;" + choose,
                      f"UISETP.{name}.U32.AND", lambda a, b, f=check: a if f(a, b) else 77)
        yield uniform(f"compare_{name}_wide", "u64 u64", "UISETP.{0}.U32.AND UP1, UPT, {{ua}}, {{ub}}, UPT;"
                      "UISETP.{0}.AND.EX UP3, UPT, {{ua1}}, {{ub1}}, UPT, UP1;".format(name) + choose, f"UISETP.{name}.EX",
                      lambda a, b, f=check: a & MASK if f(signed(a, 64), signed(b, 64)) else 77)
    yield uniform("compare_or", "u32 u32 u32", "UISETP.LT.U32.AND UP5, UPT, {uc}, 0x7f, UPT;"
                  "UISETP.GT.OR UP3, UP2, {ua}, {ub}, UP5; USEL UR13, {ub}, 0x9, UP2;" + choose, "UISETP.OR",
                  lambda a, b, c: (a if signed(a) > signed(b) or c < 127 else 77) |
                  (b if signed(a) <= signed(b) or c < 127 else 9) << 32, "u64")
    yield uniform("compare_xor", "u32 u32 u32", "UISETP.GT.AND UP1, UP2, {ua}, {ub}, UPT; UISETP.LT.XOR UP3, UPT, {ua}, {uc}, "
                                                "UP2;"
                  + choose, "UISETP.XOR",
                  lambda a, b, c: a if (signed(a) < signed(c)) != (signed(a) <= signed(b)) else 77)
    yield uniform("predicate_table", "u32 u32 u32", "UISETP.GT.AND UP1, UPT, {ua}, {ub}, UPT; UISETP.LT.AND UP2, UPT, {ua}, "
                                                    "{uc}, UPT;"
                  "UPLOP3.LUT UP3, UP4, UP1, UP2, !UP1, 0x2a, 0xc0;" + choose + "USEL UR12, UR12, 0x9, UP4;", "UPLOP3.LUT",
                  plop_example)
    yield uniform("minimum", "u32 u32", "UIMNMX UR12, {ua}, {ub}, UPT; UIMNMX.U32 UR13, {ua}, {ub}, !UPT;", "UIMNMX UIMNMX.U32",
                  lambda a, b: min(signed(a), signed(b)) & MASK | max(a, b) << 32, "u64")
    yield uniform("permute", "u32 u32 u32", "UPRMT UR12, {ua}, {ub}, {uc};", "UPRMT", lambda a, b, c: permuted(a, c, b))
    yield uniform("highest", "u32", "UFLO.U32 UR12, {ua};", "UFLO.U32", highest)
    yield uniform("highest_signed", "u32", "UFLO UR12, {ua};", "UFLO", highest_signed)
    yield uniform("shift_amount", "u32", "UFLO.U32.SH UR12, {ua};", "UFLO.U32.SH", lambda a: 31 - highest(a) if a else MASK)
    yield uniform("count", "u32", "UPOPC UR12, {ua};", "UPOPC", lambda a: a.bit_count())
    yield uniform("reverse", "u32", "UBREV UR12, {ua};", "UBREV", reversed_bits)
    yield uniform("mask", "u32 u32", "UBMSK UR12, {ua}, {ub}; UBMSK.W UR13, {ua}, {ub};", "UBMSK UBMSK.W",
                  lambda a, b: ((1 << min(b, 32)) - 1 << min(a, 32)) & MASK | (((1 << b % 32) - 1 << a % 32) & MASK) << 32, "u64")
    yield uniform("extend", "u32 u32", "USGXT UR12, {ua}, {ub}; USGXT.U32 UR13, {ua}, {ub};", "USGXT USGXT.U32",
                  lambda a, b: (signed(a, min(b, 32)) & MASK if b else 0) | ((a & (1 << min(b, 32)) - 1) & MASK) << 32, "u64")
    yield uniform("move", "u32", "UMOV UR14, {ua}; UMOV UR12, UR14; UMOV UR13, 0x7;", "UMOV", lambda a: a | 7 << 32, "u64")
    yield uniform("special", "u32", "S2UR UR12, SR_CTAID.X; UIMAD UR12, UR12, URZ, {ua};", "S2UR", lambda a: a)
    yield uniform("constants", "u32", "UMOV UR14, 0x8; ULDC.64 UR16, c[0x0][0x160]; ULDC UR12, c[0x0][UR14+0x160];"
                  "ULDC.64 UR18, c[0x0][0x168]; UIADD3 UR12, UR12, -UR18, {ua};", "ULDC.64 ULDC", lambda a: a)
    yield uniform("condition", "u32 u32", "UISETP.GT.AND UP1, UPT, {ua}, {ub}, UPT; UMOV UR12, 0x5; @UP1 UMOV UR12, 0x6;"
                  "@!UP1 UIADD3 UR12, UR12, 0x9, URZ;", "UMOV UIADD3", lambda a, b: 6 if signed(a) > signed(b) else 14)
    yield written("mixed", "u32 u32", "u32", "IADD3 {x}, {a}, {ub}, RZ; LOP3.LUT {x}, {x}, {ua}, RZ, 0x3c, !PT;"
                  "UISETP.GT.AND UP1, UPT, {ua}, {ub}, UPT; PLOP3.LUT P0, PT, PT, PT, UP1, 0x80, 0x0; SEL {x}, {x}, 0x5, P0;",
                  "IADD3 PLOP3.LUT", lambda a, b: (a + b & MASK) ^ a if signed(a) > signed(b) else 5)
    yield written("predicates_in_register", "u32 u32", "u32 u32", "R2P PR, {a}, 0x7f; P2R {x}, PR, {b}, 0x5a;"
                  "R2P PR, {b}.B1, 0x3; P2R {y}, PR, RZ, 0x7f;", "R2P P2R",
                  lambda a, b: (a & 0x5A | b & ~0x5A, a & 0x7C | b >> 8 & 3))
    yield written("add_two", "u32 u32", "u32", "VIADD {x}, {a}, {b};", "VIADD", lambda a, b: a + b)
    yield written("mov_constant_bank", "u32", "u64", "MOV {x}, c[0x0][0x0]; IMAD.MOV.U32 {x1}, RZ, RZ, "
                                                     "c[0x0][0x4];", "MOV IMAD.MOV",
                  lambda a: 1 | 1 << 32)
    yield written("spaces", "u32", "u32", "MOV R4, 0x160; MOV R4, c[0x0][0x160]; MOV R5, c[0x0][0x164]; QSPC.E.S P1, RZ, [R4];"
                  "SEL {x}, {a}, 0x5, P1;", "QSPC.E.S", lambda a: 5)
    yield written("reduce_warp", "u32", "u32", "REDUX.SUM UR12, {a}; MOV {x}, UR12;", "REDUX.SUM", lambda a: a)
    yield written("leave", "u32", "u32", "MOV {x}, 0x1; BSSY B0, {end}; ISETP.NE.AND P0, PT, {a}, 0x5, PT; @P0 BREAK B0; "
                                         "@P0 BRA {end};"
                  "IADD3 {x}, {x}, 0x1, RZ; BSYNC B0;".replace("{end}", "0xe0"), "BREAK", lambda a: 2 if a == 5 else 1,
                  samples=[(5,), (6,), (0,)])


def plop_example(a, b, c):
    p, q = signed(a) > signed(b), signed(a) < signed(c)
    def table(number, *bits):
        return number >> (4 * bits[0] + 2 * bits[1] + bits[2]) & 1
    value = a if table(0x2A, p, q, not p) else 77
    return value if table(0xC0, p, q, not p) else 9


CASES = [*cases()]
