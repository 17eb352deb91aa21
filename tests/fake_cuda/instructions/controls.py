"""Branches, calls, barriers, and what the threads of a warp tell each other."""

import functools
import operator
import random

from integers import MASK, signed
from kernels import BLOCK, Case

WARP = 32
COUNTED = """.func (.reg .b32 r) counted(.reg .b32 u)
{
.reg .pred p; .reg .b32 k, q;
mov.u32 r, 0; setp.eq.u32 p, u, 0; @p bra out;
sub.u32 k, u, 1; and.b32 k, k, u; call (q), counted, (k); add.u32 r, q, 1;
out: ret;
}"""
SHARED = ".shared .align 16 .b8 room[4096]; mov.u32 t9, room;"


def by_warp(function):
    """Expected results from a function of a warp's inputs and the lane."""
    def expected(samples):
        found = []
        for start in range(0, len(samples), WARP):
            warp = samples[start:start + WARP]
            found += [function(warp, lane) for lane in range(len(warp))]
        return found
    return expected


def ballot(warp, condition):
    return sum(1 << lane for lane, sample in enumerate(warp) if condition(*sample))


def votes():
    odd = "and.b32 t0, a, 1; setp.eq.u32 p0, t0, 1;"
    samples = [(n % 3,) for n in range(BLOCK)] + [(1,)] * WARP + [(2,)] * WARP
    def count(warp):
        return sum(a & 1 for a, in warp)
    yield Case("vote_ballot", "u32", "u32", odd + "vote.sync.ballot.b32 x, p0, -1;", "VOTE.ANY|VOTEU.ANY",
               by_warp(lambda warp, lane: ballot(warp, lambda a: a & 1)), samples=samples, whole=True)
    for name, check in (("any", lambda warp: count(warp) > 0), ("all", lambda warp: count(warp) == WARP),
                        ("uni", lambda warp: count(warp) in (0, WARP))):
        yield Case(f"vote_{name}", "u32", "u32", odd + f"vote.sync.{name}.pred p1, p0, -1; selp.b32 x, 1, 0, p1;",
                   "VOTE|VOTEU",
                   by_warp(lambda warp, lane, check=check: int(check(warp))), samples=samples, whole=True)
    yield Case("vote_in_branch", "u32", "u32", odd + "mov.u32 x, 0; @!p0 bra over; activemask.b32 t1;"
               "vote.sync.ballot.b32 x, p0, t1;\nover:", "VOTE.ANY|VOTEU.ANY",
               by_warp(lambda warp, lane: ballot(warp, lambda a: a & 1) if warp[lane][0] & 1 else 0), samples=samples,
               whole=True)
    yield Case("match_any", "u32", "u32", "match.any.sync.b32 x, a, -1;", "MATCH.ANY",
               by_warp(lambda warp, lane: ballot(warp, lambda a: a == warp[lane][0])), samples=samples, whole=True)
    yield Case("match_all", "u32", "u32 u32", "match.all.sync.b32 x|p0, a, -1; selp.b32 y, 1, 0, p0;", "MATCH",
               by_warp(lambda warp, lane: (MASK, 1) if len(set(warp)) == 1 else (0, 0)), samples=samples, whole=True)
    yield Case("match_any_64", "u64", "u32", "match.any.sync.b64 x, a, -1;", "MATCH.ANY.U64",
               by_warp(lambda warp, lane: ballot(warp, lambda a: a == warp[lane][0])),
               samples=[(n % 3 << 40 | n % 2,) for n in range(BLOCK)], whole=True)


def reductions():
    def signed_min(numbers):
        return min(numbers, key=signed)
    for name, kind, function in (("add", "s32", sum), ("min", "s32", signed_min), ("max", "s32", lambda n: max(n, key=signed)),
                                 ("min", "u32", min), ("max", "u32", max),
                                 ("and", "b32", lambda n: functools.reduce(operator.and_, n)),
                                 ("or", "b32", lambda n: functools.reduce(operator.or_, n)),
                                 ("xor", "b32", lambda n: functools.reduce(operator.xor, n))):
        yield Case(f"reduce_{name}_{kind}", "u32", "u32", f"redux.sync.{name}.{kind} x, a, -1;", "REDUX",
                   by_warp(lambda warp, lane, f=function: f([a for a, in warp])), samples=numbers(1), whole=True, arch=80)


