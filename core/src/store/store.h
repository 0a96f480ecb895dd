// The store: all of the daemon's state and decisions, without sockets.
//
// Single-threaded: guarded by the daemon's thread. The control memory, memory source and clock passed to it must
// outlive it. Requests that may wait are answered through a callback, immediately or later, exactly once unless their
// owner is cancelled. Call run_pending() after every request, and tick() at next_deadline_ns().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/timers.h"
#include "shm/control.h"
#include "store/admission.h"
#include "store/gateway/gateway_calls.h"
#include "store/memory/memory_source.h"
#include "store/memory/segment_pool.h"
#include "store/memory/surplus_memory.h"
#include "store/memory/write_burst.h"
#include "store/object/object_parts.h"
#include "store/object/object_recovery.h"
#include "store/object/object_residency.h"
#include "store/object/object_table.h"
#include "store/object_report.h"
#include "store/paging/pager.h"
#include "store/pending_requests.h"
#include "store/reservations.h"
#include "store/session/client_table.h"
#include "store/session/name_table.h"
#include "store/session/opening_table.h"
#include "store/session/session_table.h"
#include "store/store_report.h"
#include "store/stream/sealed_chunks.h"
#include "store/stream/stream_table.h"
#include "store/table_room.h"
#include "store/types.h"

namespace entrepot {

inline constexpr std::uint64_t kRescanNs = 200'000'000;  // between scans for deferred frees, while any are pending

class Store {
 public:
  // If `spill` is null, a full store refuses requests instead of spilling.
  Store(ControlMemory& memory, MemorySource& source, const Clock& clock, StoreOptions options,
        SpillBackend* spill = nullptr);

  // Call one of these once, first: start_fresh() for an empty store, the adopt functions for an earlier daemon's
  // memory. Pin tables are added after adopt_clients() and before adopt_rest(), so that no pin is missed.
  [[nodiscard]] Status start_fresh();
  void adopt_clients();
  [[nodiscard]] Result<AdoptionReport> adopt_rest();

  // --- clients
  [[nodiscard]] Result<std::uint32_t> begin_client() {
    return room_.with_room([this] { return clients_.begin(); });
  }
  void abandon_client(std::uint32_t client) { clients_.abandon(client); }
  void publish_client(std::uint32_t client, std::uint64_t token, const ClientIdentity& identity);
  // Once the process of a forked child is known; for reports.
  void set_client_process(std::uint32_t client, std::uint32_t pid);
  [[nodiscard]] PinScanner& pins() { return pins_; }
  // kStoreFull if the maximum number of clients, or of forked ones, for a store of this size is reached.
  [[nodiscard]] Status check_client_limit(bool forked) const { return admission_.check_client_limit(forked); }
  // Reserves memory for a client, evicting objects if necessary. kStoreFull.
  [[nodiscard]] Status reserve_for_client(std::uint64_t bytes) { return admission_.reserve_for_client(bytes); }
  // kAccessDenied unless the token is the client's. `leases` null: the client does not report its leases.
  [[nodiscard]] Status reconnect(std::uint32_t client, std::uint64_t token, const std::vector<ReportedLease>* leases);
  void disconnected(std::uint32_t client, std::uint64_t owner);  // leases are returned, pins stay
  void client_died(std::uint32_t client);                        // releases everything the client held
  [[nodiscard]] const ClientTable& clients() const { return clients_; }

