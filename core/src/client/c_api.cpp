// C API on top of ReconnectingClient: checks sizes and pointers, and stops exceptions.
#include "client/c_api.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>

using entrepot::Code;
using entrepot::concat;
using entrepot::IdBytes;
using entrepot::Interrupt;
using entrepot::Status;
using entrepot::c_api::Attachment;
using entrepot::c_api::convert;
using entrepot::c_api::finish;
using entrepot::c_api::guarded;
using entrepot::c_api::id_of;
using entrepot::c_api::missing;

namespace {

// Sets `out` to the position of `text` in `names`, which are those of the enumeration, in order.
template <class Attribute>
Status choose(const char* what, const char* text, std::initializer_list<const char*> names, entrepot::SetField field,
              entrepot::SetChange& change, Attribute& out) {
  if (text == nullptr) return Status::ok();
  const auto* match =
      std::find_if(names.begin(), names.end(), [&](const char* name) { return !std::strcmp(name, text); });
  if (match == names.end())
    return {Code::kInvalidArgument, concat("unknown ", what, " '", text, "' of a locality set")};
  out = static_cast<Attribute>(match - names.begin());
  change.fields = static_cast<std::uint8_t>(change.fields | field);
  return Status::ok();
}

Status convert(const entrepot_set_attributes* from, entrepot::SetChange& change) {
  if (from == nullptr) return Status::ok();
  if (from->struct_size < sizeof(*from)) return missing("the attributes");
  entrepot::SetAttributes& to = change.attributes;
  RETURN_IF_ERROR(choose("durability", from->durability, {"write_back", "write_through"}, entrepot::kSetDurability,
                         change, to.durability));
  RETURN_IF_ERROR(choose("reading", from->reading, {"unknown", "once", "sequential", "loop_sequential", "random"},
                         entrepot::kSetReading, change, to.reading));
  RETURN_IF_ERROR(
      choose("writing", from->writing, {"once", "append", "random"}, entrepot::kSetWriting, change, to.writing));
  RETURN_IF_ERROR(
      choose("lifetime", from->lifetime, {"job", "consumers", "forever"}, entrepot::kSetLifetime, change, to.lifetime));
  RETURN_IF_ERROR(choose("operation", from->operation, {"none", "reading", "writing"}, entrepot::kSetOperation, change,
                         to.operation));
  RETURN_IF_ERROR(
      choose("policy", from->policy, {"data_aware", "lru", "mru"}, entrepot::kSetReplacement, change, to.replacement));
  if (from->priority < entrepot::kMinPriority || from->priority > entrepot::kMaxPriority) {
    return {Code::kInvalidArgument, concat("invalid priority ", from->priority, ": choose one from ",
                                           entrepot::kMinPriority, " to ", entrepot::kMaxPriority)};
  }
  if (from->priority != 0) {
    to.priority = static_cast<std::int8_t>(from->priority);
    change.fields |= entrepot::kSetPriority;
  }
  to.consumers = from->consumers;
  return Status::ok();
}

}  // namespace

extern "C" {

int32_t entrepot_connect(const entrepot_connect_options* options, entrepot_client** out, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (options == nullptr || options->struct_size < sizeof(*options) || options->path == nullptr || out == nullptr) {
      return missing("the options, their path or the result");
    }
    entrepot::ConnectOptions connect_options;
    connect_options.path = options->path;
    if (options->label != nullptr) connect_options.label = options->label;
    connect_options.version = ENTREPOT_VERSION;
    if (options->connect_timeout_ms != 0) connect_options.connect_ms = options->connect_timeout_ms;
    if (options->reconnect_timeout_ms != 0) connect_options.reconnect_ms = options->reconnect_timeout_ms;
    auto created = std::make_unique<entrepot_client>();
    created->interrupt = options->interrupt;
    created->interrupt_context = options->interrupt_context;
    ASSIGN_OR_RETURN(created->access->reconnecting_client,
                     entrepot::ReconnectingClient::connect(connect_options, {}, created->interrupt_check()));
    *out = created.release();
    return Status::ok();
  });
}

