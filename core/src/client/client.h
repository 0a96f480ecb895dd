// Client: one process's access to one store. Thread-safe.
//
//   connected ──socket broke──▶ reconnecting ──Hello with token──▶ connected
//       │                          └──time over, or another store there──▶ lost (for good: the reason is kept)
//       └──close()──▶ closed        values that were got stay readable in every state
//
// A client that is lost stays so: ReconnectingClient, which hosts use, makes another one for the next store.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "client/connection.h"
#include "client/fork_watch.h"
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
  std::string path;     // of the unix socket
  std::string label;    // shown in status; empty: the program's name
  std::string version;  // of the client, for messages
  std::uint64_t connect_ms = 10'000;
  std::uint64_t reconnect_ms = 30'000;
  // How long it goes on while nobody listens: keeper and daemon hold the socket open for each other, so then both are
  // gone, or their socket's name is.
  std::uint64_t nobody_ms = 500;
  std::uint32_t load_ms = 300'000;  // how long a get waits for what lies in cold storage
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

struct PutItem : ObjectSpec {
  // As users of ReconnectingClient name session and set; it turns them into `session` and `locality_set`.
  std::uint64_t session_handle = 0;
  std::uint64_t set_handle = 0;
  bool fresh_id = false;              // random: nobody else can have sealed it
  std::vector<SourceBuffer> buffers;  // unchanged until the put returns
};

struct PutResult {
  Status status;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  bool existed = false;  // the same content was sealed under this ID before
};

class WritableBlob;

