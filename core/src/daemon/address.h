// Address of the store: a listening socket file, and a lock file beside it that records who owns the address.
//
// PATH is the listening socket. Cleaners of temporary files, or the removal of the runtime directory at logout, may
// delete it, which makes the store unreachable; so the daemon checks for it and recreates it.
//
// PATH.lock is locked (flock) while keeper or daemon live, since both hold the descriptor: two stores never share an
// address. Its first line is the keeper's process number, for people and for error messages. A second line says that
// there is a store: it is written once a daemon has one, and the file is emptied on a clean shutdown. A process that
// gets the lock and finds that line follows a store whose keeper and daemon were both killed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/status.h"
#include "daemon/keeper_link.h"
#include "os/unique_fd.h"

namespace entrepot {

[[nodiscard]] std::string address_lock_path(const std::string& socket_path);
// `has_store`: write the line by which a successor detects that this store was killed.
[[nodiscard]] Status write_address_owner(int lock, std::uint32_t keeper_pid, bool has_store);
// Marks a clean shutdown. Best effort: if it fails, the next store reports that this one was killed.
void clear_address(int lock);
// Whether the previous store was killed, from a lock file that we hold. False for an empty file, and for one written by
// a version without the second line.
[[nodiscard]] bool predecessor_was_killed(const std::string& socket_path);

// Error for a process that did not get the lock: says who has the address, and what to do about it.
[[nodiscard]] Status address_in_use_error(const std::string& socket_path, const Status& why);

inline constexpr std::uint64_t kAddressCheckNs = 2'000'000'000;  // between two checks

// The daemon's check of its address.
class AddressWatch {
 public:
  explicit AddressWatch(std::string socket_path) : path_(std::move(socket_path)) {}

  // Returns a new listening socket if the current one lost its name and could be bound to it again; otherwise none.
  [[nodiscard]] UniqueFd check(KeeperLink& link);

 private:
  [[nodiscard]] Status lock(KeeperLink& link);
  [[nodiscard]] Result<UniqueFd> listen_again(KeeperLink& link);

  std::string path_;
  std::uint32_t written_pid_ = 0;  // to the lock file
  bool failure_logged_ = false;    // logged that the name is gone and cannot be recreated
};

}  // namespace entrepot
