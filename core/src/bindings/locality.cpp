// Locality sets, hints and consumers: how a program declares the use of its objects.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings/common.h"
#include "bindings/py_client.h"

namespace entrepot::bindings {
namespace {

using Attachment = ReconnectingClient::Attachment;

}  // namespace

void add_locality(nb::class_<PyClient>& cls) {
  cls.def(
         "define_set",
         [](PyClient& client, std::uint64_t session, const std::string& name, std::uint64_t set, std::uint8_t changed,
            std::uint64_t attributes) {
           const SetChange change{changed, SetAttributes::unpack(attributes)};
           return check(client.run([&](const Attachment& attachment) -> Result<std::uint64_t> {
             ASSIGN_OR_RETURN(const auto number,
                              client.reconnecting_client().session_number(attachment, session, signal_interrupt()));
             ASSIGN_OR_RETURN(const auto set_number, ReconnectingClient::set_number(attachment, set));
             ASSIGN_OR_RETURN(const auto defined,
                              attachment.client->define_set(number, name, set_number, change, signal_interrupt()));
             return ReconnectingClient::handle(attachment, defined.handle);
           }));
         },
         nb::arg("session"), nb::arg("name"), nb::arg("set"), nb::arg("changed"), nb::arg("attributes"))
      .def(
          "sets",
          [](PyClient& client, std::uint64_t session) {
            return to_text(check(client.run([&](const Attachment& attachment) -> Result<std::string> {
              ASSIGN_OR_RETURN(const auto number,
                               client.reconnecting_client().session_number(attachment, session, signal_interrupt()));
              return attachment.client->sets(number, signal_interrupt());
            })));
          },
          nb::arg("session"))
      .def(
          "hint",
          [](PyClient& client, const std::vector<nb::bytes>& ids, std::optional<int> priority,
             std::optional<bool> pinned, std::optional<std::uint64_t> locality_set,
             std::optional<std::uint64_t> recompute_ns) {
            HintRequest request;
            request.changed = static_cast<std::uint8_t>((priority ? 1 : 0) | (pinned ? 2 : 0) | (locality_set ? 4 : 0) |
                                                        (recompute_ns ? 8 : 0));
            request.priority = static_cast<std::int8_t>(priority.value_or(0));
            request.pinned = pinned.value_or(false) ? 1 : 0;
            request.recompute_ns = recompute_ns.value_or(request.recompute_ns);
            const std::vector<IdBytes> object_ids = ids_from(ids);
            check(client.run([&](const Attachment& attachment) -> Status {
              ASSIGN_OR_RETURN(request.locality_set,
                               ReconnectingClient::set_number(attachment, locality_set.value_or(0)));
              return attachment.client->hint(object_ids, request, signal_interrupt());
            }));
          },
          nb::arg("ids"), nb::arg("priority").none(), nb::arg("pinned").none(), nb::arg("locality_set").none(),
          nb::arg("recompute_ns").none())
      .def(
          "consumed",
          [](PyClient& client, const std::vector<nb::bytes>& ids, const std::string& consumer) {
            const std::vector<IdBytes> object_ids = ids_from(ids);
            return check(client.run([&](const Attachment& attachment) {
              return attachment.client->consumed(object_ids, consumer, signal_interrupt());
            }));
          },
          nb::arg("ids"), nb::arg("consumer"));
}

}  // namespace entrepot::bindings
