#include "opcodes.h"

#include <string>
#include <unordered_map>

#include "operations.h"

namespace fake_cuda {
namespace {

// Lists that several instructions share.
#define COMPARISONS "LT EQ LE GT NE GE F T "
#define UNORDERED "LTU EQU LEU GTU NEU GEU NUM NAN "
#define ROUNDINGS "RM RP RZ "
#define INTEGERS "U8 S8 U16 S16 U32 S32 U64 S64 "
#define SIZES "U8 S8 U16 S16 32 64 128 "
#define ORDERS "U SYS GPU CTA SM STRONG WEAK CONSTANT LTC64B LTC128B LTC256B EF EL EU LU NA "

/// Everything that the machine knows.
const std::vector<Opcode>& table() {
  using namespace operations;
  static const std::vector<Opcode> all = {
      // Integers.
      {"IMAD", "MOV SHL IADD WIDE HI X U32", "", "DfABCp", multiply_add},
      {"UIMAD", "MOV SHL IADD WIDE HI X U32", "", "DfABCp", multiply_add},
      {"IADD3", "X", "", "DfgABCpq", add3},
      {"UIADD3", "X", "", "DfgABCpq", add3},
      {"VIADD", "", "", "DAB", add2},
      {"LEA", "HI X SX32", "", "DfABwnp", shifted_add},
      {"ULEA", "HI X SX32", "", "DfABwnp", shifted_add},
      {"ISETP", COMPARISONS "U32 EX AND OR XOR", "", "FGABPq", compare},
      {"UISETP", COMPARISONS "U32 EX AND OR XOR", "", "FGABPq", compare},
      {"IMNMX", "U32", "", "DABP", minmax},
      {"UIMNMX", "U32", "", "DABP", minmax},
      {"IABS", "", "", "DA", absolute},
      {"IDP", "4A U8 S8", "", "DABC", dot_product},
      // Bits.
      {"MOV", "", "", "DA", move},
      {"UMOV", "", "", "DA", move},
      {"LOP3", "", "LUT", "fDABCNP", logic3},
      {"ULOP3", "", "LUT", "fDABCNP", logic3},
      {"PLOP3", "", "LUT", "FGPQRNO", predicate_logic3},
      {"UPLOP3", "", "LUT", "FGPQRNO", predicate_logic3},
      {"SHF", "L R W HI U32 S32 U64 S64", "", "DABC", shift},
      {"USHF", "L R W HI U32 S32 U64 S64", "", "DABC", shift},
      {"PRMT", "", "", "DABC", permute},
      {"UPRMT", "", "", "DABC", permute},
      {"SEL", "", "", "DABP", select},
      {"USEL", "", "", "DABP", select},
      {"FLO", "U32 SH", "", "DA", leading_one},
      {"UFLO", "U32 SH", "", "DA", leading_one},
      {"POPC", "", "", "DA", population},
      {"UPOPC", "", "", "DA", population},
      {"BREV", "", "", "DA", reverse},
      {"UBREV", "", "", "DA", reverse},
      {"BMSK", "W", "", "DAB", bit_mask},
      {"UBMSK", "W", "", "DAB", bit_mask},
      {"SGXT", "W U32", "", "DAB", sign_extend},
      {"USGXT", "W U32", "", "DAB", sign_extend},
      {"R2P", "", "", "XAN", register_to_predicates},
      {"P2R", "", "", "DXAN", predicates_to_register},
      // Floats.
      {"FADD", ROUNDINGS "FTZ SAT", "RN", "DAB", float_add},
      {"FMUL", ROUNDINGS "FTZ SAT", "RN", "DAB", float_multiply},
      {"FFMA", ROUNDINGS "FTZ SAT", "RN", "DABC", float_multiply_add},
      {"FSETP", COMPARISONS UNORDERED "FTZ AND OR XOR", "", "FGABP", float_compare},
      {"FSET", COMPARISONS UNORDERED "BF FTZ AND OR XOR", "", "DABP", float_set},
      {"FSEL", "FTZ", "", "DABP", float_select},
      {"FMNMX", "FTZ NAN", "", "DABP", float_minmax},
      {"MUFU", "RCP RSQ SQRT EX2 LG2 SIN COS TANH RCP64H RSQ64H", "", "DA", float_function},
      {"FCHK", "", "DIVIDE", "FAB", float_check_division},
      // Doubles.
      {"DADD", ROUNDINGS, "RN", "DAB", double_add},
      {"DMUL", ROUNDINGS, "RN", "DAB", double_multiply},
      {"DFMA", ROUNDINGS, "RN", "DABC", double_multiply_add},
      {"DSETP", COMPARISONS UNORDERED "MIN MAX AND OR XOR", "", "FGABP", double_compare},
      // Pairs of 16-bit floats. .MMA: by another unit, with the same result.
      {"HADD2", "F32 FTZ SAT BF16_V2", "MMA", "DAB", half_add},
      {"HMUL2", "F32 FTZ SAT BF16_V2", "MMA", "DAB", half_multiply},
      {"HFMA2", "F32 FTZ SAT RELU BF16_V2", "MMA", "DABC", half_multiply_add},
      {"HSETP2", COMPARISONS UNORDERED "AND OR XOR BF16_V2", "", "FGABP", half_compare},
      {"HSET2", COMPARISONS UNORDERED "BF AND OR XOR BF16_V2", "", "DABP", half_set},
      {"HMNMX2", "NAN BF16_V2", "", "DABP", half_minmax},
      // Conversions. NTZ: no note of a loss.
      {"F2F", ROUNDINGS "FTZ F16 F32 F64", "RN", "DA", float_to_float},
      {"F2I", INTEGERS "F16 F32 F64 FTZ TRUNC FLOOR CEIL", "NTZ", "DA", float_to_integer},
      {"I2F", INTEGERS ROUNDINGS "F16 F32 F64", "RN", "DA", integer_to_float},
      {"I2IP", "U8 S8 S32 SAT", "", "DABC", pack_integers},
      {"FRND", "F16 F32 F64 FTZ TRUNC FLOOR CEIL", "", "DA", round_float},
      {"F2FP", "BF16 FTZ RZ RELU", "PACK_AB F16 F32", "DAB", pack_floats},
      // Memory.
      {"LDG", SIZES "E", ORDERS, "DM", load},
      {"LD", SIZES "E", ORDERS, "DM", load},
      {"LDS", SIZES, "U", "DM", load_shared},
      {"LDL", SIZES, "LU EF EL NA", "DM", load_local},
      {"STG", SIZES "E", ORDERS, "MA", store},
      {"ST", SIZES "E", ORDERS, "MA", store},
      {"STS", SIZES, "", "MA", store_shared},
      {"STL", SIZES, "LU EF EL NA", "MA", store_local},
      {"LDC", SIZES, "", "DK", load_constant},
      {"ULDC", SIZES, "", "DK", load_constant},
      {"ATOM", "E ADD MIN MAX INC DEC AND OR XOR EXCH CAS 64 U32 S32 S64 F32 F64 F16x2 FTZ",
       "RN " ORDERS, "fDMAb", atomic},
      {"ATOMG", "E ADD MIN MAX INC DEC AND OR XOR EXCH CAS 64 U32 S32 S64 F32 F64 F16x2 FTZ",
       "RN " ORDERS, "fDMAb", atomic},
      {"RED", "E ADD MIN MAX INC DEC AND OR XOR 64 U32 S32 S64 F32 F64 F16x2 FTZ", "RN " ORDERS,
       "MA", atomic},
      {"ATOMS", "ADD MIN MAX INC DEC AND OR XOR EXCH CAS CAST POPC 32 64 U32 S32 S64", "SPIN",
       "DMAb|DM", atomic_shared},
      {"QSPC", "E S", "", "FDM", query_space},
      // Warps.
      {"S2R", "", "", "DS", read_special},
      {"S2UR", "", "", "DS", read_special},
      {"CS2R", "32", "", "DS", read_special_wide},
      {"R2UR", "", "", "DA", to_uniform},
      {"VOTE", "ANY ALL EQ", "", "dFP", vote},
      {"VOTEU", "ANY ALL EQ", "", "dFP", vote},
      {"MATCH", "ANY ALL U64", "U32", "fDA", match},
      {"REDUX", "OR AND XOR SUM MIN MAX S32", "", "DA", reduce},
      {"SHFL", "IDX UP DOWN BFLY", "", "FDABC", shuffle},
      // Control. Nothing here runs at once, so that fences and hints have no effect.
      {"BRA", "DIV CONV", "U", "pT|pAT", branch},
      {"BRX", "", "", "AN", branch_indexed},
      {"CALL", "REL ABS", "NOINC", "pT|A", call},
      {"RET", "REL", "NODEC", "AN", return_from},
      {"EXIT", "", "", "p", end},
      {"BPT", "", "TRAP", "N", trap},
      {"LEPC", "", "", "D", program_counter},
      {"BSSY", "", "", "pHT", set_sync},
      {"BSYNC", "", "", "pH", sync},
      {"BREAK", "", "", "pH", leave_sync},
      {"WARPSYNC", "", "", "pA", warp_sync},
      {"BMOV", "CLEAR 32", "", "DH|HA", move_barrier},
      {"BAR", "SYNC ARV RED OR AND POPC", "DEFER_BLOCKING", "Abp", block_barrier},
      {"B2R", "RESULT", "", "Df", barrier_result},
      {"NOP", "", "", "", nothing},
      {"YIELD", "", "", "", nothing},
      {"NANOSLEEP", "", "WARP", "A", nothing},
      {"MEMBAR", "", "SC ALL SYS GPU CTA VC", "", nothing},
      {"ERRBAR", "", "", "", nothing},
      {"CCTL", "", "IVALL", "", nothing},
      {"DEPBAR", "", "LE", "*", nothing},
  };
  return all;
}

}  // namespace

const std::vector<Opcode>& all_opcodes() {
  return table();
}

const Opcode* opcode_of(std::string_view name) {
  static const auto* by_name = [] {
    auto* map = new std::unordered_map<std::string_view, const Opcode*>;
    for (const Opcode& opcode : table()) {
      map->emplace(opcode.name, &opcode);
    }
    return map;
  }();
  const auto found = by_name->find(name);
  return found == by_name->end() ? nullptr : found->second;
}

}  // namespace fake_cuda
