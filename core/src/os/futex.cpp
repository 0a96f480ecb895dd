#include "os/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace entrepot::os {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

// Errors of both calls mean that the word has changed, that the time is up or that a signal came (EAGAIN, ETIMEDOUT,
// EINTR); callers look at the word and have another way to be woken.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, std::uint32_t max_ns) {
  const timespec timeout{.tv_sec = 0, .tv_nsec = static_cast<long>(max_ns)};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

void futex_wake(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace entrepot::os
