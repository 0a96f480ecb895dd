#include "client/connection.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "client/daemon_timeout.h"
#include "net/frame_socket.h"
#include "os/events.h"
#include "os/socket.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kSendLimitMs = 30'000;   // a daemon that accepts nothing for this long is stuck
constexpr std::uint64_t kOpenRingsMs = 1'000;    // they save time only if the daemon has some
constexpr std::uint64_t kSpinNs = 30'000;        // longer than the daemon needs for a small request
constexpr std::uint32_t kBlockNs = 2'000'000;    // how much later the daemon's death is noticed
constexpr std::size_t kJoinedBytes = 64U << 10;  // larger bodies are not copied behind their header
constexpr std::uint32_t kRingLooks = 32;         // at the ring, for each look at the socket; takes about as long

os::Deadline slice_of(os::Deadline deadline) {
  const auto slice = os::Deadline::after_ms(kWaitSliceMs);
  return slice.at_ns() < deadline.at_ns() ? slice : deadline;
}

}  // namespace

Status interrupted_status() { return {Code::kTimeout, "the wait was interrupted"}; }

Connection::Connection(UniqueFd socket) : socket_(std::move(socket)), spin_(kSpinNs) {
  if (const Status status = os::set_nonblocking(socket_.get(), true); !status.is_ok()) close(status);
}

Result<Frame> Connection::call(MessageType type, std::span<const std::uint8_t> body, std::span<const int> fds,
                               os::Deadline deadline, const Interrupt& interrupt, Abandoned abandoned) {
  if (body.size() > kMaxBodyBytes) {
    return Status(Code::kInvalidArgument, concat("a request of ", format_bytes(body.size()), " exceeds the limit of ",
                                                 format_bytes(kMaxBodyBytes), " per message"));
  }
  PendingCall pending;
  RETURN_IF_ERROR(enter(std::span(&pending, 1)));
  if (const Status sent = send(type, pending.request, body, fds); !sent.is_ok()) {
    const std::lock_guard lock(mutex_);
    pending_.erase(pending.request);
    break_locked(sent);
    return sent;
  }
  RETURN_IF_ERROR(wait_for(std::span(&pending, 1), deadline, interrupt, std::move(abandoned)));
  if (!pending.status.is_ok()) return pending.status;
  return std::move(pending.frame);
}

Result<std::vector<Result<Frame>>> Connection::call_all(MessageType type,
                                                        std::span<const std::vector<std::uint8_t>> bodies,
                                                        os::Deadline deadline, const Interrupt& interrupt) {
  std::vector<PendingCall> calls(bodies.size());
  RETURN_IF_ERROR(enter(calls));
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Status sent = send(type, calls[i].request, bodies[i], {});
    if (sent.is_ok()) continue;
    const std::lock_guard lock(mutex_);
    break_locked(sent);  // which ends all that are pending
    break;
  }
  RETURN_IF_ERROR(wait_for(calls, deadline, interrupt, {}));
  std::vector<Result<Frame>> answers;
  answers.reserve(calls.size());
  for (PendingCall& call : calls) {
    if (call.status.is_ok()) {
      answers.emplace_back(std::move(call.frame));
    } else {
      answers.emplace_back(std::move(call.status));
    }
  }
  return answers;
}

Status Connection::enter(std::span<PendingCall> calls) {
  for (PendingCall& call : calls) {
    call.request = next_request_.fetch_add(1, std::memory_order_relaxed);
    if (call.request == kRingsAfterRequests && daemon_.load(std::memory_order_relaxed) != 0) open_rings();
  }
  const std::lock_guard lock(mutex_);
  if (!reason_.is_ok()) return reason_;
  for (PendingCall& call : calls)
    pending_.emplace(call.request, &call);
  return Status::ok();
}

Status Connection::wait_for(std::span<PendingCall> calls, os::Deadline deadline, const Interrupt& interrupt,
                            Abandoned abandoned) {
  const std::uint64_t began_ns = os::monotonic_ns();
  std::unique_lock lock(mutex_);
  std::size_t done = 0;  // calls before this one are
  const auto are_done = [&calls, &done] {
    while (done < calls.size() && calls[done].done)
      ++done;
    return done == calls.size();
  };
  while (!are_done()) {
    if (!reading_) {
      reading_ = true;
      lock.unlock();
      read_slice(slice_of(deadline));
      lock.lock();
      reading_ = false;
      changed_.notify_all();
    } else {
      const std::uint64_t wait_ns = std::min<std::uint64_t>(kWaitSliceMs * 1'000'000U, deadline.remaining_ns());
      changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns));
    }
    if (are_done()) break;
    lock.unlock();
    const bool stop = interrupt.requested();
    lock.lock();
    if (are_done()) break;
    if (stop || deadline.passed()) {
      withdraw_locked(calls);
      if (abandoned && calls.size() == 1) abandoned_.emplace(calls[0].request, std::move(abandoned));
      if (stop) return interrupted_status();
      lock.unlock();
      return answer_timeout(began_ns);
    }
  }
  withdraw_locked(calls);
  return Status::ok();
}

