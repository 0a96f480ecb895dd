#include "client/object_builder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "client/copy.h"
#include "client/put_plan.h"
#include "os/memfd.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kPackBytes = 256U << 10;  // of a part that small copies share

Status orphan_status() {
  return {Code::kNotSealed,
          "the parent process was building this object when this process was forked: only the parent can seal it; "
          "create a new builder here"};
}

}  // namespace

ObjectBuilder::ObjectBuilder(std::shared_ptr<Client> client)
    : client_(std::move(client)), forks_(client_->forks_.load(std::memory_order_relaxed)) {}

ObjectBuilder::~ObjectBuilder() { give_up(); }

bool ObjectBuilder::is_orphan() const { return client_->forks_.load(std::memory_order_relaxed) != forks_; }

bool ObjectBuilder::is_open() const {
  if (is_orphan()) return false;
  const std::lock_guard lock(mutex_);
  return state_ == State::kOpen;
}

Status ObjectBuilder::check_open() const {
  if (is_orphan()) return orphan_status();
  if (state_ == State::kOpen) return Status::ok();
  return {Code::kInvalidArgument, state_ == State::kSealing
                                      ? "this object is being sealed: nothing can be added to it any more"
                                      : "this object is already sealed or given up: create another builder"};
}

Result<std::shared_ptr<WritableBlob>> ObjectBuilder::allocate(std::uint64_t bytes, std::uint32_t wait_ms,
                                                              const Interrupt& interrupt) {
  if (is_orphan()) return orphan_status();
  ASSIGN_OR_RETURN(auto part, client_->create(bytes, wait_ms, interrupt));
  RETURN_IF_ERROR(add(std::span(&part, 1)));
  return part;
}

Result<std::vector<ObjectBuilder::Stored>> ObjectBuilder::store(std::span<const SourceBuffer> buffers, Sealed sealed,
                                                                std::uint32_t wait_ms, const Interrupt& interrupt) {
  if (is_orphan()) return orphan_status();
  {
    const std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(check_open());
  }
  const Wait room(wait_ms);  // for all of them together
  std::vector<Stored> stored;
  stored.reserve(buffers.size());
  Parts added;
  for (const SourceBuffer& buffer : buffers) {
    if (buffer.length == 0 || (sealed == Sealed::kReference && client_->pinned_->locate(buffer.data, buffer.length))) {
      stored.push_back({buffer, nullptr});
    } else if (buffer.length < kOwnPagesBytes) {
      ASSIGN_OR_RETURN(auto copy, copy_small(buffer, room.remaining_ms(), interrupt));
      stored.push_back(std::move(copy));
    } else {
      ASSIGN_OR_RETURN(auto part, create_unexposed(buffer.length, room.remaining_ms(), interrupt));
      copy_payload(part->data(), buffer.data, buffer.length);
      stored.push_back({{part->data(), buffer.length}, part});
      added.push_back(std::move(part));
      if (interrupt.requested()) return interrupted_status();
    }
  }
  RETURN_IF_ERROR(add(added));
  return stored;
}

Result<std::shared_ptr<WritableBlob>> ObjectBuilder::create_unexposed(std::uint64_t bytes, std::uint32_t wait_ms,
                                                                      const Interrupt& interrupt) {
  ASSIGN_OR_RETURN(auto part, client_->create(bytes, wait_ms, interrupt));
  part->is_exposed_ = false;
  return part;
}

Result<ObjectBuilder::Stored> ObjectBuilder::copy_small(const SourceBuffer& buffer, std::uint32_t wait_ms,
                                                        const Interrupt& interrupt) {
  for (std::shared_ptr<WritableBlob> fresh;;) {
    {
      const std::lock_guard lock(mutex_);
      RETURN_IF_ERROR(check_open());
      if (fresh && parts_.size() < kMaxParts) {
        parts_.push_back(fresh);
        pack_ = std::move(fresh);
        pack_used_ = 0;
      }
      if (pack_ && buffer.length <= pack_->bytes_ - pack_used_) {
        std::byte* const to = pack_->data_ + pack_used_;
        std::memcpy(to, buffer.data, buffer.length);
        pack_used_ = std::min(pack_used_ + round_up(buffer.length, kBlobAlign), pack_->bytes_);
        return Stored{{to, buffer.length}, pack_};
      }
    }
    if (fresh) return add(std::span(&fresh, 1));  // too many parts
    ASSIGN_OR_RETURN(fresh, create_unexposed(kPackBytes, wait_ms, interrupt));
  }
}

Status ObjectBuilder::keep(std::shared_ptr<SealedObject> object) {
  if (is_orphan()) return orphan_status();
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(check_open());
  if (std::ranges::find(kept_, object) == kept_.end()) kept_.push_back(std::move(object));
  return Status::ok();
}

Status ObjectBuilder::add(std::span<const std::shared_ptr<WritableBlob>> parts) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(check_open());
  if (parts.size() > kMaxParts - parts_.size()) {
    return {Code::kInvalidArgument, concat("an object can be built of at most ", kMaxParts,
                                           " parts of its own: write more bytes into each, or put several objects")};
  }
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  return Status::ok();
}

