"""Loads, stores and atomic operations on all kinds of memory."""

import random
from fractions import Fraction

import exact
from exact import F32, F64
from integers import MASK, signed
from kernels import BLOCK, Case

ADDRESS = "mad.wide.u32 place, thread, {0}, m;"
SHARED = ".shared .align 16 .b8 room[4096]; mov.u32 t9, room;"
WORDS = [random.Random("memory").getrandbits(32) for _ in range(4 * BLOCK)]


CLEARED = " ".join(f"st.local.u64 [w9+{at}], 0;" for at in range(0, 64, 8))


def part(words, offset, size):
    data = b"".join(word.to_bytes(4, "little") for word in words)
    return int.from_bytes(data[offset:offset + size], "little")


def with_part(words, offset, size, value):
    data = bytearray(b"".join(word.to_bytes(4, "little") for word in words))
    data[offset:offset + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    return [int.from_bytes(data[at:at + 4], "little") for at in range(0, len(data), 4)]


def narrow_accesses():
    """One number of each width, of global, shared and local memory and of constants."""
    for kind in ("u8", "s8", "u16", "s16", "u32", "u64"):
        size = int(kind[1:]) // 8
        load = "t0" if size <= 4 else "x"
        output = "u64" if size == 8 else "u32"
        suffix = {8: ".64", 4: ""}.get(size, "." + kind.upper())
        move = "" if size == 8 else "mov.u32 x, t0;"

        def expected(samples, kind=kind, size=size):
            numbers = [part(WORDS, thread * size, size) for thread in range(len(samples))]
            return [signed(n, 8 * size) if kind[0] == "s" else n for n in numbers], WORDS
        for space, opcode in (("global", "LDG.E"), ("global.nc", "LDG.E.CONSTANT"), ("volatile.global", "LDG.E")):
            yield Case(f"load_{space.replace('.', '_')}_{kind}", "", output, ADDRESS.format(size) +
                       f"ld.{space}.{kind} {load}, [place]; {move}", opcode + suffix, expected, samples=[()] * BLOCK,
                       memory=WORDS, whole=True)
        stored = f"st.{{}}.{'u' + kind[1:]} [{{}}], a;"
        yield Case(f"store_global_{kind}", "u64" if size == 8 else "u32", "", ADDRESS.format(size) +
                   stored.format("global", "place"), "STG.E" + suffix.replace("S", "U"),
                   lambda samples, size=size: ([], stored_words(samples, size)),
                   memory=[0] * (BLOCK * size // 4), whole=True, samples=[(n * 0x01234567_89ABCDEF & (MASK if size < 8
                   else (1 << 64) - 1),) for n in range(1, BLOCK + 1)])
        wide = size == 8
        yield Case(f"shared_{kind}", "u64" if wide else "u32", output, SHARED + f"mad.lo.u32 t1, tid, {size}, t9;" +
                   stored.format("shared", "t1") + f"bar.sync 0; xor.b32 t2, tid, 1; mad.lo.u32 t1, t2, {size}, t9;"
                   f"ld.shared.{kind} {load}, [t1]; {move}", f"STS{suffix.replace('S', 'U')} LDS{suffix}",
                   lambda samples, kind=kind, size=size: [neighbour(samples, n, kind, size)
                                                          for n in range(len(samples))], whole=True)
        yield Case(f"local_{kind}", ("u64" if wide else "u32") + " u32", output,
                   f".local .align 16 .b8 own[64]; mov.b64 w9, own; and.b32 t1, b, 7; mad.wide.u32 w8, t1, {size}, w9;"
                   f"{CLEARED}"
                   f"{stored.format('local', 'w8')} xor.b32 t2, t1, 1; and.b32 t3, b, 8; setp.ne.u32 p0, t3, 0;"
                   f"selp.b32 t1, t2, t1, p0; mad.wide.u32 w8, t1, {size}, w9; ld.local.{kind} {load}, [w8]; {move}",
                   f"STL{suffix.replace('S', 'U')} LDL{suffix}",
                   lambda a, b, kind=kind, size=size: 0 if b & 8 else widened(a, kind, size))
        table = [0x80, 0x7F, 0xFF, 0x01, 0xDE, 0xAD, 0xBE, 0xEF] * 8
        yield Case(f"constant_{kind}", "u32", output, f"and.b32 t1, a, 7; mov.b64 w9, table; mad.wide.u32 w8, t1, {size}, w9;"
                   f"ld.const.{kind} {load}, [w8]; {move}", "LDC" + suffix,
                   lambda a, kind=kind, size=size: widened(int.from_bytes(bytes(table)[(a & 7) * size:][:size], "little"),
                                                           kind, size),
                   declarations=f".const .align 8 .b8 table[64] = {{{', '.join(map(str, table))}}};")


