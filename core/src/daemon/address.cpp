#include "daemon/address.h"

#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "os/clock.h"
#include "os/files.h"
#include "os/process.h"
#include "os/socket.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kNameLookNs = 2'000'000'000;
constexpr std::uint64_t kListenerMs = 1'000;
constexpr std::uint64_t kMostTextBytes = 64;
constexpr std::string_view kHasStore = "has a store\n";
constexpr HeldTag kLockTag{HeldKind::kAddressLock, 0};

// Process number of the listener at `path`; 0 if there is none.
std::uint32_t listener_at(const std::string& path) {
  const auto socket = os::connect_unix(path, os::Deadline::after_ms(kListenerMs));
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
    log_warning("the next store at this address will say that this one was killed: ", cleared.to_string());
  }
}

bool follows_killed_store(const std::string& socket_path) {
  const auto text = os::read_file(address_lock_path(socket_path), kMostTextBytes);
  return text.is_ok() && text->ends_with(concat("\n", kHasStore));
}

Status address_is_taken(const std::string& socket_path, const Status& why) {
  const std::uint32_t listener = listener_at(socket_path);
  const auto text = os::read_file(address_lock_path(socket_path), kMostTextBytes);
  const std::string owner = text.is_ok() ? text->substr(0, text->find('\n')) : "";
  if (listener != 0 || os::file_exists(socket_path) || owner.empty()) {
    const std::string who = listener != 0 ? concat(" (process ", listener, ")") : "";
    return why.with_context(concat("another entrepotd", who, " starts or runs at ", socket_path));
  }
  return why.with_context(concat(
      "the store of process ", owner, " runs at ", socket_path,
      ", but its socket was removed. Its daemon makes the socket anew within some seconds, unless it is stopped: "
      "try again, or end that store, with all that is in it: kill ",
      owner));
}

UniqueFd AddressWatch::look(KeeperLink& link) {
  next_look_ns_ = os::monotonic_ns() + kNameLookNs;
  // Best effort: without the file's text, an error message is less helpful, nothing else.
  const int lock = link.fd(kLockTag);
  if (lock >= 0 && written_pid_ != link.keeper_pid() && write_address_owner(lock, link.keeper_pid(), true).is_ok()) {
    written_pid_ = link.keeper_pid();
  }
  if (os::file_exists(path_)) {
    told_ = false;
    return {};
  }
  Result<UniqueFd> made = listen_again(link);
  if (made.is_ok()) {
    log_warning("the socket ", path_, " was removed by somebody, and is made anew");
    told_ = false;
    return made.take();
  }
  if (!std::exchange(told_, true)) {
    log_error("the socket ", path_,
              " was removed by somebody, so nobody new reaches this store: ", made.status().to_string(),
              ". Tried again every two seconds; to end the store: kill ", link.keeper_pid());
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
