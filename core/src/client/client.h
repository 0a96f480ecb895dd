// Client: one process's access to one store. Thread-safe.
//
//   connected ──socket broke──▶ reconnecting ──Hello with token──▶ connected
//       │                          └──timeout, or another store there──▶ lost (for good; the reason is kept)
//       └──close()──▶ closed        values already returned stay readable in every state
//
// A lost client stays lost: ReconnectingClient, which the bindings use, creates another one for the next store.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "client/connection.h"
#include "client/fork_watch.h"
#include "client/in_place_seal.h"
#include "client/interrupt.h"
#include "client/lease_pool.h"
#include "client/pinned_set.h"
#include "client/rpc.h"
#include "client/sealed_object.h"
#include "client/segment_views.h"
#include "client/shared_attempt.h"
#include "net/protocol.h"

namespace entrepot {

struct ConnectOptions {
  std::string path;     // the unix socket
  std::string label;    // shown in status; empty: the program's name
  std::string version;  // of the client, for messages
  std::uint64_t connect_ms = 10'000;
  std::uint64_t reconnect_ms = 30'000;
  // How long to retry while nobody listens. Keeper and daemon hold the socket open for each other, so then both are
  // gone, or the socket's file is.
  std::uint64_t no_listener_ms = 500;
  std::uint32_t load_ms = 300'000;  // limit of a get's wait for objects to be reloaded from disk
  std::uint32_t room_ms = 30'000;   // of it, for memory to reload them into, if the get has no limit of its own
  // Leases come from segments that nobody else is ever given, so that other processes may be let write to them.
  bool isolated_leases = false;
};

struct ServerInfo {
  InstanceId instance{};
  std::string host;
  std::string version;
  std::uint32_t pid = 0;
  std::uint64_t capacity_bytes = 0;
  bool shared_between_users = false;
};

struct SourceBuffer {
  const void* data = nullptr;
  std::uint64_t length = 0;
};

// Makes an object the next chunk of a stream in the request that seals it; see client/streams.h.
struct ChunkPut {
  std::uint64_t writer = 0;
  IdBytes next{};             // ID of the writer's chunk after it; all zero: unknown
  std::uint32_t wait_ms = 0;  // the request is void after that long and kGraceMs; 0: after kAnswerMs
  bool sent = false;          // if not, it was certainly not appended
  bool appended = false;  // by that request; if not, append_chunk() appends it, waiting for room, or says why it cannot
};

struct PutItem : ObjectSpec {
  // Handles used by callers of ReconnectingClient, which resolves them into `session` and `locality_set`.
  std::uint64_t session_handle = 0;
  std::uint64_t set_handle = 0;
  bool fresh_id = false;              // random: nobody else can have sealed it
  std::vector<SourceBuffer> buffers;  // must not change until the put returns
  ChunkPut* chunk = nullptr;          // of an item that is put by itself
};

struct PutResult {
  Status status;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  bool existed = false;  // the same content was already sealed under this ID
};

enum class Reach : std::uint8_t { kStore, kCluster };

class ObjectBuilder;
class WritableBlob;

class Client : public Rpc, public ForkWatcher, public std::enable_shared_from_this<Client> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Client>> connect(const ConnectOptions& options,
                                                               const Interrupt& interrupt);
  ~Client() override;

