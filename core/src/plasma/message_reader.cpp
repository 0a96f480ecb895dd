#include "plasma/message_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "net/frame.h"
#include "os/socket.h"

namespace entrepot::plasma {
namespace {

constexpr std::size_t kReadBytes = 64U << 10;
constexpr std::size_t kShortBytes = 4U << 10;      // less than this is copied before it is taken
constexpr std::size_t kLargeReadBytes = 1U << 20;  // of a body that is larger than the first
constexpr std::size_t kMaxDescriptors = 1;         // that have arrived and were not taken

}  // namespace

Result<bool> MessageReader::read(int socket) {
  RETURN_IF_ERROR(take_left(socket));
  std::vector<UniqueFd> descriptors;
  // A long body goes straight to its place.
  if (header_ && consumed_ == unread_.size()) {
    const std::size_t have = body_.size();
    const std::size_t rest = static_cast<std::size_t>(header_->length) - have;
    if (rest > kReadBytes) {
      body_.resize(have + std::min(rest, kLargeReadBytes));
      auto received = os::receive_some(socket, std::span(body_).subspan(have), descriptors);
      body_.resize(have + (received.is_ok() ? received->bytes : 0));
      if (!received.is_ok()) return received.status();
      if (received->closed) return false;
      RETURN_IF_ERROR(feed({}, std::move(descriptors)));
      return true;
    }
  }
  std::array<std::uint8_t, kReadBytes> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): is written first
  ASSIGN_OR_RETURN(const os::IoResult seen, os::peek_some(socket, std::span(buffer).first(kShortBytes)));
  if (seen.closed) return false;
  if (seen.bytes < kShortBytes && !seen.fds_lost) {
    left_bytes_ = seen.bytes;
    RETURN_IF_ERROR(feed(std::span(buffer).first(seen.bytes), {}));
    if (!has_message()) RETURN_IF_ERROR(take_left(socket));  // its sender has not finished it, and does not sleep
    return true;
  }
  ASSIGN_OR_RETURN(const os::IoResult received, os::receive_some(socket, buffer, descriptors));
  if (received.closed) return false;
  RETURN_IF_ERROR(feed(std::span(buffer).first(received.bytes), std::move(descriptors)));
  return true;
}

Status MessageReader::take_left(int socket) {
  std::array<std::uint8_t, kShortBytes> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): nobody reads it
  std::vector<UniqueFd> descriptors;
  while (left_bytes_ > 0) {
    ASSIGN_OR_RETURN(const os::IoResult taken,
                     os::receive_some(socket, std::span(buffer).first(left_bytes_), descriptors));
    if (taken.bytes == 0) return Status(Code::kInternal, "bytes that were seen in a socket are not there any more");
    left_bytes_ -= taken.bytes;
  }
  return Status::ok();
}

Status MessageReader::feed(std::span<const std::uint8_t> bytes, std::vector<UniqueFd> descriptors) {
  descriptors_.insert(descriptors_.end(), std::make_move_iterator(descriptors.begin()),
                      std::make_move_iterator(descriptors.end()));
  if (descriptors_.size() > kMaxDescriptors) {
    return Status(Code::kInvalidArgument,
                  concat(descriptors_.size(), " descriptors arrived that no message announced"));
  }
  if (consumed_ == unread_.size()) {
    unread_.clear();
    consumed_ = 0;
  }
  unread_.insert(unread_.end(), bytes.begin(), bytes.end());
  return parse();
}

Status MessageReader::parse() {
  if (expects_descriptor_) {
    // A descriptor arrives no later than its byte.
    if (consumed_ == unread_.size() || !descriptors_.empty()) return Status::ok();
    return Status(Code::kInvalidArgument, "the descriptor of a socket was announced, but did not come");
  }
  if (!header_) {
    if (unread_.size() - consumed_ < kHeaderBytes) return Status::ok();
    const Header header = parse_header(std::span(unread_).subspan(consumed_, kHeaderBytes));
    if (header.version != kProtocolVersion) {
      FrameHeader frame{};
      static_assert(sizeof(frame) == kHeaderBytes);
      std::memcpy(&frame, unread_.data() + consumed_, sizeof(frame));
      if (frame.magic == kFrameMagic) {
        entrepot_request_ = frame.request;
        return Status(Code::kInvalidArgument, "it speaks the store's own protocol, not Plasma's");
      }
      return Status(Code::kInvalidArgument, concat("version ", header.version, " of the protocol, of which only ",
                                                   kProtocolVersion, " exists: is it a Plasma client?"));
    }
    if (header.length < 0 || static_cast<std::uint64_t>(header.length) > max_body_bytes_) {
      return Status(Code::kInvalidArgument,
                    concat("a message of ", header.length, " bytes, of type ", static_cast<std::int64_t>(header.type),
                           "; the limit is ", max_body_bytes_));
    }
    header_ = header;
    consumed_ += kHeaderBytes;
  }
  const std::size_t rest = static_cast<std::size_t>(header_->length) - body_.size();
  const std::size_t taken = std::min(rest, unread_.size() - consumed_);
  const auto first = unread_.begin() + static_cast<std::ptrdiff_t>(consumed_);
  body_.insert(body_.end(), first, first + static_cast<std::ptrdiff_t>(taken));
  consumed_ += taken;
  return Status::ok();
}

Status MessageReader::expect_descriptor() {
  expects_descriptor_ = true;
  return parse();
}

std::optional<Message> MessageReader::take() {
  if (expects_descriptor_ || !parse().is_ok()) return std::nullopt;
  if (!has_message()) return std::nullopt;
  Message message{header_->type, std::exchange(body_, {})};
  header_.reset();
  return message;
}

std::optional<UniqueFd> MessageReader::take_descriptor() {
  if (!expects_descriptor_ || consumed_ == unread_.size() || descriptors_.empty()) return std::nullopt;
  consumed_ += 1;
  expects_descriptor_ = false;
  UniqueFd descriptor = std::move(descriptors_.front());
  descriptors_.clear();
  return descriptor;
}

}  // namespace entrepot::plasma