void entrepot_client_free(entrepot_client* client) {
  if (client == nullptr) return;
  client->access->reconnecting_client->close();
  delete client;
}

int32_t entrepot_open_session(entrepot_client* client, const char* scope, const char* session, uint32_t* out,
                              entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (client == nullptr || scope == nullptr || session == nullptr || out == nullptr) return missing("an argument");
    auto& reconnecting_client = *client->access->reconnecting_client;
    ASSIGN_OR_RETURN(const std::uint64_t handle,
                     reconnecting_client.run(client->interrupt_check(), [&](const Attachment& attachment) {
                       return reconnecting_client.open_session(attachment, scope, session, std::nullopt, std::nullopt,
                                                               client->interrupt_check());
                     }));
    *out = client->access->sessions.of(handle);
    return Status::ok();
  });
}

int32_t entrepot_put(entrepot_client* client, const entrepot_item* item, uint32_t wait_ms, uint32_t* generation,
                     entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (client == nullptr) return missing("the client");
    entrepot::PutItem put_item;
    RETURN_IF_ERROR(convert(*client->access, item, put_item));
    auto& reconnecting_client = *client->access->reconnecting_client;
    return finish(reconnecting_client.run(client->interrupt_check(),
                                          [&](const Attachment& attachment) {
                                            return reconnecting_client
                                                .put(attachment, std::span(&put_item, 1), wait_ms,
                                                     client->interrupt_check())
                                                .front();
                                          }),
                  generation);
  });
}

int32_t entrepot_get(entrepot_client* client, const uint8_t id[ENTREPOT_ID_BYTES], uint32_t wait_ms,
                     entrepot_object** out, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (client == nullptr || id == nullptr || out == nullptr) return missing("an argument");
    const IdBytes object_id = id_of(id);
    auto& reconnecting_client = *client->access->reconnecting_client;
    const Interrupt interrupt = client->interrupt_check();
    auto objects = reconnecting_client.run(interrupt, [&](const Attachment& attachment) {
      auto pinned =
          reconnecting_client.get(attachment, std::span(&object_id, 1), wait_ms, interrupt, entrepot::Reach::kCluster);
      if (pinned.code() != Code::kObjectNotFound) return pinned;
      Status lost = reconnecting_client.check_not_lost(attachment, std::span(&object_id, 1), interrupt);
      return lost.is_ok() ? std::move(pinned) : decltype(pinned)(std::move(lost));
    });
    RETURN_IF_ERROR(objects);
    *out = new entrepot_object{std::move(objects->front())};
    return Status::ok();
  });
}

uint32_t entrepot_object_generation(const entrepot_object* object) { return object->object->generation(); }

entrepot_buffer entrepot_object_tree(const entrepot_object* object) {
  const auto tree = object->object->tree();
  return {tree.data(), tree.size()};
}

uint64_t entrepot_object_buffer_count(const entrepot_object* object) { return object->object->buffers().size(); }

entrepot_buffer entrepot_object_buffer(const entrepot_object* object, uint64_t index) {
  if (index >= object->object->buffers().size()) return {nullptr, 0};
  const auto& place = object->object->buffers()[index];
  return {place.data, place.length};
}

void entrepot_object_free(entrepot_object* object) { delete object; }

int32_t entrepot_create(entrepot_client* client, uint64_t length, uint32_t wait_ms, entrepot_blob** out,
                        entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (client == nullptr || out == nullptr) return missing("an argument");
    ASSIGN_OR_RETURN(auto blob, client->access->reconnecting_client->run(
                                    client->interrupt_check(), [&](const Attachment& attachment) {
                                      return attachment.client->create(length, wait_ms, client->interrupt_check());
                                    }));
    *out = new entrepot_blob{client->access, std::move(blob)};
    return Status::ok();
  });
}

void* entrepot_blob_data(const entrepot_blob* blob) { return blob->blob->data(); }

