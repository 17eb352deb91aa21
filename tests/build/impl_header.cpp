#include <lockstep/lockstep.h>
#include <lockstep/runtime/step/impl/step.h>
