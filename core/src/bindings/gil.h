// Releasing and acquiring the GIL in threads that may outlive the interpreter.
//
// Up to Python 3.13, a thread that acquires the GIL after interpreter shutdown is ended in place by unwinding its
// stack. The first noexcept function on the way (every destructor is one) turns this into std::terminate: the process
// aborts at the end of a correct program. Here such a thread instead waits until the process exits, as in Python 3.14.
// It holds none of our locks then.
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

// May this thread be Python's main thread? Called at import, detect_main_thread() finds out whether that is the
// process's first thread, which it is unless Python is embedded in another program.
void detect_main_thread();
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
