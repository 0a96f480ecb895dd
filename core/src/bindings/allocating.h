// Lets other libraries allocate their values in the store's memory; see client/value_memory.h.
#pragma once

#include <nanobind/nanobind.h>

#include "bindings/common.h"

namespace entrepot::bindings {

// `array_api` is NumPy's capsule `_ARRAY_API`. False: this release of NumPy has another interface.
[[nodiscard]] bool install_numpy_handler(nb::handle array_api);
// Returns a pyarrow.MemoryPool that serves from the store first, then from the pool given; None: this release of
// pyarrow has no such interface. `arrow_api` is pyarrow.lib's dictionary of C functions.
[[nodiscard]] nb::object arrow_pool(nb::handle arrow_api, nb::handle pool_before);

}  // namespace entrepot::bindings