class Client : public Rpc, public ForkWatcher, public std::enable_shared_from_this<Client> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Client>> connect(const ConnectOptions& options,
                                                               const Interrupt& interrupt);
  ~Client() override;

  // --- objects
  // kObjectNotFound at once, or, with a time-out, kTimeout after waiting for the seal, and for what is on disk.
  [[nodiscard]] Result<std::vector<std::shared_ptr<SealedObject>>> get(std::span<const IdBytes> ids, const Wait& wait,
                                                                       const Interrupt& interrupt);
  // The same for one small object that is in the directory, without allocation, lock or system call; false: use get.
  // `object` must end before this client and before the next fork of this process.
  [[nodiscard]] bool peek(const IdBytes& id, InlineObject& object) const {
    return usable_.load(std::memory_order_relaxed) && pinned_->peek(id, object);
  }
  // What an object is, wherever its payload lies; nothing is brought back for that. kObjectNotFound, kObjectLost.
  [[nodiscard]] Result<ObjectTree> tree(const IdBytes& id, const Interrupt& interrupt);
  [[nodiscard]] Result<std::optional<std::uint32_t>> generation_of(const IdBytes& id, const Interrupt& interrupt);
  // One result an item; each is stored wholly or not at all.
  [[nodiscard]] std::vector<PutResult> put(std::span<const PutItem> items, std::uint32_t wait_ms,
                                           const Interrupt& interrupt);
  // A writable range of nbytes, this process's alone until it is sealed.
  [[nodiscard]] Result<std::shared_ptr<WritableBlob>> create(std::uint64_t nbytes, std::uint32_t wait_ms,
                                                             const Interrupt& interrupt);
  // Seals it as the only buffer of an object (item.buffers is ignored). Its pages become read-only here.
  [[nodiscard]] PutResult seal(WritableBlob& blob, const PutItem& item, const Interrupt& interrupt);
  // Seals an object whose buffers lie in these blobs, each within one, or in sealed objects that this process pins:
  // for whoever knows tree and buffers beforehand and writes the bytes where they stay. Pages become read-only here.
  [[nodiscard]] PutResult seal_parts(std::span<const std::shared_ptr<WritableBlob>> blobs, const PutItem& item,
                                     const Interrupt& interrupt);
  [[nodiscard]] Result<std::vector<std::uint8_t>> remove(std::span<const IdBytes> ids, const Interrupt& interrupt);
  // Begins to bring objects back to memory, and does not wait for it. What does not exist is ignored.
  [[nodiscard]] Status load(std::span<const IdBytes> ids, const Interrupt& interrupt);
  // Moves objects out of memory, in the background where they must be written first; what is pinned stays.
  [[nodiscard]] Result<std::vector<Status>> evict(std::span<const IdBytes> ids, const Interrupt& interrupt);

  // --- sessions and names
  struct SessionLimits {
    std::uint64_t ttl_seconds = 0;  // after the last use; 0: for ever
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
  // Makes or changes a set of the session: by its handle if that is not 0, else by its name.
  [[nodiscard]] Result<LocalitySetInfo> define_set(std::uint32_t session, const std::string& name, std::uint32_t set,
                                                   const SetChange& change, const Interrupt& interrupt);
  [[nodiscard]] Result<std::string> sets(std::uint32_t session, const Interrupt& interrupt);  // JSON
  // Priority, user's pin, locality set of objects; `ids` of the request are ignored. The first error, if any.
  [[nodiscard]] Status hint(std::span<const IdBytes> ids, HintRequest request, const Interrupt& interrupt);
  // The consumer has had the objects; how many of each are still to come.
  [[nodiscard]] Result<std::vector<std::uint32_t>> consumed(std::span<const IdBytes> ids, const std::string& consumer,
                                                            const Interrupt& interrupt);
  // One user less; after the last the session may expire. Never waits for a daemon to come back.
  void close_session(const std::string& scope, const std::string& session);
  [[nodiscard]] Status remove_session(const std::string& scope, const std::string& session, const Interrupt& interrupt);
  // The same, unless a connection has it open or it was used after that time (0: whenever it was).
  [[nodiscard]] Result<RemoveUnusedReply> remove_unused_session(const std::string& scope, const std::string& session,
                                                                std::uint64_t last_used_unix_ns,
                                                                const Interrupt& interrupt);
  [[nodiscard]] Status bind_name(std::uint32_t session, const std::string& name, const IdBytes& id, bool replace,
                                 const Interrupt& interrupt);
  [[nodiscard]] Result<IdBytes> resolve_name(std::uint32_t session, const std::string& name, const Wait& wait,
                                             const Interrupt& interrupt);
  [[nodiscard]] Status unbind_name(std::uint32_t session, const std::string& name, const Interrupt& interrupt);

  // --- about the store; JSON as the daemon writes it
  [[nodiscard]] Result<std::string> list(const ListRequest& request, const Interrupt& interrupt);
  [[nodiscard]] Result<std::string> info(const IdBytes& id, const Interrupt& interrupt);
  [[nodiscard]] Result<std::string> status(const Interrupt& interrupt);
  [[nodiscard]] Result<std::string> sessions(const Interrupt& interrupt);
  [[nodiscard]] Status wait_provisioned(const Wait& wait, const Interrupt& interrupt);
  [[nodiscard]] Status shutdown(const Interrupt& interrupt);
  // Another entrepotd takes the store over; its version. Calls after this one reach it.
  [[nodiscard]] Result<std::string> upgrade(const std::string& program, const Interrupt& interrupt);

  void close();
  [[nodiscard]] bool closed() const;
  // Whether the connection stands, as far as the kernel knows: one system call, and nothing is asked of the daemon.
  [[nodiscard]] bool stands() const;
  // Whether its store is gone for good: another one listens there, or this one does not take the client back.
  [[nodiscard]] bool lost() const;
  [[nodiscard]] ServerInfo server() const;
  [[nodiscard]] std::uint32_t pins_in_use() const { return pinned_->pins_in_use(); }
  // Its generation as far as shared memory tells: without lock or system call. None: ask generation_of.
  [[nodiscard]] std::optional<std::uint32_t> peek_generation(const IdBytes& id) const {
    if (!usable_.load(std::memory_order_relaxed)) return std::nullopt;
    return pinned_->generation_of(id);
  }
  // Hashes of the IDs of all objects that were in the store, for whoever has to say later that they were.
  [[nodiscard]] std::vector<std::uint64_t> fingerprints() const { return pinned_->fingerprints(); }

  // --- Rpc
  [[nodiscard]] Result<Frame> call(MessageType type, std::span<const std::uint8_t> body,
                                   const CallOptions& options) override;
  void post(MessageType type) override;
  [[nodiscard]] std::shared_ptr<Connection> link() override;
  [[nodiscard]] Status replace_link(const std::shared_ptr<Connection>& broken, const Interrupt& interrupt) override;

  // --- fork (client/fork.cpp)
  void before_fork() override;
  void after_fork_in_parent() override;
  void after_fork_in_child() override;

 private:
  friend class WritableBlob;
  enum class State : std::uint8_t { kConnected, kClosing, kClosed, kLost };
  struct ForkPlan;

  explicit Client(ConnectOptions options);
  [[nodiscard]] Status open(const Interrupt& interrupt);
  struct Greeting {
    std::shared_ptr<Connection> connection;
    HelloReply reply;
    std::vector<UniqueFd> fds;
  };
  [[nodiscard]] Result<Greeting> greet(const Hello& hello, std::span<const int> fds, os::Deadline deadline,
                                       const Interrupt& interrupt, bool& connected) const;
  [[nodiscard]] Result<std::shared_ptr<Connection>> connection();  // or why there is none
  [[nodiscard]] Status lookup_error(const IdBytes& id, const LookupResult& found, std::uint32_t wait_ms) const;
  [[nodiscard]] Status reconnect(const std::shared_ptr<Connection>& broken, os::Deadline limit,
                                 const Interrupt& interrupt);
  [[nodiscard]] Status reconnect_in_turn(const std::shared_ptr<Connection>& broken, os::Deadline limit,
                                         const Interrupt& interrupt);
  [[nodiscard]] Status reconnect_once(os::Deadline deadline, const Interrupt& interrupt, bool& connected,
                                      bool& hopeless);
  void lose(const Status& reason);

  // --- put (client/put.cpp)
  struct Planned;
  void plan(const PutItem& item, Planned& planned);
  [[nodiscard]] Status fill(const PutItem& item, Planned& planned, std::uint64_t more, std::uint32_t wait_ms,
                            const Interrupt& interrupt);
  void seal_planned(std::span<Planned> planned, std::vector<PutResult>& results, const Interrupt& interrupt);
  [[nodiscard]] bool seal_batch(std::span<Planned*> batch, std::vector<PutResult>& results, const Interrupt& interrupt);
  [[nodiscard]] PutResult settle_existing(const PutItem& item, const SealResult& sealed, const Interrupt& interrupt);
  [[nodiscard]] PutResult existing_result(const PutItem& item, const SealedObject& object, const Interrupt& interrupt);
  [[nodiscard]] Status place_parts(std::span<const std::shared_ptr<WritableBlob>> blobs, Planned& planned);
  void tidy_leases(const Interrupt& interrupt);  // after each put: what the store wants back, or nobody uses

  const ConnectOptions options_;
  SegmentViews views_{*this};
  LeasePool leases_{*this};
  std::shared_ptr<PinnedSet> pinned_;  // set by open(), never changed

  mutable std::mutex mutex_;
  State state_ = State::kConnected;         // guarded by mutex_
  std::atomic<bool> usable_ = true;         // state_ is kConnected; for those who do not take the mutex
  Status reason_;                           // guarded by mutex_: why it is closed or lost
  std::shared_ptr<Connection> connection_;  // guarded by mutex_
  HelloReply server_;                       // guarded by mutex_
  struct OpenSession {
    std::uint32_t number = 0;
    std::uint32_t users = 0;
  };
  std::map<std::pair<std::string, std::string>, OpenSession> sessions_;  // guarded by mutex_; by scope and name
  SharedAttempt reconnecting_;

  std::mutex blobs_mutex_;
  std::map<WritableBlob*, int> blobs_;  // guarded by blobs_mutex_: unsealed creations, for fork

  std::atomic<bool> janitor_running_ = false;  // see janitor.cpp
  std::atomic<std::uint64_t> last_put_ns_ = 0;
  void start_janitor();

  std::unique_ptr<ForkPlan> fork_plan_;  // between before_fork and after_fork_*
};

// A creation that is not sealed yet.
//
//   open ──Client::seal──▶ sealed (read-only)      open ──drop / end──▶ dropped      open ──fork, in the child──▶
//   orphan
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

 private:
  friend class Client;
  enum class State : std::uint8_t { kOpen, kSealed, kDropped, kOrphan };
  WritableBlob() = default;

  std::shared_ptr<Client> client_;
  State state_ = State::kOpen;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::optional<LeasedRange> range_;  // in the store, or
  os::Mapping private_;               // small: of this process, sent inline
};

}  // namespace entrepot
