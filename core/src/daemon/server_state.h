// What the parts of the server share: the store, what surrounds it, and the connections.
//
// A connection:  accepted ──Hello──▶ ready ──end-of-file, bad frame, client reconnected elsewhere──▶ closed
//                   └──anything but a good Hello, or nothing for ten seconds──▶ closed, after an Error
// Guarded by the daemon's thread, all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/config.h"
#include "daemon/keeper_link.h"
#include "daemon/program_check.h"
#include "daemon/segment_files.h"
#include "net/frame_socket.h"
#include "os/events.h"
#include "os/socket.h"
#include "store/store.h"

namespace entrepot {

struct Connection {
  Connection(std::uint64_t number, UniqueFd socket) : owner(number), frames(std::move(socket)) {}

  std::uint64_t owner;  // never used again; requests that wait belong to it
  FrameSocket frames;
  os::PeerCredentials peer;
  std::uint64_t accepted_ns = 0;
  std::optional<std::uint32_t> client;  // after Hello
  bool closing = false;                 // to be closed when its turn is over
  bool watches_write = false;
  bool has_more = false;      // whole frames wait in its buffer
  std::uint64_t waiting = 0;  // cost of its requests that wait: see ServerState::begin_wait
  std::uint64_t counted = 0;  // of what its frames hold, in the budget
};

// What a client may make the daemon remember. A connection that holds little is served whatever the others hold.
// Of all, requests that are not whole and answers not read: half of the store's size, within these bounds.
inline constexpr std::uint64_t kMinHeldLimit = kMaxBodyBytes + (16U << 20);  // one request of any size, and small ones
inline constexpr std::uint64_t kMaxHeldLimit = 256U << 20;
inline constexpr std::uint64_t kFairHeldBytes = 1U << 20;    // of one, always allowed
inline constexpr std::uint64_t kWaiterCost = 64;             // of a request that waits, beside 1 for each of its IDs
inline constexpr std::uint64_t kMaxWaiting = 1U << 19;       // of one connection
inline constexpr std::uint64_t kMaxWaitingOfAll = 1U << 21;  // of all
inline constexpr std::uint64_t kFairWaiting = 1U << 14;      // of one, always allowed

enum class WatchKind : std::uint64_t {
  kListen = 1,
  kSignals,
  kKeeper,
  kProvisioner,
  kSpill,
  kConnection,
  kLiveness,
  kProgramCheck
};

[[nodiscard]] constexpr std::uint64_t watch_key(WatchKind kind, std::uint64_t number = 0) {
  return (static_cast<std::uint64_t>(kind) << 56) | number;
}

class ServerState {
 public:
  ServerState(const DaemonConfig& config, KeeperLink& link, ControlMemory& memory, Store& store, SegmentFiles& segments,
              os::Poller poller)
      : config(config), link(link), memory(memory), store(store), segments(segments), poller(std::move(poller)) {}

  const DaemonConfig& config;
  KeeperLink& link;
  ControlMemory& memory;
  Store& store;
  SegmentFiles& segments;
  os::Poller poller;
  ProgramCheck program_check;
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections;  // by owner
  bool stopping = false;
  bool handing_over = false;  // stopping, and another program goes on: nobody is accepted any more

  // Connections, in connections.cpp.
  Connection* add_connection(UniqueFd socket, const os::PeerCredentials& peer);  // null: it could not be watched
  void close_connection(std::uint64_t owner);
  [[nodiscard]] Connection* find(std::uint64_t owner);
  void update_watch(Connection& connection);
  template <class Reply>
  void reply(std::uint64_t owner, std::uint64_t request, const Reply& body, std::vector<UniqueFd> fds = {}) {
    send(owner, MessageType::kReply, request, to_wire(body), std::move(fds));
  }
  void refuse(std::uint64_t owner, std::uint64_t request, const Status& status);
  // kStoreFull if this connection, or all of them, hold too much that waits for their peers.
  [[nodiscard]] Status check_held(const Connection& connection) const;
  void count_buffers(Connection& connection);  // in the budget, as they are now
  // A request that may wait takes its cost until end_wait, or until its connection ends. kStoreFull: too many wait.
  [[nodiscard]] Status begin_wait(Connection& connection, std::uint64_t cost);
  void end_wait(std::uint64_t owner, std::uint64_t cost);
  void send(std::uint64_t owner, MessageType type, std::uint64_t request, std::vector<std::uint8_t> body,
            std::vector<UniqueFd> fds);

  // Clients, in registration.cpp.
  void hello(Connection& connection, Frame& frame);
  void fork(Connection& connection, std::uint64_t request);
  // Places for at least so many pins in the client's table; how many there are then.
  [[nodiscard]] Result<std::uint32_t> grow_pins(std::uint32_t client, std::uint32_t pins);
  void watch_adopted_clients();
  void client_died(std::uint32_t client);

  // Requests of ready connections, in requests.cpp and requests_sessions.cpp.
  void handle(Connection& connection, Frame& frame);

  // Has the program at `path` take over, once it has been asked whether it can: `done` is told its version when the
  // keeper has it, and this daemon ends after that turn; or why not, and nothing has changed. In upgrade.cpp.
  using UpgradeDone = std::function<void(const Result<std::string>&)>;
  void upgrade(const std::string& path, UpgradeDone done);
  void upgrade_to_own_path();
  [[nodiscard]] DaemonFacts facts() const;

 private:
  struct Registration {
    std::uint32_t client = 0;
    std::uint64_t token = 0;
    UniqueFd pin_table;
    UniqueFd liveness;  // the client's end
  };
  [[nodiscard]] Status check_versions(const Connection& connection, const Hello& hello) const;
  [[nodiscard]] Result<Registration> register_client(const ClientIdentity& identity, std::uint32_t pins = 0);
  [[nodiscard]] Status keep_client(std::uint32_t client, const ClientIdentity& identity, std::uint32_t pins,
                                   Registration& registration);
  [[nodiscard]] Status reconnect(Connection& connection, const Hello& hello, const std::vector<UniqueFd>& fds);
  [[nodiscard]] std::uint64_t pin_table_memory(std::uint32_t client) const;  // as the budget counts it
  [[nodiscard]] Status watch_liveness(std::uint32_t client);
  void step_down();

  std::uint64_t next_owner_ = 1;
  std::uint64_t waiting_ = 0;  // of all connections
};

}  // namespace entrepot
