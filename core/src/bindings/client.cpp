#include "client/client.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <memory>
#include <span>
#include <tuple>

#include "base/text.h"
#include "bindings/access.h"
#include "bindings/buffer.h"
#include "bindings/common.h"

namespace entrepot::bindings {
namespace {

using Life = ReconnectingClient::Life;
using ObjectPtr = std::shared_ptr<SealedObject>;

// Holds the buffer exports of a put.
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
  item.session_handle = nb::cast<std::uint64_t>(fields[1]);
  item.replace = nb::cast<bool>(fields[2]);
  item.fresh_id = nb::cast<bool>(fields[3]);
  item.name = nb::cast<std::string>(fields[4]);
  item.tree = std::string(view_of(nb::cast<nb::bytes>(fields[5])));
  for (const nb::handle buffer : nb::cast<nb::sequence>(fields[6]))
    item.buffers.push_back(exports.add(buffer));
  if (fields.size() == 9) {
    item.set_handle = nb::cast<std::uint64_t>(fields[7]);
    item.consumers = nb::cast<std::uint32_t>(fields[8]);
  }
  return item;
}

// Slot, generation, whether the same content existed before, bytes of payload.
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

Access* connect(const std::string& path, const std::string& label, const std::string& version, double connect_seconds,
                double reconnect_seconds, nb::object start, nb::object succeeded) {
  ConnectOptions options;
  options.path = path;
  options.label = label;
  options.version = version;
  options.connect_ms = milliseconds(connect_seconds);
  options.reconnect_ms = milliseconds(reconnect_seconds);
  auto made = std::make_unique<Access>(std::move(start), std::move(succeeded));
  made->connect(options);
  return made.release();
}

std::vector<Sealed> put(Access& client, const nb::list& items, double timeout) {
  Exports exports;
  std::vector<PutItem> wanted;
  wanted.reserve(items.size());
  for (const nb::handle fields : items)
    wanted.push_back(item_from(nb::cast<nb::tuple>(fields), exports));
  const std::uint32_t wait = milliseconds(timeout);
  const auto results = client.run([&](const Life& life) {
    const Status aimed = client.layer().aim(life, wanted, signals());
    if (!aimed.is_ok()) return std::vector<PutResult>(wanted.size(), PutResult{.status = aimed});
    return life.client->put(wanted, wait, signals());
  });
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

std::vector<ObjectPtr> found(Access& client, std::span<const IdBytes> ids, const Wait& wait) {
  auto objects = client.run(wait.limit, [&](const Life& life) { return life.client->get(ids, wait, signals()); });
  return check(std::move(objects));
}

std::vector<ObjectPtr> get(Access& client, const std::vector<nb::bytes>& ids, double timeout) {
  std::vector<IdBytes> wanted;
  wanted.reserve(ids.size());
  for (const nb::bytes& id : ids)
    wanted.push_back(id_from(id));
  const Wait wait = milliseconds(timeout);
  return found(client, wanted, wait);
}

void add_methods(nb::class_<Access>& cls) {
  cls.def("put", &put, nb::arg("items"), nb::arg("timeout"))
      .def(
          "get_many",
          [](Access& client, const std::vector<nb::bytes>& ids, double timeout) {
            nb::list objects;
            for (ObjectPtr& object : get(client, ids, timeout))
              objects.append(nb::cast(std::move(object)));
            return objects;
          },
          nb::arg("ids"), nb::arg("timeout"))
      .def(
          "get",
          [](Access& client, const nb::bytes& id, double timeout) {
            const IdBytes wanted = id_from(id);
            const Wait wait = milliseconds(timeout);
            return std::move(found(client, std::span(&wanted, 1), wait).front());
          },
          nb::arg("id"), nb::arg("timeout"))
      .def(
          "tree",
          [](Access& client, const nb::bytes& id) {
            const IdBytes wanted = id_from(id);
            const ObjectTree found =
                check(client.run([&](const Life& life) { return life.client->tree(wanted, signals()); }));
            return nb::make_tuple(to_bytes(found.tree), found.payload_bytes, found.generation);
          },
          nb::arg("id"))
      .def(
          "refuse_lost",
          [](Access& client, const std::vector<nb::bytes>& ids) { check(client.layer().refuse_lost(ids_from(ids))); },
          nb::arg("ids"))
      .def(
          "generation_of",
          [](Access& client, const nb::bytes& id) -> std::optional<std::uint32_t> {
            const IdBytes wanted = id_from(id);
            if (const auto known = client.here().peek_generation(wanted)) return known;  // no wait: keeps the GIL
            return check(client.run([&](const Life& life) { return life.client->generation_of(wanted, signals()); }));
          },
          nb::arg("id"))
      .def(
          "create",
          [](Access& client, std::uint64_t nbytes, double timeout) {
            const std::uint32_t wait = milliseconds(timeout);
            return check(client.run([&](const Life& life) { return life.client->create(nbytes, wait, signals()); }));
          },
          nb::arg("nbytes"), nb::arg("timeout"))
      .def(
          "seal",
          [](Access& client, const std::shared_ptr<WritableBlob>& blob, const nb::tuple& fields) {
            Exports exports;
            PutItem item = item_from(fields, exports);
            const PutResult result = client.run([&](const Life& life) {
              Status ready = ReconnectingClient::check_blob(life, *blob);
              if (ready.is_ok()) ready = client.layer().aim(life, std::span(&item, 1), signals());
              return ready.is_ok() ? life.client->seal(*blob, item, signals()) : PutResult{.status = std::move(ready)};
            });
            check(result.status);
            return sealed(result, blob->bytes());
          },
          nb::arg("blob"), nb::arg("item"))
      .def(
          "seal_parts",
          [](Access& client, const std::vector<std::shared_ptr<WritableBlob>>& blobs, const nb::tuple& fields) {
            Exports exports;
            PutItem item = item_from(fields, exports);
            const PutResult result = client.run([&](const Life& life) {
              Status ready = client.layer().aim(life, std::span(&item, 1), signals());
              for (const auto& blob : blobs) {
                if (ready.is_ok()) ready = ReconnectingClient::check_blob(life, *blob);
              }
              return ready.is_ok() ? life.client->seal_parts(blobs, item, signals())
                                   : PutResult{.status = std::move(ready)};
            });
            check(result.status);
            return sealed(result, payload_bytes(item));
          },
          nb::arg("blobs"), nb::arg("item"))
      .def(
          "delete",
          [](Access& client, const std::vector<nb::bytes>& ids) {
            const std::vector<IdBytes> wanted = ids_from(ids);
            const auto deleted =
                check(client.run([&](const Life& life) { return life.client->remove(wanted, signals()); }));
            return std::vector<bool>(deleted.begin(), deleted.end());
          },
          nb::arg("ids"))
      .def(
          "load",
          [](Access& client, const std::vector<nb::bytes>& ids) {
            const std::vector<IdBytes> wanted = ids_from(ids);
            check(client.run([&](const Life& life) { return life.client->load(wanted, signals()); }));
          },
          nb::arg("ids"))
      .def(
          "evict",
          [](Access& client, const std::vector<nb::bytes>& ids) {
            const std::vector<IdBytes> wanted = ids_from(ids);
            for (const Status& status :
                 check(client.run([&](const Life& life) { return life.client->evict(wanted, signals()); })))
              check(status);
          },
          nb::arg("ids"));
}

void add_about(nb::class_<Access>& cls) {
  cls.def(
         "list",
         [](Access& client, std::uint64_t session, bool all_sessions, const std::string& pattern, std::uint32_t cursor,
            std::uint32_t limit) {
           ListRequest request;
           request.all_sessions = all_sessions ? 1 : 0;
           request.pattern = pattern;
           request.cursor = cursor;
           request.limit = limit;
           return to_text(check(client.run([&](const Life& life) -> Result<std::string> {
             ASSIGN_OR_RETURN(request.session, client.layer().session_number(life, session, signals()));
             return life.client->list(request, signals());
           })));
         },
         nb::arg("session"), nb::arg("all_sessions"), nb::arg("pattern"), nb::arg("cursor"), nb::arg("limit"))
      .def(
          "info",
          [](Access& client, const nb::bytes& id) {
            const IdBytes wanted = id_from(id);
            return to_text(check(client.run([&](const Life& life) { return life.client->info(wanted, signals()); })));
          },
          nb::arg("id"))
      .def("status",
           [](Access& client) {
             return to_text(check(client.run([&](const Life& life) { return life.client->status(signals()); })));
           })
      .def("sessions",
           [](Access& client) {
             return to_text(check(client.run([&](const Life& life) { return life.client->sessions(signals()); })));
           })
      .def(
          "wait_provisioned",
          [](Access& client, double timeout) {
            const Wait wait = milliseconds(timeout);
            check(client.run(wait.limit,
                             [&](const Life& life) { return life.client->wait_provisioned(wait, signals()); }));
          },
          nb::arg("timeout"))
      .def(
          "upgrade",
          [](Access& client, const std::string& program) {
            const auto life = client.layer().life();  // this store and no other
            return to_text(check(without_gil([&] { return life->client->upgrade(program, signals()); })));
          },
          nb::arg("program"))
      .def("shutdown",
           [](Access& client) {
             const auto life = client.layer().life();  // this store and no other
             check(without_gil([&] { return life->client->shutdown(signals()); }));
           })
      .def("look",
           [](Access& client) {
             if (client.here().stands()) return;
             // Any request will do: its answer comes from the store that is there now.
             check(client.run([&](const Life& life) { return life.client->generation_of({}, signals()); }));
           })
      .def("close", [](Access& client) { without_gil([&] { client.layer().close(); }); })
      .def_prop_ro("closed", [](Access& client) { return client.layer().closed(); })
      .def_prop_ro("life", [](Access& client) { return client.life().number; })
      .def_prop_ro("pins", [](Access& client) { return client.here().pins_in_use(); })
      .def_prop_ro("instance", [](Access& client) { return to_hex(client.here().server().instance); })
      .def_prop_ro("host", [](Access& client) { return to_text(client.here().server().host); })
      .def_prop_ro("daemon_version", [](Access& client) { return to_text(client.here().server().version); })
      .def_prop_ro("shared_between_users", [](Access& client) { return client.here().server().shared_between_users; });
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

  nb::class_<Access> cls(module, "Client", "One process's connection to one store. Thread-safe.");
  add_methods(cls);
  add_sessions_and_names(cls);
  add_about(cls);
  add_locality(cls);
  add_small_objects(module, cls);
  module.def("connect", &connect, nb::arg("path"), nb::arg("label"), nb::arg("version"), nb::arg("connect_timeout"),
             nb::arg("reconnect_timeout"), nb::arg("start").none() = nb::none(),
             nb::arg("succeeded").none() = nb::none(), nb::rv_policy::take_ownership);
}

}  // namespace entrepot::bindings
