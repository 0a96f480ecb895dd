// The store of one instance: everything the daemon knows and decides, with no socket in it.
//
// Single-threaded: guarded by the daemon's thread. What it is given (control memory, memory source, clock) outlives it.
// Requests that may wait are answered through a callback, at once or later, and exactly once unless their owner is
// cancelled. After every request call settle(), and tick() at next_deadline_ns().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shm/control.h"
#include "store/clients.h"
#include "store/memory_source.h"
#include "store/names.h"
#include "store/objects.h"
#include "store/pager.h"
#include "store/segment_pool.h"
#include "store/sessions.h"
#include "store/types.h"
#include "store/waiters.h"

namespace entrepot {

inline constexpr std::uint64_t kRescanNs = 200'000'000;  // of deferred frees, while there are any

struct AdoptionReport {
  ObjectAdoption objects;
  std::uint32_t lost_segments = 0;
  std::uint32_t damaged_entries = 0;
};

struct ListQuery {
  bool all_sessions = false;
  std::uint32_t session = 0;  // handle
  std::string pattern;        // glob over names and hexadecimal IDs; empty: all
  std::uint32_t cursor = 0;
  std::uint32_t limit = 1000;
};

struct DaemonFacts {  // what only the process around the store knows
  std::uint32_t pid = 0;
  std::uint32_t keeper_pid = 0;
  std::string program;  // path
  std::uint64_t log_lines_dropped = 0;
  std::uint64_t keeper_log_lines_dropped = 0;
};

class Store {
 public:
  // `cold` may be null: then a full store refuses instead of spilling.
  Store(ControlMemory& memory, MemorySource& source, const Clock& clock, StoreOptions options,
        ColdStorage* cold = nullptr);

  // Once, first: an empty store, or what an earlier daemon left (pin tables are added after adopt_clients and before
  // adopt_rest, so that no pin is overlooked).
  [[nodiscard]] Status start_fresh();
  void adopt_clients();
  [[nodiscard]] Result<AdoptionReport> adopt_rest();

  // --- clients
  [[nodiscard]] Result<std::uint32_t> begin_client() { return clients_.begin(); }
  void abandon_client(std::uint32_t client) { clients_.abandon(client); }
  void publish_client(std::uint32_t client, std::uint64_t token, const ClientIdentity& identity);
  [[nodiscard]] PinScanner& pins() { return pins_; }
  // kStoreFull if there are as many clients as a store of this size takes, or as many forked ones.
  [[nodiscard]] Status may_register(bool forked) const;
  // Memory for a client; moves objects out where there is none. kStoreFull.
  [[nodiscard]] Status take_for_client(std::uint64_t bytes);
  // kAccessDenied unless the token is the client's. `leases` null: the client does not say what it holds.
  [[nodiscard]] Status reconnect(std::uint32_t client, std::uint64_t token, const std::vector<HeldLease>* leases);
  void disconnected(std::uint32_t client, std::uint64_t owner);  // leases return, pins stay
  void died(std::uint32_t client);                               // all that was its
  [[nodiscard]] const ClientTable& clients() const { return clients_; }

