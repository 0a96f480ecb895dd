// Blobs that are written in place and then sealed.
#include <algorithm>

#include "base/text.h"
#include "client/put_plan.h"
#include "os/memfd.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kMaxBytes = 1ULL << 56;

}  // namespace

Result<std::shared_ptr<WritableBlob>> Client::create(std::uint64_t nbytes, std::uint32_t wait_ms,
                                                     const Interrupt& interrupt) {
  RETURN_IF_ERROR(connection());
  if (nbytes > kMaxBytes) {
    return Status(Code::kInvalidArgument, concat("a blob of ", nbytes, " bytes is larger than any store"));
  }
  std::shared_ptr<WritableBlob> blob(new WritableBlob);
  blob->bytes_ = nbytes;
  const std::uint64_t page = os::page_bytes();
  if (nbytes <= kInlineMaxBytes) {
    ASSIGN_OR_RETURN(blob->private_, os::Mapping::anonymous(round_up(std::max<std::uint64_t>(nbytes, 1), page)));
    blob->data_ = blob->private_.data();
  } else {
    const std::uint64_t reserve = round_up(nbytes, page);
    ASSIGN_OR_RETURN(LeasedRange range, leases_.allocate(reserve, page, 0, wait_ms, interrupt));
    blob->data_ = range.data();
    blob->range_ = std::move(range);
  }
  blob->client_ = shared_from_this();
  const std::lock_guard lock(blobs_mutex_);
  blobs_.emplace(blob.get(), 0);
  return blob;
}

PutResult Client::seal(WritableBlob& blob, const PutItem& item, const Interrupt& interrupt) {
  PutResult result;
  if (!blob.leave_open_for(WritableBlob::State::kSealing)) {
    result.status = blob.state_ == WritableBlob::State::kOrphan
                        ? Status(Code::kNotSealed,
                                 "the parent process was writing this blob when this process was forked: "
                                 "only the parent can seal it; create a new blob here")
                        : Status(Code::kInvalidArgument, "this blob is already sealed or dropped: create another one");
    return result;
  }
  PutItem item_with_buffer = item;
  item_with_buffer.buffers = {{blob.data_, blob.bytes_}};
  std::vector<PutPlan> plan(1);
  plan[0].item = &item_with_buffer;
  static_cast<ObjectSpec&>(plan[0].seal) = item;
  if (blob.range_) {
    plan[0].seal.blobs = {{blob.range_->segment(), blob.range_->offset, blob.bytes_}};
    plan[0].seal.buffers = {{kNewBlob, 0, 0, blob.bytes_}};
    // Read-only before it becomes visible: sealed bytes must be what everybody sees.
    result.status = leases_.protect(*blob.range_);
    plan[0].ranges = {*blob.range_};
  } else {
    plan[0].seal.payload.assign(reinterpret_cast<const char*>(blob.data_), blob.bytes_);
    plan[0].seal.buffers = {{kInlineBlob, 0, 0, blob.bytes_}};
    result.status = blob.private_.protect_read_only(0, blob.private_.bytes());
  }
  if (!result.status.is_ok()) {
    blob.state_ = WritableBlob::State::kOpen;
    return result;
  }
  {
    const std::lock_guard lock(blobs_mutex_);
    blobs_.erase(&blob);
  }
  std::vector<PutResult> results(1);
  seal_plans(plan, results, interrupt);
  blob.state_ = results[0].status.is_ok() ? WritableBlob::State::kSealed : WritableBlob::State::kDropped;
  return_unneeded_leases(interrupt);
  return results[0];
}

PutResult Client::seal_parts(std::span<const std::shared_ptr<WritableBlob>> blobs, const PutItem& item,
                             const Interrupt& interrupt) {
  std::vector<PutResult> results(1);
  std::vector<PutPlan> plan(1);
  plan[0].item = &item;
  static_cast<ObjectSpec&>(plan[0].seal) = item;
  results[0].status = locate_parts(blobs, plan[0]);
  if (!results[0].status.is_ok()) return results[0];
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    if (blobs[i]->leave_open_for(WritableBlob::State::kSealing)) continue;
    for (const auto& earlier : blobs.first(i))
      earlier->state_ = WritableBlob::State::kOpen;
    results[0].status = Status(Code::kInvalidArgument,
                               "a part of this object is given twice, or is sealed or dropped by another thread");
    return results[0];
  }
  {
    const std::lock_guard lock(blobs_mutex_);
    for (const auto& blob : blobs)
      blobs_.erase(blob.get());
  }
  // Unlike create()'s blobs, whose view the user may keep, these are not made read-only: see decision 5.
  seal_plans(plan, results, interrupt);
  for (const auto& blob : blobs)
    blob->state_ = results[0].status.is_ok() ? WritableBlob::State::kSealed : WritableBlob::State::kDropped;
  return_unneeded_leases(interrupt);
  return results[0];
}

Status Client::locate_parts(std::span<const std::shared_ptr<WritableBlob>> blobs, PutPlan& plan) {
  for (const auto& blob : blobs) {
    if (blob->state_ != WritableBlob::State::kOpen || blob->client_.get() != this || !blob->range_) {
      return {
          Code::kInvalidArgument,
          "each part of an object must be an open blob of this client of more than 16 KiB: put smaller ones with put"};
    }
    plan.seal.blobs.push_back({blob->range_->segment(), blob->range_->offset, blob->bytes_});
    plan.ranges.push_back(*blob->range_);
  }
  for (const SourceBuffer& buffer : plan.item->buffers) {
    SealBuffer& place = plan.seal.buffers.emplace_back(SealBuffer{kInlineBlob, 0, 0, 0});
    if (buffer.length == 0) continue;
    const auto* const data = static_cast<const std::byte*>(buffer.data);
    const auto holds = [&](const std::shared_ptr<WritableBlob>& blob) {
      return data >= blob->data_ && data < blob->data_ + blob->bytes_;
    };
    if (const auto match = std::ranges::find_if(blobs, holds); match != blobs.end()) {
      const auto offset = static_cast<std::uint64_t>(data - (*match)->data_);
      if (buffer.length > (*match)->bytes_ - offset) {
        return {Code::kInvalidArgument, concat("a buffer of ", buffer.length, " bytes at ", offset,
                                               " exceeds its blob of ", (*match)->bytes_, " bytes")};
      }
      place = {kNewBlob | static_cast<std::uint32_t>(match - blobs.begin()), 0, offset, buffer.length};
      continue;
    }
    const auto range = pinned_->locate(buffer.data, buffer.length);
    if (!range) {
      return {Code::kInvalidArgument,
              "a buffer is neither in a blob of this call nor in an object that is pinned here"};
    }
    place = {range->blob, range->generation, range->offset, buffer.length};
  }
  return Status::ok();
}

WritableBlob::~WritableBlob() { drop(); }

void WritableBlob::drop() {
  if (!leave_open_for(State::kDropped)) return;
  if (!client_) return;  // its creation failed for lack of memory
  {
    const std::lock_guard lock(client_->blobs_mutex_);
    client_->blobs_.erase(this);
  }
  if (!range_) return;
  if (is_exposed_) {
    client_->leases_.give_back_protected(*range_);
  } else {
    client_->leases_.give_back(*range_);
  }
}

void WritableBlob::shorten(std::uint64_t bytes) {
  if (!range_ || bytes >= bytes_) return;
  const std::lock_guard lock(client_->blobs_mutex_);  // a fork copies it
  bytes_ = bytes;
  client_->leases_.shorten(*range_, round_up(bytes, bytes >= kOwnPagesBytes ? os::page_bytes() : kBlobAlign));
}

}  // namespace entrepot
