#include "plasma/notifications.h"

#include <utility>

#include "base/text.h"
#include "os/log.h"
#include "os/socket.h"

namespace entrepot::plasma {
namespace {

constexpr std::size_t kMaxWaitingBytes = 64U << 20;

}  // namespace

Status Notifications::subscribe(UniqueFd socket, std::span<const ObjectDescription> existing) {
  RETURN_IF_ERROR(os::set_nonblocking(socket.get(), true));
  const std::uint64_t key = next_key_++;
  auto subscriber = std::make_unique<Subscriber>();
  subscriber->socket = std::move(socket);
  ASSIGN_OR_RETURN(subscriber->watch,
                   loop_->watch(subscriber->socket.get(), Interest::kHangup, [this, key](const os::Ready& ready) {
                     const auto match = subscribers_.find(key);
                     if (ready.hangup || !flush(*match->second)) subscribers_.erase(match);
                   }));
  Subscriber& added = *subscriber;
  subscribers_.emplace(key, std::move(subscriber));
  if (!existing.empty() && !add(added, sealed_notification(existing))) subscribers_.erase(key);
  return Status::ok();
}

void Notifications::sealed(const ObjectDescription& object) {
  if (!subscribers_.empty()) send_to_all(sealed_notification(std::span(&object, 1)));
}

void Notifications::deleted(const IdBytes& id) {
  if (!subscribers_.empty()) send_to_all(deleted_notification(id));
}

void Notifications::send_to_all(const Bytes& message) {
  std::erase_if(subscribers_, [&](auto& entry) { return !add(*entry.second, message); });
}

bool Notifications::add(Subscriber& subscriber, Bytes message) {
  subscriber.waiting_bytes += message.size();
  if (subscriber.waiting_bytes > kMaxWaitingBytes) {
    log_warning("a Plasma client does not read its notifications: ", format_bytes(subscriber.waiting_bytes),
                " wait for it; its subscription ends");
    return false;
  }
  const bool was_empty = subscriber.waiting.empty();
  subscriber.waiting.push_back(std::move(message));
  return !was_empty || flush(subscriber);
}

bool Notifications::flush(Subscriber& subscriber) {
  while (!subscriber.waiting.empty()) {
    const Bytes& first = subscriber.waiting.front();
    const auto sent = os::send_some(subscriber.socket.get(), std::span(first).subspan(subscriber.sent_bytes));
    if (!sent.is_ok()) return false;
    if (sent->would_block) {
      if (std::exchange(subscriber.waits_to_write, true)) return true;
      return subscriber.watch.change(Interest::kReadAndWrite).is_ok();
    }
    subscriber.sent_bytes += sent->bytes;
    if (subscriber.sent_bytes < first.size()) continue;
    subscriber.waiting_bytes -= first.size();
    subscriber.sent_bytes = 0;
    subscriber.waiting.pop_front();
  }
  return !std::exchange(subscriber.waits_to_write, false) || subscriber.watch.change(Interest::kHangup).is_ok();
}

}  // namespace entrepot::plasma
