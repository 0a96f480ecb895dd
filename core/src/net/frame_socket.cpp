#include "net/frame_socket.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "os/socket.h"

namespace entrepot {

std::vector<std::uint8_t> frame_bytes(MessageType type, std::uint64_t request, std::span<const std::uint8_t> body,
                                      std::size_t fds) {
  FrameHeader header{};
  header.magic = kFrameMagic;
  header.type = type;
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  header.fd_count = static_cast<std::uint32_t>(fds);
  header.request = request;
  std::vector<std::uint8_t> bytes(sizeof(header) + body.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (!body.empty()) std::memcpy(bytes.data() + sizeof(header), body.data(), body.size());
  return bytes;
}

FrameSocket::Incoming FrameSocket::receive() {
  Incoming incoming;
  bool readable = true;
  while (true) {
    while (incoming.frames.size() < kFramesPerRead) {
      IncomingFrame frame;
      auto whole = cut(frame);
      if (!whole.is_ok()) {
        incoming.status = whole.status();
        return incoming;
      }
      if (!*whole) break;
      incoming.frames.push_back(std::move(frame));
    }
    if (incoming.frames.size() >= kFramesPerRead) {
      incoming.more = true;
      return incoming;
    }
    if (!readable) return incoming;
    make_room();
    const std::size_t room = buffer_.size() - end_;
    auto result = os::receive_some(socket_.get(), std::span(buffer_).subspan(end_), pending_fds_);
    if (!result.is_ok()) {
      incoming.status = result.status();
      return incoming;
    }
    end_ += result->bytes;
    if (result->closed) {
      incoming.status = Status(Code::kStoreUnavailable, "the peer closed the connection");
      return incoming;
    }
    if (pending_fds_.size() > most_pending_fds_) {
      incoming.status =
          Status(Code::kInvalidArgument, most_pending_fds_ == 0
                                             ? std::string("descriptors come with a Hello only")
                                             : concat("more than ", most_pending_fds_, " descriptors at once"));
      return incoming;
    }
    readable = !result->would_block && result->bytes == room;  // a short read: nothing is left for now
  }
}

void FrameSocket::refuse_descriptors() {
  pending_fds_.clear();
  most_pending_fds_ = 0;
}

void FrameSocket::make_room() {
  if (start_ == end_) {
    start_ = end_ = 0;
    if (buffer_.size() > 16 * kReadBytes) buffer_ = {};  // one large request is no reason to keep its size
  }
  if (buffer_.size() - end_ >= kReadBytes) return;
  if (start_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + start_, end_ - start_);
    end_ -= start_;
    start_ = 0;
  }
  if (buffer_.size() - end_ < kReadBytes) buffer_.resize(std::max(2 * buffer_.size(), end_ + kReadBytes));
}

Result<bool> FrameSocket::cut(IncomingFrame& frame) {
  const std::size_t have = end_ - start_;
  if (have < sizeof(FrameHeader)) return false;
  std::memcpy(&frame.header, buffer_.data() + start_, sizeof(FrameHeader));
  if (frame.header.magic != kFrameMagic) {
    return Status(Code::kInvalidArgument, concat("a frame begins with the number ", frame.header.magic,
                                                 " instead of EPT1: is the peer an Entrepot program?"));
  }
  if (frame.header.body_bytes > kMaxBodyBytes) {
    return Status(Code::kInvalidArgument, concat("a frame of ", format_bytes(frame.header.body_bytes),
                                                 " is over the limit of ", format_bytes(kMaxBodyBytes)));
  }
  if (frame.header.fd_count > kMaxFds) {
    return Status(Code::kInvalidArgument,
                  concat("a frame with ", frame.header.fd_count, " descriptors is over the limit of ", kMaxFds));
  }
  const std::size_t whole = sizeof(FrameHeader) + frame.header.body_bytes;
  if (have < whole) return false;
  if (frame.header.fd_count > pending_fds_.size()) {
    return Status(Code::kInvalidArgument, concat("a frame announces ", frame.header.fd_count, " descriptors and ",
                                                 pending_fds_.size(), " came"));
  }
  const auto body = buffer_.begin() + static_cast<std::ptrdiff_t>(start_ + sizeof(FrameHeader));
  frame.body.assign(body, body + static_cast<std::ptrdiff_t>(frame.header.body_bytes));
  const auto last_fd = pending_fds_.begin() + static_cast<std::ptrdiff_t>(frame.header.fd_count);
  frame.fds.assign(std::make_move_iterator(pending_fds_.begin()), std::make_move_iterator(last_fd));
  pending_fds_.erase(pending_fds_.begin(), last_fd);
  start_ += whole;
  if (start_ == buffer_.size()) {
    buffer_.clear();
    start_ = 0;
    if (buffer_.capacity() > 4 * kReadBytes)
      buffer_.shrink_to_fit();  // one large request is no reason to keep its size
  }
  return true;
}

Status FrameSocket::send(MessageType type, std::uint64_t request, std::vector<std::uint8_t> body,
                         std::vector<UniqueFd> fds) {
  if (body.size() > kMaxBodyBytes) {
    return Status(Code::kInvalidArgument, concat("an answer of ", format_bytes(body.size()), " is over the limit of ",
                                                 format_bytes(kMaxBodyBytes), ": ask for less at once"));
  }
  Unsent unsent;
  unsent.bytes = frame_bytes(type, request, body, fds.size());
  unsent.fds = std::move(fds);
  if (unsent_bytes_ + unsent.bytes.size() > kMaxUnsentBytes) {
    return Status(Code::kStoreFull, concat("the peer has not read ", format_bytes(unsent_bytes_), " of its answers"));
  }
  unsent_bytes_ += unsent.bytes.size();
  unsent_.push_back(std::move(unsent));
  return flush();
}

Status FrameSocket::flush() {
  while (!unsent_.empty()) {
    Unsent& front = unsent_.front();
    std::vector<int> fds;
    if (front.sent == 0) {
      for (const UniqueFd& fd : front.fds)
        fds.push_back(fd.get());
    }
    ASSIGN_OR_RETURN(const os::IoResult result,
                     os::send_some(socket_.get(), std::span(front.bytes).subspan(front.sent), fds));
    if (result.would_block) return Status::ok();
    front.sent += result.bytes;
    if (result.bytes > 0) front.fds.clear();
    if (front.sent == front.bytes.size()) {
      unsent_bytes_ -= front.bytes.size();
      unsent_.pop_front();
    }
  }
  return Status::ok();
}

}  // namespace entrepot