  // --- requests
  void lease(const Asker& asker, std::uint64_t min_bytes, std::uint64_t want_bytes, std::uint64_t timeout_ms,
             LeaseDone done);
  [[nodiscard]] Status unlease(std::uint32_t client, std::uint32_t segment, std::uint64_t offset, std::uint64_t length,
                               bool done);
  [[nodiscard]] SealOutcome seal(std::uint32_t client, const SealSpec& spec);
  // Answers when all are sealed, or the time is over. What is in cold storage only: `load_ms` 0 leaves it there; else
  // it is brought back, and one object alone is waited for so long (of several the answer says which are on their way).
  void lookup(const Asker& asker, std::vector<IdBytes> ids, std::uint64_t timeout_ms, std::uint64_t load_ms,
              LookupDone done);
  // Moves objects out of memory, in the background where they must be written first. result[i]: what became of it.
  [[nodiscard]] std::vector<Status> evict(std::span<const IdBytes> ids);
  [[nodiscard]] std::vector<std::uint8_t> remove(std::span<const IdBytes> ids);
  void released() { rescan(); }
  // Handle of the session. The connection has it open until disconnected() or close.
  [[nodiscard]] Result<std::uint32_t> open_session(std::uint64_t owner, std::string_view scope, std::string_view name,
                                                   const SessionLimits* limits);
  // It is open no longer by this connection; kInvalidArgument if it was not.
  [[nodiscard]] Status close_session(std::uint64_t owner, std::uint32_t handle);
  // Whether an object whose last consumer had it is deleted at once.
  [[nodiscard]] Status set_deletes_consumed(std::uint32_t handle, bool on);
  [[nodiscard]] Status remove_session(std::string_view scope, std::string_view name);
  // The same, unless a connection has it open or (with a time that is not 0) it was used after that time. One step:
  // nobody opens it in between. kObjectNotFound: there is none.
  struct Unused {
    bool removed = false;
    std::uint32_t opened_by = 0;
  };
  [[nodiscard]] Result<Unused> remove_unused_session(std::string_view scope, std::string_view name,
                                                     std::uint64_t last_used_unix_ns);
  [[nodiscard]] Result<NameOutcome> bind_name(std::uint32_t session, std::string_view name, const IdBytes& id,
                                              bool replace);
  void resolve_name(const Asker& asker, std::uint32_t session, std::string_view name, std::uint64_t timeout_ms,
                    NameDone done);
  [[nodiscard]] Status unbind_name(std::uint32_t session, std::string_view name);
  // --- what users say about objects, in store_sets.cpp
  // Makes or changes a locality set of a session, by its name or (not 0) its handle; an empty name is the default set.
  [[nodiscard]] Result<SetGrant> define_set(std::uint32_t session, std::string_view name, std::uint32_t set,
                                            const SetChange& change);
  // result[i]: what became of it. kObjectNotFound, kInvalidArgument for a priority or set of the wrong kind.
  [[nodiscard]] std::vector<Status> hint(std::span<const IdBytes> ids, const HintSpec& hint);
  // One consumer has had these objects, however often it says so. result[i]: how many are still to come; 0 for what is
  // not there any more. kInvalidArgument if nobody counts its consumers, or the consumer has no name.
  [[nodiscard]] std::vector<Result<std::uint32_t>> consumed(std::span<const IdBytes> ids, std::string_view consumer);
  [[nodiscard]] Result<std::string> sets_json(std::uint32_t session) const;
  void wait_provisioned(const Asker& asker, std::uint64_t timeout_ms, ProvisionDone done);
  [[nodiscard]] Result<std::string> list_json(const ListQuery& query) const;
  [[nodiscard]] Result<std::string> info_json(const IdBytes& id) const;
  [[nodiscard]] std::string sessions_json() const;
  [[nodiscard]] std::string status_json(const DaemonFacts& facts) const;

  // --- events
  void provisioned(std::uint32_t segment, std::uint32_t generation, const Status& status, MemoryKind kind);
  void take_cold_completions() { pager_.take_completions(); }
  void settle();  // answers leases that memory came free for, tops warm memory up
  void tick();    // deadlines, rescans, expiry
  [[nodiscard]] std::uint64_t next_deadline_ns() const;
  [[nodiscard]] bool is_idle() const { return objects_.count() == 0 && clients_.all().empty(); }

  [[nodiscard]] const ObjectTable& objects() const { return objects_; }
  [[nodiscard]] const SegmentPool& pool() const { return pool_; }
  [[nodiscard]] const Pager& pager() const { return pager_; }
  [[nodiscard]] Pager& pager() { return pager_; }
  [[nodiscard]] const SessionTable& sessions() const { return sessions_; }
  [[nodiscard]] const NameTable& names() const { return names_; }
  [[nodiscard]] std::uint32_t counted_consumptions() const { return consumptions_.live(); }
  [[nodiscard]] const StoreOptions& options() const { return options_; }
  [[nodiscard]] MemoryBudget& budget() { return budget_; }
  [[nodiscard]] const MemoryBudget& budget() const { return budget_; }