  // --- objects
  // kObjectNotFound at once; with a timeout, waits for the seal and for reloads from disk, then kTimeout.
  // Reach::kCluster: what is not here is fetched from other stores, if this one has a gateway.
  [[nodiscard]] Result<std::vector<std::shared_ptr<SealedObject>>> get(std::span<const IdBytes> ids, const Wait& wait,
                                                                       const Interrupt& interrupt,
                                                                       Reach reach = Reach::kStore);
  // The same for one small object found in the directory, without allocation, lock or system call; false: use get.
  // `object` must be destroyed before this client and before the next fork of this process.
  [[nodiscard]] bool peek(const IdBytes& id, InlineObject& object) const {
    return usable_.load(std::memory_order_relaxed) && pinned_->peek(id, object);
  }
  // Describes an object wherever its payload is, without reloading it. kObjectNotFound, kObjectLost.
  [[nodiscard]] Result<ObjectTree> tree(const IdBytes& id, const Interrupt& interrupt);
  [[nodiscard]] Result<std::optional<std::uint32_t>> generation_of(const IdBytes& id, const Interrupt& interrupt);
  // The same for several, in one request for those that the directory does not show in memory.
  [[nodiscard]] Result<std::vector<std::optional<std::uint32_t>>> generations_of(std::span<const IdBytes> ids,
                                                                                 const Interrupt& interrupt);
  // Which of them the store has or knows what became of, in memory or on disk. A deadline, here and below, includes
  // reconnects; without one, each answer has its usual time.
  [[nodiscard]] Result<std::vector<bool>> exist(std::span<const IdBytes> ids, const Interrupt& interrupt,
                                                std::optional<os::Deadline> deadline = std::nullopt);
  // Returns one result per item; each item is stored completely or not at all.
  [[nodiscard]] std::vector<PutResult> put(std::span<const PutItem> items, std::uint32_t wait_ms,
                                           const Interrupt& interrupt);
  // Creates a writable range of nbytes, private to this process until it is sealed.
  [[nodiscard]] Result<std::shared_ptr<WritableBlob>> create(std::uint64_t nbytes, std::uint32_t wait_ms,
                                                             const Interrupt& interrupt);
  // Seals the blob as the only buffer of an object (item.buffers is ignored). Its pages become read-only here.
  [[nodiscard]] PutResult seal(WritableBlob& blob, const PutItem& item, const Interrupt& interrupt);
  // Seals an object whose buffers are in these blobs, each within one, or in sealed objects that this process pins; for
  // callers that know tree and buffers beforehand and write the bytes in place. Unlike seal(), does not make pages
  // read-only.
  [[nodiscard]] PutResult seal_parts(std::span<const std::shared_ptr<WritableBlob>> blobs, const PutItem& item,
                                     const Interrupt& interrupt);
  // Seals what was built: the item's buffers that are in the builder's parts are sealed where they are, those in sealed
  // objects are referenced, others are copied; waits up to `wait_ms` for memory for these. Pages of parts that the user
  // wrote become read-only here. If it fails before the request was sent, the builder stays open.
  [[nodiscard]] PutResult seal(ObjectBuilder& builder, const PutItem& item, std::uint32_t wait_ms,
                               const Interrupt& interrupt);
  // kTimeout: the deadline came first, and what was asked for may be done nevertheless, also later.
  [[nodiscard]] Result<std::vector<std::uint8_t>> remove(std::span<const IdBytes> ids, const Interrupt& interrupt,
                                                         std::optional<os::Deadline> deadline = std::nullopt);
  // Deletes each object only if it still has this generation. kVersionMismatch, before anything is sent: the daemon is
  // too old to do that atomically. kTimeout: as above.
  [[nodiscard]] Result<std::vector<std::uint8_t>> remove_generations(
      std::span<const ObjectGeneration> objects, const Interrupt& interrupt,
      std::optional<os::Deadline> deadline = std::nullopt);
  // Starts reloading objects into memory, without waiting for them. Ignores objects that do not exist. Maps segments of
  // those that are in memory, so that a get of these needs no request: as many as SegmentViews::kMappedTogether.
  [[nodiscard]] Status load(std::span<const IdBytes> ids, const Interrupt& interrupt);
  // Moves objects out of memory; those not on disk yet are written in the background first. Pinned objects stay.
  [[nodiscard]] Result<std::vector<Status>> evict(std::span<const IdBytes> ids, const Interrupt& interrupt);

