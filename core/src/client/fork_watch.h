// Interface for objects with locks or registrations that must be consistent across a fork of this process.
#pragma once

#include <memory>

namespace entrepot {

class ForkWatcher {
 public:
  ForkWatcher() = default;
  virtual ~ForkWatcher() = default;
  ForkWatcher(const ForkWatcher&) = delete;
  ForkWatcher& operator=(const ForkWatcher&) = delete;
  ForkWatcher(ForkWatcher&&) = delete;
  ForkWatcher& operator=(ForkWatcher&&) = delete;

  virtual void before_fork() = 0;  // takes the locks; called in the order of registration
  virtual void after_fork_in_parent() = 0;
  virtual void after_fork_in_child() = 0;
  virtual void unlocked_in_parent() {}  // after all watchers have released their locks
};

// Calls before_fork, after_fork_* and unlocked_in_parent of all living watchers around each fork of this process (client/fork.cpp).
void watch_forks(const std::shared_ptr<ForkWatcher>& watcher);

}  // namespace entrepot
