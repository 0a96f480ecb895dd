// Objects that were sealed and are gone, though nobody deleted them: a lookup says why.
//
//   sealed ─┬─copy or control memory damaged──▶ lost ─────┬─sealed again, or deleted──▶ forgotten
//           └─dropped by ObjectResidency ─────▶ dropped ──┘
//
// A dropped object's slot remains as its marker, in the state `dropped`, until it is forgotten or its session ends, so
// the next daemon knows it too. Losses are known only to the daemon that found them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/id.h"
#include "store/object/object_catalog.h"
#include "store/session/session_table.h"
#include "store/types.h"

namespace entrepot {

// Guarded by the daemon's thread.
class AbsentObjects {
 public:
  AbsentObjects(ObjectCatalog& catalog, const SessionTable& sessions);  // both must outlive this

  void add_lost(const IdBytes& id, std::string why) { lost_[id] = std::move(why); }
  void add_dropped(std::uint32_t slot);  // in state `dropped`, and in no list of objects any more
  // Adopts a marker left by an earlier daemon. Call after the sealed objects: one of them may have replaced it.
  void adopt_dropped(std::uint32_t slot);

  bool forget(const IdBytes& id);  // sealed again, or deleted; false: it was neither lost nor dropped
  // Forgets the session's dropped objects, and returns their IDs.
  std::vector<IdBytes> forget_dropped(std::uint32_t session);

  // kObjectDropped or kObjectLost, with the reason; otherwise kObjectNotFound.
  [[nodiscard]] LookupOutcome lookup(const IdBytes& id) const;
  [[nodiscard]] bool is_dropped(const IdBytes& id) const { return dropped_.contains(id); }
  [[nodiscard]] std::size_t dropped() const { return dropped_.size(); }  // markers of objects not recomputed yet

 private:
  [[nodiscard]] std::string drop_reason(std::uint32_t slot) const;

  ObjectCatalog* catalog_;
  const SessionTable* sessions_;
  std::unordered_map<IdBytes, std::string, IdHash> lost_;       // with the cause
  std::unordered_map<IdBytes, std::uint32_t, IdHash> dropped_;  // to the slot that is its marker
};

}  // namespace entrepot
