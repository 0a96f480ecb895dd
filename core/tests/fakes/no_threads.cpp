// Linked into the tests that are not run under ThreadSanitizer because they have one thread only: aborts a test that
// starts another.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

// Exported, so that it also replaces the function for libstdc++.
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* /*thread*/,
                                                                     const pthread_attr_t* /*attributes*/,
                                                                     void* (* /*start*/)(void*),
                                                                     void* /*argument*/) noexcept {
  std::fputs("this test starts a thread: remove SINGLE_THREADED from its entrepot_test(), so that it runs under TSan\n",
             stderr);
  std::abort();
}
