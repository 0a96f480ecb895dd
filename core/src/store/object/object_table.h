// Object table: seals objects, finds them by ID, and deletes them.
//
//   seal:    blobs -> record -> slot's fields -> slot's word -> index -> name; each step is harmless without the next
//   replace: new slot -> index entry swapped -> old slot `deleting`
//   delete:  `deleting` -> index -> names -> one scan of all pin tables -> free, or deferred until the last pin goes
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "store/object/object_parts.h"
#include "store/object/seal_validator.h"
#include "store/types.h"

namespace entrepot {

// Guarded by the daemon's thread.
class ObjectTable {
 public:
  explicit ObjectTable(ObjectParts& parts);  // which must outlive the table

  // Publishes one object, or changes nothing. Sealing an object again from the same ranges with the same metadata
  // succeeds: a client may repeat the request after a reconnect.
  [[nodiscard]] SealOutcome seal(std::uint32_t client, const SealSpec& spec);

  [[nodiscard]] LookupOutcome lookup(const IdBytes& id) const;
  [[nodiscard]] std::optional<std::uint32_t> find(const IdBytes& id) const { return parts_->catalog.find(id); }

  // Of its payload, or of its record if that is larger: a small value's bytes may all be in its tree.
  [[nodiscard]] std::uint64_t bytes(std::uint32_t slot) const {
    const auto& entry = parts_->catalog.directory().at(slot);
    return std::max<std::uint64_t>(entry.payload_bytes, entry.record_bytes);
  }

  // Unlinks at once, with one pin scan for all. result[i]: whether ids[i] existed.
  std::vector<std::uint8_t> remove(std::span<const IdBytes> ids);
  std::vector<std::uint8_t> remove(std::span<const ObjectLife> lives);  // only what still has this generation
  void remove_session(std::uint32_t session);                           // its objects and names

  // Frees what is no longer pinned. Returns whether anything was freed.
  bool rescan();
  [[nodiscard]] bool waits_for_pins() const {
    return parts_->deferred.count() != 0 || parts_->withheld.is_withholding();
  }

  // Names are bound and unbound here, because the manifest lists the names of spilled objects: those of the object that
  // gets the name, and those of the one that loses it. `session` is an index.
  [[nodiscard]] Status bind_name(std::uint32_t session, std::string_view name, const IdBytes& id,
                                 std::uint32_t generation, bool replace);
  bool unbind_name(std::uint32_t session, std::string_view name);  // false: it was not bound

  void set_hints(std::uint32_t slot, const SlotHints& hints) { parts_->catalog.directory().set_hints(slot, hints); }
  void set_locality_set(std::uint32_t slot, std::uint32_t set) {
    parts_->catalog.directory().set_locality_set(slot, set);
  }

 private:
  [[nodiscard]] PinTarget unlink_to_remove(std::uint32_t slot, const IdBytes& id);
  SealOutcome publish(std::uint32_t client, const SealSpec& spec, const ValidatedSeal& validated,
                      std::optional<std::uint32_t> replaced);
  [[nodiscard]] Status check_pin(std::uint32_t client, std::uint32_t position) const;
  [[nodiscard]] Result<std::uint64_t> write_record(const SealSpec& spec, std::span<const std::uint32_t> fresh,
                                                   std::vector<RecordBlob>& refs, std::uint32_t& bytes);

  ObjectParts* parts_;
  SealValidator validator_;
};

}  // namespace entrepot