  // --- requests
  // `isolated`: in segments that nobody else ever gets to write, not even the daemon.
  void lease(const RequestOrigin& origin, std::uint64_t min_bytes, std::uint64_t want_bytes, std::uint64_t timeout_ms,
             LeaseDone done, bool isolated = false);
  [[nodiscard]] Status unlease(std::uint32_t client, std::uint32_t segment, std::uint64_t offset, std::uint64_t length,
                               bool done);
  [[nodiscard]] SealOutcome seal(std::uint32_t client, const SealSpec& spec, bool makes_room = true);
  // --- reservations, in store_reservations.cpp
  //
  // Reserves memory for what the client is going to seal, under a number that it has not in use. kStoreFull: not in time,
  // or never. `restores`: it was granted by the daemon before this one, so it does not wait.
  void reserve(const RequestOrigin& origin, std::uint32_t number, std::uint64_t bytes, std::uint64_t timeout_ms,
               bool restores, ReserveDone done);
  // None if it is not held: it has ended, waits, or never was.
  [[nodiscard]] std::optional<Reservation> reservation(const RequestOrigin& origin, std::uint32_t number) const;
  std::optional<Reservation> end_reservation(const RequestOrigin& origin, std::uint32_t number);

  // --- streams, in store_streams.cpp; all that needs no session is the table's own
  [[nodiscard]] Result<StreamGrant> open_stream(std::uint32_t session, std::string_view name, StreamOpening how,
                                                const StreamSpec& spec);
  [[nodiscard]] Status remove_stream(std::uint32_t session, std::string_view name);
  [[nodiscard]] StreamTable& streams() { return streams_; }
  [[nodiscard]] const StreamTable& streams() const { return streams_; }

  // --- the gateway to other stores. A call that names objects is answered once all of them are sealed here.
  [[nodiscard]] Status serve_gateway(std::uint64_t owner, std::string_view label);  // an empty label: withdraw
  void call_gateway(const RequestOrigin& origin, CallSpec call, std::uint64_t timeout_ms, CallDone done);
  [[nodiscard]] GatewayCalls& gateway() { return gateway_; }
  [[nodiscard]] const GatewayCalls& gateway() const { return gateway_; }

  // --- objects
  //
  // Answers once all are sealed, or at the timeout. `load_ms` 0 leaves spilled objects where they are; otherwise they
  // are reloaded, and a lookup of a single object waits that long for it (for several, the answer says which are still
  // loading).
  void lookup(const RequestOrigin& origin, std::vector<IdBytes> ids, std::uint64_t timeout_ms, std::uint64_t load_ms,
              LookupDone done);
  // Evicts objects from memory, in the background if they must be written first. result[i]: status of ids[i].
  [[nodiscard]] std::vector<Status> evict(std::span<const IdBytes> ids);
  [[nodiscard]] std::vector<std::uint8_t> remove(std::span<const IdBytes> ids);
  // Only what still has this generation: what has replaced it stays. result[i]: whether lives[i] was there.
  [[nodiscard]] std::vector<std::uint8_t> remove(std::span<const ObjectLife> lives);
  void rescan_pins() { rescan(); }
  // Returns the session's handle. The session is open for the client until close_session() or client_died().
  [[nodiscard]] Result<std::uint32_t> open_session(std::uint32_t client, std::string_view scope, std::string_view name,
                                                   const SessionLimits* limits);
  // Closes the session for this client; kInvalidArgument if it was not open, or was removed.
  [[nodiscard]] Status close_session(std::uint32_t client, std::uint32_t handle);
  // Whether an object is deleted as soon as its last consumer has consumed it.
  [[nodiscard]] Status set_deletes_consumed(std::uint32_t handle, bool on);
  [[nodiscard]] Status remove_session(std::string_view scope, std::string_view name);
  // As remove_session(), unless a client has the session open or (if the time is not 0) it was used after that
  // time. Atomic: nobody can open it in between. kObjectNotFound if there is no such session.
  struct RemoveUnusedResult {
    bool removed = false;
    std::uint32_t opened_by = 0;
  };
  [[nodiscard]] Result<RemoveUnusedResult> remove_unused_session(std::string_view scope, std::string_view name,
                                                                 std::uint64_t last_used_unix_ns);
  [[nodiscard]] Result<NameOutcome> bind_name(std::uint32_t session, std::string_view name, const IdBytes& id,
                                              bool replace);
  void resolve_name(const RequestOrigin& origin, std::uint32_t session, std::string_view name, std::uint64_t timeout_ms,
                    NameDone done);
  [[nodiscard]] Status unbind_name(std::uint32_t session, std::string_view name);
  // --- sets, hints and consumers, in store_sets.cpp
  //
  // Creates or changes a locality set of a session, by name or (if not 0) by handle; an empty name is the default set.
  [[nodiscard]] Result<SetGrant> define_set(std::uint32_t session, std::string_view name, std::uint32_t set,
                                            const SetChange& change);
  // result[i]: status of ids[i]. kObjectNotFound, or kInvalidArgument for an invalid priority or set.
  [[nodiscard]] std::vector<Status> hint(std::span<const IdBytes> ids, const HintSpec& hint);
  // Marks the objects consumed by `consumer`; idempotent. result[i]: how many consumers are still to come; 0 for an
  // object that is already gone. kInvalidArgument if its consumers are not counted, or `consumer` is empty.
  [[nodiscard]] std::vector<Result<std::uint32_t>> consumed(std::span<const IdBytes> ids, std::string_view consumer);
  [[nodiscard]] Result<std::string> sets_json(std::uint32_t session) const { return report_.sets_json(session); }
  void wait_provisioned(const RequestOrigin& origin, std::uint64_t timeout_ms, ProvisionDone done);
  [[nodiscard]] Result<std::string> list_json(const ListQuery& query) const { return object_report_.list_json(query); }
  [[nodiscard]] Result<std::string> info_json(const IdBytes& id) {
    pager_.apply_read_log();  // so that it tells of the last read
    return object_report_.info_json(id);
  }
  [[nodiscard]] std::string sessions_json() const { return report_.sessions_json(); }
  [[nodiscard]] std::string status_json(const DaemonStatus& daemon_status) const {
    return report_.status_json(daemon_status);
  }