def shuffled(mode, lane, by, clamp, segment):
    most = lane & segment | clamp & ~segment & 31
    if mode == "up":
        source = lane - by
        inside = source >= most
    elif mode == "down":
        source, inside = lane + by, lane + by <= most
    elif mode == "bfly":
        source, inside = lane ^ by, lane ^ by <= most
    else:
        source = lane & segment | by & ~segment & 31
        inside = source <= most
    return (source if inside else lane), inside


def shuffles():
    for mode in ("up", "down", "bfly", "idx"):
        for by, control in ((1, 0x1F), (5, 0x1F), (3, 0x181F), (2, 0x1C03), (16, 0x101F), (1, 0x0007)):
            control = control & ~0x1F if mode == "up" and control & 0x1F == 0x1F else control
            def expected(warp, lane, mode=mode, by=by, control=control):
                source, inside = shuffled(mode, lane, by, control & 31, control >> 8 & 31)
                return warp[source][0], int(inside)
            yield Case(f"shuffle_{mode}_{by}_{control:x}", "u32", "u32 u32",
                       f"shfl.sync.{mode}.b32 x|p0, a, {by}, {control:#x}, -1; selp.b32 y, 1, 0, p0;",
                       f"SHFL.{mode.upper()}", by_warp(expected), samples=numbers(1), whole=True)
    def by_register(warp, lane):
        source, inside = shuffled("idx", lane, warp[lane][1] & 31, 31, 0)
        return warp[source][0], int(inside)
    yield Case("shuffle_register", "u32 u32", "u32 u32", "shfl.sync.idx.b32 x|p0, a, b, 31, -1; selp.b32 y, 1, 0, p0;",
               "SHFL.IDX", by_warp(by_register), samples=numbers(2), whole=True)


def numbers(count):
    chance = random.Random(count)
    return [tuple(chance.getrandbits(32) for _ in range(count)) for _ in range(2 * BLOCK)]