void Connection::withdraw_locked(std::span<PendingCall> calls) {
  for (const PendingCall& call : calls)
    pending_.erase(call.request);
}

void Connection::post(MessageType type, std::span<const std::uint8_t> body) {
  const std::unique_lock lock(send_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || broken()) return;
  const std::vector<std::uint8_t> frame = frame_bytes(type, 0, body, 0);
  const auto sent = os::send_some(socket_.get(), frame);
  if (sent.is_ok() && !sent->would_block && sent->bytes < frame.size()) {
    // Part of the frame was sent: the rest must follow, or the next frame would be garbage.
    const Status rest =
        os::send_all(socket_.get(), std::span(frame).subspan(sent->bytes), {}, os::Deadline::after_ms(kSendLimitMs));
    if (!rest.is_ok()) close(rest);
  }
}

// If the daemon refuses or does not answer in time, or this process has no memory or descriptors for them, requests use
// the socket, as before; the daemon uses the rings only once the client does.
void Connection::open_rings() {
  auto frame = call(MessageType::kOpenRings, to_wire(Empty{}), {}, os::Deadline::after_ms(kOpenRingsMs), {});
  OpenRingsReply reply;
  if (!frame.is_ok() || !from_wire(frame->body, reply) || frame->fds.size() != 1 || reply.ring_bytes != kRingBytes) {
    return;
  }
  auto attached = FrameRings::attach(frame->fds[0]);
  if (!attached.is_ok()) return;
  rings_memory_ = attached.take();
  rings_.store(rings_memory_.get(), std::memory_order_release);
}

Status Connection::send(MessageType type, std::uint64_t request, std::span<const std::uint8_t> body,
                        std::span<const int> fds) {
  const FrameHeader header = frame_header(type, request, body.size(), fds.size());
  const std::lock_guard lock(send_mutex_);
  FrameRings* const rings = rings_.load(std::memory_order_acquire);
  if (rings == nullptr || !rings->request_producer.push(header, body)) return send_locked(header, body, fds);
  if (!rings->request_producer.wake()) return Status::ok();
  return send_locked(frame_header(MessageType::kRingFilled, 0, 0), {}, {});
}

Status Connection::send_locked(const FrameHeader& header, std::span<const std::uint8_t> body,
                               std::span<const int> fds) {
  std::vector<std::uint8_t> start(sizeof(header));
  std::memcpy(start.data(), &header, sizeof(header));
  const bool joined = body.size() <= kJoinedBytes;
  if (joined) start.insert(start.end(), body.begin(), body.end());
  const auto deadline = os::Deadline::after_ms(kSendLimitMs);
  Status sent = os::send_all(socket_.get(), start, fds, deadline);
  if (sent.is_ok() && !joined) sent = os::send_all(socket_.get(), body, {}, deadline);
  return sent.is_ok() ? sent : Status(Code::kStoreUnavailable, sent.message(), true);
}

void Connection::read_slice(os::Deadline until) {
  const auto fail = [this](const Status& reason) {
    const std::lock_guard lock(mutex_);
    break_locked(reason);
  };
  if (broken()) return;
  Result<FrameReader::Read> read = FrameReader::Read{};
  if (!wait_for_frames(until, read)) return;
  while (true) {
    deliver_arrived();
    if (read.code() == Code::kInvalidArgument) {
      return fail({Code::kStoreUnavailable, concat("the daemon's response is malformed: ", read.status().message())});
    }
    if (!read.is_ok()) return fail(read.status());
    if (read->closed) return fail(Status(Code::kStoreUnavailable, "the daemon closed the connection", true));
    if (read->drained || !reader_.is_inside()) return;
    read = reader_.read(socket_.get(), arrived_);
  }
}

