// The store's address: a socket file, and a lock file beside it that says whose the address is.
//
// PATH is the listening socket's name. A cleaner of temporary files, or the end of a login that takes the run-time
// folder, may remove it; nobody could reach the store then, so the daemon looks for it and makes it anew.
//
// PATH.lock is locked (flock) for as long as keeper or daemon live, because both have the descriptor: two stores never
// have one address. Its first line is the keeper's process number, for people and for errors. A second line says that
// there is a store: it is written when a daemon has one, and the file is emptied at a clean end. Whoever gets the lock
// and finds that line follows a store that was killed, keeper and daemon.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"
#include "daemon/keeper_link.h"

namespace entrepot {

[[nodiscard]] std::string address_lock_path(const std::string& socket_path);
// `has_store`: it is to be found, should that store be killed.
[[nodiscard]] Status write_address_owner(int lock, std::uint32_t keeper_pid, bool has_store);
// The store has come to a clean end. Best effort: else the next one says that this one was killed.
void clear_address(int lock);
// Of a lock file that is ours: whether the store before was killed. A file that says nothing, or whose lines are of a
// version that did not write the second one, tells nothing.
[[nodiscard]] bool follows_killed_store(const std::string& socket_path);

// An error for whoever could not have the lock: who has the address, and what to do about it.
[[nodiscard]] Status address_is_taken(const std::string& socket_path, const Status& why);

// The daemon's look at its address, every two seconds.
class AddressWatch {
 public:
  explicit AddressWatch(std::string socket_path) : path_(std::move(socket_path)) {}

  [[nodiscard]] std::uint64_t next_look_ns() const { return next_look_ns_; }
  // A new listening socket, if the one there was has lost its name and could be given it again; else none.
  [[nodiscard]] UniqueFd look(KeeperLink& link);

 private:
  [[nodiscard]] Status lock(KeeperLink& link);
  [[nodiscard]] Result<UniqueFd> listen_again(KeeperLink& link);

  std::string path_;
  std::uint64_t next_look_ns_ = 0;
  std::uint32_t written_pid_ = 0;  // into the lock file
  bool told_ = false;              // that the name is gone and cannot be made
};

}  // namespace entrepot
