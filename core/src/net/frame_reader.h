// FrameReader: cuts what comes over a stream socket into frames, for daemon and client alike.
//
// Between frames it holds no memory: a read goes to the stack, and only the part of a frame that is not whole yet is
// kept, its body where the finished frame has it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "net/frame.h"

namespace entrepot {

inline constexpr std::size_t kMaxPendingFds = 64;  // that came and whose frames did not

struct Frame {
  FrameHeader header{};
  std::vector<std::uint8_t> body;
  std::vector<UniqueFd> fds;  // all that its header announces, or none

  // Its descriptors came and had no place in this process.
  [[nodiscard]] bool lost_fds() const { return fds.size() < header.fd_count; }
};
// What is said then.
[[nodiscard]] Status no_place_for_descriptors();

// Guarded by whoever reads the socket.
class FrameReader {
 public:
  static constexpr std::size_t kReadBytes = 32U << 10;  // more than a small object's Seal; on any thread's stack

  struct Read {
    bool drained = false;  // nothing is known to wait in the socket
    bool closed = false;   // the peer's end
    bool more = false;     // `most` frames are there, and bytes behind them: the next call begins with those
  };
  // Reads once, at most, and appends the frames that are whole then; `frames` never grows beyond `most`. On an error
  // the frames before it have been appended. kInvalidArgument: what came is no frame of this protocol.
  [[nodiscard]] Result<Read> read(int socket, std::vector<Frame>& frames, std::size_t most = SIZE_MAX);

  // From now on a descriptor that comes is an error, and those whose frames did not come are closed.
  void refuse_descriptors();
  // Whether a part of a frame is here.
  [[nodiscard]] bool is_inside() const { return header_bytes_ > 0; }
  [[nodiscard]] std::size_t held_bytes() const { return part_.body.size() + waiting_.size(); }

 private:
  [[nodiscard]] Status cut(std::span<const std::uint8_t>& bytes, std::vector<Frame>& frames, std::size_t most);
  [[nodiscard]] Status check_header() const;
  [[nodiscard]] Status check_fds() const;
  [[nodiscard]] Status finish(std::vector<Frame>& frames);
  [[nodiscard]] std::span<std::uint8_t> room_in_body();

  Frame part_;                    // the frame that is coming; its body may be longer than what came
  std::size_t header_bytes_ = 0;  // of it, that came
  std::size_t body_bytes_ = 0;    // of it, that came
  std::array<std::uint8_t, sizeof(FrameHeader)> header_{};
  std::vector<std::uint8_t> waiting_;  // came, and were too much for one call
  std::vector<UniqueFd> fds_;          // came, and their frames did not yet
  bool fds_lost_ = false;              // of the next frame that announces some
  std::size_t most_fds_ = kMaxPendingFds;
};

}  // namespace entrepot
