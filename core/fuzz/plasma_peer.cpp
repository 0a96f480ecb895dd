#include "fuzz/plasma_peer.h"

#include <poll.h>
#include <unistd.h>

#include "os/socket.h"

namespace entrepot::fuzz {
namespace {

using plasma::MessageType;

constexpr std::size_t kReadBytes = 64U << 10;

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 31U)) * 0x9e37'79b9'7f4a'7c15U;
  return x ^ (x >> 29U);
}

}  // namespace

Bytes content_of(const IdBytes& id, std::uint64_t data_bytes, std::uint64_t metadata_bytes) {
  std::uint64_t seed = mixed(data_bytes * 1'000'003 + metadata_bytes);
  for (const std::uint8_t byte : id)
    seed = mixed(seed + byte);
  Bytes content(data_bytes + metadata_bytes);
  for (std::size_t i = 0; i < content.size(); ++i)
    content[i] = static_cast<std::uint8_t>(mixed(seed + i / 64) + i);
  return content;
}

void PlasmaPeer::send(const Bytes& bytes, std::optional<MessageType> reply, std::span<const int> descriptors) {
  if (!is_connected()) return;
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const auto some =
        os::send_some(socket_.get(), std::span(bytes).subspan(sent), sent == 0 ? descriptors : std::span<const int>());
    if (!some.is_ok() || some->would_block) {
      require(some.is_ok() || may_be_cut_off, "who keeps to the protocol is not cut off");
      return hang_up();  // and part of a message may have been sent
    }
    sent += some->bytes;
  }
  if (reply) expected_.push_back(*reply);
}

void PlasmaPeer::send_many(const Bytes& bytes, MessageType reply, std::size_t count) {
  send(bytes, std::nullopt);
  if (is_connected()) expected_.insert(expected_.end(), count, reply);
}

void PlasmaPeer::read_socket() {
  Bytes buffer(kReadBytes);
  std::vector<UniqueFd> descriptors;
  while (is_connected()) {
    pollfd ready{socket_.get(), POLLIN, 0};
    if (::poll(&ready, 1, 0) <= 0) break;
    const auto got = os::receive_some(socket_.get(), buffer, descriptors);
    if (!got.is_ok() || got->closed) {
      require(may_be_cut_off, "who keeps to the protocol is not cut off");
      hang_up();
      break;
    }
    came_.insert(came_.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(got->bytes));
  }
  for (UniqueFd& descriptor : descriptors)
    descriptors_.push_back(std::move(descriptor));
}

std::optional<PlasmaPeer::Reply> PlasmaPeer::receive() {
  if (!reads) return std::nullopt;
  read_socket();
  take_segments();
  if (!announced_.empty() || came_.size() < plasma::kHeaderBytes) return std::nullopt;
  const plasma::Header header = plasma::parse_header(std::span(came_).first(plasma::kHeaderBytes));
  require(header.version == plasma::kProtocolVersion && header.length >= 0, "a reply has Plasma's header");
  const std::size_t end = plasma::kHeaderBytes + static_cast<std::size_t>(header.length);
  if (came_.size() < end) return std::nullopt;
  Reply reply{header.type,
              Bytes(came_.begin() + plasma::kHeaderBytes, came_.begin() + static_cast<std::ptrdiff_t>(end))};
  came_.erase(came_.begin(), came_.begin() + static_cast<std::ptrdiff_t>(end));
  if (expected_.empty()) {
    require(may_be_cut_off, "nobody gets a reply who has not asked");
  } else {
    require(reply.type == expected_.front() || may_be_cut_off, "replies come in the order of their requests");
    expected_.pop_front();
  }
  expect_segments(reply);
  return reply;
}

void PlasmaPeer::expect_segments(const Reply& reply) {
  const auto expect = [this](int segment) {
    if (segments_.contains(segment)) return;
    segments_[segment];
    announced_.push_back(segment);
  };
  if (reply.type == MessageType::kCreateReply) {
    const auto& created_one = plasma_reply<wire::CreateReply>(reply.body);
    if (created_one.error() == wire::Error::Ok) expect(created_one.place()->segment());
  } else if (reply.type == MessageType::kGetReply) {
    for (const wire::Place* const place : *plasma_reply<wire::GetReply>(reply.body).places()) {
      if (place->data_size() != UINT64_MAX) expect(place->segment());
    }
  }
  read_socket();
  take_segments();
}

void PlasmaPeer::take_segments() {
  while (!announced_.empty() && !came_.empty()) {
    require(!descriptors_.empty(), "a segment's descriptor comes with its byte");
    came_.erase(came_.begin());
    segments_[announced_.front()] = std::move(descriptors_.front());
    descriptors_.pop_front();
    announced_.pop_front();
  }
}

bool PlasmaPeer::write(const IdBytes& id) {
  const wire::Place& place = created.at(id);
  const auto segment = segments_.find(place.segment());
  if (segment == segments_.end() || !segment->second.valid()) return false;
  const Bytes content = content_of(id, place.data_size(), place.metadata_size());
  const ssize_t written =
      ::pwrite(segment->second.get(), content.data(), content.size(), static_cast<off_t>(place.data_offset()));
  require(written == static_cast<ssize_t>(content.size()), "what was created lies in its segment");
  return true;
}

void PlasmaPeer::check(const IdBytes& id, const wire::Place& place) {
  require(place.metadata_offset() == place.data_offset() + place.data_size(), "the metadata follows the data");
  const auto segment = segments_.find(place.segment());
  if (segment == segments_.end() || !segment->second.valid()) return;
  const Bytes expected = content_of(id, place.data_size(), place.metadata_size());
  Bytes content(expected.size());
  const ssize_t read =
      ::pread(segment->second.get(), content.data(), content.size(), static_cast<off_t>(place.data_offset()));
  require(read == static_cast<ssize_t>(content.size()) && content == expected,
          "an object has the bytes it was sealed with");
}

}  // namespace entrepot::fuzz
