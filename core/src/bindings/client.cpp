#include "client/client.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/text.h"
#include "bindings/buffer.h"
#include "bindings/common.h"
#include "bindings/inline_bytes.h"
#include "bindings/items.h"
#include "bindings/py_client.h"

namespace entrepot::bindings {
namespace {

using Attachment = ReconnectingClient::Attachment;
using ObjectPtr = std::shared_ptr<SealedObject>;

PyClient* connect(const std::string& path, const std::string& label, const std::string& version, double connect_seconds,
                  double reconnect_seconds, nb::object start, nb::object succeeded) {
  ConnectOptions options;
  options.path = path;
  options.label = label;
  options.version = version;
  options.connect_ms = milliseconds(connect_seconds);
  options.reconnect_ms = milliseconds(reconnect_seconds);
  auto connected = std::make_unique<PyClient>(std::move(start), std::move(succeeded));
  connected->connect(options);
  return connected.release();
}

constexpr std::uint64_t kPortionBytes = 16U << 10;
// Small values are put in portions: what a portion needs stays in the processor's caches, is memory that malloc has at
// hand, and fits into the connection's ring; for thousands of values at once none of it is true.
class Portion {
 public:
  explicit Portion(std::uint64_t bytes) : room_(bytes) {}
  // Adds the item that `make` returns. False: the portion is full. What is not small is never a reason to end a portion,
  // so that memory is leased for all that follow at once.
  template <class Make>
  [[nodiscard]] bool add(Make&& make) {
    if (is_small_ && bytes_ >= room_) return false;
    const PutItem& item = items_.emplace_back(make(exports_));
    const std::uint64_t payload = payload_bytes(item);
    is_small_ = is_small_ && payload <= kInlineMaxBytes;
    bytes_ += item.tree.size() + payload + kItemBytes;
    return true;
  }
  [[nodiscard]] std::vector<PutItem>& items() { return items_; }

 private:
  static constexpr std::uint64_t kItemBytes = 100;  // of a request beside tree and payload, about