void ObjectBuilder::give_up() {
  if (is_orphan()) return;
  Parts parts;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kOpen) return;
    state_ = State::kEnded;
    parts.swap(parts_);
    pack_.reset();
    kept_.clear();
  }
  if (parts.empty()) return;
  for (const auto& part : parts)
    part->drop();
  client_->return_unneeded_leases({});
}

Status ObjectBuilder::begin_seal(Parts& parts) {
  if (is_orphan()) return orphan_status();
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(check_open());
  state_ = State::kSealing;
  parts.swap(parts_);
  if (pack_) pack_->shorten(pack_used_);
  pack_.reset();
  return Status::ok();
}

void ObjectBuilder::reopen(Parts parts) {
  const std::lock_guard lock(mutex_);
  parts_ = std::move(parts);
  state_ = State::kOpen;
}

void ObjectBuilder::end() {
  const std::lock_guard lock(mutex_);
  state_ = State::kEnded;
  kept_.clear();
}

// ---- Client: how a builder's parts become an object

PutResult Client::seal(ObjectBuilder& builder, const PutItem& item, std::uint32_t wait_ms, const Interrupt& interrupt) {
  std::vector<PutResult> results(1);
  ObjectBuilder::Parts parts;
  results[0].status = builder.begin_seal(parts);
  if (!results[0].status.is_ok()) return results[0];
  std::vector<PutPlan> plan(1);
  plan[0].item = &item;
  plan[0].parts = parts;
  results[0].status = plan_parts(item, plan[0]);
  if (results[0].status.is_ok()) {
    plan_put(item, plan[0]);
    results[0].status = plan_and_fill(item, plan[0], 0, Wait(wait_ms), interrupt);
    if (!results[0].status.is_ok()) abandon(plan[0]);
  }
  if (!results[0].status.is_ok()) {
    builder.reopen(std::move(parts));
    return results[0];
  }
  results[0].status = take_parts(plan[0]);
  if (!results[0].status.is_ok()) {  // some may be read-only by now: the caller cannot go on
    abandon(plan[0]);
    for (const auto& part : parts)
      part->drop();
    builder.end();
    return results[0];
  }
  const std::vector<std::uint32_t> blob_of_part = plan[0].blob_of_part;
  seal_plans(plan, results, interrupt);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (blob_of_part[i] == PutPlan::kNoPart) {
      parts[i]->drop();  // no buffer is in it, or all of them are in the record
    } else {
      parts[i]->state_ = results[0].status.is_ok() ? WritableBlob::State::kSealed : WritableBlob::State::kDropped;
    }
  }
  builder.end();
  return_unneeded_leases(interrupt);
  return results[0];
}

// Finds the buffers that lie in parts. Small parts are memory of this process, and are copied.
Status Client::plan_parts(const PutItem& item, PutPlan& plan) {
  std::vector<std::pair<const std::byte*, std::uint32_t>> starts;
  starts.reserve(plan.parts.size());
  for (std::uint32_t i = 0; i < plan.parts.size(); ++i) {
    if (plan.parts[i]->range_) starts.emplace_back(plan.parts[i]->data_, i);
  }
  std::ranges::sort(starts);
  plan.part_of.assign(item.buffers.size(), PutPlan::kNoPart);
  plan.blob_of_part.assign(plan.parts.size(), PutPlan::kNoPart);
  for (std::size_t i = 0; i < item.buffers.size(); ++i) {
    const SourceBuffer& buffer = item.buffers[i];
    if (buffer.length == 0) continue;
    const auto* const data = static_cast<const std::byte*>(buffer.data);
    const auto after = std::ranges::upper_bound(starts, data, {}, [](const auto& start) { return start.first; });
    if (after == starts.begin()) continue;
    const WritableBlob& part = *plan.parts[std::prev(after)->second];
    const auto offset = static_cast<std::uint64_t>(data - part.data_);
    if (offset >= part.bytes_) continue;
    if (buffer.length > part.bytes_ - offset) {
      return {Code::kInvalidArgument, concat("buffer ", i, " of ", buffer.length, " bytes at ", offset,
                                             " exceeds its part of ", part.bytes_, " bytes")};
    }
    plan.part_of[i] = std::prev(after)->second;
  }
  return Status::ok();
}

// Makes what is sealed of the parts the plan's, after everything that can fail for lack of memory.
Status Client::take_parts(PutPlan& plan) {
  for (std::size_t i = 0; i < plan.parts.size(); ++i) {
    WritableBlob& part = *plan.parts[i];
    // Read-only before it becomes visible, if the user has its address: see decision 5.
    if (!part.range_) {
      RETURN_IF_ERROR(part.private_.protect_read_only(0, part.private_.bytes()));
    } else if (part.is_exposed_ && plan.blob_of_part[i] != PutPlan::kNoPart) {
      RETURN_IF_ERROR(leases_.protect(*part.range_));
    }
  }
  const std::lock_guard lock(blobs_mutex_);
  for (std::size_t i = 0; i < plan.parts.size(); ++i) {
    WritableBlob& part = *plan.parts[i];
    if (plan.blob_of_part[i] == PutPlan::kNoPart) continue;
    blobs_.erase(&part);
    plan.ranges.push_back(*part.range_);
  }
  return Status::ok();
}

}  // namespace entrepot
