#include "daemon/address.h"

#include <utility>

#include "base/text.h"
#include "os/files.h"
#include "os/log.h"
#include "os/process.h"
#include "os/socket.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kConnectMs = 1'000;
constexpr std::uint64_t kMaxTextBytes = 64;
constexpr std::string_view kHasStore = "has a store\n";
constexpr DescriptorTag kLockTag{DescriptorKind::kAddressLock, 0};

// Process number of the listener at `path`; 0 if there is none.
std::uint32_t listener_at(const std::string& path) {
  const auto socket = os::connect_unix(path, os::Deadline::after_ms(kConnectMs));
  if (!socket.is_ok()) return 0;
  const auto peer = os::peer_credentials(socket->get());
  return peer.is_ok() ? peer->pid : 0;
}

}  // namespace

std::string address_lock_path(const std::string& socket_path) { return socket_path + ".lock"; }

Status write_address_owner(int lock, std::uint32_t keeper_pid, bool has_store) {
  return os::replace_text(lock, concat(keeper_pid, "\n", has_store ? kHasStore : ""));
}

void clear_address(int lock) {
  if (lock < 0) return;
  if (const Status cleared = os::replace_text(lock, ""); !cleared.is_ok()) {
    log_warning("cannot clear the lock file, so the next store at this address will report that this one was killed: ",
                cleared.to_string());
  }
}

bool predecessor_was_killed(const std::string& socket_path) {
  const auto text = os::read_file(address_lock_path(socket_path), kMaxTextBytes);
  return text.is_ok() && text->ends_with(concat("\n", kHasStore));
}

Status address_in_use_error(const std::string& socket_path, const Status& why) {
  const std::uint32_t listener = listener_at(socket_path);
  const auto text = os::read_file(address_lock_path(socket_path), kMaxTextBytes);
  const std::string owner = text.is_ok() ? text->substr(0, text->find('\n')) : "";
  if (listener != 0 || os::file_exists(socket_path) || owner.empty()) {
    const std::string who = listener != 0 ? concat(" (process ", listener, ")") : "";
    return why.with_context(concat("another entrepotd", who, " is starting or running at ", socket_path));
  }
  return why.with_context(
      concat("the store of process ", owner, " runs at ", socket_path,
             ", but its socket was removed. Its daemon recreates the socket within a few seconds unless it is stopped: "
             "try again, or stop that store, which discards its objects: kill ",
             owner));
}

UniqueFd AddressWatch::check(KeeperLink& link) {
  // Best effort: without the file's text, an error message is less helpful, nothing else.
  const int lock = link.fd(kLockTag);
  if (lock >= 0 && written_pid_ != link.keeper_pid() && write_address_owner(lock, link.keeper_pid(), true).is_ok()) {
    written_pid_ = link.keeper_pid();
  }
  if (os::file_exists(path_)) {
    failure_logged_ = false;
    return {};
  }
  Result<UniqueFd> listening = listen_again(link);
  if (listening.is_ok()) {
    log_warning("the socket ", path_, " was removed and has been recreated");
    failure_logged_ = false;
    return listening.take();
  }
  if (!std::exchange(failure_logged_, true)) {
    log_error("the socket ", path_,
              " was removed, so new clients cannot reach this store: ", listening.status().to_string(),
              ". Retrying every two seconds; to stop the store: kill ", link.keeper_pid());
  }
  return {};
}

Result<UniqueFd> AddressWatch::listen_again(KeeperLink& link) {
  RETURN_IF_ERROR(os::check_folder_safe(os::folder_of(path_)));
  RETURN_IF_ERROR(lock(link));
  return os::listen_unix(path_);
}

// The lock file may have been removed as well; without it, another store could start at this address.
Status AddressWatch::lock(KeeperLink& link) {
  const std::string path = address_lock_path(path_);
  if (link.fd(kLockTag) >= 0 && os::is_file_at(link.fd(kLockTag), path)) return Status::ok();
  ASSIGN_OR_RETURN(UniqueFd lock, os::lock_file(path));
  RETURN_IF_ERROR(write_address_owner(lock.get(), link.keeper_pid(), true));
  link.hold(kLockTag, std::move(lock));
  return Status::ok();
}

}  // namespace entrepot
