#include "store/store.h"

#include <algorithm>

#include "base/log.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kExpiryNs = 1'000'000'000;   // how often sessions are looked through
constexpr std::uint64_t kWarmingNs = 5'000'000'000;  // until warming is tried again after it failed
constexpr std::uint64_t kMaxWaitMs = 7 * 24 * 3600 * 1000ULL;

}  // namespace

Store::Store(ControlMemory& memory, MemorySource& source, const Clock& clock, StoreOptions options)
    : memory_(&memory),
      clock_(&clock),
      options_(std::move(options)),
      records_(memory),
      sessions_(memory, clock),
      names_(memory),
      clients_(memory),
      pool_(memory, records_, source, options_),
      objects_({memory, clock, sessions_, names_, pool_, records_, pins_}),
      started_ns_(clock.monotonic_ns()) {
  next_expiry_ns_ = started_ns_ + kExpiryNs;
  memory.root().capacity_bytes.store(options_.capacity_bytes, std::memory_order_relaxed);
}

Status Store::start_fresh() {
  memory_->root().created_unix_ns = clock_->unix_ns();
  const Result<ObjectAdoption> adopted = objects_.adopt();
  return adopted.is_ok() ? Status() : adopted.status();
}

void Store::adopt_clients() { adoption_.damaged_entries += clients_.adopt(); }

Result<AdoptionReport> Store::adopt_rest() {
  const SessionTable::Adoption sessions = sessions_.adopt();
  adoption_.damaged_entries += sessions.damaged;
  adoption_.lost_segments = pool_.adopt_begin();
  ASSIGN_OR_RETURN(adoption_.objects, objects_.adopt());
  pool_.adopt_end();
  adoption_.damaged_entries += names_.adopt([&](std::uint32_t session, const IdBytes& id) {
    return sessions_.is_live(session) && objects_.find(id).has_value();
  });
  for (const std::uint32_t session : sessions.dead)
    end_session(session);
  rescan();
  settle();
  return adoption_;
}

// ---- clients ----

void Store::publish_client(std::uint32_t client, std::uint64_t token, const ClientIdentity& identity) {
  clients_.publish(client, token, identity, clock_->unix_ns());
}

Status Store::reconnect(std::uint32_t client, std::uint64_t token, const std::vector<HeldLease>* leases) {
  ClientState* state = clients_.find(client);
  if (state == nullptr || state->token != token || token == 0) {
    return Status(Code::kAccessDenied,
                  concat("client ", client, " with that token is not known to this store: connect anew"));
  }
  if (!state->quarantined && leases == nullptr) {
    // Its connection ended, so its leases went back then; only a restart keeps what nobody could say.
    static const std::vector<HeldLease> kNone;
    leases = &kNone;
  }
  pool_.restore_leases({client, token}, leases);
  state->connected = true;
  state->quarantined = false;
  return Status::ok();
}

void Store::disconnected(std::uint32_t client, std::uint64_t owner) {
  cancel(owner);
  close_sessions(owner);
  if (ClientState* state = clients_.find(client)) {
    state->connected = false;
    pool_.client_disconnected(client);
  }
}

void Store::died(std::uint32_t client) {
  pins_.remove(client);
  pool_.client_died(client);
  clients_.remove(client);
  rescan();
}

void Store::cancel(std::uint64_t owner) {
  for (auto it = waiters_.lookups.begin(); it != waiters_.lookups.end();) {
    const auto next = std::next(it);
    if (it->asker.owner == owner) (void)waiters_.take_lookup(it);
    it = next;
  }
  std::erase_if(waiters_.names, [&](const NameWaiter& waiter) { return waiter.asker.owner == owner; });
  std::erase_if(waiters_.provisions, [&](const ProvisionWaiter& waiter) { return waiter.asker.owner == owner; });
  std::erase_if(waiters_.leases, [&](LeaseWaiter& waiter) {
    if (waiter.asker.owner != owner) return false;
    pool_.abandon(waiter.wait);
    return true;
  });
}

void Store::close_sessions(std::uint64_t owner) {
  const auto it = opened_.find(owner);
  if (it == opened_.end()) return;
  for (const std::uint32_t handle : it->second) {
    const Result<std::uint32_t> index = sessions_.index_of(handle);
    if (index.is_ok()) sessions_.closed(*index);
  }
  opened_.erase(it);
}