  // --- memory for values that are being made: see client/value_memory.h
  // kStoreFull and others: the store has no memory for it that would not be missed elsewhere.
  [[nodiscard]] Result<LeasedRange> lease_for_value(std::uint64_t bytes);
  void return_value_lease(const LeasedRange& range);
  [[nodiscard]] std::uint64_t number() const { return number_; }  // of this client in this process
  void value_released(std::uint64_t bytes) { value_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  void value_freed();  // some time after it, idle leases are returned

  // --- memory for objects that other processes write: see client/leased_objects.cpp
  // `align`: a power of two. Waits up to `wait_ms` for memory; kStoreFull.
  [[nodiscard]] Result<LeasedRange> lease(std::uint64_t bytes, std::uint64_t align, std::uint32_t wait_ms,
                                          const Interrupt& interrupt);
  // The same from what this client has leased already, without asking the daemon.
  [[nodiscard]] std::optional<LeasedRange> lease_at_hand(std::uint64_t bytes, std::uint64_t align);
  void return_lease(const LeasedRange& range);
  void forget_lease(const LeasedRange& range);  // it turned out that the store has taken it over
  // A segment with such objects, to be passed on again: its descriptor is writable, its mapping here is not. Only for
  // clients with isolated leases. kAccessDenied: it is not isolated, or another client that still lives leases it.
  [[nodiscard]] Result<std::shared_ptr<WritableSegment>> isolated_segment(std::uint32_t segment,
                                                                          std::uint32_t generation,
                                                                          const Interrupt& interrupt,
                                                                          os::Deadline deadline);
  // Seals buffers of these lengths that follow each other from the start of the range, and pins the object. The store
  // takes the range over, unless all are empty, or it says that it did not seal it: then it stays leased. If the outcome
  // is unknown, the range must not be written again either. If it is unanswered at the deadline, the range stays leased,
  // and the same seal has to be repeated: requests are handled in turn, so whatever the second one is answered, the
  // first one is done.
  [[nodiscard]] InPlaceSeal seal_in_place(const LeasedRange& range, const ObjectSpec& object,
                                          std::span<const std::uint64_t> lengths, const Interrupt& interrupt,
                                          os::Deadline deadline = os::Deadline::after_ms(kAnswerMs));
  // Ends the pin of a seal that was unanswered, or its reservation, once another one of the same ID was answered.
  void settle_seal(std::uint32_t pin_position);
  // The object, pinned, if the directory shows it in memory; null: it may be elsewhere, see get(). kTimeout: its segment
  // is not mapped here, and the daemon has not sent that by the deadline.
  [[nodiscard]] Result<std::shared_ptr<SealedObject>> find(const IdBytes& id, os::Deadline deadline);
  [[nodiscard]] std::vector<IdBytes> ids() const;  // of all objects in the directory
  // Generation of the object if the directory shows it, in memory or on disk. A miss is not final: see generation_of().
  [[nodiscard]] std::optional<std::uint32_t> shown_generation(const IdBytes& id) const;

  // --- reservations (client/reservations.cpp)
  // Reserves memory for what this process is going to seal; returns its number. kStoreFull: not in time, or never.
  // It ends with end_reservation(), close(), or this process. A restarted daemon gets it back when this client
  // reconnects.
  [[nodiscard]] Result<std::uint32_t> reserve(std::uint64_t bytes, const Wait& wait, const Interrupt& interrupt);
  [[nodiscard]] Result<ReservationReply> reservation(std::uint32_t number, const Interrupt& interrupt);
  // Ends it and returns what it was, if it was held and the daemon answers soon. Never waits for a reconnect.
  std::optional<ReservationReply> end_reservation(std::uint32_t number);

  // --- sessions and names
  struct SessionLimits {
    std::uint64_t ttl_seconds = 0;  // after the last use; 0: never expires
    std::uint64_t bytes = 0;        // 0: none
    std::uint64_t objects = 0;      // 0: none
  };
  struct LocalitySetInfo {
    std::uint32_t handle = 0;
    SetAttributes attributes;
  };
  [[nodiscard]] Result<std::uint32_t> open_session(const std::string& scope, const std::string& session,
                                                   const std::optional<SessionLimits>& limits,
                                                   const Interrupt& interrupt,
                                                   std::optional<bool> deletes_consumed = std::nullopt);
  // Creates or changes a set of the session, identified by its handle if nonzero, else by its name.
  [[nodiscard]] Result<LocalitySetInfo> define_set(std::uint32_t session, const std::string& name, std::uint32_t set,
                                                   const SetChange& change, const Interrupt& interrupt);
  [[nodiscard]] Result<std::string> sets(std::uint32_t session, const Interrupt& interrupt);  // JSON
  // Sets priority, user's pin or locality set of objects; ignores the request's `ids`. Returns the first error, if any.
  [[nodiscard]] Status hint(std::span<const IdBytes> ids, HintRequest request, const Interrupt& interrupt);
  // Marks the objects as consumed; returns for each how many consumers are not done yet.
  [[nodiscard]] Result<std::vector<std::uint32_t>> consumed(std::span<const IdBytes> ids, const std::string& consumer,
                                                            const Interrupt& interrupt);
  // Releases one use; after the last one the session may expire. Never waits for a reconnect.
  void close_session(const std::string& scope, const std::string& session);
  [[nodiscard]] Status remove_session(const std::string& scope, const std::string& session, const Interrupt& interrupt);
  // The same, unless a connection has it open or it was used after `last_used_unix_ns` (0: regardless of last use).
  [[nodiscard]] Result<RemoveUnusedReply> remove_unused_session(const std::string& scope, const std::string& session,
                                                                std::uint64_t last_used_unix_ns,
                                                                const Interrupt& interrupt);
  [[nodiscard]] Status bind_name(std::uint32_t session, const std::string& name, const IdBytes& id, bool replace,
                                 const Interrupt& interrupt);
  [[nodiscard]] Result<IdBytes> resolve_name(std::uint32_t session, const std::string& name, const Wait& wait,
                                             const Interrupt& interrupt);
  [[nodiscard]] Status unbind_name(std::uint32_t session, const std::string& name, const Interrupt& interrupt);

  // --- store status, as JSON written by the daemon
  [[nodiscard]] Result<std::string> list(const ListRequest& request, const Interrupt& interrupt);
  [[nodiscard]] Result<std::string> info(const IdBytes& id, const Interrupt& interrupt);
  [[nodiscard]] Result<std::string> status(const Interrupt& interrupt);
  [[nodiscard]] Result<std::string> sessions(const Interrupt& interrupt);
  [[nodiscard]] Status wait_provisioned(const Wait& wait, const Interrupt& interrupt);
  [[nodiscard]] Status shutdown(const Interrupt& interrupt);
  // Has another entrepotd take over the store; returns its version. Later calls reach the new daemon.
  [[nodiscard]] Result<std::string> upgrade(const std::string& program, const Interrupt& interrupt);

  void close();
  [[nodiscard]] bool closed() const;
  // Whether the connection is up as far as the kernel knows: one system call, no request to the daemon.
  [[nodiscard]] bool is_connected() const;
  // True if the store is gone for good: another one listens there, or the store does not accept this client any more.
  [[nodiscard]] bool lost() const;
  [[nodiscard]] ServerInfo server() const;
  [[nodiscard]] std::uint32_t pins_in_use() const { return pinned_->pins_in_use(); }
  // Generation of the object according to shared memory, without lock or system call. nullopt: use generation_of.
  [[nodiscard]] std::optional<std::uint32_t> peek_generation(const IdBytes& id) const {
    if (!usable_.load(std::memory_order_relaxed)) return std::nullopt;
    return pinned_->generation_of(id);
  }
  // Hashes of the IDs of all objects in the store, to tell later that they existed.
  [[nodiscard]] std::vector<std::uint64_t> fingerprints() const { return pinned_->fingerprints(); }

  // --- Rpc
  [[nodiscard]] Result<Frame> call(MessageType type, std::span<const std::uint8_t> body,
                                   const CallOptions& options) override;
  void post(MessageType type) override;
  [[nodiscard]] std::shared_ptr<Connection> current_connection() override;
  [[nodiscard]] Status wait_reconnected(const std::shared_ptr<Connection>& broken, const Interrupt& interrupt) override;

  // --- fork (client/fork.cpp)
  void before_fork() override;
  void after_fork_in_parent() override;
  void after_fork_in_child() override;

 private:
  friend class ObjectBuilder;
  friend class PageWriter;
  friend class WritableBlob;
  enum class State : std::uint8_t { kConnected, kClosing, kClosed, kLost };
  struct ForkPlan;

  explicit Client(ConnectOptions options);
  [[nodiscard]] Status open(const Interrupt& interrupt);
  struct Handshake {
    std::shared_ptr<Connection> connection;
    HelloReply reply;
    std::vector<UniqueFd> fds;
  };
  [[nodiscard]] Result<Handshake> shake_hands(const Hello& hello, std::span<const int> fds, os::Deadline deadline,
                                              const Interrupt& interrupt, bool& connected) const;
  [[nodiscard]] Result<std::shared_ptr<Connection>> connection();   // an error says why there is none
  void close_sessions(Connection& connection, os::Deadline limit);  // all of them, at the end
  [[nodiscard]] Status restore(Connection& connection, std::vector<std::uint32_t>& restored, os::Deadline deadline,
                               const Interrupt& interrupt);
  [[nodiscard]] Result<bool> fetch(std::span<const IdBytes> ids, const Wait& wait, const Interrupt& interrupt);
  [[nodiscard]] Status lookup_error(const IdBytes& id, const LookupResult& result, std::uint32_t wait_ms) const;
  [[nodiscard]] Status reconnect(const std::shared_ptr<Connection>& broken, os::Deadline limit,
                                 const Interrupt& interrupt);
  [[nodiscard]] Status reconnect_in_turn(const std::shared_ptr<Connection>& broken, os::Deadline limit,
                                         const Interrupt& interrupt);
  [[nodiscard]] Status reconnect_once(os::Deadline deadline, const Interrupt& interrupt, bool& connected,
                                      bool& is_permanent);
  void mark_lost(const Status& reason);

  // --- put (client/put.cpp)
  struct PutPlan;
  void plan_put(const PutItem& item, PutPlan& plan);
  void plan_values(const PutItem& item, PutPlan& plan);
  [[nodiscard]] Status plan_and_fill(const PutItem& item, PutPlan& plan, std::uint64_t more, const Wait& room,
                                     const Interrupt& interrupt);
  [[nodiscard]] Status freeze_values(PutPlan& plan);
  void finish_values(const PutPlan& plan, bool is_answered);
  [[nodiscard]] Status fill(const PutItem& item, PutPlan& plan, std::uint64_t more, const Wait& room,
                            const Interrupt& interrupt);
  void abandon(const PutPlan& plan);  // it was not sent
  [[nodiscard]] Status plan_parts(const PutItem& item, PutPlan& plan);
  static void use_parts(const PutItem& item, PutPlan& plan);
  [[nodiscard]] Status take_parts(PutPlan& plan);
  void seal_plans(std::span<PutPlan> plan, std::vector<PutResult>& results, const Interrupt& interrupt);
  [[nodiscard]] Result<SealReply> send_seal(std::span<PutPlan*> batch, const Interrupt& interrupt);
  [[nodiscard]] bool seal_batch(std::span<PutPlan*> batch, std::vector<PutResult>& results, const Interrupt& interrupt);
  [[nodiscard]] PutResult resolve_existing(const PutItem& item, const SealResult& sealed, const Interrupt& interrupt);
  [[nodiscard]] PutResult existing_result(const PutItem& item, const SealedObject& object, const Interrupt& interrupt);
  [[nodiscard]] Status locate_parts(std::span<const std::shared_ptr<WritableBlob>> blobs, PutPlan& plan);
  // After a put: returns leases that the store wants or that are idle.
  void return_unneeded_leases(const Interrupt& interrupt);

  const ConnectOptions options_;
  std::uint64_t number_ = 0;  // set by the constructor
  SegmentViews views_{*this};
  LeasePool leases_{*this, options_.isolated_leases};
  std::shared_ptr<PinnedSet> pinned_;  // set by open(), then constant

  mutable std::mutex mutex_;
  State state_ = State::kConnected;         // guarded by mutex_
  std::atomic<bool> usable_ = true;         // state_ is kConnected; readable without the mutex
  Status reason_;                           // guarded by mutex_: why it is closed or lost
  std::shared_ptr<Connection> connection_;  // guarded by mutex_
  HelloReply server_;                       // guarded by mutex_
  struct OpenSession {
    std::uint32_t number = 0;
    std::uint32_t users = 0;
  };
  std::map<std::pair<std::string, std::string>, OpenSession> sessions_;  // guarded by mutex_; by scope and name
  // Guarded by mutex_: numbers of sessions that were closed while the daemon could not be told.
  std::set<std::uint32_t> unreported_closes_;
  std::map<std::uint32_t, std::uint64_t> reservations_;  // guarded by mutex_; bytes by number
  std::atomic<std::uint32_t> last_reservation_ = 0;      // never used again, not even in forked children
  SharedAttempt reconnecting_;

  // For values that are made in the store: bytes leased, or sealed and still in use here; when to ask for more after a refusal, and how long that was.
  std::atomic<std::uint64_t> value_bytes_ = 0;
  std::atomic<std::uint64_t> value_refused_until_ns_ = 0;
  std::atomic<std::uint64_t> value_back_off_ns_ = 0;

  std::mutex blobs_mutex_;
  std::map<WritableBlob*, int> blobs_;  // guarded by blobs_mutex_: unsealed blobs, for fork

  std::atomic<bool> idle_lease_timer_running_ = false;  // see idle_lease_timer.cpp
  std::atomic<std::uint64_t> last_put_ns_ = 0;
  void start_idle_lease_timer();

  std::atomic<std::uint32_t> forks_ =
      0;  // how many forks ago this client was connected; builders of parents are refused
  std::unique_ptr<ForkPlan> fork_plan_;  // between before_fork and after_fork_*
};

// A blob being written.
//
//   open ──Client::seal──▶ sealing ──▶ sealed (read-only), or dropped
//     │                     └──failed before it was sent──▶ open
//     ├──drop, destroyed──▶ dropped
//     └──fork, in the child──▶ orphan
class WritableBlob {
 public:
  ~WritableBlob();
  WritableBlob(const WritableBlob&) = delete;
  WritableBlob& operator=(const WritableBlob&) = delete;
  WritableBlob(WritableBlob&&) = delete;
  WritableBlob& operator=(WritableBlob&&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] bool is_open() const { return state_ == State::kOpen; }
  [[nodiscard]] bool is_of(const Client& client) const { return client_.get() == &client; }
  [[nodiscard]] bool is_orphan() const { return state_ == State::kOrphan; }
  void drop();
  // Once sealed: keeps the object that it became pinned as long as this lives, so that its bytes can still be read here.
  void keep(std::shared_ptr<SealedObject> object) { kept_ = std::move(object); }

 private:
  friend class Client;
  friend class ObjectBuilder;
  friend class PageWriter;
  enum class State : std::uint8_t { kOpen, kSealing, kSealed, kDropped, kOrphan };
  WritableBlob() = default;
  // Of threads that seal or drop an open blob at once, one gets true.
  [[nodiscard]] bool leave_open_for(State next) {
    State expected = State::kOpen;
    return state_.compare_exchange_strong(expected, next);
  }
  void shorten(std::uint64_t bytes);  // to its first bytes, if it is in the store

  std::shared_ptr<Client> client_;
  std::atomic<State> state_ = State::kOpen;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  bool is_exposed_ = true;              // whether the user may have its address
  std::optional<LeasedRange> range_;    // in the store
  os::Mapping private_;                 // or, if small, process-private and sent inline
  std::shared_ptr<SealedObject> kept_;  // guarded by the caller of keep()
};

}  // namespace entrepot
