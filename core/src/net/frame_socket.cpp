#include "net/frame_socket.h"

#include <cstring>
#include <utility>

#include "base/text.h"
#include "os/socket.h"

namespace entrepot {

std::vector<std::uint8_t> frame_bytes(MessageType type, std::uint64_t request, std::span<const std::uint8_t> body,
                                      std::size_t fds) {
  const FrameHeader header = frame_header(type, request, body.size(), fds);
  std::vector<std::uint8_t> bytes(sizeof(header) + body.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (!body.empty()) std::memcpy(bytes.data() + sizeof(header), body.data(), body.size());
  return bytes;
}

FrameSocket::Incoming FrameSocket::receive() {
  Incoming incoming;
  while (true) {
    auto read = reader_.read(socket_.get(), incoming.frames, kFramesPerRead);
    if (!read.is_ok()) {
      incoming.status = read.status();
      return incoming;
    }
    if (read->closed) {
      incoming.status = Status(Code::kStoreUnavailable, "the peer closed the connection");
      return incoming;
    }
    incoming.more = read->more;
    if (read->more || read->drained) return incoming;
  }
}

Status FrameSocket::send(MessageType type, std::uint64_t request, std::vector<std::uint8_t> body,
                         std::vector<UniqueFd> fds) {
  if (body.size() > kMaxBodyBytes) {
    return Status(Code::kInvalidArgument, concat("a response of ", format_bytes(body.size()), " exceeds the limit of ",
                                                 format_bytes(kMaxBodyBytes), ": request less at once"));
  }
  Unsent unsent;
  unsent.bytes = frame_bytes(type, request, body, fds.size());
  unsent.fds = std::move(fds);
  if (unsent_bytes_ + unsent.bytes.size() > kMaxUnsentBytes) {
    return Status(Code::kStoreFull, concat("the peer has not read ", format_bytes(unsent_bytes_), " of its responses"));
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
