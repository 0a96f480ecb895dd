#include "store/store.h"

#include <algorithm>

#include "os/log.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kExpiryNs = 1'000'000'000;              // minimum interval between expiry checks
constexpr std::uint64_t kMaxExpiryIntervalNs = 60'000'000'000;  // maximum interval: the clock may be changed
constexpr std::uint64_t kProvisionRetryNs = 5'000'000'000;      // before retrying after memory was refused
constexpr std::uint64_t kUrgentRetryNs = 1'000'000'000;         // the same, while a request waits
constexpr std::uint64_t kRoomWaitMs = 20'000;                   // less than a client waits for an answer
constexpr std::uint64_t kRetryReclaimNs = 50'000'000;
constexpr std::uint64_t kMaxWaitMs = 7 * 24 * 3600 * 1000ULL;

}  // namespace

Store::Store(ControlMemory& memory, MemorySource& source, const Clock& clock, StoreOptions options, SpillBackend* spill)
    : memory_(&memory),
      clock_(&clock),
      options_(std::move(options)),
      budget_(options_.capacity_bytes),
      records_(memory),
      sessions_(memory, clock),
      sets_(memory, sessions_),
      consumers_(memory),
      names_(memory),
      clients_(memory),
      openings_(memory),
      pool_(memory, records_, source, budget_, options_),
      parts_({memory, clock, sessions_, sets_, consumers_, names_, pool_, records_, pins_, spill,
              options_.no_spill_reason}),
      objects_(parts_),
      residency_(parts_),
      recovery_(parts_),
      pager_({parts_, objects_, residency_, pool_, pins_, sets_, clock, options_, spill}),
      room_({options_, clock, budget_, pool_, parts_, names_, consumers_, pager_}),
      reservations_(budget_, [this](std::uint32_t blob,
                                    std::uint32_t generation) { return parts_.blobs.exists(blob, generation); }),
      chunks_(objects_),
      streams_({clock, budget_, chunks_, [this](std::uint32_t client) { return clients_.describe(client); }}),
      gateway_(clock),
      burst_(timers_, clock),
      surplus_(
          {pool_, timers_, clock, options_.give_back_after_seconds, [this] { return !pending_.leases().empty(); }}),
      spill_(spill),
      report_({memory, clock, options_, budget_, records_, sessions_, sets_, names_, clients_, pins_, pool_, surplus_,
               parts_, pager_, pending_, reservations_, streams_, gateway_, adoption_}),
      object_report_({clock, clients_, parts_, objects_, pager_}),
      admission_({clients_, options_, budget_, pool_, pager_, parts_, room_, report_, reservations_}) {
  rescan_timer_ = timers_.add([this](std::uint64_t) { rescan(); });
  expiry_timer_ = timers_.add([this](std::uint64_t) { expire(); });
  provision_timer_ = timers_.add([this](std::uint64_t) { pool_.retry_memory(); });
  wake_timer_ = timers_.add([](std::uint64_t) {});
  expiry_timer_.arm(clock.monotonic_ns() + kExpiryNs);
  memory.root().capacity_bytes.store(options_.capacity_bytes, std::memory_order_relaxed);
  for (const RegionKind kind : kAllRegions)
    memory.region(kind).charge_to(budget_);
  budget_.on_shortage([this](std::uint64_t bytes) { return pool_.reclaim(bytes); });
  parts_.listener = &pager_;
  pager_.on_changed([this](const IdBytes& id) { notify_changed(id); });
}

// ---- clients ----

void Store::publish_client(std::uint32_t client, std::uint64_t token, const ClientIdentity& identity) {
  clients_.publish(client, token, identity, clock_->unix_ns());
}

void Store::set_client_process(std::uint32_t client, std::uint32_t pid) {
  if (ClientState* state = clients_.find(client); state != nullptr) state->identity.pid = pid;
}

Status Store::reconnect(std::uint32_t client, std::uint64_t token, const std::vector<ReportedLease>* leases) {
  ClientState* state = clients_.find(client);
  if (state == nullptr || state->token != token || token == 0) {
    return Status(Code::kAccessDenied, concat("client ", client, " is not registered with this token: connect again"));
  }
  if (!state->quarantined && leases == nullptr) {
    // Its leases were returned when its connection ended; only after a restart are they unknown.
    static const std::vector<ReportedLease> kNone;
    leases = &kNone;
  }
  pool_.restore_leases({client, token}, leases);
  state->connected = true;
  state->quarantined = false;
  return Status::ok();
}