 private:
  void rescan();
  void try_leases();
  void cancel(std::uint64_t owner);
  void close_sessions(std::uint64_t owner);
  void end_session(std::uint32_t index);
  void notify_sealed(const IdBytes& id);
  void notify_changed(const IdBytes& id);
  void expire();
  void sessions_changed();
  void recover_cold();
  [[nodiscard]] bool recover_one(const ColdObject& object, ObjectTable::RecoveredBlobs& known);
  void recover_left_on_disk();
  [[nodiscard]] bool follows_killed() const;
  [[nodiscard]] std::string what_was_lost() const;  // for whoever asks for an object that is not here; mostly empty
  void note_names(const IdBytes& id);
  [[nodiscard]] Result<std::optional<LeaseGrant>> try_lease(LeaseWaiter& waiter);
  void notify_named(std::uint32_t session, std::string_view name);
  void put_off_calm();
  void watch_surplus();
  void put_off_surplus();
  void drop_surplus();
  void set_memory_wanted();
  [[nodiscard]] std::uint64_t deadline(std::uint64_t timeout_ms) const;
  [[nodiscard]] std::vector<LookupOutcome> look(const std::vector<IdBytes>& ids);
  [[nodiscard]] Status store_full(const LeaseWaiter& waiter) const;
  // Whether what the lease asks for could be free if all went that can go: now, once others' pins go, or not at all.
  enum class Room : std::uint8_t { kNow, kLater, kNever };
  [[nodiscard]] Room room_for(const LeaseWaiter& waiter, Pager::Immovable& immovable) const;
  [[nodiscard]] Status never_fits(const LeaseWaiter& waiter, const Pager::Immovable& immovable) const;
  [[nodiscard]] std::string describe_holders(const Tried& tried) const;
  void object_json(class JsonWriter& json, std::uint32_t slot) const;
  void write_explanation(class JsonWriter& json, std::uint32_t slot) const;
  void write_set(class JsonWriter& json, std::uint32_t slot) const;
  void write_budget(class JsonWriter& json) const;
  [[nodiscard]] Result<std::uint32_t> consume(const IdBytes& id, std::string_view consumer);
  void all_have_had(std::uint32_t slot);
  void end_what_all_have_had();
  [[nodiscard]] Status hint_one(const IdBytes& id, const HintSpec& hint);
  void drop_sets(std::uint32_t session);
  void know_sets();  // tells the pager

  ControlMemory* memory_;
  const Clock* clock_;
  StoreOptions options_;
  MemoryBudget budget_;
  RecordArena records_;
  SessionTable sessions_;
  SetTable sets_;
  ConsumptionTable consumptions_;
  NameTable names_;
  ClientTable clients_;
  PinScanner pins_;
  SegmentPool pool_;
  ObjectTable objects_;
  Pager pager_;
  Waiters waiters_;
  ColdStorage* cold_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> opened_;  // by owner: session handles
  AdoptionReport adoption_;
  std::uint64_t started_ns_ = 0;
  std::uint64_t next_rescan_ns_ = 0;
  std::uint64_t next_expiry_ns_ = 0;
  std::uint64_t next_warming_ns_ = 0;
  std::uint64_t next_surplus_ns_ = 0;  // 0: nothing is to be given back
  std::uint64_t seen_taken_ = 0;       // of the pool's segments
  std::uint64_t seen_freed_ = 0;
  std::uint64_t calm_from_ns_ = 0;    // 0: nobody is writing a large value
  std::uint64_t calm_latest_ns_ = 0;  // of calm_from_ns_, if that is not 0
};

}  // namespace entrepot
