#include "plasma/requests.h"

#include <utility>

#include "base/text.h"
#include "os/clock.h"
#include "os/log.h"

namespace entrepot::plasma {
namespace {

constexpr std::size_t kMaxNameBytes = 256;  // of a client, in log lines

}  // namespace

Status Requests::handle(ClientChannel& client, Message message) {
  const Body body = message.body;
  switch (message.type) {
    case MessageType::kConnectRequest:
      client.send(connect_reply(parts_.objects.table().capacity_bytes()));
      return Status::ok();
    case MessageType::kCreateRequest: {
      ASSIGN_OR_RETURN(const CreateRequest request, decode_create(body));
      return create(client, request);
    }
    case MessageType::kCreateAndSealRequest: {
      ASSIGN_OR_RETURN(CreateAndSealRequest request, decode_create_and_seal(body));
      return create_and_seal(client, {std::move(message.body), std::move(request), false});
    }
    case MessageType::kCreateAndSealBatchRequest: {
      ASSIGN_OR_RETURN(CreateAndSealRequest request, decode_create_and_seal_batch(body));
      return create_and_seal(client, {std::move(message.body), std::move(request), true});
    }
    case MessageType::kSealRequest: {
      ASSIGN_OR_RETURN(SealRequest request, decode_seal(body));
      return seal(client, std::move(request));
    }
    case MessageType::kAbortRequest: {
      ASSIGN_OR_RETURN(const IdBytes id, decode_abort(body));
      return abort(client, id);
    }
    case MessageType::kGetRequest: {
      ASSIGN_OR_RETURN(GetRequest request, decode_get(body));
      parts_.gets.begin(client, std::move(request));
      return Status::ok();
    }
    case MessageType::kReleaseRequest: {
      ASSIGN_OR_RETURN(const IdBytes id, decode_release(body));
      if (parts_.objects.release(client, id)) return Status::ok();
      return Status(Code::kInvalidArgument,
                    concat("it releases object ", to_hex(id), ", which it does not hold or has not sealed"));
    }
    case MessageType::kDeleteRequest: {
      ASSIGN_OR_RETURN(std::vector<IdBytes> ids, decode_delete(body));
      remove(client, std::move(ids));
      return Status::ok();
    }
    case MessageType::kContainsRequest: {
      ASSIGN_OR_RETURN(const IdBytes id, decode_contains(body));
      contains(client, id);
      return Status::ok();
    }
    case MessageType::kListRequest:
      list(client);
      return Status::ok();
    case MessageType::kEvictRequest: {
      ASSIGN_OR_RETURN(const std::uint64_t bytes, decode_evict(body));
      client.send(evict_reply(parts_.objects.evict(parts_.objects.table().oldest(bytes))));
      return Status::ok();
    }
    case MessageType::kRefreshLruRequest: {
      ASSIGN_OR_RETURN(const std::vector<IdBytes> ids, decode_refresh_lru(body));
      for (const IdBytes& id : ids)
        parts_.objects.table().refresh(id);
      client.send(refresh_lru_reply());
      return Status::ok();
    }
    case MessageType::kSubscribeRequest:
      return client.reader().expect_descriptor();
    case MessageType::kSetOptionsRequest: {
      ASSIGN_OR_RETURN(const SetOptionsRequest request, decode_set_options(body));
      set_options(client, request);
      return Status::ok();
    }
    case MessageType::kDebugStringRequest:
      client.send(debug_string_reply(parts_.objects.debug_text()));
      return Status::ok();
    default:
      return Status(Code::kInvalidArgument,
                    concat("a message of the unknown type ", static_cast<std::int64_t>(message.type)));
  }
}

Error Requests::reserve(ClientChannel& client, const IdBytes& id, std::uint64_t data_bytes,
                        std::uint64_t metadata_bytes, bool may_evict) {
  ArenaObjects& objects = parts_.objects;
  if (objects.usable(id) != nullptr) {
    objects.drop_if_unneeded(id);  // it was pinned for whoever uses it, which nobody does here
    return Error::kObjectExists;
  }
  if (objects.table().find(id) != nullptr || objects.arena().exists(id)) return Error::kObjectExists;
  const std::uint64_t capacity = objects.table().capacity_bytes();
  if (data_bytes > capacity || metadata_bytes > capacity - data_bytes) return Error::kOutOfMemory;
  if (!objects.make_room(data_bytes + metadata_bytes, client.key(), may_evict)) return Error::kOutOfMemory;
  Object object;
  object.data_bytes = data_bytes;
  object.metadata_bytes = metadata_bytes;
  object.creator = client.key();
  object.created_unix_s = os::unix_ns() / kNsPerSecond;
  objects.hold(client, id, objects.table().add(id, std::move(object)));
  return Error::kOk;
}

Status Requests::create(ClientChannel& client, const CreateRequest& request) {
  // Plasma without GPU support gives the same answer.
  const Error error = request.device != 0 ? Error::kOutOfMemory
                                          : reserve(client, request.id, request.data_bytes, request.metadata_bytes,
                                                    request.evict_if_full);
  if (error != Error::kOk) {
    client.send(create_reply(request.id, {}, error));
    return Status::ok();
  }
  const std::uint64_t bytes = request.data_bytes + request.metadata_bytes;
  client.set_busy(true);
  if (auto extent = parts_.objects.arena().lease_at_hand(bytes)) {
    created(client.key(), request.id, *std::move(extent));
    return Status::ok();
  }
  parts_.worker.run(Lane::kMemory,
                    [this, key = client.key(), id = request.id, bytes, began_ns = os::monotonic_ns(),
                     &arena = parts_.objects.arena()]() -> StoreWorker::Completion {
                      return
                          [this, key, id, extent = arena.lease_since(began_ns, bytes)]() { created(key, id, extent); };
                    });
  return Status::ok();
}

void Requests::created(ClientKey key, const IdBytes& id, const Result<Extent>& extent) {
  ClientChannel* const client = parts_.channel(key);
  if (client == nullptr) return;  // and the object with it
  Object& object = *parts_.objects.table().find(id);
  if (extent.is_ok()) {
    object.extent = *extent;
    client->send(create_reply(id, object.place(), Error::kOk));
    parts_.objects.send_segment(*client, object);
  } else {
    log_warning("no memory for ", format_bytes(object.bytes()), " of a Plasma client: ", extent.status().to_string());
    client->held.erase(id);
    parts_.objects.table().erase(id);
    client->send(create_reply(id, {}, Error::kOutOfMemory));
  }
  parts_.answered(*client);
}

Status Requests::seal(ClientChannel& client, SealRequest request) {
  Object* const object = parts_.objects.table().find(request.id);
  if (object == nullptr) {
    client.send(seal_reply(request.id, Error::kObjectNonexistent));
    return Status::ok();
  }
  if (object->is_sealed || object->creator != client.key()) {
    return Status(Code::kInvalidArgument,
                  concat("it seals object ", to_hex(request.id), ", which ",
                         object->is_sealed ? "is sealed already" : "another client is writing"));
  }
  Arena& arena = parts_.objects.arena();
  const std::uint64_t data_bytes = object->data_bytes;
  const std::uint64_t metadata_bytes = object->metadata_bytes;
  if (!arena.publishes_copies()) {
    Published published = arena.publish(request.id, object->extent, data_bytes, metadata_bytes, Patience::kBrief);
    if (!published.is_open) {
      end_seal(client, *object, request, std::move(published));
      return Status::ok();
    }
  }
  // A copy waits for memory, and a daemon that stands still for whoever lets it go on.
  client.set_busy(true);
  const Lane lane = arena.publishes_copies() ? Lane::kMemory : Lane::kAnswers;
  parts_.worker.run(lane,
                    [this, key = client.key(), request = std::move(request), extent = object->extent, data_bytes,
                     metadata_bytes, &arena]() -> StoreWorker::Completion {
                      Published published =
                          arena.publish(request.id, extent, data_bytes, metadata_bytes, Patience::kUntilAnswered);
                      return [this, key, request, published = std::move(published)]() {
                        ClientChannel* const channel = parts_.channel(key);
                        if (channel == nullptr) return;  // and the object is not here any more, only in the store
                        end_seal(*channel, *parts_.objects.table().find(request.id), request, published);
                        parts_.answered(*channel);
                      };
                    });
  return Status::ok();
}

void Requests::end_seal(ClientChannel& client, Object& object, const SealRequest& request, Published published) {
  const Status sealed = parts_.objects.seal(request.id, object, std::move(published), request.digest);
  if (!sealed.is_ok()) {
    log_warning("object ", to_hex(request.id), " of a Plasma client cannot be sealed: ", sealed.to_string());
  }
  client.send(seal_reply(request.id, sealed.is_ok() ? Error::kOk : error_of(sealed)));
  if (sealed.is_ok()) parts_.gets.available(request.id);
}

Status Requests::abort(ClientChannel& client, const IdBytes& id) {
  const Object* const object = parts_.objects.table().find(id);
  if (object == nullptr || object->is_sealed || object->creator != client.key()) {
    return Status(Code::kInvalidArgument, concat("it aborts object ", to_hex(id), ", which it is not writing"));
  }
  client.held.erase(id);
  parts_.objects.table().erase(id);
  client.send(abort_reply(id));
  return Status::ok();
}

void Requests::remove(ClientChannel& client, std::vector<IdBytes> ids) {
  Deletion deletion;
  for (const IdBytes& id : ids) {
    const auto [error, doomed] = parts_.objects.remove(id);
    deletion.errors.push_back(error);
    if (error == Error::kOk) deletion.doomed.push_back(doomed);
  }
  deletion.ids = std::move(ids);
  Arena& arena = parts_.objects.arena();
  const auto removed = arena.remove(deletion.doomed, Patience::kBrief, false);
  if (removed.code() != Code::kTimeout) return end_deletion(client, deletion, removed);
  client.set_busy(true);
  parts_.worker.run(
      Lane::kAnswers, [this, key = client.key(), deletion = std::move(deletion), &arena]() -> StoreWorker::Completion {
        return [this, key, deletion, later = arena.remove(deletion.doomed, Patience::kUntilAnswered, true)] {
          ClientChannel* const channel = parts_.channel(key);
          if (channel == nullptr) return;
          end_deletion(*channel, deletion, later);
          parts_.answered(*channel);
        };
      });
}

void Requests::end_deletion(ClientChannel& client, const Deletion& deletion, const Result<std::vector<bool>>& removed) {
  std::vector<Error> errors = deletion.errors;
  std::size_t next = 0;
  for (Error& error : errors) {
    if (error != Error::kOk) continue;
    // The store has ended, or cannot record what it has deleted; its message says which.
    error = !removed.is_ok() ? Error::kObjectInUse : (*removed)[next++] ? Error::kOk : Error::kObjectNonexistent;
  }
  if (!removed.is_ok()) {
    log_warning("cannot delete ", count_of(deletion.doomed.size(), "object"),
                " of a Plasma client: ", removed.status().to_string());
  }
  client.send(delete_reply(deletion.ids, errors));
}

void Requests::contains(ClientChannel& client, const IdBytes& id) {
  Arena& arena = parts_.objects.arena();
  const bool is_present = parts_.objects.is_present(id);
  if (is_present || parts_.objects.table().find(id) != nullptr) return client.send(contains_reply(id, is_present));
  const auto reply = [id](ClientChannel& to, const Result<std::vector<bool>>& exist) {
    if (!exist.is_ok()) log_warning("cannot look for object ", to_hex(id), ": ", exist.status().to_string());
    to.send(contains_reply(id, exist.is_ok() && (*exist)[0]));
  };
  const auto exist = arena.exist(std::span(&id, 1), Patience::kBrief);  // a miss in the directory is not final
  if (exist.code() != Code::kTimeout) return reply(client, exist);
  client.set_busy(true);
  parts_.worker.run(Lane::kAnswers, [this, key = client.key(), id, reply, &arena]() -> StoreWorker::Completion {
    return [this, key, reply, later = arena.exist(std::span(&id, 1), Patience::kUntilAnswered)] {
      ClientChannel* const channel = parts_.channel(key);
      if (channel == nullptr) return;
      reply(*channel, later);
      parts_.answered(*channel);
    };
  });
}

void Requests::list(ClientChannel& client) {
  client.set_busy(true);
  std::vector<ObjectDescription> here = parts_.objects.describe_all();
  std::vector<IdBytes> listed;
  listed.reserve(here.size());
  for (const ObjectDescription& object : here)
    listed.push_back(object.id);
  parts_.worker.run(Lane::kAnswers,
                    [this, key = client.key(), here = std::move(here), listed = std::move(listed),
                     &arena = parts_.objects.arena()]() mutable -> StoreWorker::Completion {
                      const std::vector<ObjectDescription> elsewhere = arena.list(listed);
                      here.insert(here.end(), elsewhere.begin(), elsewhere.end());
                      return [this, key, reply = list_reply(here)]() {
                        ClientChannel* const channel = parts_.channel(key);
                        if (channel == nullptr) return;
                        channel->send(reply);
                        parts_.answered(*channel);
                      };
                    });
}

void Requests::set_options(ClientChannel& client, const SetOptionsRequest& request) {
  // Plasma's own server has this answer for options that it does not accept, and none for a name.
  if (request.client_name.size() > kMaxNameBytes) {
    log_warning("a Plasma client, ", client.label(), ", wants a name of ", request.client_name.size(),
                " bytes and is refused: at most ", kMaxNameBytes, " are accepted");
    return client.send(set_options_reply(Error::kOutOfMemory));
  }
  Error error = Error::kOk;
  if (request.quota_bytes < 0 ||
      (request.quota_bytes > 0 &&
       !parts_.objects.table().set_quota(client.key(), static_cast<std::uint64_t>(request.quota_bytes)))) {
    error = Error::kOutOfMemory;
  }
  client.set_name(request.client_name);
  client.send(set_options_reply(error));
}

Status Requests::subscribe(UniqueFd socket) {
  std::vector<ObjectDescription> existing;
  for (ObjectDescription& object : parts_.objects.describe_all()) {
    if (object.construct_s >= 0) existing.push_back(std::move(object));
  }
  return parts_.notifications.subscribe(std::move(socket), existing);
}

}  // namespace entrepot::plasma
