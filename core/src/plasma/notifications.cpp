#include "plasma/notifications.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "os/log.h"
#include "os/socket.h"

namespace entrepot::plasma {
namespace {

constexpr std::size_t kMaxWaitingBytes = 64U << 20;  // of all subscribers

}  // namespace

Status Notifications::subscribe(UniqueFd socket, std::span<const ObjectDescription> existing) {
  RETURN_IF_ERROR(os::set_nonblocking(socket.get(), true));
  const std::uint64_t key = next_key_++;
  auto subscriber = std::make_unique<Subscriber>();
  subscriber->socket = std::move(socket);
  ASSIGN_OR_RETURN(subscriber->watch,
                   loop_->watch(subscriber->socket.get(), Interest::kHangup, [this, key](const os::Ready& ready) {
                     const auto match = subscribers_.find(key);
                     if (ready.hangup || !flush(*match->second)) end(match->first);
                   }));
  Subscriber& added = *subscriber;
  subscribers_.emplace(key, std::move(subscriber));
  if (!existing.empty() && !add(added, std::make_shared<const Bytes>(sealed_notification(existing)))) end(key);
  limit_waiting();
  return Status::ok();
}

void Notifications::end(std::uint64_t key) {
  const auto match = subscribers_.find(key);
  waiting_bytes_ -= match->second->waiting_bytes;
  subscribers_.erase(match);
}

void Notifications::sealed(const ObjectDescription& object) {
  if (!subscribers_.empty()) send_to_all(sealed_notification(std::span(&object, 1)));
}

void Notifications::deleted(const IdBytes& id) {
  if (!subscribers_.empty()) send_to_all(deleted_notification(id));
}

void Notifications::send_to_all(Bytes message) {
  const auto shared = std::make_shared<const Bytes>(std::move(message));
  std::vector<std::uint64_t> gone;
  for (auto& [key, subscriber] : subscribers_) {
    if (!add(*subscriber, shared)) gone.push_back(key);
  }
  for (const std::uint64_t key : gone)
    end(key);
  limit_waiting();
}

void Notifications::limit_waiting() {
  while (waiting_bytes_ > kMaxWaitingBytes) {
    const auto most =
        std::ranges::max_element(subscribers_, {}, [](const auto& entry) { return entry.second->waiting_bytes; });
    log_warning("Plasma clients do not read their notifications: ", format_bytes(waiting_bytes_), " wait for them, of ",
                "which ", format_bytes(most->second->waiting_bytes), " for one, whose subscription ends");
    end(most->first);
  }
}

bool Notifications::add(Subscriber& subscriber, std::shared_ptr<const Bytes> message) {
  subscriber.waiting_bytes += message->size();
  waiting_bytes_ += message->size();
  const bool was_empty = subscriber.waiting.empty();
  subscriber.waiting.push_back(std::move(message));
  return !was_empty || flush(subscriber);
}

bool Notifications::flush(Subscriber& subscriber) {
  while (!subscriber.waiting.empty()) {
    const Bytes& first = *subscriber.waiting.front();
    const auto sent = os::send_some(subscriber.socket.get(), std::span(first).subspan(subscriber.sent_bytes));
    if (!sent.is_ok()) return false;
    if (sent->would_block) {
      if (std::exchange(subscriber.waits_to_write, true)) return true;
      return subscriber.watch.change(Interest::kReadAndWrite).is_ok();
    }
    subscriber.sent_bytes += sent->bytes;
    if (subscriber.sent_bytes < first.size()) continue;
    subscriber.waiting_bytes -= first.size();
    waiting_bytes_ -= first.size();
    subscriber.sent_bytes = 0;
    subscriber.waiting.pop_front();
  }
  return !std::exchange(subscriber.waits_to_write, false) || subscriber.watch.change(Interest::kHangup).is_ok();
}

}  // namespace entrepot::plasma
