// entrepot._core: the client for Python; typed in core/python/entrepot/_core.pyi.
#include <nanobind/nanobind.h>

#include "base/crc32c.h"
#include "bindings/common.h"
#include "bindings/gil.h"
#include "client/copy.h"
#include "net/protocol.h"

namespace {

constexpr std::size_t kReleaseGilForCrcBytes = 64U << 10;

// The Py_buffer is held without the GIL, so the bytes stay valid; whether they change meanwhile is up to the caller.
std::uint32_t crc32c_of(nanobind::handle data, std::uint32_t seed) {
  Py_buffer view{};
  if (PyObject_GetBuffer(data.ptr(), &view, PyBUF_SIMPLE) != 0) throw nanobind::python_error();
  const auto bytes = static_cast<std::size_t>(view.len);
  std::uint32_t value = 0;
  if (bytes >= kReleaseGilForCrcBytes) {
    const entrepot::bindings::GilReleased released;
    value = entrepot::crc32c(view.buf, bytes, seed);
  } else {
    value = entrepot::crc32c(view.buf, bytes, seed);
  }
  PyBuffer_Release(&view);
  return value;
}

}  // namespace

NB_MODULE(_core, module) {
  namespace nb = nanobind;
  // Values may still hold pins at interpreter shutdown; they are released when the process exits.
  nb::set_leak_warnings(false);
  entrepot::bindings::detect_main_thread();
  entrepot::bindings::add_buffers(module);
  entrepot::bindings::add_client(module);
  entrepot::bindings::add_frozen(module);
  entrepot::bindings::add_allocating(module);
  entrepot::bindings::add_request_deadline(module);
  entrepot::bindings::add_object_text(module);
  module.attr("PROTOCOL") = nb::make_tuple(entrepot::kProtocolMajor, entrepot::kProtocolMinor);
  module.attr("LAYOUT") = entrepot::kLayoutVersion;
  module.attr("API") = ENTREPOT_API_STAMP;
  module.attr("VERSION") = ENTREPOT_VERSION;
  module.def("crc32c", &crc32c_of, nb::arg("data"), nb::arg("seed") = 0);
  module.def("copy_kind", [] { return nb::str(entrepot::copy_kind().data(), entrepot::copy_kind().size()); });
}
