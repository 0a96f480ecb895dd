// Threads that end in the middle of a call.
#pragma once

namespace entrepot::os {

// Runs `call(argument)`. Where that ends the thread by pthread_exit, the thread waits here for the end of its process
// instead: the frames above are not unwound, which would run their destructors and abort at the first noexcept one.
//
// It holds for every C++ runtime: neither the C library's unwinder nor this function need understand the frames of the
// other one's, which in a wheel belong to a runtime that is linked into it. `call` must have no destructors to run.
void call_or_park(void (*call)(void*), void* argument);

}  // namespace entrepot::os
