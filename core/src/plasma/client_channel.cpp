#include "plasma/client_channel.h"

#include <span>

#include "base/text.h"
#include "os/socket.h"

namespace entrepot::plasma {

std::string ClientChannel::label() const { return name_.empty() ? label_ : concat(label_, " (", name_, ")"); }

void ClientChannel::send(Bytes message) {
  unsent_bytes_ += message.size();
  output_.push_back({std::move(message), 0, nullptr});
}

void ClientChannel::send_segment(std::int32_t segment, std::shared_ptr<const UniqueFd> descriptor) {
  if (!known_segments_.insert(segment).second) return;
  unsent_bytes_ += 1;
  output_.push_back({Bytes(1, 0), 0, std::move(descriptor)});
}

bool ClientChannel::flush() {
  while (!output_.empty()) {
    Output& next = output_.front();
    const int descriptor = next.descriptor ? next.descriptor->get() : -1;
    const auto descriptors = std::span(&descriptor, next.descriptor ? 1 : 0);
    const auto sent = os::send_some(socket_.get(), std::span(next.bytes).subspan(next.sent), descriptors);
    if (!sent.is_ok()) return false;
    if (sent->would_block) return true;
    next.sent += sent->bytes;
    unsent_bytes_ -= sent->bytes;
    if (next.sent == next.bytes.size()) output_.pop_front();
  }
  return true;
}

Status ClientChannel::update_watch() {
  const Interest wanted = is_sending() ? Interest::kReadAndWrite : is_busy_ ? Interest::kHangup : Interest::kRead;
  if (wanted == interest_) return Status::ok();
  RETURN_IF_ERROR(watch_.change(wanted));
  interest_ = wanted;
  return Status::ok();
}

}  // namespace entrepot::plasma
