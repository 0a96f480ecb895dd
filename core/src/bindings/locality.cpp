// Locality sets, hints and consumers: what a program says about how its objects are used.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings/common.h"
#include "client/client.h"

namespace entrepot::bindings {
namespace {

using ClientPtr = std::shared_ptr<Client>;

}  // namespace

void add_locality(nb::class_<ClientPtr>& cls) {
  cls.def(
         "define_set",
         [](const ClientPtr& client, std::uint32_t session, const std::string& name, std::uint32_t set,
            std::uint8_t changed, std::uint64_t attributes) {
           const SetChange change{changed, SetAttributes::unpack(attributes)};
           return check(without_gil([&] { return client->define_set(session, name, set, change, signals()); })).handle;
         },
         nb::arg("session"), nb::arg("name"), nb::arg("set"), nb::arg("changed"), nb::arg("attributes"))
      .def(
          "sets",
          [](const ClientPtr& client, std::uint32_t session) {
            return check(without_gil([&] { return client->sets(session, signals()); }));
          },
          nb::arg("session"))
      .def(
          "hint",
          [](const ClientPtr& client, const std::vector<nb::bytes>& ids, std::optional<int> priority,
             std::optional<bool> pinned, std::optional<std::uint32_t> locality_set,
             std::optional<std::uint64_t> recompute_ns) {
            HintRequest request;
            request.changed = static_cast<std::uint8_t>((priority ? 1 : 0) | (pinned ? 2 : 0) | (locality_set ? 4 : 0) |
                                                        (recompute_ns ? 8 : 0));
            request.priority = static_cast<std::int8_t>(priority.value_or(0));
            request.pinned = pinned.value_or(false) ? 1 : 0;
            request.locality_set = locality_set.value_or(0);
            request.recompute_ns = recompute_ns.value_or(request.recompute_ns);
            const std::vector<IdBytes> wanted = ids_from(ids);
            check(without_gil([&] { return client->hint(wanted, request, signals()); }));
          },
          nb::arg("ids"), nb::arg("priority").none(), nb::arg("pinned").none(), nb::arg("locality_set").none(),
          nb::arg("recompute_ns").none())
      .def(
          "consumed",
          [](const ClientPtr& client, const std::vector<nb::bytes>& ids, const std::string& consumer) {
            const std::vector<IdBytes> wanted = ids_from(ids);
            return check(without_gil([&] { return client->consumed(wanted, consumer, signals()); }));
          },
          nb::arg("ids"), nb::arg("consumer"));
}

}  // namespace entrepot::bindings