int32_t entrepot_blob_seal(entrepot_blob* blob, const entrepot_item* item, uint32_t* generation,
                           entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (blob == nullptr) return missing("the blob");
    entrepot::PutItem put_item;
    RETURN_IF_ERROR(convert(*blob->access, item, put_item));
    auto& reconnecting_client = *blob->access->reconnecting_client;
    return finish(reconnecting_client.run({},
                                          [&](const Attachment& attachment) {
                                            return reconnecting_client.seal(attachment, *blob->blob, put_item, {});
                                          }),
                  generation);
  });
}

void entrepot_blob_free(entrepot_blob* blob) { delete blob; }

int32_t entrepot_delete(entrepot_client* client, const uint8_t id[ENTREPOT_ID_BYTES], int32_t* deleted,
                        entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (client == nullptr || id == nullptr) return missing("an argument");
    const IdBytes object_id = id_of(id);
    ASSIGN_OR_RETURN(
        const auto done,
        client->access->reconnecting_client->run(client->interrupt_check(), [&](const Attachment& attachment) {
          return attachment.client->remove(std::span(&object_id, 1), client->interrupt_check());
        }));
    if (deleted != nullptr) *deleted = done.front();
    return Status::ok();
  });
}

int32_t entrepot_delete_generation(entrepot_client* client, const uint8_t id[ENTREPOT_ID_BYTES], uint32_t generation,
                                   int32_t* deleted, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (client == nullptr || id == nullptr) return missing("an argument");
    const entrepot::ObjectGeneration object{id_of(id), generation};
    ASSIGN_OR_RETURN(
        const auto done,
        client->access->reconnecting_client->run(client->interrupt_check(), [&](const Attachment& attachment) {
          return attachment.client->remove_generations(std::span(&object, 1), client->interrupt_check());
        }));
    if (deleted != nullptr) *deleted = done.front();
    return Status::ok();
  });
}

int32_t entrepot_locality_set(entrepot_client* client, uint32_t session, const char* name,
                              const entrepot_set_attributes* attributes, uint32_t* out, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (client == nullptr || name == nullptr || out == nullptr) return missing("an argument");
    entrepot::SetChange change;
    RETURN_IF_ERROR(convert(attributes, change));
    auto& reconnecting_client = *client->access->reconnecting_client;
    const std::uint64_t within = client->access->sessions.handle(session);
    const auto handle = reconnecting_client.run(
        client->interrupt_check(), [&](const Attachment& attachment) -> entrepot::Result<std::uint64_t> {
          ASSIGN_OR_RETURN(const auto number,
                           reconnecting_client.session_number(attachment, within, client->interrupt_check()));
          ASSIGN_OR_RETURN(const auto set,
                           attachment.client->define_set(number, name, 0, change, client->interrupt_check()));
          return entrepot::ReconnectingClient::handle(attachment, set.handle);
        });
    RETURN_IF_ERROR(handle);
    *out = client->access->sets.of(*handle);
    return Status::ok();
  });
}

int32_t entrepot_consumed(entrepot_client* client, const uint8_t id[ENTREPOT_ID_BYTES], const char* consumer,
                          uint32_t* left, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (client == nullptr || id == nullptr || consumer == nullptr) return missing("an argument");
    const IdBytes object_id = id_of(id);
    ASSIGN_OR_RETURN(
        const auto counts,
        client->access->reconnecting_client->run(client->interrupt_check(), [&](const Attachment& attachment) {
          return attachment.client->consumed(std::span(&object_id, 1), consumer, client->interrupt_check());
        }));
    if (left != nullptr) *left = counts.front();
    return Status::ok();
  });
}

int32_t entrepot_status(entrepot_client* client, char** json, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (client == nullptr || json == nullptr) return missing("an argument");
    ASSIGN_OR_RETURN(const std::string text, client->access->reconnecting_client->run(
                                                 client->interrupt_check(), [&](const Attachment& attachment) {
                                                   return attachment.client->status(client->interrupt_check());
                                                 }));
    *json = static_cast<char*>(std::malloc(text.size() + 1));
    if (*json == nullptr) throw std::bad_alloc();
    std::memcpy(*json, text.c_str(), text.size() + 1);
    return Status::ok();
  });
}

void entrepot_string_free(char* text) { std::free(text); }

}  // extern "C"
