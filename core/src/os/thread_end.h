// Handling of threads that end in the middle of a call.
#pragma once

namespace entrepot::os {

// Runs `call(argument)`. If that ends the thread by pthread_exit, the thread waits here until the process exits:
// unwinding the frames above would run their destructors and abort at the first noexcept one.
//
// Works with any C++ runtime: neither the C library's unwinder nor this function needs to understand frames of another
// runtime, such as one linked statically into a wheel. `call` must not have destructors to run.
void call_or_park(void (*call)(void*), void* argument);

}  // namespace entrepot::os