void Store::disconnected(std::uint32_t client, std::uint64_t owner) {
  cancel(owner);
  reservations_.connection_ended({client, owner});
  streams_.connection_ended(owner);
  gateway_.connection_ended(owner);
  if (ClientState* state = clients_.find(client)) {
    state->connected = false;
    pool_.client_disconnected(client);
  }
}

void Store::client_died(std::uint32_t client) {
  pins_.remove(client);
  reservations_.client_died(client);
  pool_.client_died(client);
  close_sessions(client);
  clients_.remove(client);
  rescan();
}

void Store::cancel(std::uint64_t owner) {
  for (PendingLease& request : pending_.cancel(owner))
    pool_.abandon(request.wait);
}

void Store::close_sessions(std::uint32_t client) {
  for (const std::uint32_t session : openings_.remove_client(client))
    sessions_.remove_opener(session);
  sessions_changed();
}

// ---- memory ----

std::uint64_t Store::deadline(std::uint64_t timeout_ms) const {
  return clock_->monotonic_ns() + std::min(timeout_ms, kMaxWaitMs) * 1'000'000;
}

void Store::lease(const RequestOrigin& origin, std::uint64_t min_bytes, std::uint64_t want_bytes,
                  std::uint64_t timeout_ms, LeaseDone done, bool isolated) {
  const ClientState* state = clients_.find(origin.client);
  if (state == nullptr) {
    done(Status(Code::kAccessDenied, concat("client ", origin.client, " is unknown")));
    return;
  }
  const SegmentWriterRef writer{origin.client, state->token, isolated};
  PendingLease request{origin, deadline(timeout_ms), writer, min_bytes, want_bytes, {}, std::move(done), {}};
  request.remedies.waiting = timeout_ms > 0;
  pending_.add(std::move(request));
  try_leases();
  if (timeout_ms == 0) tick();  // a request that does not wait is answered now
}

void Store::try_leases() {
  rescan();
  WaitList<PendingLease>& leases = pending_.leases();
  for (auto it = leases.begin(); it != leases.end();) {
    Result<std::optional<LeaseGrant>> grant = admission_.try_lease(*it);
    if (grant.is_ok() && !grant->has_value()) {
      // First come, first served: what a write frees next belongs to the first request.
      if (it->wait.segment == kNoSegment && pager_.has_io_in_progress()) break;
      ++it;
      continue;
    }
    const PendingLease request = leases.take(it++);
    if (grant.is_ok()) {
      if ((*grant)->length > pool_.small_segment_bytes()) burst_.extend();
      request.done(**grant);
    } else {
      const bool memory_gone = grant.status().code() == Code::kStoreFull && grant.status().retryable();
      request.done(
          memory_gone ? Status(Code::kStoreFull,
                               concat(grant.status().message(), "; ", report_.describe_holders(request.remedies)), true)
                      : grant.status());
    }
  }
  set_memory_wanted();
}

void Store::when_room(const RequestOrigin& origin, RoomAttempt attempt) {
  pending_.add(PendingRoom{origin, deadline(kRoomWaitMs), std::move(attempt)});
  set_memory_wanted();
  arm_timers();
}

void Store::try_rooms() {
  WaitList<PendingRoom>& rooms = pending_.rooms();
  while (!rooms.empty() && rooms.begin()->attempt(false))
    static_cast<void>(rooms.take(rooms.begin()));
}

void Store::set_memory_wanted() {
  const bool starving = !pending_.rooms().empty() ||
                        std::any_of(pending_.leases().begin(), pending_.leases().end(),
                                    [](const PendingLease& request) { return request.wait.segment == kNoSegment; });
  // What waits for a reservation needs no memory yet, so idle leases go back in their own time.
  const bool waits_for_pins = objects_.waits_for_pins() || starving || reservations_.has_waiting();
  const std::uint32_t requested_bits = (waits_for_pins ? kReleasesWanted : 0) | (starving ? kLeasesWanted : 0) |
                                       (pool_.provisions_for_requests() ? kProvisioningForLeases : 0);
  memory_->root().memory_wanted.store(requested_bits, std::memory_order_relaxed);
}

Status Store::unlease(std::uint32_t client, std::uint32_t segment, std::uint64_t offset, std::uint64_t length,
                      bool done) {
  return pool_.unlease(client, segment, offset, length, done);
}