  Exports exports_;
  std::vector<PutItem> items_;
  std::uint64_t room_;
  std::uint64_t bytes_ = 0;
  bool is_small_ = true;
};

// Puts `count` values; `make(i, exports)` returns the item of one, and `sealed(i, result, item)` gets what became of it.
// Raises the error of the first that failed; the others are stored all the same.
template <class Make, class Sealed>
void put_in_portions(PyClient& client, std::size_t count, double timeout, std::uint64_t portion_bytes, Make&& make,
                     Sealed&& sealed) {
  const Wait wait(milliseconds(timeout));  // for all of them together
  Status failure;
  for (std::size_t begin = 0; begin < count;) {
    Portion portion(portion_bytes);
    for (std::size_t i = begin; i < count; ++i) {
      if (!portion.add([&](Exports& exports) { return make(i, exports); })) break;
    }
    std::vector<PutItem>& items = portion.items();
    const auto results = client.run([&](const Attachment& attachment) {
      return client.reconnecting_client().put(attachment, items, wait.remaining_ms(), signal_interrupt());
    });
    bool is_unanswered = false;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Status& status = results[i].status;
      if (!status.is_ok() && failure.is_ok())
        failure = count == 1 ? status : status.with_context(concat("value ", begin + i, " of ", count));
      is_unanswered = is_unanswered || status.code() == Code::kStoreUnavailable || status.code() == Code::kTimeout;
      sealed(begin + i, results[i], items[i]);
    }
    if (is_unanswered) break;  // the next portion would wait for the same
    begin += results.size();
  }
  if (!failure.is_ok()) raise(failure);
}

std::vector<Sealed> put(PyClient& client, const nb::list& items, double timeout, std::uint64_t portion_bytes) {
  std::vector<Sealed> done(items.size());
  put_in_portions(
      client, items.size(), timeout, portion_bytes,
      [&](std::size_t i, Exports& exports) { return item_from(nb::cast<nb::tuple>(items[i]), exports); },
      [&](std::size_t i, const PutResult& result, const PutItem& item) {
        done[i] = sealed(result, payload_bytes(item));
      });
  return done;
}

// Puts byte strings under new IDs, which are joined in `ids`. False, and nothing is put: not all of them are short byte
// strings.
bool put_small_many(PyClient& client, std::uint64_t session, const nb::bytes& ids, const nb::list& values,
                    std::size_t max_bytes, double timeout) {
  if (ids.size() != values.size() * sizeof(IdBytes))
    raise(Status(Code::kInvalidArgument, "one ID per value is needed"));
  for (const nb::handle value : values) {
    if (!PyBytes_CheckExact(value.ptr()) || static_cast<std::size_t>(PyBytes_Size(value.ptr())) > max_bytes)
      return false;
  }
  put_in_portions(
      client, values.size(), timeout, kPortionBytes,
      [&](std::size_t i, Exports&) {
        PutItem item;
        std::memcpy(item.id.data(), ids.c_str() + i * sizeof(IdBytes), sizeof(IdBytes));
        item.session_handle = session;
        item.fresh_id = true;
        item.tree = inline_bytes().tree_of(view_of(nb::borrow<nb::bytes>(values[i])));
        return item;
      },
      [](std::size_t, const PutResult&, const PutItem&) {});
  return true;
}

// `even_lost`: waits for objects that were lost with an earlier store too, because somebody is making them again.
std::vector<ObjectPtr> pinned_objects(PyClient& client, std::span<const IdBytes> ids, const Wait& wait, Reach reach,
                                      bool even_lost = false) {
  auto objects = client.run(wait.limit, [&](const Attachment& attachment) {
    return even_lost ? attachment.client->get(ids, wait, signal_interrupt(), reach)
                     : client.reconnecting_client().get(attachment, ids, wait, signal_interrupt(), reach);
  });
  return check(std::move(objects));
}

Reach reach_of(bool remote) { return remote ? Reach::kCluster : Reach::kStore; }

std::vector<ObjectPtr> get(PyClient& client, const std::vector<nb::bytes>& ids, double timeout, bool remote) {
  std::vector<IdBytes> object_ids;
  object_ids.reserve(ids.size());
  for (const nb::bytes& id : ids)
    object_ids.push_back(id_from(id));
  const Wait wait = milliseconds(timeout);
  return pinned_objects(client, object_ids, wait, reach_of(remote));
}

void add_methods(nb::class_<PyClient>& cls) {
  cls.def("put", &put, nb::arg("items"), nb::arg("timeout"), nb::arg("portion_bytes") = kPortionBytes)
      .def("put_small_many", &put_small_many, nb::arg("session"), nb::arg("ids"), nb::arg("values"),
           nb::arg("max_bytes"), nb::arg("timeout"))
      .def(
          "get_many",
          [](PyClient& client, const std::vector<nb::bytes>& ids, double timeout, bool remote) {
            nb::list objects;
            for (ObjectPtr& object : get(client, ids, timeout, remote))
              objects.append(nb::cast(std::move(object)));
            return objects;
          },
          nb::arg("ids"), nb::arg("timeout"), nb::arg("remote") = false)
      .def(
          "get",
          [](PyClient& client, const nb::bytes& id, double timeout, bool even_lost, bool remote) {
            const IdBytes object_id = id_from(id);
            const Wait wait = milliseconds(timeout);
            return std::move(
                pinned_objects(client, std::span(&object_id, 1), wait, reach_of(remote), even_lost).front());
          },
          nb::arg("id"), nb::arg("timeout"), nb::arg("even_lost") = false, nb::arg("remote") = false)
      .def(
          "tree",
          [](PyClient& client, const nb::bytes& id) {
            const IdBytes object_id = id_from(id);
            const ObjectTree tree = check(client.run(
                [&](const Attachment& attachment) { return attachment.client->tree(object_id, signal_interrupt()); }));
            return nb::make_tuple(to_bytes(tree.tree), tree.payload_bytes, tree.generation);
          },
          nb::arg("id"))
      .def(
          "buffer_lengths",
          [](PyClient& client, const nb::bytes& id) {
            const IdBytes object_id = id_from(id);
            const ObjectTree tree = check(client.run(
                [&](const Attachment& attachment) { return attachment.client->tree(object_id, signal_interrupt()); }));
            return nb::make_tuple(to_bytes(tree.tree), tree.lengths, tree.generation);
          },
          nb::arg("id"))
      .def(
          "refuse_lost",
          [](PyClient& client, const std::vector<nb::bytes>& ids) {
            const std::vector<IdBytes> object_ids = ids_from(ids);
            check(client.run([&](const Attachment& attachment) {
              return client.reconnecting_client().check_not_lost(attachment, object_ids, signal_interrupt());
            }));
          },
          nb::arg("ids"))
      .def(
          "generation_of",
          [](PyClient& client, const nb::bytes& id) -> std::optional<std::uint32_t> {
            const IdBytes object_id = id_from(id);
            // No wait: keeps the GIL.
            if (const auto generation = client.attachment()->client->peek_generation(object_id)) return generation;
            return check(client.run([&](const Attachment& attachment) {
              return attachment.client->generation_of(object_id, signal_interrupt());
            }));
          },
          nb::arg("id"))
      .def(
          "create",
          [](PyClient& client, std::uint64_t nbytes, double timeout) {
            const std::uint32_t wait = milliseconds(timeout);
            return check(client.run([&](const Attachment& attachment) {
              return attachment.client->create(nbytes, wait, signal_interrupt());
            }));
          },
          nb::arg("nbytes"), nb::arg("timeout"))
      .def(
          "seal",
          [](PyClient& client, const std::shared_ptr<WritableBlob>& blob, const nb::tuple& fields) {
            Exports exports;
            PutItem item = item_from(fields, exports);
            const PutResult result = client.run([&](const Attachment& attachment) {
              return client.reconnecting_client().seal(attachment, *blob, item, signal_interrupt());
            });
            check(result.status);
            return sealed(result, blob->bytes());
          },
          nb::arg("blob"), nb::arg("item"))
      .def(
          "seal_parts",
          [](PyClient& client, const std::vector<std::shared_ptr<WritableBlob>>& blobs, const nb::tuple& fields) {
            Exports exports;
            PutItem item = item_from(fields, exports);
            const PutResult result = client.run([&](const Attachment& attachment) {
              return client.reconnecting_client().seal_parts(attachment, blobs, item, signal_interrupt());
            });
            check(result.status);
            return sealed(result, payload_bytes(item));
          },
          nb::arg("blobs"), nb::arg("item"))
      .def(
          "delete",
          [](PyClient& client, const std::vector<nb::bytes>& ids) {
            const std::vector<IdBytes> object_ids = ids_from(ids);
            const auto deleted = check(client.run([&](const Attachment& attachment) {
              return attachment.client->remove(object_ids, signal_interrupt());
            }));
            return std::vector<bool>(deleted.begin(), deleted.end());
          },
          nb::arg("ids"))
      .def(
          "delete_generations",
          [](PyClient& client, const std::vector<std::pair<nb::bytes, std::uint32_t>>& objects) {
            std::vector<ObjectGeneration> lives;
            lives.reserve(objects.size());
            for (const auto& [id, generation] : objects)
              lives.push_back({id_from(id), generation});
            const auto deleted = check(client.run([&](const Attachment& attachment) {
              return attachment.client->remove_generations(lives, signal_interrupt());
            }));
            return std::vector<bool>(deleted.begin(), deleted.end());
          },
          nb::arg("objects"))
      .def(
          "load",
          [](PyClient& client, const std::vector<nb::bytes>& ids) {
            const std::vector<IdBytes> object_ids = ids_from(ids);
            check(client.run(
                [&](const Attachment& attachment) { return attachment.client->load(object_ids, signal_interrupt()); }));
          },
          nb::arg("ids"))
      .def(
          "evict",
          [](PyClient& client, const std::vector<nb::bytes>& ids) {
            const std::vector<IdBytes> object_ids = ids_from(ids);
            for (const Status& status : check(client.run([&](const Attachment& attachment) {
                   return attachment.client->evict(object_ids, signal_interrupt());
                 })))
              check(status);
          },
          nb::arg("ids"));
}

void add_status_methods(nb::class_<PyClient>& cls) {
  cls.def(
         "list",
         [](PyClient& client, std::uint64_t session, bool all_sessions, const std::string& pattern,
            std::uint32_t cursor, std::uint32_t limit) {
           ListRequest request;
           request.all_sessions = all_sessions ? 1 : 0;
           request.pattern = pattern;
           request.cursor = cursor;
           request.limit = limit;
           return to_text(check(client.run([&](const Attachment& attachment) -> Result<std::string> {
             ASSIGN_OR_RETURN(request.session,
                              client.reconnecting_client().session_number(attachment, session, signal_interrupt()));
             return attachment.client->list(request, signal_interrupt());
           })));
         },
         nb::arg("session"), nb::arg("all_sessions"), nb::arg("pattern"), nb::arg("cursor"), nb::arg("limit"))
      .def(
          "info",
          [](PyClient& client, const nb::bytes& id) {
            const IdBytes object_id = id_from(id);
            return to_text(check(client.run(
                [&](const Attachment& attachment) { return attachment.client->info(object_id, signal_interrupt()); })));
          },
          nb::arg("id"))
      .def("status",
           [](PyClient& client) {
             return to_text(check(client.run(
                 [&](const Attachment& attachment) { return attachment.client->status(signal_interrupt()); })));
           })
      .def("sessions",
           [](PyClient& client) {
             return to_text(check(client.run(
                 [&](const Attachment& attachment) { return attachment.client->sessions(signal_interrupt()); })));
           })
      .def(
          "wait_provisioned",
          [](PyClient& client, double timeout) {
            const Wait wait = milliseconds(timeout);
            check(client.run(wait.limit, [&](const Attachment& attachment) {
              return attachment.client->wait_provisioned(wait, signal_interrupt());
            }));
          },
          nb::arg("timeout"))
      .def(
          "upgrade",
          [](PyClient& client, const std::string& program) {
            const auto attachment = client.reconnecting_client().attachment();  // this store and no other
            return to_text(
                check(without_gil([&] { return attachment->client->upgrade(program, signal_interrupt()); })));
          },
          nb::arg("program"))
      .def("shutdown",
           [](PyClient& client) {
             const auto attachment = client.reconnecting_client().attachment();  // this store and no other
             check(without_gil([&] { return attachment->client->shutdown(signal_interrupt()); }));
           })
      .def("ensure_connected",
           [](PyClient& client) {
             if (client.attachment()->client->is_connected()) return;
             // Any request will do: its answer comes from the store that is there now.
             check(client.run([&](const Attachment& attachment) {
               return attachment.client->generation_of({}, signal_interrupt());
             }));
           })
      .def_prop_ro("is_connected",
                   [](PyClient& client) { return client.reconnecting_client().attachment()->client->is_connected(); })
      .def("close", [](PyClient& client) { without_gil([&] { client.reconnecting_client().close(); }); })
      .def_prop_ro("closed", [](PyClient& client) { return client.reconnecting_client().closed(); })
      .def_prop_ro("life", [](PyClient& client) { return client.attachment()->number; })
      .def_prop_ro("pins", [](PyClient& client) { return client.attachment()->client->pins_in_use(); })
      .def_prop_ro("instance", [](PyClient& client) { return to_hex(client.attachment()->client->server().instance); })
      .def_prop_ro("host", [](PyClient& client) { return to_text(client.attachment()->client->server().host); })
      .def_prop_ro("daemon_version",
                   [](PyClient& client) { return to_text(client.attachment()->client->server().version); })
      .def_prop_ro("shared_between_users",
                   [](PyClient& client) { return client.attachment()->client->server().shared_between_users; });
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

  nb::class_<PyClient> cls(module, "Client", "One process's connection to one store. Thread-safe.");
  add_methods(cls);
  add_reservations(cls);
  add_gateway(cls);
  add_streams(cls);
  add_sessions_and_names(cls);
  add_status_methods(cls);
  add_locality(cls);
  add_inline_objects(module, cls);
  add_object_builders(module, cls);
  add_transfers(module, cls);
  add_pages(module, cls);
  add_aggregates(module, cls);
  add_join_indexes(module);
  module.def("connect", &connect, nb::arg("path"), nb::arg("label"), nb::arg("version"), nb::arg("connect_timeout"),
             nb::arg("reconnect_timeout"), nb::arg("start").none() = nb::none(),
             nb::arg("succeeded").none() = nb::none(), nb::rv_policy::take_ownership);
}

}  // namespace entrepot::bindings
