// FrameReader: splits a stream socket's data into frames, for daemon and client alike.
//
// Holds no memory between frames: reads go to the stack, and only an incomplete frame is kept, its body in its final
// place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "net/frame.h"
#include "os/unique_fd.h"

namespace entrepot {

inline constexpr std::size_t kMaxPendingFds = 64;  // limit of received descriptors whose frames are incomplete

struct Frame {
  FrameHeader header{};
  std::vector<std::uint8_t> body;
  std::vector<UniqueFd> fds;  // all that the header announces, or none

  // True if descriptors were sent with it but did not fit into this process's descriptor table.
  [[nodiscard]] bool lost_fds() const { return fds.size() < header.fd_count; }
};
// The error for lost descriptors.
[[nodiscard]] Status descriptors_lost_error();

// Guarded by the socket's reader.
class FrameReader {
 public:
  static constexpr std::size_t kReadBytes = 32U << 10;  // holds a small object's Seal; fits on any thread's stack

  struct Read {
    bool drained = false;  // nothing more is known to be in the socket
    bool closed = false;   // by the peer
    bool more = false;     // `max_frames` frames were returned and bytes are left: the next call continues with them
  };
  // Reads at most once and appends the frames that are then complete; `frames` never grows beyond `max_frames`. On an
  // error, the frames before it have been appended. kInvalidArgument: the data is not a frame of this protocol.
  [[nodiscard]] Result<Read> read(int socket, std::vector<Frame>& frames, std::size_t max_frames = SIZE_MAX);

  // From now on, a received descriptor is an error; descriptors whose frames are still incomplete are closed.
  void refuse_descriptors();
  // True if part of a frame has been received.
  [[nodiscard]] bool is_inside() const { return header_bytes_ > 0; }
  [[nodiscard]] std::size_t buffered_bytes() const { return part_.body.size() + unparsed_.size(); }

 private:
  [[nodiscard]] Status split(std::span<const std::uint8_t>& bytes, std::vector<Frame>& frames, std::size_t max_frames);
  [[nodiscard]] Status check_header() const;
  [[nodiscard]] Status check_fds() const;
  [[nodiscard]] Status finish(std::vector<Frame>& frames);
  [[nodiscard]] std::span<std::uint8_t> free_body_bytes();

  Frame part_;                    // the incomplete frame; its body may be longer than the bytes received
  std::size_t header_bytes_ = 0;  // bytes of the header received
  std::size_t body_bytes_ = 0;    // bytes of the body received
  std::array<std::uint8_t, sizeof(FrameHeader)> header_{};
  std::vector<std::uint8_t> unparsed_;  // received, but too much for one call
  std::vector<UniqueFd> fds_;           // received; their frames are not complete yet
  bool fds_lost_ = false;               // for the next frame that announces some
  std::size_t max_fds_ = kMaxPendingFds;
};

}  // namespace entrepot
