// Eviction candidates: the objects that have payload in memory, with what decides whether they may leave it.
//
//   an object: absent ──admit──▶ candidate ──forget_absent, object_ended──▶ absent
//   and also:  not held ──hold (loaded for a reader)──▶ held ──was_read, evicted, or 250 ms later──▶ not held
//
// The eviction policy ranks the candidates by the cost of their absence. It keeps objects that a user pinned; this
// class knows those that are held. The pins of clients are in the clients' memory, and looked up by pinned_slots().
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "shm/pins.h"
#include "store/eviction/eviction_policy.h"
#include "store/object/object_catalog.h"
#include "store/object/object_residency.h"
#include "store/session/locality_set_table.h"
#include "store/types.h"

namespace entrepot {

struct EvictionCandidatesDeps {  // all must outlive the candidates
  const ObjectCatalog& catalog;
  const ObjectResidency& residency;
  const LocalitySetTable& sets;
  const PinScanner& pins;
  const Clock& clock;
  bool spills = false;  // if not, only dead or recomputable objects can leave, and only those are candidates
};

// Guarded by the daemon's thread.
class EvictionCandidates {
 public:
  explicit EvictionCandidates(const EvictionCandidatesDeps& deps) : deps_(deps) {}

  void object_sealed(std::uint32_t slot);
  void object_ended(std::uint32_t slot);
  void hints_changed(std::uint32_t slot);  // Slot::hints or its locality set
  // Makes it a candidate, or updates what is known of it: its resident bytes, hints, and whether it is clean.
  void admit(std::uint32_t slot);
  void evicted(std::uint32_t slot);        // perhaps not all of its blobs; forget_absent() must follow
  void forget_absent(std::uint32_t slot);  // if no byte of it is resident

  void was_read(std::uint32_t slot, std::uint32_t reader, std::uint64_t now_ns);
  void hold(std::uint32_t slot);  // it was just loaded, and its requester needs time to pin it
  [[nodiscard]] bool is_held(std::uint32_t slot) const;
  void trim_held();  // forgets those that are no longer held, if there are many
  [[nodiscard]] std::size_t remembered_holds() const { return held_until_ns_.size(); }  // those that are over included

  [[nodiscard]] std::unordered_set<std::uint32_t> pinned_slots() const;                                // by clients
  [[nodiscard]] const std::unordered_set<std::uint32_t>& user_pinned() const { return user_pinned_; }  // by a hint

  [[nodiscard]] EvictionPolicy& policy() { return policy_; }
  [[nodiscard]] const EvictionPolicy& policy() const { return policy_; }

 private:
  EvictionCandidatesDeps deps_;
  EvictionPolicy policy_;
  std::unordered_map<std::uint32_t, std::uint64_t> held_until_ns_;  // by slot; may be over
  std::unordered_set<std::uint32_t> user_pinned_;                   // slots
};

}  // namespace entrepot
