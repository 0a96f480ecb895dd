// Letting go of the GIL and taking it again, in threads that the interpreter's end may overtake.
//
// Up to Python 3.13 a thread that asks for the GIL after that is ended where it stands, by unwinding its stack. The
// first function on the way that is noexcept, as every destructor is, makes std::terminate of it: the whole process
// aborts, at the end of a program that did nothing wrong. Such a thread waits here for the end of the process instead,
// as it does in Python 3.14. It holds none of our locks then.
#pragma once

#include <nanobind/nanobind.h>

namespace entrepot::bindings {

class GilReleased {
 public:
  GilReleased() noexcept : state_(PyEval_SaveThread()) {}
  ~GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

// Whether this may be Python's main thread. Called where the module is imported, it finds out whether that is the
// process's first thread, as it is unless Python is embedded in another program.
void learn_main_thread();
[[nodiscard]] bool may_run_handlers();

class GilHeld {
 public:
  GilHeld();
  ~GilHeld() { PyGILState_Release(state_); }
  GilHeld(const GilHeld&) = delete;
  GilHeld& operator=(const GilHeld&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace entrepot::bindings
