#include "store/object/blob_table.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "os/log.h"
#include "store/sync_point.h"

namespace entrepot {

BlobTable::BlobTable(ControlMemory& memory, SegmentPool& pool, SpillBackend* spill, std::string no_spill_reason)
    : pool_(&pool), spill_(spill), no_spill_reason_(std::move(no_spill_reason)), blobs_(memory) {}

// ---- owners of references ----

BlobRef& BlobRef::operator=(BlobRef&& other) noexcept {
  if (this == &other) return *this;
  if (table_ != nullptr) release();
  table_ = std::exchange(other.table_, nullptr);
  blob_ = other.blob_;
  unwinding_ = other.unwinding_;
  return *this;
}

BlobRef::~BlobRef() {
  if (table_ != nullptr && !unwinding_.in_progress()) release();
}

void BlobRef::release() {
  if (table_ != nullptr) std::exchange(table_, nullptr)->release(blob_);
}

FreshBlobs::~FreshBlobs() {
  if (table_ != nullptr && !unwinding_.in_progress()) table_->withdraw(blobs_);
}

RecordReferences::~RecordReferences() {
  if (table_ == nullptr || unwinding_.in_progress()) return;
  for (const std::uint32_t blob : blobs_)
    table_->drop_reference(blob, slot_);
}

void RecordReferences::add(std::uint32_t blob) {
  table_->add_reference(blob, slot_);
  blobs_.push_back(blob);
}

BlobRef BlobTable::retain(std::uint32_t blob) {
  blobs_.add_reference(blob);
  return BlobRef(*this, blob);
}

// ---- publication ----

Result<FreshBlobs> BlobTable::publish(std::span<const BlobRange> ranges) {
  FreshBlobs fresh(*this);
  fresh.blobs_.reserve(ranges.size());
  for (const BlobRange& range : ranges) {
    ASSIGN_OR_RETURN(const std::uint32_t blob, blobs_.allocate());
    const std::uint32_t generation = pool_->generation(range.segment);
    blobs_.publish(blob, {range.segment, range.offset, range.length, generation}, pool_->kind(range.segment));
    fresh.blobs_.push_back(blob);
    ENTREPOT_SYNC_POINT("seal.blob");
  }
  return fresh;
}

void BlobTable::withdraw(std::span<const std::uint32_t> blobs) {
  for (const std::uint32_t blob : blobs)
    blobs_.free(blob);  // the ranges are still part of the lease
}

void BlobTable::take_ranges(std::span<const BlobRange> ranges) {
  for (const BlobRange& range : ranges)
    pool_->take_for_blob(range.segment, range.offset, range.length);
}

// ---- references ----

void BlobTable::add_reference(std::uint32_t blob, std::uint32_t slot) {
  blobs_.add_reference(blob);
  if (first_referencing_slot_.size() <= blob) first_referencing_slot_.resize(std::size_t{blob} + 1, kNoReference);
  if (first_referencing_slot_[blob] == kNoReference) {
    first_referencing_slot_[blob] = slot;
  } else {
    more_referencing_slots_.emplace(blob, slot);
  }
}

void BlobTable::drop_reference(std::uint32_t blob, std::uint32_t slot) {
  const auto [first, last] = more_referencing_slots_.equal_range(blob);
  if (first_referencing_slot_[blob] == slot) {
    first_referencing_slot_[blob] = first == last ? kNoReference : first->second;
    if (first != last) more_referencing_slots_.erase(first);
  } else {
    const auto matching = std::find_if(first, last, [slot](const auto& entry) { return entry.second == slot; });
    if (matching != last) more_referencing_slots_.erase(matching);
  }
  release(blob);
}

void BlobTable::release(std::uint32_t blob) {
  if (blobs_.drop_reference(blob) != 0) return;
  const BlobLocation place = blobs_.place(blob);
  const bool resident = blobs_.is_resident(blob);
  const bool counted = resident || blobs_.state(blob) == BlobState::kSpilled;
  const SpillLocation copy = blobs_.copy(blob);
  const BlobKey key = blobs_.key(blob);
  if (resident && copy != 0) clean_bytes_ -= extent_bytes(blob);
  if (counted && !resident) spilled_bytes_ -= place.length;
  blobs_.free(blob);
  ENTREPOT_SYNC_POINT("free.blob");
  if (resident) pool_->free_blob_range(place.segment, place.offset, place.length);
  if (copy != 0 && spill_ != nullptr) spill_->release(key, copy, place.length);
}

std::vector<std::uint32_t> BlobTable::referencing_slots(std::uint32_t blob) const {
  std::vector<std::uint32_t> slots;
  if (blob >= first_referencing_slot_.size() || first_referencing_slot_[blob] == kNoReference) return slots;
  slots.push_back(first_referencing_slot_[blob]);
  const auto [first, last] = more_referencing_slots_.equal_range(blob);
  for (auto entry = first; entry != last; ++entry)
    slots.push_back(entry->second);
  return slots;
}

// ---- memory and disk ----

std::uint64_t BlobTable::extent_bytes(std::uint32_t blob) const {
  const BlobLocation place = blobs_.place(blob);
  return blob_extent_bytes(place.offset, place.length);
}

void BlobTable::set_copy(std::uint32_t blob, SpillLocation location) {
  blobs_.set_copy(blob, location);
  if (blobs_.is_resident(blob)) clean_bytes_ += extent_bytes(blob);
}

std::uint64_t BlobTable::evict(std::uint32_t blob) {
  const BlobLocation place = blobs_.place(blob);
  const std::uint64_t extent = extent_bytes(blob);
  blobs_.mark_spilled(blob);
  ENTREPOT_SYNC_POINT("evict.blob");
  pool_->free_blob_range(place.segment, place.offset, place.length);
  clean_bytes_ -= extent;
  spilled_bytes_ += place.length;
  return extent;
}

void BlobTable::on_loaded(std::uint32_t blob, const BlobLocation& place) {
  spilled_bytes_ -= place.length;
  blobs_.publish_again(blob, place, pool_->kind(place.segment));
  clean_bytes_ += extent_bytes(blob);
  ENTREPOT_SYNC_POINT("load.blob");
}

// ---- adoption ----

Status BlobTable::claim(std::uint32_t blob) {
  const BlobLocation place = blobs_.place(blob);
  const bool resident = blobs_.is_resident(blob);
  const SpillLocation copy = blobs_.copy(blob);
  if (copy != 0) {
    const Status adopted =
        spill_ == nullptr
            ? Status(Code::kStoreUnavailable,
                     concat("its only copy is on disk, and this daemon cannot read its spill files (", no_spill_reason_,
                            "): to restore it, fix this and restart the daemon with `entrepot upgrade`; "
                            "otherwise"))
            : spill_->adopt(blobs_.key(blob), copy, place.length);
    if (!adopted.is_ok()) {
      if (!resident && spill_ == nullptr) return adopted;
      if (!resident) return Status(Code::kObjectLost, concat("its copy on disk is gone (", adopted.message(), ")"));
      log_warning("the copy on disk of blob ", blob,
                  ", which is in memory too, is given up: ", spill_ == nullptr ? no_spill_reason_ : adopted.message());
      blobs_.drop_copy(blob);
    }
  }
  if (resident) {
    if (const Status taken = pool_->adopt_blob(place); !taken.is_ok()) {
      return taken.with_context("its memory cannot be adopted");
    }
    if (blobs_.copy(blob) != 0) clean_bytes_ += extent_bytes(blob);
  } else {
    spilled_bytes_ += place.length;
  }
  return Status::ok();
}

void BlobTable::free_unreferenced(const BlobAdoption& adopted) {
  for (const std::vector<std::uint32_t>* blobs : {&adopted.sealed, &adopted.spilled, &adopted.damaged}) {
    for (const std::uint32_t blob : *blobs) {
      if (blobs_.references(blob) == 0 && blobs_.state(blob) != BlobState::kFree) blobs_.free(blob);
    }
  }
}

Result<RecordBlob> BlobTable::publish_copy(const SpilledBlob& copy) {
  ASSIGN_OR_RETURN(const std::uint32_t blob, blobs_.allocate());
  const Result<SpillLocation> location = spill_->rebind(copy, {blob, blobs_.next_generation(blob)});
  if (!location.is_ok()) {
    blobs_.abandon(blob);
    return location.status();
  }
  const RecordBlob published{blob, blobs_.publish_spilled(blob, copy.length, *location)};
  spilled_bytes_ += copy.length;
  return published;
}

}  // namespace entrepot
