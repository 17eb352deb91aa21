/* The lockstep_array of a Fortran array. The descriptor is that of one compiler: compile this file
 * with the ISO_Fortran_binding.h of the compiler that compiles lockstep.f90. */
#include <ISO_Fortran_binding.h>
#include <lockstep/c/lockstep.h>
#include <stddef.h>

lockstep_array lockstep_fortran_array(const CFI_cdesc_t* x, const int* reversed);

typedef struct {
  CFI_type_t type;
  int dtype;
  int bytes;       /* of an element */
  const char* why; /* an array of this type is refused */
} Kind;

#define TAKEN(type, dtype, bytes) \
  { type, dtype, bytes, NULL }
#define REFUSED(type, name) \
  { type, LOCKSTEP_REFUSED, 1, "the array is " name "; expected real32, real64, int32 or int64" }

static const Kind kKinds[] = {
    TAKEN(CFI_type_float, LOCKSTEP_FLOAT32, 4),
    TAKEN(CFI_type_double, LOCKSTEP_FLOAT64, 8),
    TAKEN(CFI_type_int32_t, LOCKSTEP_INT32, 4),
    TAKEN(CFI_type_int64_t, LOCKSTEP_INT64, 8),
    REFUSED(CFI_type_int8_t, "integer(int8)"),
    REFUSED(CFI_type_int16_t, "integer(int16)"),
    REFUSED(CFI_type_long_double, "real(c_long_double)"),
    REFUSED(CFI_type_float_Complex, "complex(real32)"),
    REFUSED(CFI_type_double_Complex, "complex(real64)"),
    REFUSED(CFI_type_Bool, "logical(c_bool)"),
    REFUSED(CFI_type_char, "character"),
    REFUSED(CFI_type_struct, "of a derived type"),
#ifdef CFI_type_kind_shift /* gfortran's codes for types that C does not have */
    REFUSED(CFI_type_Real + (16 << CFI_type_kind_shift), "real(real128)"),
    REFUSED(CFI_type_Logical + (4 << CFI_type_kind_shift), "logical"),
#endif
    REFUSED(CFI_type_other, "of another type"), /* the last */
};

static Kind kind_of(CFI_type_t type) {
  size_t i = 0;
  while (i + 1 < sizeof kKinds / sizeof kKinds[0] && kKinds[i].type != type) {
    ++i;
  }
  return kKinds[i];
}

static const char* why_refused(const CFI_cdesc_t* x, Kind kind) {
  if (kind.why != NULL) {
    return kind.why;
  }
  if (x->rank > LOCKSTEP_MAX_RANK) {
    return "the array has more than 8 dimensions";
  }
  if (x->base_addr == NULL) {
    return "the array is not allocated, or the pointer not associated";
  }
  for (int i = 0; i < x->rank; ++i) {
    if (x->dim[i].extent < 0) {
      return "the array is assumed-size, so its last extent is not known; pass a section x(:n)";
    }
    if (x->dim[i].sm % kind.bytes != 0) {
      return "the elements are not a whole number of elements apart; pass a copy";
    }
  }
  return NULL;
}

lockstep_array lockstep_fortran_array(const CFI_cdesc_t* x, const int* reversed) {
  const Kind kind = kind_of(x->type);
  const char* why = why_refused(x, kind);
  lockstep_array array = {x->base_addr, kind.dtype, 0, {0}, {0}};
  if (why != NULL) {
    array.data = (void*)why;
    array.dtype = LOCKSTEP_REFUSED;
    return array;
  }
  array.rank = x->rank;
  for (int i = 0; i < x->rank; ++i) {
    const int to = reversed != NULL && *reversed ? x->rank - 1 - i : i;
    array.shape[to] = x->dim[i].extent;
    array.strides[to] = x->dim[i].sm / kind.bytes;
  }
  return array;
}