  // --- room for what makes tables grow
  //
  // Requests that make them grow evict objects if they must. If that takes time, they are refused with kStoreFull, and
  // room_is_coming() is true right after: pass what remains to be done to when_room().
  [[nodiscard]] bool room_is_coming() const { return room_.is_coming(); }
  void when_room(const RequestOrigin& origin, RoomAttempt attempt);

  // --- the manifest on disk
  //
  // Names and IDs that a request made lead elsewhere, or nowhere, may lead to their former object again in the next store
  // if keeper and daemon are killed before the manifest's change is written. So the request is executed at once, and
  // answered when_recorded(). Each returns the record to be written first, 0 if there is none.
  [[nodiscard]] std::uint64_t unrecorded(std::uint32_t session, std::string_view name) const;
  [[nodiscard]] std::uint64_t unrecorded(std::span<const IdBytes> ids) const;
  [[nodiscard]] std::uint64_t unrecorded_session(std::string_view scope, std::string_view name) const {
    return parts_.manifest.unwritten_session(scope, name);
  }
  [[nodiscard]] bool is_recorded(std::uint64_t record) const {
    return record == 0 || record <= parts_.manifest.written();
  }
  void when_recorded(const RequestOrigin& origin, std::uint64_t record, std::uint64_t timeout_ms, RecordDone done);
  // kTimeout: what holds if the record was not written.
  [[nodiscard]] Status unrecorded_error(std::string_view why) const;

  // --- events
  void provisioned(std::uint32_t segment, std::uint32_t generation, const Status& status, MemoryKind kind);
  void take_spill_completions() { pager_.take_completions(); }  // run_pending() then answers what waits for records
  // The memory source tells that they do; if `is_stalled`, they wait for it already.
  void others_need_memory(bool is_stalled) { surplus_.others_need_memory(is_stalled); }
  void run_pending();  // runs pending work: answers leases that now fit, tops up warm memory
  void tick();         // deadlines, rescans, expiry
  [[nodiscard]] std::uint64_t next_deadline_ns() const;
  [[nodiscard]] bool is_idle() const { return parts_.catalog.count() == 0 && clients_.all().empty(); }

