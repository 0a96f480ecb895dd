#include "os/events.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "base/text.h"
#include "os/error.h"

namespace entrepot::os {

namespace {

std::uint32_t interest(bool readable, bool writable) {
  return (readable ? static_cast<std::uint32_t>(EPOLLIN) : 0U) | (writable ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
}

Status control(int poller, int operation, int fd, std::uint64_t key, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (::epoll_ctl(poller, operation, fd, &event) != 0) {
    return errno_status(errno, concat("epoll_ctl of descriptor ", fd));
  }
  return Status::ok();
}

Result<bool> wait_for(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int count = ::poll(&entry, 1, deadline.poll_ms());
    if (count > 0) return true;
    if (count == 0 && deadline.passed()) return false;
    if (count < 0 && errno != EINTR) return errno_status(errno, concat("poll of descriptor ", fd));
    if (deadline.passed()) return false;
  }
}

Status ignore(int signal, std::string_view what) {
  struct sigaction action{};
  action.sa_handler = SIG_IGN;
  if (::sigaction(signal, &action, nullptr) != 0) return errno_status(errno, what);
  return Status::ok();
}

void drain_counter(int fd) {
  std::uint64_t count = 0;
  while (::read(fd, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

}  // namespace

Result<Poller> Poller::create() {
  UniqueFd fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!fd.valid()) return errno_status(errno, "epoll_create1");
  return Poller(std::move(fd));
}

Status Poller::add(int fd, std::uint64_t key, bool readable, bool writable) {
  return control(fd_.get(), EPOLL_CTL_ADD, fd, key, interest(readable, writable));
}

Status Poller::add_urgent(int fd, std::uint64_t key) {
  return control(fd_.get(), EPOLL_CTL_ADD, fd, key, static_cast<std::uint32_t>(EPOLLPRI));
}

Status Poller::change(int fd, std::uint64_t key, bool readable, bool writable) {
  return control(fd_.get(), EPOLL_CTL_MOD, fd, key, interest(readable, writable));
}

void Poller::remove(int fd) {
  // Fails only if the descriptor is not in the set, which is the desired result.
  epoll_event unused{};
  [[maybe_unused]] const int outcome = ::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, &unused);
}

Result<std::vector<Ready>> Poller::wait(Deadline deadline) {
  std::array<epoll_event, 64> events{};
  while (true) {
    const int count = ::epoll_wait(fd_.get(), events.data(), static_cast<int>(events.size()), deadline.poll_ms());
    if (count < 0 && errno != EINTR) return errno_status(errno, "epoll_wait");
    if (count > 0) {
      std::vector<Ready> ready;
      ready.reserve(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        const std::uint32_t what = events[i].events;
        ready.push_back({events[i].data.u64, (what & EPOLLIN) != 0, (what & EPOLLOUT) != 0,
                         (what & (EPOLLHUP | EPOLLERR)) != 0, (what & EPOLLPRI) != 0});
      }
      return ready;
    }
    if (deadline.passed()) return std::vector<Ready>{};
  }
}

Result<bool> wait_readable(int fd, Deadline deadline) { return wait_for(fd, POLLIN, deadline); }
bool is_hung_up(int fd) {
  pollfd entry{fd, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}
void clear_urgent(int fd) {
  pollfd entry{fd, POLLPRI, 0};
  static_cast<void>(::poll(&entry, 1, 0));  // looking is what forgets it
}
Result<bool> wait_writable(int fd, Deadline deadline) { return wait_for(fd, POLLOUT, deadline); }

Result<UniqueFd> create_event_fd() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return errno_status(errno, "eventfd");
  return fd;
}

void signal_event(int event_fd) {
  const std::uint64_t increment = 1;
  // EAGAIN: the counter is full, so the descriptor is already readable.
  while (::write(event_fd, &increment, sizeof(increment)) < 0 && errno == EINTR) {
  }
}

void clear_event(int event_fd) { drain_counter(event_fd); }

Result<UniqueFd> create_signal_fd(std::initializer_list<int> signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals)
    ::sigaddset(&set, signal);
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &set, nullptr); error != 0) {
    return errno_status(error, "pthread_sigmask");
  }
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return errno_status(errno, "signalfd");
  return fd;
}

Result<int> read_signal(int signal_fd) {
  signalfd_siginfo info{};
  while (::read(signal_fd, &info, sizeof(info)) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return 0;
    return errno_status(errno, "reading a signal");
  }
  return static_cast<int>(info.ssi_signo);
}

Status ignore_sigpipe() { return ignore(SIGPIPE, "ignoring SIGPIPE"); }
Status ignore_sigxfsz() { return ignore(SIGXFSZ, "ignoring SIGXFSZ"); }

}  // namespace entrepot::os
