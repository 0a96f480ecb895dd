// Compiled without exceptions, so that pthread_cleanup_push sets a jump target for the C library instead of a
// destructor that an unwinder would have to find.
#include "os/thread_end.h"

#include <pthread.h>
#include <unistd.h>

namespace entrepot::os {
namespace {

void park(void* /*unused*/) {
  while (true)
    ::pause();
}

}  // namespace

void call_or_park(void (*call)(void*), void* argument) {
  pthread_cleanup_push(park, nullptr);
  call(argument);
  pthread_cleanup_pop(0);
}

}  // namespace entrepot::os
