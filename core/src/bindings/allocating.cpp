#include "bindings/allocating.h"

#include <memory>

#include "bindings/py_client.h"
#include "client/value_memory.h"

namespace entrepot::bindings {

void add_allocating(nb::module_& module) {
  module.def(
      "start_allocating",
      [](PyClient& client) {
        return ValueMemory::instance().activate(
            [weak = std::weak_ptr(client.shared_reconnecting_client())]() -> std::shared_ptr<Client> {
              const auto reconnecting = weak.lock();
              return reconnecting ? reconnecting->attachment()->client : nullptr;
            });
      },
      nb::arg("client"));
  module.def(
      "stop_allocating", [](std::uint64_t number) { ValueMemory::instance().deactivate(number); }, nb::arg("number"));
  module.def("install_numpy_handler", &install_numpy_handler, nb::arg("array_api"));
  module.def("arrow_pool", &arrow_pool, nb::arg("arrow_api"), nb::arg("pool_before"));
  module.def("value_memory", [] {
    const ValueMemoryCounts counts = ValueMemory::instance().counts();
    nb::dict fields;
    fields["allocations"] = counts.allocations;
    fields["bytes"] = counts.bytes;
    fields["allocated"] = counts.allocated;
    fields["refused"] = counts.refused;
    fields["sealed"] = counts.sealed;
    fields["last_refusal"] = to_text(counts.last_refusal);
    return fields;
  });
}

}  // namespace entrepot::bindings