// ---- memory ----

std::uint64_t Store::deadline(std::uint64_t timeout_ms) const {
  return clock_->monotonic_ns() + std::min(timeout_ms, kMaxWaitMs) * 1'000'000;
}

void Store::lease(const Asker& asker, std::uint64_t min_bytes, std::uint64_t want_bytes, std::uint64_t timeout_ms,
                  LeaseDone done) {
  const ClientState* state = clients_.find(asker.client);
  if (state == nullptr) {
    done(Status(Code::kAccessDenied, concat("client ", asker.client, " is not known")));
    return;
  }
  LeaseWaiter waiter{asker, deadline(timeout_ms), {asker.client, state->token}, min_bytes, want_bytes,
                     {},    std::move(done)};
  waiters_.leases.push_back(std::move(waiter));
  try_leases();
  if (timeout_ms == 0) tick();  // what waits for nothing that is under way is answered now
}

void Store::try_leases() {
  rescan();
  for (auto it = waiters_.leases.begin(); it != waiters_.leases.end();) {
    Result<std::optional<LeaseGrant>> got = pool_.lease(it->client, it->min_bytes, it->want_bytes, it->wait);
    if (got.is_ok() && !got->has_value()) {
      ++it;
      continue;
    }
    LeaseWaiter waiter = std::move(*it);
    it = waiters_.leases.erase(it);
    if (got.is_ok()) {
      waiter.done(**got);
    } else {
      const bool memory_gone = got.status().code() == Code::kStoreFull && got.status().retryable();
      waiter.done(memory_gone ? Status(Code::kStoreFull, concat(got.status().message(), "; ", describe_holders()), true)
                              : got.status());
    }
  }
  set_memory_wanted();
}

void Store::set_memory_wanted() {
  const bool starving = std::any_of(waiters_.leases.begin(), waiters_.leases.end(),
                                    [](const LeaseWaiter& waiter) { return waiter.wait.segment == kNoSegment; });
  const std::uint32_t wanted =
      (objects_.deferred() != 0 || starving ? kReleasesWanted : 0) | (starving ? kLeasesWanted : 0);
  memory_->root().memory_wanted.store(wanted, std::memory_order_relaxed);
}

Status Store::unlease(std::uint32_t client, std::uint32_t segment, std::uint64_t offset, std::uint64_t length,
                      bool done) {
  return pool_.unlease(client, segment, offset, length, done);
}

void Store::provisioned(std::uint32_t segment, std::uint32_t generation, const Status& status, MemoryKind kind) {
  if (!status.is_ok()) {
    next_warming_ns_ = clock_->monotonic_ns() + kWarmingNs;
    for (LeaseWaiter& waiter : waiters_.leases) {
      if (waiter.wait.segment != segment) continue;
      waiter.wait.segment = kNoSegment;
      waiter.wait.failure = Status(Code::kStoreFull, concat("no memory for a segment: ", status.message()), true);
    }
  }
  pool_.provisioned(segment, generation, status, kind);
}

void Store::settle() {
  if (!waiters_.leases.empty()) try_leases();
  const bool urgent = !waiters_.leases.empty();
  if (!urgent) pool_.top_up();
  if (!waiters_.provisions.empty() && (pool_.warm_done() || !pool_.warm_note().empty())) {
    for (ProvisionWaiter& waiter : std::exchange(waiters_.provisions, {}))
      waiter.done(Status::ok());
  }
  set_memory_wanted();
}

void Store::wait_provisioned(const Asker& asker, std::uint64_t timeout_ms, ProvisionDone done) {
  waiters_.provisions.push_back({asker, deadline(timeout_ms), std::move(done)});
  settle();
  if (timeout_ms == 0) tick();
}

// ---- objects ----

SealOutcome Store::seal(std::uint32_t client, const SealSpec& spec) {
  SealOutcome outcome = objects_.seal(client, spec);
  if (outcome.status.is_ok()) {
    const Result<std::uint32_t> session = sessions_.index_of(spec.session);
    if (session.is_ok()) sessions_.touch(*session);
    notify_sealed(spec.id);
    if (session.is_ok() && !spec.name.empty()) notify_named(*session, spec.name);
  }
  return outcome;
}

