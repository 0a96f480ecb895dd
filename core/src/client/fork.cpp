// Fork handling: before forking, the parent requests a registration for the child and clones its pins into it, so that
// the child's values are pinned at all times. The child inherits no lease; it gets private copies of unsealed blobs. If
// no registration is available (the store is closed or lost, or the daemon does not answer), parent and child share one
// pin table, so what is pinned then stays pinned.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>

#include "base/text.h"
#include "client/client.h"
#include "client/fork_plan.h"
#include "os/fork.h"
#include "os/socket.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kForkAnswerMs = 5'000;

struct Watched {
  std::mutex mutex;
  std::vector<std::weak_ptr<ForkWatcher>> watchers;   // guarded by mutex
  std::vector<std::shared_ptr<ForkWatcher>> forking;  // guarded by mutex, which is held across a fork
};

Watched& watched() {
  static Watched* const all = new Watched;  // never freed: a fork may happen during exit
  return *all;
}

void prepare() {
  Watched& all = watched();
  all.mutex.lock();
  for (const auto& weak : all.watchers) {
    if (auto watcher = weak.lock()) all.forking.push_back(std::move(watcher));
  }
  for (const auto& watcher : all.forking)
    watcher->before_fork();
}

std::vector<std::shared_ptr<ForkWatcher>> finish(void (ForkWatcher::*after)()) {
  Watched& all = watched();
  for (const auto& watcher : all.forking)
    (watcher.get()->*after)();
  std::vector<std::shared_ptr<ForkWatcher>> done;
  done.swap(all.forking);
  all.mutex.unlock();
  return done;
}

void in_parent() {
  for (const auto& watcher : finish(&ForkWatcher::after_fork_in_parent))
    watcher->unlocked_in_parent();
}
void in_child() { static_cast<void>(finish(&ForkWatcher::after_fork_in_child)); }

}  // namespace

void watch_forks(const std::shared_ptr<ForkWatcher>& watcher) {
  static const Status registered = os::at_fork(prepare, in_parent, in_child);
  // Its only error is lack of memory: then a child shares the parent's pins, as without any handler.
  static_cast<void>(registered.is_ok());
  Watched& all = watched();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.watchers, [](const auto& weak) { return weak.expired(); });
  all.watchers.push_back(watcher);
}

void Client::before_fork() {
  fork_plan_ = std::make_unique<ForkPlan>();
  ForkPlan& plan = *fork_plan_;
  std::shared_ptr<Connection> current;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kConnected) current = connection_;
    plan.failure = reason_;
    plan.server = server_;
  }
  if (current) {
    ForkReply reply;
    auto frame = current->call(MessageType::kFork, to_wire(Empty{}), {}, os::Deadline::after_ms(kForkAnswerMs), {});
    if (frame.is_ok() && frame->lost_fds()) frame = descriptors_lost_error();
    if (frame.code() == Code::kStoreFull || frame.code() == Code::kAccessDenied) {
      plan.failure =
          Status(Code::kStoreUnavailable, concat("the store did not register a client for this forked process (",
                                                 frame.status().message(), "): connect again in the child"));
    } else if (!frame.is_ok()) {
      plan.failure = Status(Code::kStoreUnavailable, concat("this process was forked while its store did not respond (",
                                                            frame.status().message(), "): connect again in the child"));
    } else if (!from_wire(frame->body, reply) || frame->fds.size() != 3) {
      plan.failure = Status(Code::kInternal, "the daemon's response to a fork is malformed");
    } else if (auto table = PinTable::attach(std::move(frame->fds[0])); !table.is_ok()) {
      plan.failure = table.status();
    } else {
      plan.server.client = reply.client;
      plan.server.token = reply.token;
      plan.pins = table.take();
      plan.pins->grow_to(reply.pins);
      plan.liveness = std::move(frame->fds[1]);
      plan.socket = std::move(frame->fds[2]);
    }
  }
  // Same order as in all other code.
  blobs_mutex_.lock();
  leases_.lock();
  views_.lock();
  pinned_->lock();
  mutex_.lock();
  if (plan.pins) {
    if (const Status copied = pinned_->copy_pins_to(*plan.pins); !copied.is_ok()) {
      plan.failure = copied;
      plan.pins.reset();
    }
  }
  if (!plan.pins) pinned_->share_pins_with_child();
  for (const auto& [blob, unused] : blobs_) {
    if (!blob->range_) continue;  // process-private pages: copied by the fork itself
    auto memory = os::Mapping::anonymous(blob->range_->length);
    if (!memory.is_ok()) continue;  // touching it in the child then raises SIGSEGV, as for all leased memory
    std::memcpy(memory->data(), blob->data_, blob->bytes_);
    plan.copies.push_back({blob, memory.take()});
  }
}

void Client::after_fork_in_parent() {
  mutex_.unlock();
  pinned_->unlock();
  views_.unlock();
  leases_.unlock();
  blobs_mutex_.unlock();
  fork_plan_.reset();  // closes the child's descriptors here
}

void Client::after_fork_in_child() {
  ForkPlan& plan = *fork_plan_;
  forks_.fetch_add(1, std::memory_order_relaxed);
  if (connection_) {
    connection_->discard_in_child();
    // Its locks may be held by threads that do not exist here: never touch or destroy it again.
    static_cast<void>(new std::shared_ptr<Connection>(std::move(connection_)));
    connection_.reset();
  }
  reconnecting_.after_fork_in_child();
  for (ForkPlan::Copy& copy : plan.copies) {
    std::byte* const at = copy.blob->data_;
    static_cast<void>(os::move_mapping(copy.memory, at));  // on failure, touching the blob faults
  }
  for (const auto& [blob, unused] : blobs_)
    blob->state_ = WritableBlob::State::kOrphan;
  blobs_.clear();
  leases_.clear_in_child();
  reservations_.clear();  // the parent's
  sessions_.clear();      // the parent's, too: the child's registration has none open
  unreported_closes_.clear();
  idle_lease_timer_running_.store(false);
  if (plan.pins) {
    // Tells the daemon which process has the child's pins. If it fails, only reports lack that.
    static_cast<void>(os::send_some(plan.liveness.get(), std::array<std::uint8_t, 1>{}).is_ok());
    pinned_->switch_in_child(std::move(*plan.pins), std::move(plan.liveness));
    connection_ = std::make_shared<Connection>(std::move(plan.socket));
    connection_->set_daemon(plan.server.daemon_pid, plan.server.protocol_minor);
    server_ = plan.server;
  } else if (state_ == State::kConnected) {
    // Without its own registration, the child keeps the parent's, and its values rely on the shared pins; every call
    // reports why.
    state_ = State::kLost;
    usable_.store(false, std::memory_order_relaxed);
    reason_ = plan.failure;
  }
  mutex_.unlock();
  pinned_->unlock();
  views_.unlock();
  leases_.unlock();
  blobs_mutex_.unlock();
  fork_plan_.reset();
}

}  // namespace entrepot
