#include "client/client.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <memory>
#include <tuple>

#include "base/text.h"
#include "bindings/buffer.h"
#include "bindings/common.h"

namespace entrepot::bindings {
namespace {

using ClientPtr = std::shared_ptr<Client>;
using ObjectPtr = std::shared_ptr<SealedObject>;

// Holds the exports of all buffers of a put.
class Exports {
 public:
  Exports() = default;
  ~Exports() {
    for (Py_buffer& view : views_)
      PyBuffer_Release(&view);
  }
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;
  Exports(Exports&&) = delete;
  Exports& operator=(Exports&&) = delete;

  SourceBuffer add(nb::handle object) {
    Py_buffer view{};
    if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
    views_.push_back(view);
    return {view.buf, static_cast<std::uint64_t>(view.len)};
  }

 private:
  std::deque<Py_buffer> views_;
};

PutItem item_from(const nb::tuple& fields, Exports& exports) {
  if (fields.size() != 7 && fields.size() != 9) raise(Status(Code::kInvalidArgument, "an item has 7 or 9 fields"));
  PutItem item;
  item.id = id_from(nb::cast<nb::bytes>(fields[0]));
  item.session = nb::cast<std::uint32_t>(fields[1]);
  item.replace = nb::cast<bool>(fields[2]);
  item.fresh_id = nb::cast<bool>(fields[3]);
  item.name = nb::cast<std::string>(fields[4]);
  item.tree = std::string(view_of(nb::cast<nb::bytes>(fields[5])));
  for (const nb::handle buffer : nb::cast<nb::sequence>(fields[6]))
    item.buffers.push_back(exports.add(buffer));
  if (fields.size() == 9) {
    item.locality_set = nb::cast<std::uint32_t>(fields[7]);
    item.consumers = nb::cast<std::uint32_t>(fields[8]);
  }
  return item;
}

// slot, generation, the same content was there before, bytes of payload
using Sealed = std::tuple<std::uint32_t, std::uint32_t, bool, std::uint64_t>;

Sealed sealed(const PutResult& result, std::uint64_t bytes) {
  return {result.slot, result.generation, result.existed, bytes};
}

std::uint64_t payload_bytes(const PutItem& item) {
  std::uint64_t bytes = 0;
  for (const SourceBuffer& buffer : item.buffers)
    bytes += buffer.length;
  return bytes;
}

ClientPtr connect(const std::string& path, const std::string& label, const std::string& version, double connect_seconds,
                  double reconnect_seconds) {
  ConnectOptions options;
  options.path = path;
  options.label = label;
  options.version = version;
  options.connect_ms = milliseconds(connect_seconds);
  options.reconnect_ms = milliseconds(reconnect_seconds);
  return check(without_gil([&] { return Client::connect(options, signals()); }));
}

std::vector<Sealed> put(const ClientPtr& client, const nb::list& items, double timeout) {
  Exports exports;
  std::vector<PutItem> wanted;
  wanted.reserve(items.size());
  for (const nb::handle fields : items)
    wanted.push_back(item_from(nb::cast<nb::tuple>(fields), exports));
  const std::uint32_t wait = milliseconds(timeout);
  const auto results = without_gil([&] { return client->put(wanted, wait, signals()); });
  std::vector<Sealed> done;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].status.is_ok()) {
      raise(results.size() == 1 ? results[i].status
                                : results[i].status.with_context(concat("value ", i, " of ", results.size())));
    }
    done.push_back(sealed(results[i], payload_bytes(wanted[i])));
  }
  return done;
}

std::vector<ObjectPtr> get(const ClientPtr& client, const std::vector<nb::bytes>& ids, double timeout) {
  std::vector<IdBytes> wanted;
  wanted.reserve(ids.size());
  for (const nb::bytes& id : ids)
    wanted.push_back(id_from(id));
  const std::uint32_t wait = milliseconds(timeout);
  return check(without_gil([&] { return client->get(wanted, wait, signals()); }));
}

