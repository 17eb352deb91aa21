/* The header alone, as a C99 compiler sees it. */
#include <lockstep/c/lockstep.h>

const char* header_alone(void);
const char* header_alone(void) {
  return lockstep_last_error();
}
