#include <cmath>
#include <limits>

#include "base/text.h"
#include "bindings/common.h"

namespace entrepot::bindings {

void raise(const Status& status) {
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  const std::string name(code_name(status.code()));
  const nb::module_ errors = nb::module_::import_("entrepot.errors");
  const nb::object cls = nb::hasattr(errors, name.c_str()) ? errors.attr(name.c_str()) : errors.attr("EntrepotError");
  PyErr_SetObject(cls.ptr(), to_text(status.message()).ptr());
  throw nb::python_error();
}

nb::str to_text(std::string_view text) {
  PyObject* decoded = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace");
  if (decoded == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(decoded);
}

// Python runs signal handlers in its main thread only. Other threads do not acquire the GIL while they wait, so that
// interpreter shutdown meets them there as rarely as possible.
Interrupt signal_interrupt() {
  return {[](void*) {
            if (!may_run_handlers()) return false;
            const GilHeld gil;
            return PyErr_CheckSignals() != 0;
          },
          nullptr};
}

IdBytes id_from(const nb::bytes& bytes) {
  return check(id_from_bytes({reinterpret_cast<const std::uint8_t*>(bytes.c_str()), bytes.size()}));
}

std::uint32_t milliseconds(double seconds) {
  if (std::isnan(seconds) || seconds < 0) {
    raise(
        Status(Code::kInvalidArgument, concat("a timeout must be a number of seconds, 0 or more, but got ", seconds)));
  }
  const double milliseconds_rounded = std::ceil(seconds * 1000);
  constexpr std::uint32_t kMaxMilliseconds = std::numeric_limits<std::uint32_t>::max() / 2;  // about 24 days
  return milliseconds_rounded > kMaxMilliseconds ? kMaxMilliseconds : static_cast<std::uint32_t>(milliseconds_rounded);
}

}  // namespace entrepot::bindings
