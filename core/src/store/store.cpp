#include "store/store.h"

#include <algorithm>

#include "base/log.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kExpiryNs = 1'000'000'000;        // minimum interval between expiry checks
constexpr std::uint64_t kLongestCalmNs = 60'000'000'000;  // maximum interval: the clock may be changed
constexpr std::uint64_t kWarmingNs = 5'000'000'000;       // before retrying after memory was refused
constexpr std::uint64_t kUrgentNs = 1'000'000'000;        // the same, while a request waits
constexpr std::uint64_t kUnrestNs = 250'000'000;          // after a lease for a large value, while it is being copied
constexpr std::uint64_t kMostUnrestNs = 1'000'000'000;    // limit, however many such leases follow each other
constexpr std::uint64_t kRetryReclaimNs = 50'000'000;
constexpr std::uint64_t kMaxWaitMs = 7 * 24 * 3600 * 1000ULL;

}  // namespace

Store::Store(ControlMemory& memory, MemorySource& source, const Clock& clock, StoreOptions options, ColdStorage* cold)
    : memory_(&memory),
      clock_(&clock),
      options_(std::move(options)),
      budget_(options_.capacity_bytes),
      records_(memory),
      sessions_(memory, clock),
      sets_(memory, sessions_),
      consumptions_(memory),
      names_(memory),
      clients_(memory),
      pool_(memory, records_, source, budget_, options_),
      objects_({memory, clock, sessions_, sets_, consumptions_, names_, pool_, records_, pins_, cold,
                options_.no_spill_why}),
      pager_(objects_, pool_, pins_, sets_, cold, clock, options_),
      cold_(cold),
      started_ns_(clock.monotonic_ns()) {
  next_expiry_ns_ = started_ns_ + kExpiryNs;
  memory.root().capacity_bytes.store(options_.capacity_bytes, std::memory_order_relaxed);
  for (const RegionKind kind : kAllRegions)
    memory.region(kind).count_in(budget_);
  budget_.on_short([this](std::uint64_t bytes) { return pool_.make_room(bytes); });
  objects_.listen(&pager_);
  pager_.on_changed([this](const IdBytes& id) { notify_changed(id); });
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
    // Its leases were returned when its connection ended; only after a restart are they unknown.
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
  sessions_changed();
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
  LeaseWaiter waiter{
      asker, deadline(timeout_ms), {asker.client, state->token}, min_bytes, want_bytes, {}, std::move(done), {}};
  waiter.tried.waiting = timeout_ms > 0;
  waiters_.leases.push_back(std::move(waiter));
  try_leases();
  if (timeout_ms == 0) tick();  // a request that does not wait is answered now
}

void Store::try_leases() {
  rescan();
  for (auto it = waiters_.leases.begin(); it != waiters_.leases.end();) {
    Result<std::optional<LeaseGrant>> got = try_lease(*it);
    if (got.is_ok() && !got->has_value()) {
      // First come, first served: what a write frees next belongs to the first waiter.
      if (it->wait.segment == kNoSegment && pager_.is_working()) break;
      ++it;
      continue;
    }
    LeaseWaiter waiter = std::move(*it);
    it = waiters_.leases.erase(it);
    if (got.is_ok()) {
      if ((*got)->length > pool_.small_segment_bytes()) put_off_calm();
      waiter.done(**got);
    } else {
      const bool memory_gone = got.status().code() == Code::kStoreFull && got.status().retryable();
      waiter.done(memory_gone ? Status(Code::kStoreFull,
                                       concat(got.status().message(), "; ", describe_holders(waiter.tried)), true)
                              : got.status());
    }
  }
  set_memory_wanted();
}

// A large value is about to be copied. Making the next large segment meanwhile would halve the copy's bandwidth.
void Store::put_off_calm() {
  const std::uint64_t now = clock_->monotonic_ns();
  if (calm_from_ns_ == 0) calm_latest_ns_ = now + kMostUnrestNs;
  calm_from_ns_ = std::min(now + kUnrestNs, calm_latest_ns_);
}

void Store::set_memory_wanted() {
  const bool starving = std::any_of(waiters_.leases.begin(), waiters_.leases.end(),
                                    [](const LeaseWaiter& waiter) { return waiter.wait.segment == kNoSegment; });
  const std::uint32_t wanted =
      (objects_.waits_for_pins() || starving ? kReleasesWanted : 0) | (starving ? kLeasesWanted : 0);
  memory_->root().memory_wanted.store(wanted, std::memory_order_relaxed);
}

Status Store::unlease(std::uint32_t client, std::uint32_t segment, std::uint64_t offset, std::uint64_t length,
                      bool done) {
  return pool_.unlease(client, segment, offset, length, done);
}

void Store::provisioned(std::uint32_t segment, std::uint32_t generation, const Status& status, MemoryKind kind) {
  if (!status.is_ok()) {
    next_warming_ns_ = clock_->monotonic_ns() + (waiters_.leases.empty() ? kWarmingNs : kUrgentNs);
    for (LeaseWaiter& waiter : waiters_.leases) {
      if (waiter.wait.segment == segment) waiter.wait.segment = kNoSegment;
    }
    pager_.provision_failed(segment);
  }
  pool_.provisioned(segment, generation, status, kind);
}

