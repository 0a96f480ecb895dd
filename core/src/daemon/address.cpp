#include "daemon/address.h"

#include <charconv>
#include <system_error>
#include <thread>
#include <utility>

#include "base/text.h"
#include "os/clock.h"
#include "os/events.h"
#include "os/files.h"
#include "os/log.h"
#include "os/process.h"
#include "os/process_handle.h"
#include "os/socket.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kConnectMs = 1'000;
constexpr std::uint64_t kFinishMs = 1'000;  // for a look that is under way when this daemon ends
constexpr std::uint64_t kEndingOwnerMs = 5'000;
constexpr std::uint64_t kPauseMs = 5;
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

// The number of the keeper, as the lock file has it; empty if it does not say.
std::string owner_of(const std::string& socket_path) {
  const auto text = os::read_file(address_lock_path(socket_path), kMaxTextBytes);
  return text.is_ok() ? text->substr(0, text->find('\n')) : "";
}

bool is_owner_ending(const std::string& socket_path) {
  const std::string owner = owner_of(socket_path);
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(owner.data(), owner.data() + owner.size(), pid);
  return error == std::errc{} && pid > 0 && os::is_ending(pid);
}

// For a process that did not get the lock.
Status address_in_use_error(const std::string& socket_path, const Status& why) {
  const std::uint32_t listener = listener_at(socket_path);
  const std::string owner = owner_of(socket_path);
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

// The lock file may have been removed as well; without it, another store could start at this address.
Result<UniqueFd> listen_again(const AddressWatch::Question& question, UniqueFd& new_lock,
                              const std::atomic<bool>& abandoned) {
  RETURN_IF_ERROR(os::check_folder_safe(os::folder_of(question.path)));
  const std::string lock_path = address_lock_path(question.path);
  if (question.lock < 0 || !os::is_file_at(question.lock, lock_path)) {
    ASSIGN_OR_RETURN(UniqueFd lock, os::lock_file(lock_path));
    if (abandoned) return Status(Code::kStoreUnavailable, "this daemon is ending");
    RETURN_IF_ERROR(write_address_owner(lock.get(), question.keeper_pid, true));
    new_lock = std::move(lock);
  }
  if (abandoned) return Status(Code::kStoreUnavailable, "this daemon is ending");
  return os::listen_unix(question.path);
}

}  // namespace

std::string address_lock_path(const std::string& socket_path) { return socket_path + ".lock"; }

Result<UniqueFd> lock_address(const std::string& socket_path) {
  const auto deadline = os::Deadline::after_ms(kEndingOwnerMs);
  while (true) {
    auto lock = os::lock_file(address_lock_path(socket_path));
    if (lock.is_ok()) return lock;
    if (lock.code() != Code::kStoreUnavailable) return lock.status();
    if (deadline.passed() || !is_owner_ending(socket_path)) return address_in_use_error(socket_path, lock.status());
    os::pause_ms(kPauseMs);
  }
}

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

AddressState AddressWatch::look(const Question& question, const std::atomic<bool>& abandoned) {
  AddressState state;
  // Best effort: without the file's text, an error message is less helpful, nothing else.
  if (question.write_owner && !abandoned && write_address_owner(question.lock, question.keeper_pid, true).is_ok()) {
    state.written_pid = question.keeper_pid;
  }
  // A predecessor may have been killed after it had recreated the socket and before the keeper held that one.
  state.socket_exists = os::file_exists(question.path) && !os::is_socket_abandoned(question.path);
  if (state.socket_exists || abandoned) return state;
  state.listening = listen_again(question, state.lock, abandoned);
  return state;
}

Status AddressWatch::open() {
  shared_ = std::make_shared<Shared>();
  looking_ = false;
  ASSIGN_OR_RETURN(shared_->event, os::create_event_fd());
  return Status::ok();
}

void AddressWatch::begin(const KeeperLink& link) {
  if (looking_) return;
  Question question{path_, link.fd(kLockTag), link.keeper_pid(), false};
  question.write_owner = question.lock >= 0 && written_pid_ != question.keeper_pid;
  try {
    std::thread([shared = shared_, look = look_, question = std::move(question)] {
      AddressState state = look(question, shared->abandoned);
      {
        const std::lock_guard<std::mutex> lock(shared->mutex);
        shared->answer.emplace(std::move(state));
      }
      os::signal_event(shared->event.get());
    }).detach();
    looking_ = true;
  } catch (const std::system_error&) {  // no thread now: the next try is in two seconds
  }
}

UniqueFd AddressWatch::take(KeeperLink& link) {
  os::clear_event(shared_->event.get());
  std::optional<AddressState> state;
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    std::swap(state, shared_->answer);
  }
  if (!state) return {};
  looking_ = false;
  if (state->written_pid != 0) written_pid_ = state->written_pid;
  if (state->lock.valid()) link.hold(kLockTag, std::move(state->lock));
  if (state->listening.is_ok()) {
    failure_logged_ = false;
    if (state->listening->valid()) log_warning("the socket ", path_, " was removed and has been recreated");
    return state->listening.take();
  }
  if (!std::exchange(failure_logged_, true)) {
    log_error("the socket ", path_,
              " was removed, so new clients cannot reach this store: ", state->listening.status().to_string(),
              ". Retrying every two seconds; to stop the store: kill ", link.keeper_pid());
  }
  return {};
}

UniqueFd AddressWatch::finish(KeeperLink& link) {
  if (looking_) {
    const auto answered = os::wait_readable(shared_->event.get(), os::Deadline::after_ms(kFinishMs));
    if (!answered.is_ok() || !*answered) log_warning("the file system of ", path_, " does not respond");
  }
  shared_->abandoned = true;
  return take(link);
}

}  // namespace entrepot
