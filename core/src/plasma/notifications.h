// Notifications: tells subscribers what was sealed and what left the arena.
//
// Each has a socket of its own, which it may read late: what does not fit into it waits here, up to a limit, beyond
// which the subscription ends.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>

#include "base/status.h"
#include "net/event_loop.h"
#include "os/unique_fd.h"
#include "plasma/object_table.h"

namespace entrepot::plasma {

// Guarded by the front end's thread.
class Notifications {
 public:
  explicit Notifications(EventLoop& loop) : loop_(&loop) {}

  // `existing`: what is there already, which the subscriber is told at once.
  [[nodiscard]] Status subscribe(UniqueFd socket, std::span<const ObjectDescription> existing);
  void sealed(const ObjectDescription& object);
  void deleted(const IdBytes& id);
  [[nodiscard]] std::size_t subscribers() const { return subscribers_.size(); }

 private:
  struct Subscriber {
    UniqueFd socket;
    std::deque<std::shared_ptr<const Bytes>> waiting;
    std::size_t sent_bytes = 0;     // of the first one
    std::size_t waiting_bytes = 0;  // of all
    bool waits_to_write = false;
    EventLoop::Watch watch;  // ended before the socket
  };

  void end(std::uint64_t key);
  void send_to_all(Bytes message);
  // What waits for all of them together is limited as for one: the one that has most waiting goes.
  void limit_waiting();
  // False: the subscription has ended.
  [[nodiscard]] bool add(Subscriber& subscriber, std::shared_ptr<const Bytes> message);
  [[nodiscard]] bool flush(Subscriber& subscriber);

  EventLoop* loop_;
  std::uint64_t next_key_ = 1;
  std::size_t waiting_bytes_ = 0;  // of all
  std::map<std::uint64_t, std::unique_ptr<Subscriber>> subscribers_;
};

}  // namespace entrepot::plasma