void Store::provisioned(std::uint32_t segment, std::uint32_t generation, const Status& status, MemoryKind kind) {
  if (!status.is_ok()) {
    provision_timer_.arm(clock_->monotonic_ns() + (pending_.leases().empty() ? kProvisionRetryNs : kUrgentRetryNs));
    for (PendingLease& request : pending_.leases()) {
      if (request.wait.segment == segment) request.wait.segment = kNoSegment;
    }
    pager_.provision_failed(segment);
  }
  pool_.provisioned(segment, generation, status, kind);
}

void Store::run_pending() {
  answer_recorded();
  pager_.run_pending();
  room_.keep_headroom();  // before the requests that wait: they may need what it evicts
  try_rooms();
  if (!pending_.leases().empty()) try_leases();
  if (reservations_.has_waiting()) try_reservations();
  const bool urgent = !pending_.leases().empty() || !pending_.rooms().empty();
  if (!urgent) {
    pool_.keep_free(room_.headroom_bytes());
    pool_.top_up(!burst_.in_progress());
    pool_.keep_free(0);
  }
  surplus_.track();
  if (pending_.waits_for_warm_memory() && (pool_.warm_done() || !pool_.warm_note().empty())) {
    for (const PendingProvision& request : pending_.take_provisions())
      request.done(Status::ok());
  }
  set_memory_wanted();
  arm_timers();
}

void Store::wait_provisioned(const RequestOrigin& origin, std::uint64_t timeout_ms, ProvisionDone done) {
  pending_.add(PendingProvision{origin, deadline(timeout_ms), std::move(done)});
  run_pending();
  if (timeout_ms == 0) tick();
}

// ---- objects ----

SealOutcome Store::seal(std::uint32_t client, const SealSpec& spec, bool makes_room) {
  const auto attempt = [&] { return objects_.seal(client, spec); };
  SealOutcome outcome = makes_room ? room_.with_room(attempt) : attempt();
  if (outcome.status.is_ok()) {
    for (const auto& blob : spec.blobs)
      pool_.sealed(blob.segment);
    if (reservations_.has_granted()) charge_reservation(client, spec, outcome.slot);
    const Result<std::uint32_t> session = sessions_.index_of(spec.session);
    if (session.is_ok()) sessions_.touch(*session);
    notify_sealed(spec.id);
    if (session.is_ok() && !spec.name.empty()) notify_named(*session, spec.name);
    outcome.record = parts_.manifest.unwritten(spec.id);
    if (session.is_ok() && !spec.name.empty())
      outcome.record = std::max(outcome.record, parts_.manifest.unwritten_name(*session, spec.name));
  }
  return outcome;
}

void Store::notify_sealed(const IdBytes& id) {
  for (PendingLookup& request : pending_.sealed(id))
    request.done(lookup_now(request.ids));
  gateway_.sealed(id);
}

// A spilled object changed: it is resident again, or cannot be loaded.
void Store::notify_changed(const IdBytes& id) { notify_sealed(id); }

std::vector<LookupOutcome> Store::lookup_now(const std::vector<IdBytes>& ids) {
  std::vector<LookupOutcome> result;
  result.reserve(ids.size());
  for (const IdBytes& id : ids) {
    result.push_back(objects_.lookup(id));
    LookupOutcome& outcome = result.back();
    if (outcome.code == Code::kObjectNotFound) outcome.message = describe_lost();
    if (outcome.code != Code::kOk || outcome.resident) continue;
    const Status failure = pager_.take_failure(id);
    outcome.code = failure.code();
    outcome.message = failure.message();
  }
  return result;
}

void Store::lookup(const RequestOrigin& origin, std::vector<IdBytes> ids, std::uint64_t timeout_ms,
                   std::uint64_t load_ms, LookupDone done) {
  if (load_ms != 0) {
    for (const IdBytes& id : ids) {
      const LookupOutcome outcome = objects_.lookup(id);
      if (outcome.code == Code::kOk && !outcome.resident) pager_.load(outcome.slot, origin.client + 1);
    }
  }
  std::vector<LookupOutcome> outcomes = lookup_now(ids);
  const bool waits_for_load = load_ms != 0 && ids.size() == 1 && outcomes[0].code == Code::kOk && !outcomes[0].resident;
  PendingLookup request{origin, deadline(waits_for_load ? load_ms : timeout_ms), load_ms, {}, {}, std::move(done)};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (outcomes[i].code == Code::kObjectNotFound) request.missing.insert(ids[i]);
  }
  if (waits_for_load) request.missing.insert(ids[0]);
  if (request.missing.empty() || (timeout_ms == 0 && !waits_for_load)) {
    request.done(std::move(outcomes));
    return;
  }
  request.ids = std::move(ids);
  pending_.add(std::move(request));
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

