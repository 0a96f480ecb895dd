#include "bindings/gil.h"

#include <cstdint>

#include "os/process.h"
#include "os/thread_end.h"

namespace entrepot::bindings {
namespace {

bool main_is_first = false;  // set at import, under the GIL

}  // namespace

void detect_main_thread() {
  namespace nb = nanobind;
  const nb::object main = nb::module_::import_("threading").attr("main_thread")();
  main_is_first = nb::cast<std::int64_t>(main.attr("native_id")) == os::current_pid();
}

bool may_run_handlers() { return !main_is_first || os::in_first_thread(); }

GilReleased::~GilReleased() {
  os::call_or_park([](void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); }, state_);
}

GilHeld::GilHeld() : state_() {
  os::call_or_park([](void* state) { *static_cast<PyGILState_STATE*>(state) = PyGILState_Ensure(); }, &state_);
}

}  // namespace entrepot::bindings