void Store::settle() {
  pager_.work();
  if (!waiters_.leases.empty()) try_leases();
  const bool urgent = !waiters_.leases.empty();
  const bool is_calm = clock_->monotonic_ns() >= calm_from_ns_;
  if (is_calm) calm_from_ns_ = 0;
  if (!urgent) pool_.top_up(is_calm);
  watch_surplus();
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
    for (const auto& blob : spec.blobs)
      pool_.sealed(blob.segment);
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

// A spilled object changed: it is resident again, or cannot be loaded.
void Store::notify_changed(const IdBytes& id) { notify_sealed(id); }

std::vector<LookupOutcome> Store::look(const std::vector<IdBytes>& ids) {
  std::vector<LookupOutcome> result;
  result.reserve(ids.size());
  for (const IdBytes& id : ids) {
    result.push_back(objects_.lookup(id));
    LookupOutcome& outcome = result.back();
    if (outcome.code == Code::kObjectNotFound) outcome.message = what_was_lost();
    if (outcome.code != Code::kOk || outcome.resident) continue;
    const Status failure = pager_.take_failure(id);
    outcome.code = failure.code();
    outcome.message = failure.message();
  }
  return result;
}

void Store::lookup(const Asker& asker, std::vector<IdBytes> ids, std::uint64_t timeout_ms, std::uint64_t load_ms,
                   LookupDone done) {
  if (load_ms != 0) {
    for (const IdBytes& id : ids) {
      const LookupOutcome outcome = objects_.lookup(id);
      if (outcome.code == Code::kOk && !outcome.resident) pager_.load(outcome.slot, asker.client + 1);
    }
  }
  std::vector<LookupOutcome> now = look(ids);
  const bool waits_for_load = load_ms != 0 && ids.size() == 1 && now[0].code == Code::kOk && !now[0].resident;
  LookupWaiter waiter{asker, deadline(waits_for_load ? load_ms : timeout_ms), load_ms, {}, {}, std::move(done)};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (now[i].code == Code::kObjectNotFound) waiter.missing.insert(ids[i]);
  }
  if (waits_for_load) waiter.missing.insert(ids[0]);
  if (waiter.missing.empty() || (timeout_ms == 0 && !waits_for_load)) {
    waiter.done(std::move(now));
    return;
  }
  waiter.ids = std::move(ids);
  waiters_.add_lookup(std::move(waiter));
}

std::vector<Status> Store::evict(std::span<const IdBytes> ids) {
  std::vector<Status> result;
  for (const IdBytes& id : ids) {
    const LookupOutcome outcome = objects_.lookup(id);
    if (outcome.code != Code::kOk) {
      result.emplace_back(outcome.code, concat("object ", to_hex(id), " is not in the store"));
    } else {
      result.push_back(outcome.resident ? pager_.evict(outcome.slot) : Status());
    }
  }
  return result;
}

std::vector<std::uint8_t> Store::remove(std::span<const IdBytes> ids) { return objects_.remove(ids); }

void Store::rescan() {
  objects_.rescan();
  next_rescan_ns_ = clock_->monotonic_ns() + kRescanNs;
}

// ---- deadlines ----

std::uint64_t Store::next_deadline_ns() const {
  std::uint64_t next = std::min(waiters_.next_deadline_ns(), next_expiry_ns_);
  // Objects just loaded, or whose write failed, may be evicted a little later.
  if (pager_.has_work() || (pager_.enabled() && !waiters_.leases.empty())) {
    next = std::min(next, clock_->monotonic_ns() + kRetryReclaimNs);
  }
  if (objects_.waits_for_pins()) next = std::min(next, next_rescan_ns_);
  if (calm_from_ns_ != 0) next = std::min(next, calm_from_ns_);
  if (next_warming_ns_ != 0) next = std::min(next, next_warming_ns_);
  if (next_surplus_ns_ != 0) next = std::min(next, next_surplus_ns_);
  return std::min(next, pager_.next_look_ns());
}

void Store::expire() {
  for (const std::uint32_t session : sessions_.expired()) {
    log_info(sessions_.describe(session), " has expired with ", sessions_.use(session).objects, " objects");
    sessions_.mark_dead(session);
    end_session(session);
  }
  const std::uint64_t now = clock_->unix_ns();
  const std::uint64_t next = sessions_.next_expiry_unix_ns();
  const std::uint64_t calm = std::clamp(next - std::min(now, next), kExpiryNs, kLongestCalmNs);
  next_expiry_ns_ = clock_->monotonic_ns() + calm;
}

// A session that was just closed may be the next to expire.
void Store::sessions_changed() { next_expiry_ns_ = std::min(next_expiry_ns_, clock_->monotonic_ns() + kExpiryNs); }

void Store::tick() {
  const std::uint64_t now = clock_->monotonic_ns();
  if (objects_.waits_for_pins() && now >= next_rescan_ns_) rescan();
  if (now >= next_expiry_ns_) expire();
  if (next_warming_ns_ != 0 && now >= next_warming_ns_) {
    next_warming_ns_ = 0;
    pool_.retry_memory();
  }
  if (next_surplus_ns_ != 0 && now >= next_surplus_ns_) drop_surplus();
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
    std::vector<LookupOutcome> found = look(waiter.ids);
    for (LookupOutcome& outcome : found) {
      if (waiter.load_ms == 0 || outcome.code != Code::kOk || outcome.resident) continue;
      const bool no_room = pager_.is_loading(outcome.slot) && pager_.has_work();
      outcome.code = no_room ? Code::kStoreFull : Code::kTimeout;
      outcome.message = no_room ? concat("there is no room to bring it back: ", describe_holders({true, true}))
                                : concat("it was not brought back from disk within ", waiter.load_ms, " ms");
    }
    waiter.done(std::move(found));
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

}  // namespace entrepot
