// entrepot._core: the client for Python. core/python/entrepot/_core.pyi is its signature.
#include <nanobind/nanobind.h>

#include "bindings/common.h"
#include "client/copy.h"
#include "net/protocol.h"

NB_MODULE(_core, module) {
  namespace nb = nanobind;
  // At the interpreter's end values may still hold pins; the process's end returns them.
  nb::set_leak_warnings(false);
  entrepot::bindings::add_buffers(module);
  entrepot::bindings::add_client(module);
  module.attr("PROTOCOL") = nb::make_tuple(entrepot::kProtocolMajor, entrepot::kProtocolMinor);
  module.attr("LAYOUT") = entrepot::kLayoutVersion;
  module.attr("API") = ENTREPOT_API_STAMP;
  module.def("copy_kind", [] { return nb::str(entrepot::copy_kind().data(), entrepot::copy_kind().size()); });
}