void add_methods(nb::class_<ClientPtr>& cls) {
  cls.def("put", &put, nb::arg("items"), nb::arg("timeout"))
      .def(
          "get_many",
          [](const ClientPtr& client, const std::vector<nb::bytes>& ids, double timeout) {
            nb::list objects;
            for (ObjectPtr& object : get(client, ids, timeout))
              objects.append(nb::cast(std::move(object)));
            return objects;
          },
          nb::arg("ids"), nb::arg("timeout"))
      .def(
          "get",
          [](const ClientPtr& client, const nb::bytes& id, double timeout) {
            const IdBytes wanted = id_from(id);
            const std::uint32_t wait = milliseconds(timeout);
            auto objects = check(without_gil([&] { return client->get(std::span(&wanted, 1), wait, signals()); }));
            return std::move(objects.front());
          },
          nb::arg("id"), nb::arg("timeout"))
      .def(
          "tree",
          [](const ClientPtr& client, const nb::bytes& id) {
            const IdBytes wanted = id_from(id);
            const ObjectTree found = check(without_gil([&] { return client->tree(wanted, signals()); }));
            return nb::make_tuple(to_bytes(found.tree), found.payload_bytes, found.generation);
          },
          nb::arg("id"))
      .def(
          "generation_of",
          [](const ClientPtr& client, const nb::bytes& id) {
            const IdBytes wanted = id_from(id);
            return check(without_gil([&] { return client->generation_of(wanted, signals()); }));
          },
          nb::arg("id"))
      .def(
          "create",
          [](const ClientPtr& client, std::uint64_t nbytes, double timeout) {
            const std::uint32_t wait = milliseconds(timeout);
            return check(without_gil([&] { return client->create(nbytes, wait, signals()); }));
          },
          nb::arg("nbytes"), nb::arg("timeout"))
      .def(
          "seal",
          [](const ClientPtr& client, const std::shared_ptr<WritableBlob>& blob, const nb::tuple& fields) {
            Exports exports;
            const PutItem item = item_from(fields, exports);
            const PutResult result = without_gil([&] { return client->seal(*blob, item, signals()); });
            check(result.status);
            return sealed(result, blob->bytes());
          },
          nb::arg("blob"), nb::arg("item"))
      .def(
          "seal_parts",
          [](const ClientPtr& client, const std::vector<std::shared_ptr<WritableBlob>>& blobs,
             const nb::tuple& fields) {
            Exports exports;
            const PutItem item = item_from(fields, exports);
            const PutResult result = without_gil([&] { return client->seal_parts(blobs, item, signals()); });
            check(result.status);
            return sealed(result, payload_bytes(item));
          },
          nb::arg("blobs"), nb::arg("item"))
      .def(
          "delete",
          [](const ClientPtr& client, const std::vector<nb::bytes>& ids) {
            const std::vector<IdBytes> wanted = ids_from(ids);
            const auto deleted = check(without_gil([&] { return client->remove(wanted, signals()); }));
            return std::vector<bool>(deleted.begin(), deleted.end());
          },
          nb::arg("ids"))
      .def(
          "load",
          [](const ClientPtr& client, const std::vector<nb::bytes>& ids) {
            const std::vector<IdBytes> wanted = ids_from(ids);
            check(without_gil([&] { return client->load(wanted, signals()); }));
          },
          nb::arg("ids"))
      .def(
          "evict",
          [](const ClientPtr& client, const std::vector<nb::bytes>& ids) {
            const std::vector<IdBytes> wanted = ids_from(ids);
            for (const Status& status : check(without_gil([&] { return client->evict(wanted, signals()); })))
              check(status);
          },
          nb::arg("ids"));
}

void add_sessions_and_names(nb::class_<ClientPtr>& cls) {
  cls.def(
         "open_session",
         [](const ClientPtr& client, const std::string& scope, const std::string& session,
            std::optional<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> limits,
            std::optional<bool> deletes_consumed) {
           std::optional<Client::SessionLimits> wanted;
           if (limits) wanted = Client::SessionLimits{std::get<0>(*limits), std::get<1>(*limits), std::get<2>(*limits)};
           return check(
               without_gil([&] { return client->open_session(scope, session, wanted, signals(), deletes_consumed); }));
         },
         nb::arg("scope"), nb::arg("session"), nb::arg("limits").none(),
         nb::arg("deletes_consumed").none() = nb::none())
      .def(
          "close_session",
          [](const ClientPtr& client, const std::string& scope, const std::string& session) {
            without_gil([&] { client->close_session(scope, session); });
          },
          nb::arg("scope"), nb::arg("session"))
      .def(
          "remove_session",
          [](const ClientPtr& client, const std::string& scope, const std::string& session) {
            check(without_gil([&] { return client->remove_session(scope, session, signals()); }));
          },
          nb::arg("scope"), nb::arg("session"))
      .def(
          "bind_name",
          [](const ClientPtr& client, std::uint32_t session, const std::string& name, const nb::bytes& id,
             bool replace) {
            const IdBytes wanted = id_from(id);
            check(without_gil([&] { return client->bind_name(session, name, wanted, replace, signals()); }));
          },
          nb::arg("session"), nb::arg("name"), nb::arg("id"), nb::arg("replace"))
      .def(
          "resolve_name",
          [](const ClientPtr& client, std::uint32_t session, const std::string& name, double timeout) {
            const std::uint32_t wait = milliseconds(timeout);
            const IdBytes id = check(without_gil([&] { return client->resolve_name(session, name, wait, signals()); }));
            return nb::bytes(reinterpret_cast<const char*>(id.data()), id.size());
          },
          nb::arg("session"), nb::arg("name"), nb::arg("timeout"))
      .def(
          "unbind_name",
          [](const ClientPtr& client, std::uint32_t session, const std::string& name) {
            check(without_gil([&] { return client->unbind_name(session, name, signals()); }));
          },
          nb::arg("session"), nb::arg("name"));
}