std::vector<std::uint8_t> Store::remove(std::span<const ObjectLife> lives) { return objects_.remove(lives); }

void Store::rescan() {
  objects_.rescan();
  next_rescan_ns_ = clock_->monotonic_ns() + kRescanNs;
}

// ---- deadlines ----

std::uint64_t Store::next_deadline_ns() const {
  return std::min({pending_.next_deadline_ns(), reservations_.next_deadline_ns(), streams_.next_deadline_ns(),
                   gateway_.next_deadline_ns(), timers_.next_ns()});
}

// Of those whose time depends on what the parts have to do. The other timers are armed where their reason arises.
void Store::arm_timers() {
  rescan_timer_.arm(objects_.waits_for_pins() ? next_rescan_ns_ : kNoDeadline);
  std::uint64_t wake_ns = pager_.next_poll_ns();
  // Objects just loaded, or whose write failed, may be evicted a little later.
  if (pager_.has_queued_loads() || (pager_.enabled() && !(pending_.leases().empty() && pending_.rooms().empty()))) {
    wake_ns = std::min(wake_ns, clock_->monotonic_ns() + kRetryReclaimNs);
  }
  // A client may let go of pins without saying so.
  if (reservations_.has_waiting()) wake_ns = std::min(wake_ns, clock_->monotonic_ns() + kRescanNs);
  wake_timer_.arm(wake_ns);
}

void Store::expire() {
  for (const std::uint32_t session : sessions_.expired()) {
    log_info(sessions_.describe(session), " expired with ", count_of(sessions_.use(session).objects, "object"));
    sessions_.mark_dead(session);
    end_session(session);
  }
  const std::uint64_t now = clock_->unix_ns();
  const std::uint64_t next = sessions_.next_expiry_unix_ns();
  const std::uint64_t interval = std::clamp(next - std::min(now, next), kExpiryNs, kMaxExpiryIntervalNs);
  expiry_timer_.arm(clock_->monotonic_ns() + interval);
}

// A session that was just closed may be the next to expire.
void Store::sessions_changed() { expiry_timer_.arm_no_later(clock_->monotonic_ns() + kExpiryNs); }

void Store::tick() {
  const std::uint64_t now = clock_->monotonic_ns();
  timers_.run_due(now);
  run_pending();
  answer_overdue(now);
  set_memory_wanted();
  arm_timers();
}

void Store::answer_overdue(std::uint64_t now_ns) {
  while (const std::optional<PendingLookup> request = pending_.overdue_lookup(now_ns)) {
    std::vector<LookupOutcome> outcomes = lookup_now(request->ids);
    for (LookupOutcome& outcome : outcomes) {
      if (request->load_ms == 0 || outcome.code != Code::kOk || outcome.resident) continue;
      const bool no_room = pager_.is_loading(outcome.slot) && pager_.has_queued_loads();
      outcome.code = no_room ? Code::kStoreFull : Code::kTimeout;
      outcome.message = no_room ? concat("there is no room to reload it: ",
                                         report_.describe_holders({true, true, pager_.is_short_of_quota()}))
                                : concat("it was not reloaded within ", request->load_ms, " ms");
    }
    request->done(std::move(outcomes));
  }
  while (const std::optional<PendingNameResolution> request = pending_.overdue_name(now_ns)) {
    request->done(Status(Code::kTimeout,
                         concat("no object was bound to the name '", request->name, "' in ",
                                sessions_.describe(request->session), " in time"),
                         true));
  }
  while (std::optional<PendingLease> request = pending_.overdue_lease(now_ns)) {
    pool_.abandon(request->wait);
    request->done(admission_.store_full_error(*request));
  }
  answer_overdue_reservations(now_ns);
  streams_.answer_overdue(now_ns);
  gateway_.answer_overdue(now_ns);
  while (const std::optional<PendingRoom> request = pending_.overdue_room(now_ns))
    static_cast<void>(request->attempt(true));
  while (const std::optional<PendingRecord> request = pending_.overdue_record(now_ns))
    request->done(
        unrecorded_error(concat("its file system did not take the change within ", request->timeout_ms, " ms")));
  while (const std::optional<PendingProvision> request = pending_.overdue_provision(now_ns)) {
    request->done(Status(Code::kTimeout,
                         "the store's memory is not provisioned yet: wait longer, or check 'entrepot status'", true));
  }
}

}  // namespace entrepot
