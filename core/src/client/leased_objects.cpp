// Objects whose bytes other processes write, into memory that this client has leased and passed on.
#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "client/client.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kReturnWhileInUseMs = 100;  // callers have other clients to serve

}  // namespace

Result<LeasedRange> Client::lease(std::uint64_t bytes, std::uint64_t align, std::uint32_t wait_ms,
                                  const Interrupt& interrupt) {
  RETURN_IF_ERROR(connection());
  return leases_.allocate(bytes, align, 0, wait_ms, interrupt);
}

std::optional<LeasedRange> Client::lease_at_hand(std::uint64_t bytes, std::uint64_t align) {
  return leases_.allocate_at_hand(bytes, align);
}

void Client::return_lease(const LeasedRange& range) {
  leases_.give_back(range);
  // What was asked to go back goes back without the answer, too.
  auto limit = os::Deadline::after_ms(kReturnWhileInUseMs);
  return_unneeded_leases({[](void* context) { return static_cast<const os::Deadline*>(context)->passed(); }, &limit});
}

void Client::forget_lease(const LeasedRange& range) { leases_.sealed(range); }

Result<std::shared_ptr<WritableSegment>> Client::isolated_segment(std::uint32_t segment, std::uint32_t generation,
                                                                  const Interrupt& interrupt, os::Deadline deadline) {
  const CallOptions options = CallOptions::until(deadline, interrupt);
  std::vector<UniqueFd> fds;
  ASSIGN_OR_RETURN(
      const SegmentReply reply,
      request_reply<SegmentReply>(MessageType::kSegment, SegmentRequest{segment, kIsolatedAccess}, options, &fds));
  if (fds.size() != 1 || reply.segment != segment) {
    return Status(Code::kInternal, concat("the daemon's response about segment ", segment, " has no descriptor"));
  }
  if (reply.segment_generation != generation) {
    return Status(Code::kObjectLost, concat("segment ", segment, " has generation ", reply.segment_generation,
                                            " instead of ", generation));
  }
  auto memory = std::make_shared<WritableSegment>();
  memory->segment = segment;
  memory->generation = generation;
  ASSIGN_OR_RETURN(memory->mapping,
                   os::Mapping::map(fds[0].get(), 0, reply.segment_bytes, os::Access::kReadOnly, kSegmentAlign));
  memory->fd = std::move(fds[0]);
  return memory;
}

InPlaceSeal Client::seal_in_place(const LeasedRange& range, const ObjectSpec& object,
                                  std::span<const std::uint64_t> lengths, const Interrupt& interrupt,
                                  os::Deadline deadline) {
  InPlaceSeal sealed;
  SealRequest request;
  SealObject& seal = request.objects.emplace_back();
  static_cast<ObjectSpec&>(seal) = object;
  const std::uint64_t bytes = std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
  std::uint64_t offset = 0;
  for (const std::uint64_t length : lengths) {
    seal.buffers.push_back(length == 0 ? SealBuffer{kInlineBlob, 0, 0, 0} : SealBuffer{kNewBlob, 0, offset, length});
    offset += length;
  }
  if (bytes > 0) {
    auto position = pinned_->reserve_pin();
    if (!position.is_ok()) {
      sealed.status = position.status();
      return sealed;
    }
    seal.pin_position = *position;
    seal.blobs = {{range.segment(), range.offset, bytes}};
  }
  const std::uint32_t pin_position = seal.pin_position;
  auto reply = request_reply<SealReply>(MessageType::kSeal, request, CallOptions::until(deadline, interrupt));
  if (reply.is_ok() && reply->results.size() != 1) {
    reply = Status(Code::kInternal, "the daemon's response to a seal has not one result");
  }
  if (reply.code() == Code::kTimeout && deadline.passed()) {
    sealed.status = reply.status();
    sealed.is_unanswered = true;
    if (bytes > 0) sealed.unanswered_pin = pin_position;
    return sealed;
  }
  if (!reply.is_ok()) {
    // It may have been sealed anyway, and pinned: neither range nor position is used again.
    if (bytes > 0) {
      leases_.sealed(range);
      sealed.is_leased = false;
    }
    sealed.status = reply.status();
    return sealed;
  }
  const SealResult& result = reply->results[0];
  sealed.generation = result.generation;
  if (result.code != Code::kOk) sealed.status = Status(result.code, result.message);
  if (bytes == 0) return sealed;
  if (pinned_->is_pin(pin_position)) {
    sealed.pin = pinned_->hold(pin_position);
  } else {
    pinned_->cancel(pin_position);
  }
  if (result.code == Code::kOk) {
    leases_.sealed(range);
    sealed.is_leased = false;
  }
  return_unneeded_leases(interrupt);
  return sealed;
}

void Client::settle_seal(std::uint32_t pin_position) {
  if (pinned_->is_pin(pin_position)) {
    pinned_->hold(pin_position).reset();
  } else {
    pinned_->cancel(pin_position);
  }
}

Result<std::shared_ptr<SealedObject>> Client::find(const IdBytes& id, os::Deadline deadline) {
  RETURN_IF_ERROR(connection());
  return pinned_->find(id, views_, Wait::until(deadline), {});
}

std::vector<IdBytes> Client::ids() const { return pinned_->ids(); }

std::optional<std::uint32_t> Client::shown_generation(const IdBytes& id) const { return pinned_->shown_generation(id); }

}  // namespace entrepot