def branches():
    yield Case("nested", "u32 u32", "u32 u32", "mov.u32 x, 0; mov.u32 y, 0; setp.gt.s32 p0, a, 5; @!p0 bra other;"
               "setp.gt.s32 p1, b, 5; @!p1 bra inner; atom.global.add.u32 t0, [m], 1; add.u32 x, x, 1; bra joined;\n"
               "inner: atom.global.add.u32 t0, [m+4], 1; add.u32 x, x, 2;\njoined: atom.global.add.u32 t0, [m+8], 1;"
               "bra end;\nother: atom.global.add.u32 t0, [m+12], 1; add.u32 x, x, 4;\nend: activemask.b32 y;",
               "BSSY BSYNC BRA", nested, samples=[(n % 11, n % 7 * 2) for n in range(2 * BLOCK)], memory=[0] * 4, whole=True)
    yield Case("loop", "u32", "u32", "and.b32 t0, a, 31; mov.u32 x, 1; mov.u32 t1, 0;\nagain: setp.ge.u32 p0, t1, t0;"
               "@p0 bra done; mad.lo.u32 x, x, 3, t1; add.u32 t1, t1, 1; bra again;\ndone:", "BRA",
               lambda a: looped(a & 31))
    yield Case("loop_left", "u32 u32", "u32 u32", "and.b32 t0, a, 63; and.b32 t3, b, 15; mov.u32 x, 0; mov.u32 t1, 0;\n"
               "again: setp.ge.u32 p0, t1, t0; @p0 bra done; add.u32 t1, t1, 1; setp.eq.u32 p1, t1, t3; @p1 bra found;"
               "xor.b32 t4, t1, a; and.b32 t4, t4, 1; setp.eq.u32 p2, t4, 0; @p2 bra again; atom.global.add.u32 t5, [m], 1;"
               "add.u32 x, x, t1; bra again;\nfound: add.u32 x, x, 1000;\ndone: activemask.b32 y;", "BRA",
               leaving, samples=[(n * 37 % 64, n * 11) for n in range(BLOCK)], memory=[0], whole=True)
    yield Case("exit_early", "u32", "", "setp.gt.u32 p0, a, 9; mad.wide.u32 place, thread, 4, m; @p0 bra rest; ret;\n"
               "rest: bar.sync 0; st.global.u32 [place], a;", "EXIT",
               lambda samples: ([], [a if a > 9 else 0 for a, in samples]), samples=[(n % 20,) for n in range(BLOCK)],
               memory=[0] * BLOCK, whole=True)
    yield Case("table_of_branches", "u32", "u32", "and.b32 t0, a, 3; places: .branchtargets one, two, three, four;\n"
               "brx.idx t0, places;\none: mov.u32 x, 11; st.global.u32 [m], x; bra end;\n"
               "two: mul.lo.u32 x, a, a; bra end;\nthree: popc.b32 x, a; bra end;\nfour: mov.u32 x, 44;\nend: add.u32 x, x, 1;",
               "BRX", lambda samples: ([1 + (11, a * a, a.bit_count(), 44)[a & 3] for a, in samples], [11]),
               samples=[(n,) for n in range(BLOCK)], memory=[0], whole=True)
    # A function that calls itself stays one, with a stack in local memory.
    yield Case("call", "u32 u32", "u32", "setp.gt.u32 p0, a, b; mov.u32 x, 5; @!p0 bra over;"
               "call (x), counted, (a);\nover: add.u32 x, x, 1;", "CALL.REL RET.REL STL LDL",
               lambda a, b: 1 + (a.bit_count() if a > b else 5), declarations=COUNTED,
               samples=[(0x155 << n // 32, n // 32 % 2 * 5000) for n in range(4 * BLOCK)])
    yield Case("call_at_several_depths", "u32", "u32", "call (x), counted, (a);", "CALL.REL RET.REL",
               lambda a: a.bit_count(), declarations=COUNTED)
    many = " ".join(f"shr.u32 t0, a, {n}; and.b32 t0, t0, 1; setp.eq.u32 q{n}, t0, 1;" for n in range(16))
    uses = " ".join(f"@q{n} add.u32 x, x, {1 << n};" for n in range(16))
    back = " ".join(f"@q{n} xor.b32 x, x, {3 << n};" for n in range(16))
    yield Case("many_predicates", "u32 u32", "u32", ".reg .pred q<16>; " + many + "mov.u32 x, b; bar.sync 0;" + uses + back,
               "P2R|ISETP", many_predicates)


def nested(samples):
    rows, memory = [], [0, 0, 0, 0]
    for a, b in samples:
        first, second = a > 5, b > 5
        memory[3 if not first else 0 if second else 1] += 1
        memory[2] += first
        rows.append(((1 if second else 2) if first else 4, MASK))
    return rows, memory


def looped(count):
    x = 1
    for n in range(count):
        x = x * 3 + n & MASK
    return x


def leaving(samples):
    rows, total = [], 0
    for a, b in samples:
        x, found = 0, False
        for step in range(1, (a & 63) + 1):
            if step == b & 15:
                found = True
                break
            if (step ^ a) & 1:
                total += 1
                x += step
        rows.append((x + 1000 if found else x, MASK))
    return rows, [total]


def many_predicates(a, b):
    x = b
    for n in range(16):
        if a >> n & 1:
            x = x + (1 << n) & MASK
    for n in range(16):
        if a >> n & 1:
            x ^= 3 << n
    return x


def barriers():
    exchange = "mad.lo.u32 t1, tid, 4, t9; st.shared.u32 [t1], a;"
    yield Case("barrier", "u32", "u32", SHARED + exchange + "bar.sync 0; sub.u32 t2, 63, tid; mad.lo.u32 t1, t2, 4, t9;"
               "ld.shared.u32 x, [t1];", "BAR.SYNC",
               lambda samples: [samples[n // BLOCK * BLOCK + BLOCK - 1 - n % BLOCK][0] for n in range(len(samples))],
               samples=numbers(1), whole=True)
    yield Case("barrier_of_some", "u32", "u32", SHARED + "mov.u32 x, 0; setp.ge.u32 p0, tid, 64; @p0 bra rest;" + exchange +
               "bar.sync 1, 64; xor.b32 t2, tid, 63; mad.lo.u32 t1, t2, 4, t9; ld.shared.u32 x, [t1];\nrest: bar.sync 0;",
               "BAR.SYNC", lambda samples: [samples[n ^ 63][0] if n % 128 < 64 else 0 for n in range(len(samples))],
               samples=numbers(1), block=128, whole=True)
    yield Case("barrier_arrive", "u32", "u32", SHARED + "mov.u32 x, 0; setp.ge.u32 p0, tid, 32; @p0 bra reader;" + exchange +
               "bar.arrive 2, 64; bra end;\nreader: bar.sync 2, 64; sub.u32 t2, tid, 32; mad.lo.u32 t1, t2, 4, t9;"
               "ld.shared.u32 x, [t1];\nend:", "BAR.ARV",
               lambda samples: [0 if n % 64 < 32 else samples[n - 32][0] for n in range(len(samples))],
               samples=numbers(1), whole=True)
    counts = [(n * n % 7,) for n in range(BLOCK)] + [(3,)] * BLOCK + [(1,)] * BLOCK
    def block_of(samples, n):
        return samples[n // BLOCK * BLOCK:][:BLOCK]
    for name, covers, output, check in (
            ("or.pred", "BAR.RED.OR", "selp.b32 x, 1, 0, p1;", lambda block: int(any(a == 3 for a, in block))),
            ("and.pred", "BAR.RED.AND", "selp.b32 x, 1, 0, p1;", lambda block: int(all(a == 3 for a, in block))),
            ("popc.u32", "BAR.RED.POPC", "", lambda block: sum(a == 3 for a, in block))):
        target = "x" if name.startswith("popc") else "p1"
        yield Case(f"barrier_{name[:3].rstrip('.')}", "u32", "u32", f"setp.eq.u32 p0, a, 3; barrier.red.{name} {target}, 0, "
                                                                    f"p0; {output}",
                   covers + " B2R", lambda samples, check=check: [check(block_of(samples, n)) for n in range(len(samples))],
                   samples=counts, whole=True)
    yield Case("warp_barrier", "u32", "u32", SHARED + "and.b32 t0, a, 1; setp.eq.u32 p0, t0, 1; @p0 bra over; add.u32 a, a, 1;"
               "\nover:" + exchange + "bar.warp.sync -1; xor.b32 t2, tid, 7; mad.lo.u32 t1, t2, 4, t9; ld.shared.u32 x, [t1];",
               "", lambda samples: [samples[n ^ 7][0] | 1 for n in range(len(samples))],
               samples=[(n * 3,) for n in range(BLOCK)], whole=True)
    yield Case("warp_barrier_of_some", "u32", "u32", SHARED + "mov.u32 x, 9; and.b32 t0, tid, 16; setp.eq.u32 p0, t0, 0; "
                                                              "@p0 bra over;"
               + exchange + "bar.warp.sync 0xffff0000; xor.b32 t2, tid, 3; mad.lo.u32 t1, t2, 4, t9; ld.shared.u32 x, "
                            "[t1];\nover:"
               "add.u32 x, x, "
               "1;", "WARPSYNC", lambda samples: [1 + (samples[n ^ 3][0] if n & 16 else 9) for n in range(len(samples))],
               samples=[(n * 3,) for n in range(BLOCK)], whole=True)
    yield Case("memory_order", "u32", "u32", "st.global.u32 [m], 1; membar.cta; membar.gl; membar.sys; fence.acq_rel.gpu; "
               "nanosleep.u32 20;"
               "mov.u32 x, a;", "MEMBAR NANOSLEEP", lambda samples: ([a for a, in samples], [1]),
               samples=[(n,) for n in range(BLOCK)], memory=[0], whole=True)


def special_registers():
    for name, function in (("laneid", lambda n: n % 32), ("tid.x", lambda n: n % BLOCK), ("tid.y", lambda n: 0),
                           ("tid.z", lambda n: 0), ("ctaid.x", lambda n: n // BLOCK), ("ctaid.y", lambda n: 0),
                           ("ctaid.z", lambda n: 0), ("ntid.x", lambda n: BLOCK), ("ntid.y", lambda n: 1),
                           ("nctaid.x", lambda n: 2), ("nctaid.z", lambda n: 1),
                           ("lanemask_eq", lambda n: 1 << n % 32), ("lanemask_lt", lambda n: (1 << n % 32) - 1),
                           ("lanemask_le", lambda n: (2 << n % 32) - 1), ("lanemask_gt", lambda n: -(2 << n % 32)),
                           ("lanemask_ge", lambda n: -(1 << n % 32))):
        yield Case("special_" + name.replace(".", "_"), "u32", "u32", f"mov.u32 x, %{name};",
                   "" if name.startswith("n") else "S2R|S2UR", lambda samples, f=function: [f(n) for n in range(len(samples))],
                   samples=[(0,)] * 2 * BLOCK, whole=True)
    yield Case("clock", "u32", "u32", "mov.u32 t0, %clock; st.volatile.global.u32 [m], t0; mov.u32 t1, %clock; "
               "sub.u32 t1, t1, t0;"
               "setp.lt.u32 p0, t1, 0x40000000; selp.b32 x, 1, 0, p0;", "CS2R.32|S2R",
               lambda samples: ([1] * len(samples), [None]),
               samples=[(0,)] * BLOCK, memory=[0], whole=True)


CASES = [*votes(), *reductions(), *shuffles(), *branches(), *barriers(), *special_registers()]
