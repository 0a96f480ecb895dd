#include "net/frame_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "os/error.h"
#include "os/socket.h"

namespace entrepot {

Result<FrameReader::Read> FrameReader::read(int socket, std::vector<Frame>& frames, std::size_t max_frames) {
  Read read;
  if (!unparsed_.empty()) {
    const std::vector<std::uint8_t> waiting = std::exchange(unparsed_, {});
    std::span<const std::uint8_t> left(waiting);
    RETURN_IF_ERROR(split(left, frames, max_frames));
    unparsed_.assign(left.begin(), left.end());
  }
  if (frames.size() >= max_frames || !unparsed_.empty()) {
    read.more = true;
    return read;
  }
  std::array<std::uint8_t, kReadBytes> fresh;  // uninitialized: clearing it would cost more than the read
  std::span<std::uint8_t> room = free_body_bytes();
  const bool is_body = !room.empty();
  if (!is_body) room = fresh;
  ASSIGN_OR_RETURN(const os::IoResult came, os::receive_some(socket, room, fds_));
  read.closed = came.closed;
  read.drained = came.would_block || came.bytes < room.size();
  fds_lost_ = fds_lost_ || came.fds_lost;
  RETURN_IF_ERROR(check_fds());
  if (is_body) {
    body_bytes_ += came.bytes;
    if (body_bytes_ < part_.header.body_bytes) return read;
    read.drained = true;
    RETURN_IF_ERROR(finish(frames));
    return read;
  }
  std::span<const std::uint8_t> bytes = room.first(came.bytes);
  RETURN_IF_ERROR(split(bytes, frames, max_frames));
  unparsed_.assign(bytes.begin(), bytes.end());
  read.more = !unparsed_.empty();
  return read;
}

void FrameReader::refuse_descriptors() {
  fds_.clear();
  max_fds_ = 0;
}

Status descriptors_lost_error() { return os::errno_status(EMFILE, "receiving descriptors"); }

Status FrameReader::check_fds() const {
  if (fds_.size() <= max_fds_ && (max_fds_ > 0 || !fds_lost_)) return Status::ok();
  return {Code::kInvalidArgument, max_fds_ == 0 ? std::string("only a Hello may carry descriptors")
                                                : concat("more than ", max_fds_, " descriptors at once")};
}

// Consumes what it uses from the front of `bytes`.
Status FrameReader::split(std::span<const std::uint8_t>& bytes, std::vector<Frame>& frames, std::size_t max_frames) {
  while (!bytes.empty() && frames.size() < max_frames) {
    if (header_bytes_ < sizeof(FrameHeader)) {
      const std::size_t taken = std::min(sizeof(FrameHeader) - header_bytes_, bytes.size());
      std::memcpy(header_.data() + header_bytes_, bytes.data(), taken);
      header_bytes_ += taken;
      bytes = bytes.subspan(taken);
      if (header_bytes_ < sizeof(FrameHeader)) return Status::ok();
      std::memcpy(&part_.header, header_.data(), sizeof(FrameHeader));
      RETURN_IF_ERROR(check_header());
    }
    const auto body = bytes.first(std::min(part_.header.body_bytes - body_bytes_, bytes.size()));
    part_.body.insert(part_.body.end(), body.begin(), body.end());
    body_bytes_ += body.size();
    bytes = bytes.subspan(body.size());
    if (body_bytes_ == part_.header.body_bytes) RETURN_IF_ERROR(finish(frames));
  }
  return Status::ok();
}

Status FrameReader::check_header() const {
  const FrameHeader& header = part_.header;
  if (header.magic != kFrameMagic) {
    return {Code::kInvalidArgument,
            concat("bad frame magic number ", header.magic, ", expected EPT1: is the peer an Entrepot program?")};
  }
  if (header.body_bytes > kMaxBodyBytes) {
    return {Code::kInvalidArgument, concat("a frame of ", format_bytes(header.body_bytes), " exceeds the limit of ",
                                           format_bytes(kMaxBodyBytes))};
  }
  if (header.fd_count > kMaxFds) {
    return {Code::kInvalidArgument,
            concat("a frame with ", header.fd_count, " descriptors exceeds the limit of ", kMaxFds)};
  }
  return Status::ok();
}

// Descriptors arrive with the first byte of their frame, so they are here when its last byte is.
Status FrameReader::finish(std::vector<Frame>& frames) {
  const std::uint32_t count = part_.header.fd_count;
  if (count > fds_.size() && fds_lost_) {
    fds_lost_ = false;
    fds_.clear();
  } else if (count > fds_.size()) {
    return {Code::kInvalidArgument, concat("a frame declares ", count, " descriptors, but ", fds_.size(), " arrived")};
  }
  if (count > 0 && !fds_.empty()) {
    const auto last = fds_.begin() + static_cast<std::ptrdiff_t>(count);
    part_.fds.assign(std::make_move_iterator(fds_.begin()), std::make_move_iterator(last));
    fds_.erase(fds_.begin(), last);
  }
  frames.push_back(std::exchange(part_, {}));
  header_bytes_ = body_bytes_ = 0;
  return Status::ok();
}

// Where to read the rest of a partly received body, in its final place. Allocates as bytes arrive, not as announced.
std::span<std::uint8_t> FrameReader::free_body_bytes() {
  if (header_bytes_ < sizeof(FrameHeader)) return {};
  const std::size_t whole = part_.header.body_bytes;
  if (part_.body.size() == body_bytes_) {
    part_.body.resize(std::min(whole, std::max(2 * body_bytes_, body_bytes_ + kReadBytes)));
  }
  return std::span(part_.body).subspan(body_bytes_);
}

}  // namespace entrepot
