// Startup of a store: fresh, with what a killed store left on disk, or with the memory of a daemon that died.
#include <cstdint>

#include "base/text.h"
#include "os/log.h"
#include "store/store.h"

namespace entrepot {

Status Store::start_fresh() {
  Root& root = memory_->root();
  root.created_unix_ns = clock_->unix_ns();
  // Either source may know what the other does not: the address if nothing is spilled, the disk if the lock file was
  // removed.
  const bool killed = options_.recovered_from_crash || (spill_ != nullptr && spill_->has_predecessor());
  if (killed) root.flags.fetch_or(kRootRecoveredFromCrash, std::memory_order_relaxed);
  ASSIGN_OR_RETURN(adoption_.objects, recovery_.adopt());
  if (spill_ != nullptr) recover_spilled();
  if (killed) {
    log_warning("the previous store was killed, keeper and daemon: recovered ", adoption_.objects.adopted,
                " objects that had complete copies on disk; objects that were only in memory are lost");
  }
  budget_.enforce();
  return Status::ok();
}

// Keeper and daemon died, and all memory with them. Objects with complete copies survive.
void Store::recover_spilled() {
  ObjectRecovery::RecoveredBlobs adopted_blobs;
  std::uint32_t latest = 0;
  for (const SpilledObject& object : spill_->recover()) {
    if (!recover_object(object, adopted_blobs)) continue;
    const auto later = static_cast<std::int32_t>(object.generation - latest);
    if (adoption_.objects.adopted++ == 0 || later > 0) latest = object.generation;
    const std::optional<std::uint32_t> slot = objects_.find(object.id);
    if (!slot) continue;
    parts_.manifest.remember(*slot);
    pager_.track(*slot);
  }
  parts_.manifest.distrust_until(spill_->adopt_end());
  // Objects sealed from here on get later generations.
  if (adoption_.objects.adopted != 0) memory_->root().generation_seed.store(latest, std::memory_order_relaxed);
}

bool Store::recover_object(const SpilledObject& object, ObjectRecovery::RecoveredBlobs& adopted_blobs) {
  const SessionLimits limits{object.ttl_seconds, 0, 0};
  const bool is_new = sessions_.find(object.scope, object.session) == nullptr;  // an existing session keeps its limits
  const Result<std::uint32_t> session = sessions_.open(object.scope, object.session, is_new ? &limits : nullptr, 0);
  const Status status = session.is_ok() ? recovery_.adopt_spilled(object, *session, adopted_blobs) : session.status();
  if (!status.is_ok()) {
    ++adoption_.objects.lost;
    log_warning("object ", to_hex(object.id), " of an earlier store is not recovered: ", status.message());
    return false;
  }
  for (const std::string& name : object.names) {
    const Status bound = names_.bind(*session, name, object.id, object.generation, false);
    if (!bound.is_ok()) log_warning("name '", name, "' of an earlier store is lost: ", bound.message());
  }
  return true;
}

// Recovers objects that were only on disk when a daemon without a spill backend took over (e.g. because it had no key).
// No table lists them any more, but their copies and the manifest are intact. An object recomputed since then wins.
void Store::recover_orphaned_copies() {
  std::atomic<std::uint32_t>& flags = memory_->root().flags;
  if (spill_ == nullptr) {
    if (adoption_.objects.orphaned_on_disk != 0) flags.fetch_or(kRootLeftOnDisk, std::memory_order_relaxed);
    return;
  }
  if ((flags.load(std::memory_order_relaxed) & kRootLeftOnDisk) == 0) return;
  ObjectRecovery::RecoveredBlobs adopted_blobs;
  std::uint32_t recovered = 0;
  for (const SpilledObject& object : spill_->recover()) {
    if (!objects_.find(object.id) && recover_object(object, adopted_blobs)) ++recovered;
  }
  flags.fetch_and(~kRootLeftOnDisk, std::memory_order_relaxed);
  adoption_.objects.adopted += recovered;
  log_info(
      recovered,
      " objects were recovered from disk, which an earlier daemon without their spill folder or key could not read");
}

void Store::adopt_clients() { adoption_.damaged_entries += clients_.adopt(); }

Result<AdoptionReport> Store::adopt_rest() {
  const SessionTable::Adoption sessions = sessions_.adopt();
  adoption_.damaged_entries += sessions.damaged;
  adoption_.damaged_entries += openings_.adopt(clients_, sessions_);
  adoption_.damaged_entries += sets_.adopt();
  adoption_.lost_segments = pool_.adopt_begin();
  ASSIGN_OR_RETURN(adoption_.objects, recovery_.adopt());
  pool_.adopt_end(parts_.withheld.is_withholding());
  budget_.enforce();  // not earlier: segments whose blobs are not adopted yet look empty to reclaim()
  adoption_.damaged_entries += names_.adopt([&](std::uint32_t session, const IdBytes& id) {
    return sessions_.is_live(session) && (objects_.find(id).has_value() || parts_.absent.is_dropped(id));
  });
  adoption_.damaged_entries += consumers_.adopt(parts_.catalog.directory());
  sync_locality_sets();
  recover_orphaned_copies();
  pager_.on_adopted();
  if (spill_ != nullptr) parts_.manifest.distrust_until(spill_->adopt_end());
  for (const std::uint32_t session : sessions.dead)
    end_session(session);
  expect_gateway();
  delete_fully_consumed();
  rescan();
  run_pending();
  return adoption_;
}

std::string Store::describe_lost() const {
  if (!report_.recovered_from_crash()) return {};
  return "or it was in the memory of the previous store, whose keeper and daemon were killed (objects with a "
         "copy on disk were recovered): recompute it, or load its checkpoint";
}

}  // namespace entrepot
