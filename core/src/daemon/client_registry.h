// ClientRegistry: who the clients are. Hello, registration, reconnection, forks, and ends.
//
//   client: unknown ──Hello without a token, or a fork by its parent──▶ connected ──its connection ends──┐
//                                                                          ▲                             ▼
//           adopted from an earlier daemon ──Hello with token and pin table┴─────the same─────── disconnected
//
//           connected, disconnected or adopted ──its liveness socket hangs up──▶ gone
//
// A client is registered once the keeper has the descriptors by which the next daemon would know it: its pin table and
// the daemon's end of its liveness socket. The client keeps the other end open, so it hangs up when the client's last
// process with it ends. Only the child of a fork uses it: it sends a byte, with which the kernel tells the daemon, and
// the next one, its process ID.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "daemon/connections.h"
#include "daemon/keeper_link.h"
#include "net/event_loop.h"
#include "net/protocol.h"
#include "os/unique_fd.h"
#include "shm/control.h"
#include "store/store.h"

namespace entrepot {

// Guarded by the daemon's thread.
class ClientRegistry {
 public:
  // All must outlive it.
  ClientRegistry(EventLoop& loop, Connections& connections, KeeperLink& link, ControlMemory& memory, Store& store);
  ClientRegistry(const ClientRegistry&) = delete;
  ClientRegistry& operator=(const ClientRegistry&) = delete;

  // Call once, first, if the store was adopted.
  void watch_adopted_clients();
  // Handles the first message of a connection, which must be Hello. Otherwise the connection is closed.
  void hello(Connection& connection, Frame& frame);
  // Registers a client for the child that the connection's client is about to fork.
  void fork(Connection& connection, std::uint64_t request);
  // Grows the client's pin table to at least so many entries; returns the resulting number.
  [[nodiscard]] Result<std::uint32_t> grow_pins(std::uint32_t client, std::uint32_t pins);
  void client_died(std::uint32_t client);

 private:
  struct Registration {
    std::uint32_t client = 0;
    std::uint64_t token = 0;
    UniqueFd pin_table;
    UniqueFd liveness;  // the client's end
  };
  [[nodiscard]] Status check_versions(const Connection& connection, const Hello& hello) const;
  [[nodiscard]] Status admit(Connection& connection, Frame& frame);
  [[nodiscard]] Status register_child(Connection& connection, std::uint64_t request);
  [[nodiscard]] Result<Registration> register_client(const ClientIdentity& identity, std::uint32_t pins = 0);
  [[nodiscard]] Status hold_client_descriptors(std::uint32_t client, const ClientIdentity& identity, std::uint32_t pins,
                                               Registration& registration);
  [[nodiscard]] Status reconnect(const Hello& hello, const std::vector<UniqueFd>& fds);
  [[nodiscard]] std::uint64_t pin_table_memory(std::uint32_t client) const;  // as charged to the budget
  [[nodiscard]] Status watch_liveness(std::uint32_t client);
  void note_process(std::uint32_t client);

  EventLoop& loop_;
  Connections& connections_;
  KeeperLink& link_;
  ControlMemory& memory_;
  Store& store_;
  std::map<std::uint32_t, EventLoop::Watch> liveness_;  // by client; the link holds the sockets
};

}  // namespace entrepot
