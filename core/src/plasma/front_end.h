// FrontEnd: serves Plasma clients on one socket: one thread, one event loop, and threads for what takes long.
//
// A client that breaks the protocol is cut off with a line in the log; nobody else notices.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/status.h"
#include "net/event_loop.h"
#include "os/unique_fd.h"
#include "plasma/arena_objects.h"
#include "plasma/client_channel.h"
#include "plasma/get_requests.h"
#include "plasma/notifications.h"
#include "plasma/options.h"
#include "plasma/requests.h"
#include "plasma/store_worker.h"

namespace entrepot::plasma {

// Guarded by the thread that runs it.
class FrontEnd {
 public:
  static constexpr int kThreads = 3;  // for each of the worker's lanes
  using Channels = std::unordered_map<ClientKey, std::unique_ptr<ClientChannel>>;

  // Connects to the store and listens. `threads`: of each of the worker's lanes; 0: the loop's thread does everything itself.
  [[nodiscard]] static Result<std::unique_ptr<FrontEnd>> start(const Options& options, int threads = kThreads);
  ~FrontEnd();
  FrontEnd(const FrontEnd&) = delete;
  FrontEnd& operator=(const FrontEnd&) = delete;
  FrontEnd(FrontEnd&&) = delete;
  FrontEnd& operator=(FrontEnd&&) = delete;

  // Until a signal (SIGTERM, SIGINT) asks to end, which is a success, or the store is gone for good.
  [[nodiscard]] Status run();
  // One turn of the loop, of which run() consists. kStoreUnavailable: the store is gone for good.
  [[nodiscard]] Status turn();
  void skip_wait() { loop_.skip_wait(); }  // of the next turn

  [[nodiscard]] const ObjectTable& table() const { return table_; }
  [[nodiscard]] const Channels& clients() const { return clients_; }

 private:
  struct Sockets {
    UniqueFd listening;
    UniqueFd file;  // that socket's file, without access
    UniqueFd signals;
  };
  FrontEnd(const Options& options, os::Poller poller, Sockets sockets, std::unique_ptr<Arena> arena,
           std::unique_ptr<StoreWorker> worker);
  [[nodiscard]] Status watch_all();
  void accept_all();
  void on_event(ClientKey key, const os::Ready& ready);
  [[nodiscard]] Status serve(ClientChannel& client);  // handles what has arrived
  void go_on(ClientChannel& client);                  // after a reply that came later
  void settle(ClientChannel& client);                 // sends what it can, and waits for the right events
  void refuse_entrepot(ClientChannel& client, std::uint64_t request) const;
  void cut_off(ClientChannel& client, const Status& reason);
  // Of what clients have sent and could not be handled yet, and of replies that they do not read, together, as much is
  // kept as one message may be long.
  void limit_kept();
  void remove(ClientKey key);
  [[nodiscard]] ClientChannel* channel(ClientKey key);
  [[nodiscard]] std::uint64_t max_body_bytes() const;
  void look_at_store(std::uint64_t now_ns);

  const Options options_;
  EventLoop loop_;
  UniqueFd listening_;
  UniqueFd socket_file_;  // to know whether the name still leads to it
  UniqueFd signals_;
  std::unique_ptr<Arena> arena_;
  ObjectTable table_;
  Notifications notifications_;
  std::unique_ptr<StoreWorker> worker_;
  ArenaObjects objects_;
  GetRequests gets_;
  Requests requests_;
  ClientKey next_key_ = 1;
  Channels clients_;
  bool ends_ = false;
  bool is_reconnecting_ = false;
  bool is_store_gone_ = false;
  bool keeps_much_ = false;     // of a client: limit_kept() is due
  bool cannot_accept_ = false;  // for lack of descriptors; it was logged
  EventLoop::Watch listening_watch_;
  EventLoop::Watch signals_watch_;
  EventLoop::Watch worker_watch_;
  EventLoop::Timer accept_timer_;  // after descriptors ran out
  EventLoop::Timer store_timer_;   // looks whether the store is still the same
};

}  // namespace entrepot::plasma
