// Reservations. A handle is a reservation's number and, above it, the life of the store that granted it: the next store
// knows nothing of it.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "bindings/common.h"
#include "bindings/py_client.h"

namespace entrepot::bindings {
namespace {

using Attachment = ReconnectingClient::Attachment;
using Held = std::optional<std::tuple<std::uint64_t, std::uint64_t>>;  // bytes, bytes used

bool is_of(const Attachment& attachment, std::uint64_t handle) { return (handle >> 32) == attachment.number; }

Held held(const ReservationReply& reply) {
  if (reply.held == 0) return std::nullopt;
  return std::tuple(reply.bytes, reply.used_bytes);
}

}  // namespace

void add_reservations(nb::class_<PyClient>& cls) {
  cls.def(
         "reserve",
         [](PyClient& client, std::uint64_t nbytes, double timeout) {
           const Wait wait = milliseconds(timeout);
           return check(client.run(wait.limit, [&](const Attachment& attachment) -> Result<std::uint64_t> {
             ASSIGN_OR_RETURN(const std::uint32_t number, attachment.client->reserve(nbytes, wait, signal_interrupt()));
             return ReconnectingClient::handle(attachment, number);
           }));
         },
         nb::arg("nbytes"), nb::arg("timeout"))
      .def(
          "reservation",
          [](PyClient& client, std::uint64_t handle) {
            return check(client.run([&](const Attachment& attachment) -> Result<Held> {
              if (!is_of(attachment, handle)) return Held();
              ASSIGN_OR_RETURN(const ReservationReply reply,
                               attachment.client->reservation(static_cast<std::uint32_t>(handle), signal_interrupt()));
              return held(reply);
            }));
          },
          nb::arg("handle"))
      .def(
          "end_reservation",
          [](PyClient& client, std::uint64_t handle) -> Held {
            const auto attachment = client.reconnecting_client().attachment();
            if (!is_of(*attachment, handle)) return std::nullopt;
            const auto ended =
                without_gil([&] { return attachment->client->end_reservation(static_cast<std::uint32_t>(handle)); });
            return ended ? held(*ended) : std::nullopt;
          },
          nb::arg("handle"));
}

}  // namespace entrepot::bindings
