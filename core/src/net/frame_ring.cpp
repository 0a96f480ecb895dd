#include "net/frame_ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/align.h"
#include "base/text.h"
#include "os/futex.h"
#include "os/memfd.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kFrameAlign = 8;
constexpr std::uint64_t kStateBytes = 4096;  // both states, on pages of their own
static_assert((kRingBytes & (kRingBytes - 1)) == 0);
static_assert(2 * (sizeof(FrameHeader) + kMaxRingBodyBytes) <= kRingBytes);

std::uint64_t frame_size(std::uint64_t body_bytes) { return sizeof(FrameHeader) + round_up(body_bytes, kFrameAlign); }

RingState* state_at(const os::Mapping& memory, std::size_t index) {
  return reinterpret_cast<RingState*>(memory.data()) + index;
}

std::byte* data_at(const os::Mapping& memory, std::size_t index) {
  return memory.data() + kStateBytes + index * kRingBytes;
}

}  // namespace

bool RingProducer::push(const FrameHeader& header, std::span<const std::uint8_t> body) {
  if (body.size() > kMaxRingBodyBytes || header.fd_count != 0) return false;
  const std::uint64_t bytes = frame_size(body.size());
  const std::uint64_t unread = written_ - state_->read.load(std::memory_order_acquire);
  // A consumer that reports nonsense gets nothing more this way.
  if (unread > kRingBytes || kRingBytes - unread < bytes) return false;
  copy_in(written_, &header, sizeof(header));
  copy_in(written_ + sizeof(header), body.data(), body.size());
  written_ += bytes;
  // Sequentially consistent, as are the accesses in wake(), sleep() and block(): either this side sees that the
  // consumer waits, or the consumer sees the frame.
  state_->written.store(written_, std::memory_order_seq_cst);
  return true;
}

bool RingProducer::wake() {
  if (state_->consumer.load(std::memory_order_seq_cst) == kPolling) return false;
  const std::uint32_t was = state_->consumer.exchange(kPolling, std::memory_order_seq_cst);
  if (was == kBlocked) os::futex_wake(state_->consumer);
  return was == kAsleep;
}

void RingProducer::copy_in(std::uint64_t position, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const std::uint64_t at = position % kRingBytes;
  const std::size_t first = std::min<std::size_t>(bytes, kRingBytes - at);
  std::memcpy(data_ + at, from, first);
  if (first < bytes) std::memcpy(data_, static_cast<const std::byte*>(from) + first, bytes - first);
}

Status RingConsumer::pop(std::vector<Frame>& frames, std::size_t max_frames) {
  const auto malformed = [](std::string_view what) {
    return Status(Code::kInvalidArgument, concat("the shared-memory ring is damaged: ", what));
  };
  const std::uint64_t written = state_->written.load(std::memory_order_acquire);
  if (written - read_ > kRingBytes) return malformed("it claims more bytes than it has");
  while (read_ != written && frames.size() < max_frames) {
    if (written - read_ < sizeof(FrameHeader)) return malformed("it ends within a frame's header");
    FrameHeader header;
    copy_out(read_, &header, sizeof(header));
    if (header.magic != kFrameMagic) return malformed("a frame does not start with EPT1");
    if (header.body_bytes > kMaxRingBodyBytes || header.fd_count != 0 ||
        written - read_ < frame_size(header.body_bytes)) {
      return malformed("a frame is longer than what was written");
    }
    Frame& frame = frames.emplace_back();
    frame.header = header;
    frame.body.resize(header.body_bytes);
    copy_out(read_ + sizeof(header), frame.body.data(), frame.body.size());
    read_ += frame_size(header.body_bytes);
  }
  state_->read.store(read_, std::memory_order_release);
  return Status::ok();
}

bool RingConsumer::sleep() {
  state_->consumer.store(kAsleep, std::memory_order_seq_cst);
  if (state_->written.load(std::memory_order_seq_cst) == read_) return true;
  wake_up();
  return false;
}

bool RingConsumer::block(std::uint32_t max_ns) {
  state_->consumer.store(kBlocked, std::memory_order_seq_cst);
  if (state_->written.load(std::memory_order_seq_cst) == read_) os::futex_wait(state_->consumer, kBlocked, max_ns);
  wake_up();
  return has_frames();
}

void RingConsumer::copy_out(std::uint64_t position, void* to, std::size_t bytes) const {
  if (bytes == 0) return;
  const std::uint64_t at = position % kRingBytes;
  const std::size_t first = std::min<std::size_t>(bytes, kRingBytes - at);
  std::memcpy(to, data_ + at, first);
  if (first < bytes) std::memcpy(static_cast<std::byte*>(to) + first, data_, bytes - first);
}

FrameRings::FrameRings(os::Mapping memory)
    : request_producer(state_at(memory, 0), data_at(memory, 0)),
      request_consumer(state_at(memory, 0), data_at(memory, 0)),
      response_producer(state_at(memory, 1), data_at(memory, 1)),
      response_consumer(state_at(memory, 1), data_at(memory, 1)),
      memory_(std::move(memory)) {}

std::uint64_t FrameRings::bytes() { return kStateBytes + 2 * kRingBytes; }

Result<FrameRings::Created> FrameRings::create() {
  ASSIGN_OR_RETURN(UniqueFd fd, os::create_memfd("entrepot-rings", bytes()));
  RETURN_IF_ERROR(os::reserve(fd.get(), 0, bytes()));
  ASSIGN_OR_RETURN(os::Mapping memory, os::Mapping::map(fd.get(), 0, bytes(), os::Access::kReadWrite));
  return Created{std::unique_ptr<FrameRings>(new FrameRings(std::move(memory))), std::move(fd)};
}

Result<std::unique_ptr<FrameRings>> FrameRings::attach(const UniqueFd& fd) {
  RETURN_IF_ERROR(os::check_sealed(fd.get()));
  ASSIGN_OR_RETURN(const std::uint64_t size, os::file_bytes(fd.get()));
  if (size != bytes()) {
    return Status(Code::kInvalidArgument, concat("the daemon's rings have ", size, " bytes instead of ", bytes()));
  }
  ASSIGN_OR_RETURN(os::Mapping memory, os::Mapping::map(fd.get(), 0, bytes(), os::Access::kReadWrite));
  return std::unique_ptr<FrameRings>(new FrameRings(std::move(memory)));
}

}  // namespace entrepot
