"""What the machine must not run: it says which instruction, modifier, operand or address it is, and gives no result."""

from controls import COUNTED
from kernels import Case
from uniforms import written

ADDRESS = "mad.wide.u32 place, thread, 4, m;"


def unknown():
    """Text that no assembler wrote, or that this machine does not know."""
    for name, body, word in (
            ("opcode", "FROB {x}, {a}, {b};", "FROB"),
            ("tensor_core", "HMMA.1688.F32 R24, R10, R12, R24;", "HMMA"),
            ("modifier", "IADD3.FROB {x}, {a}, {b}, RZ;", "FROB"),
            ("modifier_of_another", "IADD3.FTZ {x}, {a}, {b}, RZ;", "FTZ"),
            ("rounding_of_a_minimum", "FMNMX.RZ {x}, {a}, {b}, PT;", "RZ"),
            ("function", "MUFU.FROB {x}, {a};", "FROB"),
            ("no_function", "MUFU {x}, {a};", "MUFU"),
            ("special_register", "S2R {x}, SR_VIRTID;", "SR_VIRTID"),
            ("register_of_another_kind", "MOV {x}, Q7;", "Q7"),
            ("bank", "MOV {x}, c[0x7][0x0];", "c[0x7][0x0]"),
            ("place_in_bank", "MOV {x}, c[0x0][0x68];", "c[0x0][0x68]"),
            ("too_few_operands", "IADD3 {x}, {a}, {b};", "IADD3"),
            ("too_many_operands", "FADD {x}, {a}, {b}, {a};", "FADD"),
            ("register_beyond", "MOV R254, {a};", "R254"),
            ("comparison", "ISETP.AND P0, PT, {a}, {b}, PT; SEL {x}, {a}, {b}, P0;", "ISETP"),
            ("texture", "TEX.SCR {x}, R0, {a}, 0x0, 0x50, 2D;", "TEX"),
            ("operand_modifier", "IADD3 {x}, {a}.FROB, {b}, RZ;", "FROB"),
            ("negated_move", "MOV {x}, -{a};", "MOV"),
            ("absolute_integer", "IADD3 {x}, |{a}|, {b}, RZ;", "IADD3"),
            ("inverted_move", "MOV {x}, ~{a};", "MOV"),
            ("negated_store", "STG.E.SYS [R2], -{a};", "STG"),
            ("part_of_an_integer", "IADD3 {x}, {a}.H1, {b}, RZ;", "IADD3"),
            ("guard", "@Q1 MOV {x}, {a};", "Q1"),
            ("width_of_a_load", "LDG.E.96.SYS {x}, [R2];", "96"),
            ("shuffle", "SHFL P0, {x}, {a}, 0x1, 0x1f;", "SHFL"),
            ("atomic", "ATOMG.E.SAFEADD.STRONG.GPU PT, {x}, [R2], {a};", "SAFEADD"),
            ("barrier", "BAR.SCAN 0x0;", "SCAN")):
        yield written("unknown_" + name, "u32 u32", "u32", body, "", None, refused=word)


def assembled():
    """Instructions that ptxas does write."""
    yield Case("matrix_product", "u32 u32 u32", "u32",
               "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {t0, t1, t2, t3}, {a, b}, {c}, {a, b, c, a};"
               "add.u32 x, t0, t1; add.u32 x, x, t2; add.u32 x, x, t3;", "HMMA", None, refused="HMMA")
    yield Case("matrix_load", "u32", "u32", ".shared .align 16 .b8 room[1024]; mov.u32 t9, room; and.b32 t8, tid, 15;"
               "mad.lo.u32 t8, t8, 16, t9; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {x}, [t8];", "LDSM", None, refused="LDSM")
    yield Case("trap", "u32", "u32", "trap; mov.u32 x, a;", "BPT.TRAP", None, refused="trap")
    yield Case("clock_of_the_world", "u32", "u64", "mov.u64 x, %globaltimer;", "S2R|S2UR|CS2R", None, refused="SR_")
    yield Case("assertion", "u32 u32", "u32", "{ .reg .b64 no; mov.u64 no, 0; call.uni __assertfail, (no, no, a, no, no); "
                                              "} mov.u32 x, b;",
               "CALL.ABS LEPC", None, refused="Assertion",
               declarations=".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, "
                            ".param .b64 s);")
    yield Case("prefetch", "u32", "u32", "prefetch.global.L2 [m]; mov.u32 x, a;", "CCTL.E.PF2", None, refused="PF2", memory=[0])
    # Two that real code may have and that this machine does not run: it says so.
    yield Case("call_by_address", "u32 u32", "u32", "and.b32 t0, a, 1; setp.eq.u32 p0, t0, 1; mov.u64 w0, first_choice;"
               "mov.u64 w1, second_choice; selp.b64 w2, w0, w1, p0;\nkinds: .callprototype (.reg .b32 _) _ (.reg .b32 _);\n"
               "call (x), w2, (b), kinds;", "BRX|CALL.REL|CALL.ABS", None, refused="CALL.REL",
               declarations=".func (.reg .b32 r) first_choice(.reg .b32 u) { add.u32 r, u, 17; ret; }\n"
                            ".func (.reg .b32 r) second_choice(.reg .b32 u) { xor.b32 r, u, 255; ret; }")
    yield Case("call_in_branch", "u32 u32", "u32", "setp.gt.u32 p0, a, b; mov.u32 x, 5; @!p0 bra over;"
               "call (x), counted, (a);\nover: add.u32 x, x, 1;", "CALL.REL", None, refused="wait",
               declarations=COUNTED)


def accesses():
    """Addresses that belong to nobody."""
    here = dict(samples=[(n,) for n in range(64)], memory=[0] * 64, whole=True)
    yield Case("read_beyond", "u32", "u32", ADDRESS + "ld.global.u32 x, [place+4];", "", None, refused="illegal|700|read", **here)
    yield Case("write_before", "u32", "u32", ADDRESS + "st.global.u32 [place+-8], a; mov.u32 x, a;", "", None,
               refused="illegal|700|write", **here)
    yield Case("read_null", "u32", "u32", "mov.b64 place, 0; ld.global.u32 x, [place];", "", None, refused="null|700", **here)
    yield Case("not_aligned", "u32", "u32", ADDRESS + "ld.global.u32 x, "
                                                      "[place+2];", "", None, refused="misaligned|716|aligned", **here)
    yield Case("shared_beyond", "u32", "u32", ".shared .align 4 .b8 room[64]; mov.u32 t9, room; mad.lo.u32 t8, tid, 4, t9;"
               "st.shared.u32 [t8], a; bar.sync 0; ld.shared.u32 x, [t8];", "", None, refused="shared", **here)
    yield Case("atomic_beyond", "u32", "u32", ADDRESS + "atom.global.add.u32 x, [place+4], a;", "", None, refused="700", **here)
    yield Case("barrier_of_none", "u32", "u32", "setp.gt.u32 p0, tid, 40; mov.u32 x, a; @p0 bar.sync 1, 96;", "", None,
               refused="wait|barrier", **here)


CASES = [*unknown(), *assembled(), *accesses()]
