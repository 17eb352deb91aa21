#include "races.h"

#include <sanitizer/tsan_interface.h>

namespace lockstep::emulated_cuda {

bool races_are_reported() {
  return true;
}
void* this_thread() {
  return __tsan_get_current_fiber();
}
void* new_thread() {
  return __tsan_create_fiber(0);
}
void become(void* thread) {
  __tsan_switch_to_fiber(thread, __tsan_switch_to_fiber_no_sync);
}
void publish(void* channel) {
  __tsan_release(channel);
}
void observe(void* channel) {
  __tsan_acquire(channel);
}

}  // namespace lockstep::emulated_cuda
