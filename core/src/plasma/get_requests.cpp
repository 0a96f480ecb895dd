#include "plasma/get_requests.h"

#include <algorithm>
#include <utility>

#include "os/clock.h"
#include "os/log.h"

namespace entrepot::plasma {
namespace {

constexpr std::uint64_t kLookNs = 5 * kNsPerMs;  // between two looks into the directory
constexpr std::uint64_t kLookShare = 20;         // of this thread's time at most, if much is waited for
constexpr std::uint64_t kMaxTimeoutMs = 1ULL << 40;

}  // namespace

GetRequests::GetRequests(Parts parts)
    : parts_(std::move(parts)), look_timer_(parts_.loop.timer([this](std::uint64_t) { look(); })) {}

void GetRequests::begin(ClientChannel& client, GetRequest request) {
  const ClientKey key = client.key();
  client.set_busy(true);
  Waiting& waiting = waiting_[key];
  waiting.ids = std::move(request.ids);
  std::vector<IdBytes> shown;
  std::vector<IdBytes> unknown;
  for (const IdBytes& id : waiting.ids) {
    if (waiting.missing.contains(id) || take(client, waiting, id)) continue;
    waiting.missing.insert(id);
    if (parts_.objects.table().find(id) != nullptr) continue;  // being made
    (parts_.objects.arena().exists(id) ? shown : unknown).push_back(id);
  }
  if (!unknown.empty()) {  // a miss in the directory is not final
    const Result<std::vector<bool>> exist = parts_.objects.arena().exist(unknown);
    for (std::size_t i = 0; exist.is_ok() && i < unknown.size(); ++i) {
      if ((*exist)[i]) shown.push_back(unknown[i]);
    }
    if (!exist.is_ok()) log_warning("cannot look for objects in the store: ", exist.status().to_string());
  }
  waiting.waits_for_fetches = request.timeout_ms == 0;
  if (request.timeout_ms > 0) {
    waiting.deadline = parts_.loop.timer([this, key](std::uint64_t) { answer_if_complete(key, true); });
    const auto timeout_ms = std::min(static_cast<std::uint64_t>(request.timeout_ms), kMaxTimeoutMs);
    waiting.deadline.arm(os::monotonic_ns() + timeout_ms * kNsPerMs);
  }
  for (const IdBytes& id : shown)
    fetch(id);
  answer_if_complete(key);
  if (!waiting_.empty()) look_timer_.arm_if_idle(os::monotonic_ns() + kLookNs);
}

bool GetRequests::take(ClientChannel& client, Waiting& waiting, const IdBytes& id) {
  Object* const object = parts_.objects.usable(id);
  if (object == nullptr) return false;
  parts_.objects.hold(client, id, *object);
  waiting.missing.erase(id);
  return true;
}

void GetRequests::answer_if_complete(ClientKey client, bool is_late) {
  const auto match = waiting_.find(client);
  if (match == waiting_.end()) return;
  Waiting& waiting = match->second;
  const auto is_fetching = [this](const IdBytes& id) { return fetching_.contains(id); };
  const bool is_complete = waiting.missing.empty() || is_late ||
                           (waiting.waits_for_fetches && std::ranges::none_of(waiting.missing, is_fetching));
  if (!is_complete) return;
  ClientChannel* const channel = parts_.channel(client);
  std::vector<ObjectPlace> places;
  places.reserve(waiting.ids.size());
  for (const IdBytes& id : waiting.ids) {
    places.push_back(waiting.missing.contains(id) ? ObjectPlace() : parts_.objects.table().find(id)->place());
  }
  channel->send(get_reply(waiting.ids, places));
  for (const IdBytes& id : waiting.ids) {
    if (!waiting.missing.contains(id)) parts_.objects.send_segment(*channel, *parts_.objects.table().find(id));
  }
  waiting_.erase(match);
  parts_.answered(*channel);
}

void GetRequests::available(const IdBytes& id) {
  std::vector<ClientKey> waiting_clients;
  for (auto& [key, waiting] : waiting_) {
    if (waiting.missing.contains(id)) waiting_clients.push_back(key);
  }
  for (const ClientKey key : waiting_clients) {
    const auto match = waiting_.find(key);
    if (match == waiting_.end()) continue;
    static_cast<void>(take(*parts_.channel(key), match->second, id));
    answer_if_complete(key);
  }
}

void GetRequests::look() {
  const std::uint64_t began = os::monotonic_ns();
  std::vector<IdBytes> shown;
  for (const auto& [key, waiting] : waiting_) {
    for (const IdBytes& id : waiting.missing) {
      if (fetching_.contains(id) || waiting.unusable.contains(id)) continue;
      if (parts_.objects.table().find(id) == nullptr && parts_.objects.arena().exists(id)) shown.push_back(id);
    }
  }
  for (const IdBytes& id : shown)
    fetch(id);
  if (waiting_.empty()) return;
  const std::uint64_t now = os::monotonic_ns();
  look_timer_.arm(now + std::max(kLookNs, (now - began) * kLookShare));
}

void GetRequests::fetch(const IdBytes& id) {
  if (!fetching_.insert(id).second) return;
  Result<StoredObject> stored = parts_.objects.arena().find(id);
  if (stored.is_ok() && stored->object) return place(id, stored.take());
  parts_.worker.run([this, id, &arena = parts_.objects.arena()]() -> StoreWorker::Completion {
    Result<StoredObject> loaded = arena.load(id);
    return [this, id, loaded = std::move(loaded)]() {
      if (!loaded.is_ok() && loaded.code() != Code::kObjectNotFound) {
        log_warning("object ", to_hex(id), " cannot be read: ", loaded.status().to_string());
      }
      place(id, loaded.is_ok() ? *loaded : StoredObject());
    };
  });
}

void GetRequests::place(const IdBytes& id, StoredObject stored) {
  if (!stored.object) return fetched(id, false);
  const Contents& contents = stored.contents;
  const std::uint64_t bytes = contents.data.size() + contents.metadata.size();
  // Created meanwhile by a Plasma client, or no room: it is looked for again as long as somebody waits.
  if (parts_.objects.table().find(id) != nullptr || !parts_.objects.make_room(bytes, 0, true)) return fetched(id, true);
  if (auto extent = parts_.objects.arena().in_place(stored)) {
    add(id, stored, *std::move(extent), true);
    return fetched(id, true);
  }
  if (bytes > kCopiedHereBytes) return bring_in_background(id, std::move(stored));
  auto extent = parts_.objects.arena().lease_at_hand(bytes);
  if (!extent) return bring_in_background(id, std::move(stored));
  parts_.objects.arena().copy(stored, *extent);
  add(id, stored, *std::move(extent), false);
  fetched(id, true);
}

void GetRequests::bring_in_background(const IdBytes& id, StoredObject stored) {
  add(id, stored, {}, false);  // takes its room, and is sealed when it is complete
  parts_.worker.run(
      [this, id, stored = std::move(stored), &arena = parts_.objects.arena()]() -> StoreWorker::Completion {
        Result<Brought> brought = arena.bring(stored);
        return [this, id, brought = std::move(brought)]() {
          Object& object = *parts_.objects.table().find(id);
          if (brought.is_ok()) {
            object.extent = brought->extent;
            object.is_in_place = brought->is_in_place;
            parts_.objects.table().seal(id, object);
          } else {
            log_warning("object ", to_hex(id), " cannot be brought into the arena: ", brought.status().to_string());
            parts_.objects.table().erase(id);
          }
          fetched(id, brought.is_ok());
        };
      });
}

void GetRequests::add(const IdBytes& id, const StoredObject& stored, Extent extent, bool is_in_place) {
  Object object;
  object.data_bytes = stored.contents.data.size();
  object.metadata_bytes = stored.contents.metadata.size();
  object.is_sealed = extent.memory != nullptr;
  object.is_in_place = is_in_place;
  object.is_plasma = stored.contents.is_plasma;
  object.generation = stored.object->generation();
  object.construct_s = 0;
  object.digest.assign(sizeof(std::uint64_t), '\0');
  object.extent = std::move(extent);
  parts_.objects.table().add(id, std::move(object));
}

void GetRequests::fetched(const IdBytes& id, bool is_usable) {
  fetching_.erase(id);
  std::vector<ClientKey> clients;
  for (auto& [key, waiting] : waiting_) {
    if (!waiting.missing.contains(id)) continue;
    if (!is_usable) waiting.unusable.insert(id);
    clients.push_back(key);
  }
  available(id);
  for (const ClientKey key : clients)
    answer_if_complete(key);
  parts_.objects.drop_if_unneeded(id);  // those who asked have gone
}

}  // namespace entrepot::plasma
