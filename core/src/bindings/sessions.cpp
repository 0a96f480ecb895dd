// Sessions and names.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <string>
#include <tuple>

#include "bindings/common.h"
#include "bindings/py_client.h"

namespace entrepot::bindings {
namespace {

using Attachment = ReconnectingClient::Attachment;

}  // namespace

void add_sessions_and_names(nb::class_<PyClient>& cls) {
  cls.def(
         "open_session",
         [](PyClient& client, const std::string& scope, const std::string& session,
            std::optional<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> limits,
            std::optional<bool> deletes_consumed) {
           std::optional<Client::SessionLimits> session_limits;
           if (limits)
             session_limits = Client::SessionLimits{std::get<0>(*limits), std::get<1>(*limits), std::get<2>(*limits)};
           return check(client.run([&](const Attachment& attachment) {
             return client.reconnecting_client().open_session(attachment, scope, session, session_limits,
                                                              deletes_consumed, signal_interrupt());
           }));
         },
         nb::arg("scope"), nb::arg("session"), nb::arg("limits").none(),
         nb::arg("deletes_consumed").none() = nb::none())
      .def(
          "close_session",
          [](PyClient& client, const std::string& scope, const std::string& session) {
            without_gil([&] { client.reconnecting_client().close_session(scope, session); });
          },
          nb::arg("scope"), nb::arg("session"))
      .def(
          "remove_session",
          [](PyClient& client, const std::string& scope, const std::string& session) {
            check(client.run([&](const Attachment& attachment) {
              return attachment.client->remove_session(scope, session, signal_interrupt());
            }));
            client.reconnecting_client().forget_session(scope, session);
          },
          nb::arg("scope"), nb::arg("session"))
      .def(
          "remove_unused_session",
          [](PyClient& client, const std::string& scope, const std::string& session, std::uint64_t last_used) {
            const RemoveUnusedReply done = check(client.run([&](const Attachment& attachment) {
              return attachment.client->remove_unused_session(scope, session, last_used, signal_interrupt());
            }));
            return nb::make_tuple(done.removed != 0, done.opened_by);
          },
          nb::arg("scope"), nb::arg("session"), nb::arg("last_used_unix_ns"))
      .def(
          "bind_name",
          [](PyClient& client, std::uint64_t session, const std::string& name, const nb::bytes& id, bool replace) {
            const IdBytes object_id = id_from(id);
            check(client.run([&](const Attachment& attachment) -> Status {
              ASSIGN_OR_RETURN(const auto number,
                               client.reconnecting_client().session_number(attachment, session, signal_interrupt()));
              return attachment.client->bind_name(number, name, object_id, replace, signal_interrupt());
            }));
          },
          nb::arg("session"), nb::arg("name"), nb::arg("id"), nb::arg("replace"))
      .def(
          "resolve_name",
          [](PyClient& client, std::uint64_t session, const std::string& name, double timeout) {
            const Wait wait = milliseconds(timeout);
            const IdBytes id = check(client.run(wait.limit, [&](const Attachment& attachment) {
              return client.reconnecting_client().resolve_name(attachment, session, name, wait, signal_interrupt());
            }));
            return nb::bytes(reinterpret_cast<const char*>(id.data()), id.size());
          },
          nb::arg("session"), nb::arg("name"), nb::arg("timeout"))
      .def(
          "unbind_name",
          [](PyClient& client, std::uint64_t session, const std::string& name) {
            check(client.run([&](const Attachment& attachment) -> Status {
              ASSIGN_OR_RETURN(const auto number,
                               client.reconnecting_client().session_number(attachment, session, signal_interrupt()));
              return attachment.client->unbind_name(number, name, signal_interrupt());
            }));
          },
          nb::arg("session"), nb::arg("name"));
}

}  // namespace entrepot::bindings
