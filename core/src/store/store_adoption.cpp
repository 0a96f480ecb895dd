// Startup of a store: fresh, with what a killed store left on disk, or with the memory of a daemon that died.
#include <cstdint>

#include "base/log.h"
#include "base/text.h"
#include "store/store.h"

namespace entrepot {

Status Store::start_fresh() {
  Root& root = memory_->root();
  root.created_unix_ns = clock_->unix_ns();
  // Either source may know what the other does not: the address if nothing is spilled, the disk if the lock file was
  // removed.
  const bool killed = options_.follows_killed || (cold_ != nullptr && cold_->had_former());
  if (killed) root.flags.fetch_or(kRootFollowsKilled, std::memory_order_relaxed);
  ASSIGN_OR_RETURN(adoption_.objects, objects_.adopt());
  if (cold_ != nullptr) recover_cold();
  if (killed) {
    log_warning("the store that was here before was killed, keeper and daemon: ", adoption_.objects.adopted,
                " objects that had whole copies on disk are here again, what was in memory alone is lost");
  }
  budget_.enforce();
  return Status::ok();
}

// Keeper and daemon died, and all memory with them. Objects with complete copies survive.
void Store::recover_cold() {
  ObjectTable::RecoveredBlobs known;
  std::uint32_t latest = 0;
  for (const ColdObject& object : cold_->recover()) {
    if (!recover_one(object, known)) continue;
    const auto later = static_cast<std::int32_t>(object.generation - latest);
    if (adoption_.objects.adopted++ == 0 || later > 0) latest = object.generation;
    const std::optional<std::uint32_t> slot = objects_.find(object.id);
    if (!slot) continue;
    objects_.remember(*slot);
    pager_.follow(*slot);
  }
  cold_->adopt_end();
  // Objects sealed from here on get later generations.
  if (adoption_.objects.adopted != 0) memory_->root().generation_seed.store(latest, std::memory_order_relaxed);
}

bool Store::recover_one(const ColdObject& object, ObjectTable::RecoveredBlobs& known) {
  const SessionLimits limits{object.ttl_seconds, 0, 0};
  const bool is_new = sessions_.find(object.scope, object.session) == nullptr;  // an existing session keeps its limits
  const Result<std::uint32_t> session = sessions_.open(object.scope, object.session, is_new ? &limits : nullptr, 0);
  const Status status = session.is_ok() ? objects_.adopt_cold(object, *session, known) : session.status();
  if (!status.is_ok()) {
    ++adoption_.objects.lost;
    log_warning("object ", to_hex(object.id), " of an earlier store is not taken over: ", status.message());
    return false;
  }
  for (const std::string& name : object.names) {
    const Status bound = names_.bind(*session, name, object.id, object.generation, false);
    if (!bound.is_ok()) log_warning("name '", name, "' of an earlier store is lost: ", bound.message());
  }
  return true;
}

// Recovers objects that were only on disk when a daemon without cold storage took over (e.g. because it had no key). No
// table lists them any more, but their copies and the manifest are intact. An object recomputed since then wins.
void Store::recover_left_on_disk() {
  std::atomic<std::uint32_t>& flags = memory_->root().flags;
  if (cold_ == nullptr) {
    if (adoption_.objects.left_on_disk != 0) flags.fetch_or(kRootLeftOnDisk, std::memory_order_relaxed);
    return;
  }
  if ((flags.load(std::memory_order_relaxed) & kRootLeftOnDisk) == 0) return;
  ObjectTable::RecoveredBlobs known;
  std::uint32_t recovered = 0;
  for (const ColdObject& object : cold_->recover()) {
    if (!objects_.find(object.id) && recover_one(object, known)) ++recovered;
  }
  flags.fetch_and(~kRootLeftOnDisk, std::memory_order_relaxed);
  adoption_.objects.adopted += recovered;
  log_info(recovered, " objects that a daemon without their spill folder or key had left on disk are here again");
}

void Store::adopt_clients() { adoption_.damaged_entries += clients_.adopt(); }

Result<AdoptionReport> Store::adopt_rest() {
  const SessionTable::Adoption sessions = sessions_.adopt();
  adoption_.damaged_entries += sessions.damaged;
  adoption_.damaged_entries += sets_.adopt();
  adoption_.lost_segments = pool_.adopt_begin();
  ASSIGN_OR_RETURN(adoption_.objects, objects_.adopt());
  pool_.adopt_end(objects_.is_withholding());
  budget_.enforce();  // not earlier: segments whose blobs are not adopted yet look empty to make_room()
  adoption_.damaged_entries += names_.adopt([&](std::uint32_t session, const IdBytes& id) {
    return sessions_.is_live(session) && (objects_.find(id).has_value() || objects_.is_dropped(id));
  });
  adoption_.damaged_entries += consumptions_.adopt(objects_.directory());
  know_sets();
  recover_left_on_disk();
  pager_.adopted();
  if (cold_ != nullptr) cold_->adopt_end();
  for (const std::uint32_t session : sessions.dead)
    end_session(session);
  end_what_all_have_had();
  rescan();
  settle();
  return adoption_;
}

bool Store::follows_killed() const {
  return (memory_->root().flags.load(std::memory_order_relaxed) & kRootFollowsKilled) != 0;
}

std::string Store::what_was_lost() const {
  if (!follows_killed()) return {};
  return "or it was in the memory of the store that was here before, whose keeper and daemon were killed (what had a "
         "copy on disk is here again): make it anew, or load its checkpoint";
}

}  // namespace entrepot
