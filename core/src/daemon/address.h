// Address of the store: a listening socket file, and a lock file beside it that records who owns the address.
//
// PATH is the listening socket. Cleaners of temporary files, or the removal of the runtime directory at logout, may
// delete it, which makes the store unreachable; so the daemon checks that it is there and that some process has it, and
// recreates it.
//
// PATH.lock is locked (flock) while keeper or daemon live, since both hold the descriptor: two stores never share an
// address. Its first line is the keeper's process number, for people and for error messages. A second line says that
// there is a store: it is written once a daemon has one, and the file is emptied on a clean shutdown. A process that
// gets the lock and finds that line follows a store whose keeper and daemon were both killed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "daemon/keeper_link.h"
#include "os/unique_fd.h"

namespace entrepot {

[[nodiscard]] std::string address_lock_path(const std::string& socket_path);
// Locks the address, after waiting for a killed store whose processes are still being ended by the kernel. The error says
// who has the address, and what to do about it.
[[nodiscard]] Result<UniqueFd> lock_address(const std::string& socket_path);
// `has_store`: write the line by which a successor detects that this store was killed.
[[nodiscard]] Status write_address_owner(int lock, std::uint32_t keeper_pid, bool has_store);
// Marks a clean shutdown. Best effort: if it fails, the next store reports that this one was killed.
void clear_address(int lock);
// Whether the previous store was killed, from a lock file that we hold. False for an empty file, and for one written by
// a version without the second line.
[[nodiscard]] bool predecessor_was_killed(const std::string& socket_path);

inline constexpr std::uint64_t kAddressCheckNs = 2'000'000'000;  // between two checks

// What a look at the address found.
struct AddressState {
  std::uint32_t written_pid = 0;  // keeper that the lock file names now; 0: as before
  bool socket_exists = false;
  UniqueFd lock;                           // a new lock file, if the old one was removed
  Result<UniqueFd> listening{UniqueFd()};  // a new socket, if the old one lost its name; else none
};

// The daemon's check of its address. A file system that does not answer must not stop the daemon, so
// a thread looks.
//
//   idle ──begin()──▶ looking ──the thread has an answer, and signals the event──▶ answered ──take()──▶ idle
//
// Guarded by the daemon's thread, except for `Shared`.
class AddressWatch {
 public:
  struct Question {
    std::string path;
    int lock = -1;  // stays open while somebody looks
    std::uint32_t keeper_pid = 0;
    bool write_owner = false;
  };
  // Called by the thread. Nothing is written any more once `abandoned`.
  using Look = std::function<AddressState(const Question&, const std::atomic<bool>& abandoned)>;
  [[nodiscard]] static AddressState look(const Question& question, const std::atomic<bool>& abandoned);

  explicit AddressWatch(std::string socket_path, Look look = &AddressWatch::look)
      : path_(std::move(socket_path)), look_(std::move(look)) {}

  [[nodiscard]] Status open();  // call first, and again after finish()
  [[nodiscard]] int event() const { return shared_->event.get(); }
  void begin(const KeeperLink& link);  // does nothing while a look is under way
  // Call when the event was signalled. Returns a new listening socket if the current one lost its name and could be
  // bound to it again; otherwise none.
  [[nodiscard]] UniqueFd take(KeeperLink& link);
  // Waits shortly for a look that is under way, so that what it made is not lost with this process.
  [[nodiscard]] UniqueFd finish(KeeperLink& link);

 private:
  struct Shared {  // lives as long as the thread, which process exit does not wait for
    UniqueFd event;
    std::atomic<bool> abandoned = false;
    std::mutex mutex;
    std::optional<AddressState> answer;  // guarded by mutex
  };

  std::string path_;
  Look look_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  bool looking_ = false;
  std::uint32_t written_pid_ = 0;  // to the lock file
  bool failure_logged_ = false;    // logged that the name is gone and cannot be recreated
};

}  // namespace entrepot