void Store::notify_sealed(const IdBytes& id) {
  for (LookupWaiter& waiter : waiters_.sealed(id))
    waiter.done(look(waiter.ids));
}

std::vector<LookupOutcome> Store::look(const std::vector<IdBytes>& ids) const {
  std::vector<LookupOutcome> result;
  result.reserve(ids.size());
  for (const IdBytes& id : ids)
    result.push_back(objects_.lookup(id));
  return result;
}

void Store::lookup(const Asker& asker, std::vector<IdBytes> ids, std::uint64_t timeout_ms, LookupDone done) {
  std::vector<LookupOutcome> now = look(ids);
  LookupWaiter waiter{asker, deadline(timeout_ms), {}, {}, std::move(done)};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (now[i].code == Code::kObjectNotFound) waiter.missing.insert(ids[i]);
  }
  if (waiter.missing.empty() || timeout_ms == 0) {
    waiter.done(std::move(now));
    return;
  }
  waiter.ids = std::move(ids);
  waiters_.add_lookup(std::move(waiter));
}

std::vector<std::uint8_t> Store::remove(std::span<const IdBytes> ids) { return objects_.remove(ids); }

void Store::rescan() {
  objects_.rescan();
  next_rescan_ns_ = clock_->monotonic_ns() + kRescanNs;
}

// ---- time ----

std::uint64_t Store::next_deadline_ns() const {
  std::uint64_t next = std::min(waiters_.next_deadline_ns(), next_expiry_ns_);
  if (objects_.deferred() != 0) next = std::min(next, next_rescan_ns_);
  return next;
}

void Store::tick() {
  const std::uint64_t now = clock_->monotonic_ns();
  if (objects_.deferred() != 0 && now >= next_rescan_ns_) rescan();
  if (now >= next_expiry_ns_) {
    next_expiry_ns_ = now + kExpiryNs;
    for (const std::uint32_t session : sessions_.expired()) {
      log_info(sessions_.describe(session), " has expired with ", sessions_.use(session).objects, " objects");
      sessions_.mark_dead(session);
      end_session(session);
    }
    if (next_warming_ns_ != 0 && now >= next_warming_ns_) {
      next_warming_ns_ = 0;
      pool_.retry_warming();
    }
  }
  settle();

  const auto take_overdue = [&](auto& list) {
    std::decay_t<decltype(list)> overdue;
    for (auto it = list.begin(); it != list.end();) {
      const auto next = std::next(it);
      if (it->deadline_ns <= now) overdue.splice(overdue.end(), list, it);
      it = next;
    }
    return overdue;
  };
  for (auto it = waiters_.lookups.begin(); it != waiters_.lookups.end();) {
    if (it->deadline_ns > now) {
      ++it;
      continue;
    }
    LookupWaiter waiter = waiters_.take_lookup(it);
    waiter.done(look(waiter.ids));
    it = waiters_.lookups.begin();  // the answer may have changed the list
  }
  for (NameWaiter& waiter : take_overdue(waiters_.names)) {
    waiter.done(
        Status(Code::kTimeout,
               concat("no object got the name '", waiter.name, "' in ", sessions_.describe(waiter.session), " in time"),
               true));
  }
  for (LeaseWaiter& waiter : take_overdue(waiters_.leases)) {
    pool_.abandon(waiter.wait);
    waiter.done(store_full(waiter));
  }
  for (ProvisionWaiter& waiter : take_overdue(waiters_.provisions)) {
    waiter.done(
        Status(Code::kTimeout, "the store's memory is not provisioned yet: wait longer, or look at status", true));
  }
  set_memory_wanted();
}

Status Store::store_full(const LeaseWaiter& waiter) const {
  const bool provisioning = waiter.wait.segment != kNoSegment;
  return Status(Code::kStoreFull,
                concat(provisioning ? "memory is being provisioned, but not ready in time, for " : "no room for ",
                       format_bytes(waiter.min_bytes), " (", waiter.min_bytes, " bytes): ", describe_holders()),
                true);
}

}  // namespace entrepot