void add_about(nb::class_<ClientPtr>& cls) {
  cls.def(
         "list",
         [](const ClientPtr& client, std::uint32_t session, bool all_sessions, const std::string& pattern,
            std::uint32_t cursor, std::uint32_t limit) {
           ListRequest request;
           request.session = session;
           request.all_sessions = all_sessions ? 1 : 0;
           request.pattern = pattern;
           request.cursor = cursor;
           request.limit = limit;
           return check(without_gil([&] { return client->list(request, signals()); }));
         },
         nb::arg("session"), nb::arg("all_sessions"), nb::arg("pattern"), nb::arg("cursor"), nb::arg("limit"))
      .def(
          "info",
          [](const ClientPtr& client, const nb::bytes& id) {
            const IdBytes wanted = id_from(id);
            return check(without_gil([&] { return client->info(wanted, signals()); }));
          },
          nb::arg("id"))
      .def("status",
           [](const ClientPtr& client) { return check(without_gil([&] { return client->status(signals()); })); })
      .def("sessions",
           [](const ClientPtr& client) { return check(without_gil([&] { return client->sessions(signals()); })); })
      .def(
          "wait_provisioned",
          [](const ClientPtr& client, double timeout) {
            const std::uint32_t wait = milliseconds(timeout);
            check(without_gil([&] { return client->wait_provisioned(wait, signals()); }));
          },
          nb::arg("timeout"))
      .def(
          "upgrade",
          [](const ClientPtr& client, const std::string& program) {
            return check(without_gil([&] { return client->upgrade(program, signals()); }));
          },
          nb::arg("program"))
      .def("shutdown", [](const ClientPtr& client) { check(without_gil([&] { return client->shutdown(signals()); })); })
      .def("close", [](const ClientPtr& client) { without_gil([&] { client->close(); }); })
      .def_prop_ro("closed", [](const ClientPtr& client) { return client->closed(); })
      .def_prop_ro("pins", [](const ClientPtr& client) { return client->pins_in_use(); })
      .def_prop_ro("instance", [](const ClientPtr& client) { return to_hex(client->server().instance); })
      .def_prop_ro("host", [](const ClientPtr& client) { return client->server().host; })
      .def_prop_ro("daemon_version", [](const ClientPtr& client) { return client->server().version; })
      .def_prop_ro("shared_between_users",
                   [](const ClientPtr& client) { return client->server().shared_between_users; });
}

}  // namespace

void add_client(nb::module_& module) {
  nb::class_<ObjectPtr>(module, "Object", "A sealed object, pinned while this handle or a buffer of it lives.")
      .def_prop_ro("tree", [](const ObjectPtr& object) { return to_bytes(object->tree()); })
      .def_prop_ro("buffer_count", [](const ObjectPtr& object) { return object->buffers().size(); })
      .def_prop_ro("nbytes", [](const ObjectPtr& object) { return object->payload_bytes(); })
      .def_prop_ro("generation", [](const ObjectPtr& object) { return object->generation(); })
      .def(
          "buffer",
          [](const ObjectPtr& object, std::size_t index, int mode) {
            return make_buffer(object, index, static_cast<CopyMode>(mode));
          },
          nb::arg("index"), nb::arg("mode"));

  nb::class_<ClientPtr> cls(module, "Client", "One process's connection to one store. Thread-safe.");
  add_methods(cls);
  add_sessions_and_names(cls);
  add_about(cls);
  add_locality(cls);
  add_small_objects(module, cls);
  module.def("connect", &connect, nb::arg("path"), nb::arg("label"), nb::arg("version"), nb::arg("connect_timeout"),
             nb::arg("reconnect_timeout"));
}

}  // namespace entrepot::bindings
