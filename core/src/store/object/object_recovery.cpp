// Adoption of an earlier daemon's objects: slot words and checksums are authoritative, everything else is rebuilt.
#include <algorithm>
#include <set>
#include <vector>

#include "base/text.h"
#include "os/log.h"
#include "store/object/object_table.h"

namespace entrepot {

Result<ObjectAdoption> ObjectTable::adopt() {
  ObjectAdoption result;
  DirectoryAdoption slots = directory_.adopt();
  const BlobAdoption blobs = blobs_.adopt();
  RETURN_IF_ERROR(index_.reset(static_cast<std::uint32_t>(slots.sealed.size())));

  const auto forget = [&](std::uint32_t slot) {
    if (deps_.spill == nullptr || !directory_.in_manifest(slot)) return;
    deps_.spill->forget(directory_.at(slot).id, directory_.generation(slot));
    directory_.set_in_manifest(slot, false);
  };
  for (const std::uint32_t slot : slots.deleting) {
    forget(slot);
    if (adopt_object(slot, false).is_ok()) {
      deferred_.push_back({slot, directory_.generation(slot)});
      ++result.deferred;
    } else {
      slots.damaged.push_back(slot);
    }
  }
  for (const std::uint32_t slot : slots.sealed) {
    const Status adopted = adopt_object(slot, true);
    if (adopted.is_ok()) {
      ++result.adopted;
      continue;
    }
    log_error("object ", to_hex(directory_.at(slot).id), " of ", directory_.at(slot).payload_bytes,
              " bytes is lost: ", adopted.message());
    lost_[directory_.at(slot).id] = adopted.message();
    if (adopted.code() == Code::kStoreUnavailable) ++result.orphaned_on_disk;
    slots.damaged.push_back(slot);
    ++result.lost;
  }
  for (const std::uint32_t slot : slots.dropped)
    adopt_dropped(slot);
  for (const std::uint32_t slot : slots.damaged) {
    forget(slot);
    directory_.mark_lost(slot);
    deferred_.push_back({slot, directory_.generation(slot)});
  }
  const auto drop_unused = [&](std::uint32_t blob) {
    if (blobs_.references(blob) == 0 && blobs_.state(blob) != BlobState::kFree) blobs_.free(blob);
  };
  for (const std::uint32_t blob : blobs.sealed)
    drop_unused(blob);
  for (const std::uint32_t blob : blobs.spilled)
    drop_unused(blob);
  for (const std::uint32_t blob : blobs.damaged)
    drop_unused(blob);
  withhold_unexplained_pins(slots.damaged);
  return result;
}

// Damaged entries do not say where their bytes were, and may not even show that an object existed. A client that pins
// one still reads them, so all memory that seems free is withheld until those pins are gone. Pins of objects that are
// being deleted or were dropped do not count: the former still own their memory, and nobody reads the latter.
void ObjectTable::withhold_unexplained_pins(std::span<const std::uint32_t> damaged) {
  std::set<PinTarget> unexplained;
  for (const std::uint32_t slot : damaged)
    unexplained.insert({slot, directory_.generation(slot)});
  deps_.pins.for_each([&](std::uint32_t, const PinTarget& pin) {
    if (!directory_.is_live(pin.slot, pin.generation) || directory_.state(pin.slot) == ObjectState::kLost) {
      unexplained.insert(pin);
    }
  });
  unexplained_.assign(unexplained.begin(), unexplained.end());
  const std::vector<std::uint8_t> pinned = deps_.pins.scan(unexplained_);
  const auto count = std::count_if(pinned.begin(), pinned.end(), [](auto is_pinned) { return is_pinned != 0; });
  if (count == 0) return unexplained_.clear();
  log_warning("readers may still use ", count,
              " damaged or unknown objects: memory that appears free is not reused until these are released");
  deps_.records.withhold();
}

bool ObjectTable::release_withheld_memory() {
  const std::vector<std::uint8_t> pinned = deps_.pins.scan(unexplained_);
  if (std::any_of(pinned.begin(), pinned.end(), [](auto is_pinned) { return is_pinned != 0; })) return false;
  unexplained_.clear();
  deps_.records.release_withheld();
  deps_.pool.release_withheld();
  log_info("damaged objects have no readers left: their memory is reused");
  return true;
}

// Claims the range of a resident blob, and its copy if it has one. kStoreUnavailable: its only copy is on disk, and
// this daemon has no spill backend; other errors say what became of that copy.
Status ObjectTable::adopt_blob(std::uint32_t blob) {
  const BlobLocation place = blobs_.place(blob);
  const bool resident = blobs_.is_resident(blob);
  const SpillLocation copy = blobs_.copy(blob);
  if (copy != 0) {
    const Status adopted =
        deps_.spill == nullptr
            ? Status(Code::kStoreUnavailable,
                     concat("its only copy is on disk, and this daemon cannot read its spill files (",
                            deps_.no_spill_reason,
                            "): to restore it, fix this and restart the daemon with `entrepot upgrade`; "
                            "otherwise"))
            : deps_.spill->adopt(blobs_.key(blob), copy, place.length);
    if (!adopted.is_ok()) {
      if (!resident && deps_.spill == nullptr) return adopted;
      if (!resident) return Status(Code::kObjectLost, concat("its copy on disk is gone (", adopted.message(), ")"));
      log_warning("the copy of blob ", blob, ": ", adopted.message());
      blobs_.drop_copy(blob);
    }
  }
  if (resident) {
    if (const Status taken = deps_.pool.adopt_blob(place); !taken.is_ok()) {
      return taken.with_context("its memory cannot be adopted");
    }
    if (blobs_.copy(blob) != 0) clean_bytes_ += extent_of(blob);
  } else {
    spilled_bytes_ += place.length;
  }
  return Status::ok();
}

// Counts references to the object's blobs and reserves its record. Claims nothing if any part is incomplete; the error
// then tells readers why the object is lost.
Status ObjectTable::adopt_object(std::uint32_t slot, bool sealed) {
  const Status damaged(Code::kObjectLost, "its control memory was damaged");
  const Slot& entry = directory_.at(slot);
  const Result<RecordView> view = record(slot);
  if (!view.is_ok() || !view->check_crc().is_ok()) return damaged;
  if (sealed && !deps_.sessions.is_known(entry.session)) return damaged;
  for (const BlobRef& ref : view->blobs()) {
    if (!blobs_.exists(ref.blob, ref.generation)) return damaged;
  }
  if (!deps_.records.reserve(entry.record_offset, entry.record_bytes).is_ok()) return damaged;
  std::vector<std::uint32_t> counted;
  bool resident = true;
  for (const BlobRef& ref : view->blobs()) {
    const Status status = blobs_.references(ref.blob) == 0 ? adopt_blob(ref.blob) : Status();
    if (status.is_ok()) {
      add_slot_reference(ref.blob, slot);
      counted.push_back(ref.blob);
      resident = resident && blobs_.is_resident(ref.blob);
      continue;
    }
    for (const std::uint32_t blob : counted)
      drop_slot_reference(blob, slot);
    const Status freed = deps_.records.free(entry.record_offset, entry.record_bytes);
    if (!freed.is_ok()) log_error("record of slot ", slot, ": ", freed.to_string());
    return status;
  }
  if (!sealed) return Status::ok();
  // A crash may have left a transition half done; the blobs' states decide.
  if (resident && !is_resident(slot)) directory_.mark_sealed(slot);
  if (!resident && directory_.state(slot) != ObjectState::kSpilled) directory_.mark_spilled(slot);

  // An interrupted replacement leaves two sealed slots with one ID: the later generation wins.
  std::uint32_t keep = slot;
  if (const auto other = index_.find(entry.id)) {
    const auto age = static_cast<std::int32_t>(directory_.generation(slot) - directory_.generation(*other));
    const std::uint32_t drop = age > 0 ? *other : slot;
    if (drop == *other) {
      if (!index_.replace(entry.id, *other, slot)) return Status::ok();
      unlink(*other);
    } else {
      directory_.mark_deleting(slot);
      keep = *other;
    }
    deferred_.push_back({drop, directory_.generation(drop)});
  } else if (const Status indexed = index_.insert(entry.id, slot); !indexed.is_ok()) {
    log_error("object ", to_hex(entry.id), ": ", indexed.to_string());
    directory_.mark_deleting(slot);
    deferred_.push_back({slot, directory_.generation(slot)});
    return Status::ok();
  }
  if (keep == slot) {
    ++sealed_;
    payload_bytes_ += entry.payload_bytes;
    deps_.sessions.add_object(entry.session, slot, entry.payload_bytes);
  }
  return Status::ok();
}

}  // namespace entrepot