// Polls, then sleeps, until frames have arrived, the connection has failed (both true), or the time is up.
bool Connection::wait_for_frames(os::Deadline until, Result<FrameReader::Read>& read) {
  FrameRings* const rings = rings_.load(std::memory_order_acquire);
  const auto take_from_socket = [&] {
    read = reader_.read(socket_.get(), arrived_);
    return !read.is_ok() || !read->drained || read->closed || !arrived_.empty();
  };
  const auto take_from_ring = [&] {
    if (rings == nullptr || !rings->response_consumer.has_frames()) return false;
    const auto is_notice = [](const Frame& frame) { return frame.header.type == MessageType::kSocketFilled; };
    if (const Status popped = rings->response_consumer.pop(arrived_, SIZE_MAX); !popped.is_ok()) {
      read = popped;
      return true;
    }
    // A frame with descriptors ends a read of the socket, so each notice needs one of its own.
    for (auto left = std::ranges::count_if(arrived_, is_notice); left > 0 && read.is_ok() && !read->closed; --left)
      take_from_socket();
    return true;
  };
  read = FrameReader::Read{};
  read->drained = true;
  if (take_from_ring() || (rings == nullptr && take_from_socket())) return true;
  const auto polled = [&] {
    for (std::uint32_t i = 0; rings != nullptr && i < kRingLooks; ++i) {
      if (take_from_ring()) return true;
      os::pause();
    }
    return take_from_socket();
  };
  if (spin_.poll(polled)) return true;
  // The daemon announces frames on the socket through the ring (kSocketFilled), but not the rest of a large one.
  const bool blocks = rings != nullptr && !reader_.is_inside();
  if (blocks && rings->response_consumer.block(kBlockNs)) return take_from_ring();
  if (rings != nullptr && !rings->response_consumer.sleep()) return take_from_ring();
  const auto ready = os::wait_readable(socket_.get(), until);
  if (rings != nullptr) rings->response_consumer.wake_up();
  if (!ready.is_ok()) {
    read = ready.status();
    return true;
  }
  const bool from_ring = take_from_ring();  // not ||: what woke this thread is in the socket
  return (*ready && take_from_socket()) || from_ring;
}

void Connection::deliver_arrived() {
  for (Frame& frame : arrived_) {
    const bool is_notice =
        frame.header.type == MessageType::kRingFilled || frame.header.type == MessageType::kSocketFilled;
    if (!is_notice) deliver(std::move(frame));
  }
  arrived_.clear();
}

Status Connection::answer_timeout(std::uint64_t since_ns) const {
  const auto peer = os::peer_credentials(socket_.get());
  return daemon_timeout_error(peer.is_ok() ? peer->pid : 0, daemon_.load(std::memory_order_relaxed),
                              (os::monotonic_ns() - since_ns) / 1'000'000U);
}

void Connection::deliver(Frame frame) {
  const FrameHeader header = frame.header;
  Status status;
  if (header.type == MessageType::kError) {
    ErrorBody error;
    status = from_wire(frame.body, error) && error.code != Code::kOk
                 ? Status(error.code, error.message, error.retryable != 0)
                 : Status(Code::kInternal, "the daemon sent a malformed error");
  }
  Abandoned abandoned;
  {
    const std::lock_guard lock(mutex_);
    if (const auto match = pending_.find(header.request); match != pending_.end()) {
      match->second->status = std::move(status);
      match->second->frame = std::move(frame);
      match->second->done = true;
      changed_.notify_all();
      return;
    }
    if (const auto match = abandoned_.find(header.request); match != abandoned_.end()) {
      abandoned = std::move(match->second);
      abandoned_.erase(match);
    }
  }
  if (abandoned && status.is_ok()) abandoned(std::move(frame));
}

bool Connection::ended() const { return broken() || os::is_hung_up(socket_.get()); }

void Connection::close(const Status& reason) {
  const std::lock_guard lock(mutex_);
  break_locked(reason);
}

void Connection::break_locked(const Status& reason) {
  if (broken()) return;
  reason_ = reason.code() == Code::kStoreUnavailable || reason.code() == Code::kAccessDenied ||
                    reason.code() == Code::kVersionMismatch
                ? reason
                : Status(Code::kStoreUnavailable, reason.message(), true);
  broken_.store(true, std::memory_order_release);
  for (auto& [request, pending] : pending_) {
    if (pending->done) continue;
    pending->status = reason_;
    pending->done = true;
  }
  abandoned_.clear();
  changed_.notify_all();
}

}  // namespace entrepot
