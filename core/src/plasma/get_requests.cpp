#include "plasma/get_requests.h"

#include <algorithm>
#include <utility>

#include "os/clock.h"
#include "os/log.h"

namespace entrepot::plasma {
namespace {

constexpr std::uint64_t kLookNs = 5 * kNsPerMs;  // between two looks into the directory
constexpr std::uint64_t kLookShare = 20;         // of this thread's time at most, if much is waited for
constexpr std::uint64_t kMinRetryPauseNs = 200 * kNsPerMs;
constexpr std::uint64_t kMaxRetryPauseNs = 3'200 * kNsPerMs;
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
    const Result<std::vector<bool>> exist = parts_.objects.arena().exist(unknown, Patience::kBrief);
    for (std::size_t i = 0; exist.is_ok() && i < unknown.size(); ++i) {
      if ((*exist)[i]) shown.push_back(unknown[i]);
    }
    if (exist.code() == Code::kTimeout) {
      waiting.unasked.insert(unknown.begin(), unknown.end());
    } else if (!exist.is_ok()) {
      log_warning("cannot look for objects in the store: ", exist.status().to_string());
    }
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
  ask();
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
  // Without a time-out, it waits for what is being brought, but not for a daemon that stands still.
  const bool is_over = waiting.waits_for_fetches &&
                       (parts_.objects.arena().is_silent() || std::ranges::none_of(waiting.missing, is_fetching));
  const bool is_complete = waiting.missing.empty() || is_late || is_over;
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
  decltype(retries_) retries;  // those that are still waited for
  for (const auto& [key, waiting] : waiting_) {
    for (const IdBytes& id : waiting.missing) {
      const auto retry = retries_.find(id);
      const bool is_retried = retry != retries_.end();
      if (is_retried) retries.insert(*retry);
      if (fetching_.contains(id) || waiting.unusable.contains(id)) continue;
      const bool is_due = is_retried ? retry->second.again_ns <= began : parts_.objects.arena().exists(id);
      if (is_due && parts_.objects.table().find(id) == nullptr) shown.push_back(id);
    }
  }
  retries_ = std::move(retries);
  for (const IdBytes& id : shown)
    fetch(id);
  if (waiting_.empty()) return;
  const std::uint64_t now = os::monotonic_ns();
  look_timer_.arm(now + std::max(kLookNs, (now - began) * kLookShare));
}

void GetRequests::ask() {
  if (is_asking_) return;
  std::unordered_set<IdBytes, IdHash> unasked;
  for (auto& [key, waiting] : waiting_)
    unasked.merge(std::exchange(waiting.unasked, {}));
  if (unasked.empty()) return;
  is_asking_ = true;
  parts_.worker.run(Lane::kAnswers,
                    [this, ids = std::vector(unasked.begin(), unasked.end()),
                     &arena = parts_.objects.arena()]() -> StoreWorker::Completion {
                      return [this, ids, exist = arena.exist(ids, Patience::kUntilAnswered)] { answered(ids, exist); };
                    });
}

void GetRequests::answered(const std::vector<IdBytes>& ids, const Result<std::vector<bool>>& exist) {
  is_asking_ = false;
  if (!exist.is_ok()) log_warning("cannot look for objects in the store: ", exist.status().to_string());
  for (std::size_t i = 0; exist.is_ok() && i < ids.size(); ++i) {
    const auto is_waiting = [&](const auto& entry) { return entry.second.missing.contains(ids[i]); };
    if (!(*exist)[i] || parts_.objects.table().find(ids[i]) != nullptr) continue;
    if (std::ranges::any_of(waiting_, is_waiting)) fetch(ids[i]);
  }
  ask();
}

GetRequests::Fetched GetRequests::outcome_of(const Status& failure) {
  const Code code = failure.code();
  if (code == Code::kObjectNotFound) return Fetched::kDone;
  const bool may_be_had_later = failure.retryable() || code == Code::kStoreFull || code == Code::kTimeout;
  return may_be_had_later ? Fetched::kLater : Fetched::kUnusable;
}

void GetRequests::fetch(const IdBytes& id) {
  if (!fetching_.insert(id).second) return;
  Result<StoredObject> stored = parts_.objects.arena().find(id);
  if (stored.is_ok() && stored->object) return place(id, stored.take());
  parts_.worker.run(Lane::kObjects, [this, id, &arena = parts_.objects.arena()]() -> StoreWorker::Completion {
    Result<StoredObject> loaded = arena.load(id);
    return [this, id, loaded = std::move(loaded)]() {
      if (loaded.is_ok()) return place(id, *loaded);
      if (loaded.code() != Code::kObjectNotFound) {
        log_warning("object ", to_hex(id), " cannot be read: ", loaded.status().to_string());
      }
      fetched(id, outcome_of(loaded.status()));
    };
  });
}

void GetRequests::place(const IdBytes& id, StoredObject stored) {
  if (!stored.object) return fetched(id, Fetched::kUnusable);
  const Contents& contents = stored.contents;
  const std::uint64_t bytes = contents.data.size() + contents.metadata.size();
  // Created meanwhile by a Plasma client, or no room: it is looked for again as long as somebody waits.
  if (parts_.objects.table().find(id) != nullptr || !parts_.objects.make_room(bytes, 0, true)) {
    return fetched(id, Fetched::kLater);
  }
  if (auto extent = parts_.objects.arena().in_place(stored)) {
    add(id, stored, *std::move(extent), true);
    return fetched(id, Fetched::kDone);
  }
  if (bytes > kCopiedHereBytes) return bring_in_background(id, std::move(stored));
  auto extent = parts_.objects.arena().lease_at_hand(bytes);
  if (!extent) return bring_in_background(id, std::move(stored));
  parts_.objects.arena().copy(stored, *extent);
  add(id, stored, *std::move(extent), false);
  fetched(id, Fetched::kDone);
}

void GetRequests::bring_in_background(const IdBytes& id, StoredObject stored) {
  add(id, stored, {}, false);  // takes its room, and is sealed when it is complete
  parts_.worker.run(
      Lane::kObjects,
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
          fetched(id, brought.is_ok() ? Fetched::kDone : outcome_of(brought.status()));
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

void GetRequests::fetched(const IdBytes& id, Fetched outcome) {
  fetching_.erase(id);
  if (outcome == Fetched::kLater) {
    Retry& retry = retries_[id];
    retry.pause_ns = std::clamp(retry.pause_ns * 2, kMinRetryPauseNs, kMaxRetryPauseNs);
    retry.again_ns = os::monotonic_ns() + retry.pause_ns;
  } else {
    retries_.erase(id);
  }
  std::vector<ClientKey> clients;
  for (auto& [key, waiting] : waiting_) {
    if (!waiting.missing.contains(id)) continue;
    if (outcome == Fetched::kUnusable) waiting.unusable.insert(id);
    clients.push_back(key);
  }
  available(id);
  for (const ClientKey key : clients)
    answer_if_complete(key);
  parts_.objects.drop_if_unneeded(id);  // those who asked have gone
}

}  // namespace entrepot::plasma