def widened(number, kind, size):
    number &= (1 << 8 * size) - 1
    return signed(number, 8 * size) if kind[0] == "s" else number


def neighbour(samples, thread, kind, size):
    return widened(samples[thread ^ 1][0], kind, size)


def stored_words(samples, size):
    words = [0] * (len(samples) * size // 4)
    for thread, (number,) in enumerate(samples):
        words = with_part(words, thread * size, size, number)
    return words


def vectors():
    sixteen = [tuple(WORDS[4 * n:4 * n + 4]) for n in range(BLOCK)]
    yield Case("load_v4", "", "u32 u32 u32 u32", ADDRESS.format(16) + "ld.global.v4.u32 {x, y, z, v}, [place];",
               "LDG.E.128", lambda samples: (sixteen, WORDS), samples=[()] * BLOCK, memory=WORDS, whole=True)
    yield Case("load_v2", "", "u32 u32", ADDRESS.format(8) + "ld.global.v2.u32 {x, y}, [place];", "LDG.E.64",
               lambda samples: ([tuple(WORDS[2 * n:2 * n + 2]) for n in range(BLOCK)], WORDS), samples=[()] * BLOCK,
               memory=WORDS, whole=True)
    yield Case("store_v4", "u32 u32 u32 u32", "", ADDRESS.format(16) + "st.global.v4.u32 [place], {a, b, c, d};",
               "STG.E.128", lambda samples: ([], [word for sample in samples for word in sample]),
               samples=sixteen, memory=[0] * 4 * BLOCK, whole=True)
    yield Case("shared_v4", "u32 u32 u32 u32", "u32 u32 u32 u32", SHARED + "mad.lo.u32 t1, tid, 16, t9;"
               "st.shared.v4.u32 [t1], {a, b, c, d}; bar.sync 0; xor.b32 t2, tid, 3; mad.lo.u32 t1, t2, 16, t9;"
               "ld.shared.v4.u32 {x, y, z, v}, [t1];", "STS.128 LDS.U.128|LDS.128",
               lambda samples: [samples[n ^ 3] for n in range(len(samples))], samples=sixteen, whole=True)
    yield Case("local_v4", "u32 u32 u32 u32", "u32 u32 u32 u32",
               ".local .align 16 .b8 own[1024]; mov.b64 w9, own; and.b32 t1, a, 63; mad.wide.u32 w8, t1, 16, w9;"
               "and.b32 t2, b, 63; mad.wide.u32 w7, t2, 16, w9; st.local.v4.u32 [w8], {d, d, d, d};"
               "st.local.v4.u32 [w7], {a, b, c, d}; ld.local.v4.u32 {x, y, z, v}, [w8];",
               "STL.128 LDL.128", lambda a, b, c, d: (d, d, d, d) if (a ^ b) & 63 else (a, b, c, d))
    for kind in ("u8", "s8", "u16", "s16", "u32", "u64"):
        size, wide = int(kind[1:]) // 8, kind == "u64"
        register, move = ("x", "") if wide else ("t0", "mov.u32 x, t0;")
        bits = f".{kind.upper()}" if size < 4 else ".64" if wide else ""
        yield Case(f"generic_{kind}", "", "u64" if wide else "u32", "ld.param.u64 w9, [p_m];"
                   f"mad.wide.u32 w8, thread, {size}, w9; ld.{kind} {register}, [w8];"
                   f"{move} st.u{kind[1:]} [w8+512], {register};",
                   f"LD.E{bits} ST.E{bits.replace('S', 'U')}",
                   lambda samples, kind=kind, size=size: (
                       [widened(part(WORDS, n * size, size), kind, size) for n in range(BLOCK)],
                       WORDS[:128] + [part(WORDS, at, 4) for at in range(0, BLOCK * size, 4)] + [0] * (128 - BLOCK * size // 4)),
                   samples=[()] * BLOCK, memory=WORDS[:128] + [0] * 128, whole=True)
    yield Case("generic_v4", "", "u32 u32 u32 u32", "ld.param.u64 w9, [p_m]; mad.wide.u32 w8, thread, 16, w9;"
               "ld.v4.u32 {x, y, z, v}, [w8]; st.v4.u32 [w8+1024], {v, z, y, x};", "LD.E.128 ST.E.128",
               lambda samples: (sixteen, WORDS + [word for row in sixteen for word in row[::-1]]), samples=[()] * BLOCK,
               memory=WORDS + WORDS, whole=True)
    yield Case("generic", "u32", "u32", SHARED + "mad.lo.u32 t1, tid, 4, t9; st.shared.u32 [t1], a; bar.sync 0;"
               "cvt.u64.u32 w0, t1; cvta.shared.u64 w0, w0;" + ADDRESS.format(4) + "cvta.global.u64 place, place;"
               "and.b32 t2, tid, 1; setp.eq.u32 p0, t2, 1; selp.b64 w1, w0, place, p0; ld.u32 x, [w1]; add.u32 t3, x, 1;"
               "st.u32 [w1], t3; bar.sync 0; ld.shared.u32 t4, [t1]; add.u32 x, x, t4;",
               "LD.E ST.E", generic, samples=[(n * 77,) for n in range(BLOCK)], memory=WORDS[:BLOCK], whole=True)
    yield Case("generic_local", "u32 u32", "u32", ".local .align 8 .b8 own[32]; mov.b64 w9, own; cvta.local.u64 w0, w9;"
               "and.b32 t1, b, 7; mad.wide.u32 w8, t1, 4, w9; st.local.u32 [w8], a;"
               "mad.wide.u32 w7, t1, 4, w0;" + ADDRESS.format(4) + "cvta.global.u64 place, place; setp.gt.u32 p0, b, 99;"
               "selp.b64 w1, w7, place, p0; ld.u32 x, [w1];", "LD.E",
               lambda samples: ([a if b > 99 else WORDS[n] for n, (a, b) in enumerate(samples)], WORDS[:BLOCK]),
               samples=[(n * 99, n * 3 + 7) for n in range(BLOCK)], memory=WORDS[:BLOCK], whole=True)
    yield Case("module_variable", "u32", "u32 u32", "and.b32 t1, a, 3; mov.b64 w9, numbers; mad.wide.u32 w8, t1, 4, w9;"
               "ld.global.u32 x, [w8]; mov.b64 w7, pointer; ld.global.u64 w7, [w7]; mad.wide.u32 w7, t1, 4, w7; ld.u32 y, [w7];",
               "LDG.E", lambda a: ((11, 22, 33, 44)[a & 3],) * 2,
               declarations=".global .align 4 .u32 numbers[4] = {11, 22, 33, 44};\n"
                            ".global .align 8 .u64 pointer = generic(numbers);")


def generic(samples):
    values = [a if n & 1 else WORDS[n] for n, (a,) in enumerate(samples)]
    memory = [WORDS[n] if n & 1 else WORDS[n] + 1 & MASK for n in range(BLOCK)]
    return [v + (v + 1 if n & 1 else samples[n][0]) for n, v in enumerate(values)], memory


def smallest(name, old, value):
    return min(old, value) if name == "min" else max(old, value)


def operations():
    """(name, type, a function of the number before and the operand)."""
    yield "add", "u32", lambda old, value: old + value
    yield "add", "u64", lambda old, value: old + value
    yield "add", "f32", lambda old, value: exact.add(F32, old, value)
    yield "add", "f64", lambda old, value: exact.add(F64, old, value)
    for name in ("min", "max"):
        for kind in ("u32", "s32", "u64", "s64"):
            def apply(old, value, name=name, kind=kind):
                if kind[0] == "s":
                    old, value = signed(old, int(kind[1:])), signed(value, int(kind[1:]))
                return smallest(name, old, value)
            yield name, kind, apply
    for kind in ("b32", "b64"):
        yield "and", kind, lambda old, value: old & value
        yield "or", kind, lambda old, value: old | value
        yield "xor", kind, lambda old, value: old ^ value
        yield "exch", kind, lambda old, value: value
    yield "inc", "u32", lambda old, value: 0 if old >= value else old + 1
    yield "dec", "u32", lambda old, value: value if old == 0 or old > value else old - 1


def atomics():
    """Each thread at its own place: the number before is returned; RED, which returns none; on shared memory."""
    for name, kind, function in operations():
        size = int(kind[1:]) // 8
        plain = "u64" if size == 8 else "u32"
        flush = ".f32" if kind == "f32" else ""
        rows = operands(name, kind)
        before = [number for number, _ in rows]
        words = stored_words([(number,) for number in before], size)
        after = stored_words([(function(old, value),) for old, value in rows], size)
        if kind == "f32":  # atomics on global memory flush subnormal results
            after = stored_words([(exact.flushed(F32, function(exact.flushed(F32, o), exact.flushed(F32, v))),)
                                  for o, v in rows], size)
        samples = [(value,) for _, value in rows]
        sass = {"exch": "EXCH"}.get(name, name.upper()) + (".64" if size == 8 and kind != "f64" and kind != "s64" else "")
        sass += {"s32": ".S32", "s64": ".S64", "f32": ".F32", "f64": ".F64"}.get(kind, "")
        result = "x" if size == 8 else "x"
        yield Case(f"atomic_{name}_{kind}", plain, plain, ADDRESS.format(size) +
                   f"atom.global.{name}.{kind} {result}, [place], a;", f"ATOMG.E.{sass}|ATOM.E.{sass}|ATOMG.{sass}",
                   lambda samples, before=before, after=after: (before, after), samples=samples, memory=words,
                   whole=True)
        yield Case(f"generic_{name}_{kind}", plain, plain, f"ld.param.u64 w9, [p_m]; mad.wide.u32 w8, thread, {size}, w9;"
                   f"atom.{name}.{kind} x, [w8], a;", f"ATOM.E.{sass}",
                   lambda samples, before=before, after=after: (before, after), samples=samples, memory=words,
                   whole=True)
        if name != "exch":
            yield Case(f"reduction_{name}_{kind}", plain, "", ADDRESS.format(size) +
                       f"red.global.{name}.{kind} [place], a;", f"RED.E.{sass}",
                       lambda samples, after=after: ([], after), samples=samples, memory=words, whole=True)
        yield Case(f"shared_{name}_{kind}", f"{plain} {plain}", f"{plain} {plain}", SHARED +
                   f"mad.lo.u32 t1, tid, {size}, t9; st.shared.{plain} [t1], a; atom.shared.{name}.{kind} x, [t1], b;"
                   f"ld.shared.{plain} y, [t1];", "" if size == 8 or kind == "f32" else f"ATOMS.{sass}",
                   lambda a, b, f=function: (a, f(a, b)), samples=rows)


def operands(name, kind):
    chance = random.Random(name + kind)
    bits = int(kind[1:])
    if kind[0] == "f":
        form = F32 if kind == "f32" else F64
        numbers = [0, form.sign, exact.one(form), form.infinity, exact.one(form) + 1, form.infinity - 1]
        return [(chance.choice(numbers), chance.choice(numbers) ^ chance.choice((0, form.sign)))
                if chance.random() < 0.4 else
                tuple(exact.one(form) + chance.randrange(-3, 4) * (1 << form.fraction) + chance.getrandbits(form.fraction)
                      for _ in range(2)) for _ in range(BLOCK)]
    edges = [0, 1, 2, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1, 5]
    return [tuple(chance.choice(edges) if chance.random() < 0.5 else chance.getrandbits(bits) for _ in range(2))
            for _ in range(BLOCK)]


def swaps():
    for bits in (32, 64):
        size, kind = bits // 8, f"u{bits}"
        chance = random.Random(bits)
        before = [chance.getrandbits(bits) for _ in range(BLOCK)]
        samples = [(old if n % 2 else old ^ 1 << n % bits, chance.getrandbits(bits)) for n, old in enumerate(before)]
        after = [new if old == wanted else old for old, (wanted, new) in zip(before, samples)]
        words = stored_words([(old,) for old in before], size)
        yield Case(f"atomic_cas_{bits}", f"{kind} {kind}", kind, ADDRESS.format(size) +
                   f"atom.global.cas.b{bits} x, [place], a, b;", "ATOMG.E.CAS|ATOMG.CAS|ATOM.E.CAS",
                   lambda samples, b=before, a=after, s=size: (b, stored_words([(n,) for n in a], s)),
                   samples=samples, memory=words, whole=True)
        yield Case(f"shared_cas_{bits}", f"{kind} {kind} {kind}", f"{kind} {kind}", SHARED +
                   f"mad.lo.u32 t1, tid, {size}, t9; st.shared.{kind} [t1], c; atom.shared.cas.b{bits} x, [t1], a, b;"
                   f"ld.shared.{kind} y, [t1];", "ATOMS.CAS", lambda a, b, c: (c, b if a == c else c),
                   samples=[(*sample, old) for sample, old in zip(samples, before)])


def same_place():
    """All threads at one place: what is left afterwards does not depend on their order."""
    def total(samples):
        return [], [sum(a for a, in samples) & MASK]
    yield Case("sum_at_one_place", "u32", "", "red.global.add.u32 [m], a;", "RED.E.ADD", total, memory=[0], whole=True)
    yield Case("tickets", "u32", "", "atom.global.add.u32 t0, [m], 1; mad.wide.u32 place, t0, 4, m; st.global.u32 [place+4], 1;",
               "ATOMG.E.ADD|ATOMG.ADD|ATOM.E.ADD", lambda samples: ([], [len(samples)] + [1] * len(samples)),
               memory=[0] * 129, whole=True,
               samples=[(n,) for n in range(128)])
    yield Case("sum_in_shared", "u32", "", SHARED + "setp.ne.u32 p0, tid, 0; @!p0 st.shared.u32 [t9], 0; bar.sync 0;"
               "atom.shared.add.u32 t0, [t9], a; bar.sync 0; ld.shared.u32 t1, [t9]; @!p0 st.global.u32 [m], t1;",
               "ATOMS.ADD|ATOMS.POPC.INC", total, memory=[0], whole=True, samples=[(n * n,) for n in range(BLOCK)])
    yield Case("counted_in_shared", "u32", "", SHARED + "setp.ne.u32 p0, tid, 0; @!p0 st.shared.u32 [t9], 0; bar.sync 0;"
               "setp.gt.u32 p1, a, 9; @p1 red.shared.add.u32 [t9], 1; bar.sync 0; ld.shared.u32 t1, [t9]; "
               "@!p0 st.global.u32 [m], t1;",
               "ATOMS.ADD|ATOMS.POPC.INC", lambda samples: ([], [sum(a > 9 for a, in samples)]), memory=[0], whole=True,
               samples=[(n % 13,) for n in range(BLOCK)])
    yield Case("generic_atomics", "u32 u32", "u32 u32", "ld.param.u64 w9, [p_m]; mad.wide.u32 w8, thread, 8, w9;"
               "atom.add.u32 x, [w8], a; atom.cas.b32 y, [w8+4], a, b;", "ATOM.E.ADD ATOM.E.CAS",
               lambda samples: ([(n * 2, n * 2 + 1) for n in range(BLOCK)],
                                [word for n, (a, b) in enumerate(samples) for word in
                                 (n * 2 + a & MASK, b if a == n * 2 + 1 else n * 2 + 1)]),
               samples=[(n * 2 + n % 3 % 2, n * 77) for n in range(BLOCK)], memory=list(range(2 * BLOCK)), whole=True)
    half = [exact.rounded(exact.F16, Fraction(n)) for n in (0.5, 1, 2, 3.25)]
    for name, covers in (("atom", "ATOMG.E.ADD.F16x2"), ("red", "RED.E.ADD.F16x2")):
        yield halves_added(name, covers, half)


def halves_added(name, covers, half):
    """Each half of the word is a sum of its own."""
    target, outputs = ("x, ", "u32") if name == "atom" else ("", "")
    return Case(f"{name}_add_f16x2", "u32", outputs, ADDRESS.format(4) + f"{name}.global.add.noftz.f16x2 {target}[place], a;",
               covers, lambda samples: (WORDS_OF_HALVES, [
                   exact.add(exact.F16, old >> 16, a >> 16) << 16 | exact.add(exact.F16, old & 0xFFFF, a & 0xFFFF)
                   for old, (a,) in zip(WORDS_OF_HALVES, samples)]),
               samples=[(half[n % 4] << 16 | half[n // 4 % 4],) for n in range(BLOCK)], memory=WORDS_OF_HALVES, whole=True)


WORDS_OF_HALVES = [exact.rounded(exact.F16, Fraction(n)) << 16 | exact.rounded(exact.F16, Fraction(-n))
                   for n in range(BLOCK)]
CASES = [*narrow_accesses(), *vectors(), *atomics(), *swaps(), *same_place()]