  [[nodiscard]] const ObjectTable& objects() const { return objects_; }
  [[nodiscard]] const ObjectParts& parts() const { return parts_; }
  [[nodiscard]] const SegmentPool& pool() const { return pool_; }
  [[nodiscard]] const Pager& pager() const { return pager_; }
  [[nodiscard]] Pager& pager() { return pager_; }
  [[nodiscard]] const Reservations& reservations() const { return reservations_; }
  [[nodiscard]] const SessionTable& sessions() const { return sessions_; }
  [[nodiscard]] const NameTable& names() const { return names_; }
  [[nodiscard]] std::uint32_t counted_consumptions() const { return consumers_.live(); }
  [[nodiscard]] const StoreOptions& options() const { return options_; }
  [[nodiscard]] MemoryBudget& budget() { return budget_; }
  [[nodiscard]] const MemoryBudget& budget() const { return budget_; }

 private:
  void rescan();
  void try_leases();
  void try_rooms();
  void try_reservations();
  void answer_overdue_reservations(std::uint64_t now_ns);
  void charge_reservation(std::uint32_t client, const SealSpec& spec, std::uint32_t slot);
  void answer_recorded();
  [[nodiscard]] Result<NameOutcome> bind_name_now(std::uint32_t session, std::string_view name, const IdBytes& id,
                                                  bool replace);
  void cancel(std::uint64_t owner);
  void close_sessions(std::uint32_t client);
  void end_session(std::uint32_t index);
  void notify_sealed(const IdBytes& id);
  void notify_changed(const IdBytes& id);
  void expire();
  void sessions_changed();
  void recover_spilled();
  [[nodiscard]] bool recover_object(const SpilledObject& object, ObjectRecovery::RecoveredBlobs& adopted_blobs);
  void recover_orphaned_copies();
  void expect_gateway();
  [[nodiscard]] std::string describe_lost() const;  // appended to "not found"; usually empty
  void notify_named(std::uint32_t session, std::string_view name);
  void arm_timers();
  void answer_overdue(std::uint64_t now_ns);
  void set_memory_wanted();
  [[nodiscard]] std::uint64_t deadline(std::uint64_t timeout_ms) const;
  [[nodiscard]] std::vector<LookupOutcome> lookup_now(const std::vector<IdBytes>& ids);
  [[nodiscard]] Result<std::uint32_t> consume(const IdBytes& id, std::string_view consumer);
  void on_fully_consumed(std::uint32_t slot);
  void delete_fully_consumed();
  [[nodiscard]] Status apply_hint(const IdBytes& id, const HintSpec& hint);
  void drop_sets(std::uint32_t session);
  void sync_locality_sets();  // passes them to the pager

  ControlMemory* memory_;
  const Clock* clock_;
  StoreOptions options_;
  MemoryBudget budget_;
  RecordArena records_;
  SessionTable sessions_;
  LocalitySetTable sets_;
  ConsumerTable consumers_;
  NameTable names_;
  ClientTable clients_;
  OpeningTable openings_;
  PinScanner pins_;
  SegmentPool pool_;
  ObjectParts parts_;
  ObjectTable objects_;
  ObjectResidency residency_;
  ObjectRecovery recovery_;
  Pager pager_;
  TableRoom room_;
  PendingRequests pending_;
  Reservations reservations_;
  SealedChunks chunks_;
  StreamTable streams_;
  GatewayCalls gateway_;
  Timers timers_;  // their times are the clock's
  WriteBurst burst_;
  SurplusMemory surplus_;
  SpillBackend* spill_;
  AdoptionReport adoption_;
  StoreReport report_;
  ObjectReport object_report_;
  Admission admission_;
  std::uint64_t next_rescan_ns_ = 0;
  Timers::Timer rescan_timer_;
  Timers::Timer expiry_timer_;
  Timers::Timer provision_timer_;  // armed after memory was refused
  Timers::Timer wake_timer_;       // for work that run_pending() does
};

}  // namespace entrepot
