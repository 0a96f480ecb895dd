// Sessions and names.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <string>
#include <tuple>

#include "bindings/access.h"
#include "bindings/common.h"

namespace entrepot::bindings {
namespace {

using Life = ReconnectingClient::Life;

}  // namespace

void add_sessions_and_names(nb::class_<Access>& cls) {
  cls.def(
         "open_session",
         [](Access& client, const std::string& scope, const std::string& session,
            std::optional<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> limits,
            std::optional<bool> deletes_consumed) {
           std::optional<Client::SessionLimits> wanted;
           if (limits) wanted = Client::SessionLimits{std::get<0>(*limits), std::get<1>(*limits), std::get<2>(*limits)};
           return check(client.run([&](const Life& life) {
             return client.layer().open_session(life, scope, session, wanted, deletes_consumed, signals());
           }));
         },
         nb::arg("scope"), nb::arg("session"), nb::arg("limits").none(),
         nb::arg("deletes_consumed").none() = nb::none())
      .def(
          "close_session",
          [](Access& client, const std::string& scope, const std::string& session) {
            without_gil([&] { client.layer().close_session(scope, session); });
          },
          nb::arg("scope"), nb::arg("session"))
      .def(
          "remove_session",
          [](Access& client, const std::string& scope, const std::string& session) {
            check(client.run([&](const Life& life) { return life.client->remove_session(scope, session, signals()); }));
            client.layer().forget_session(scope, session);
          },
          nb::arg("scope"), nb::arg("session"))
      .def(
          "remove_unused_session",
          [](Access& client, const std::string& scope, const std::string& session, std::uint64_t last_used) {
            const RemoveUnusedReply done = check(client.run([&](const Life& life) {
              return life.client->remove_unused_session(scope, session, last_used, signals());
            }));
            return nb::make_tuple(done.removed != 0, done.opened_by);
          },
          nb::arg("scope"), nb::arg("session"), nb::arg("last_used_unix_ns"))
      .def(
          "bind_name",
          [](Access& client, std::uint64_t session, const std::string& name, const nb::bytes& id, bool replace) {
            const IdBytes wanted = id_from(id);
            check(client.run([&](const Life& life) -> Status {
              ASSIGN_OR_RETURN(const auto number, client.layer().session_number(life, session, signals()));
              return life.client->bind_name(number, name, wanted, replace, signals());
            }));
          },
          nb::arg("session"), nb::arg("name"), nb::arg("id"), nb::arg("replace"))
      .def(
          "resolve_name",
          [](Access& client, std::uint64_t session, const std::string& name, double timeout) {
            const Wait wait = milliseconds(timeout);
            const IdBytes id = check(client.run(wait.limit, [&](const Life& life) -> Result<IdBytes> {
              ASSIGN_OR_RETURN(const auto number, client.layer().session_number(life, session, signals()));
              return life.client->resolve_name(number, name, wait, signals());
            }));
            return nb::bytes(reinterpret_cast<const char*>(id.data()), id.size());
          },
          nb::arg("session"), nb::arg("name"), nb::arg("timeout"))
      .def(
          "unbind_name",
          [](Access& client, std::uint64_t session, const std::string& name) {
            check(client.run([&](const Life& life) -> Status {
              ASSIGN_OR_RETURN(const auto number, client.layer().session_number(life, session, signals()));
              return life.client->unbind_name(number, name, signals());
            }));
          },
          nb::arg("session"), nb::arg("name"));
}

}  // namespace entrepot::bindings
