#include "os/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

#include "os/error.h"
#include "os/log.h"

namespace entrepot::os {

void fill_random(std::span<std::uint8_t> out) {
  while (!out.empty()) {
    const ssize_t got = ::getrandom(out.data(), out.size(), 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      log_error(errno_status(errno, "cannot get random bytes (getrandom)").message());
      flush_log();
      std::abort();
    }
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

std::uint64_t random_u64() {
  std::uint64_t value = 0;
  while (value == 0)
    fill_random({reinterpret_cast<std::uint8_t*>(&value), sizeof(value)});
  return value;
}

IdBytes random_id() {
  IdBytes id{};
  fill_random(id);
  return id;
}

InstanceId random_instance() {
  InstanceId id{};
  fill_random(id);
  return id;
}

}  // namespace entrepot::os
