#include "os/fork.h"

#include <pthread.h>
#include <sys/mman.h>

#include "os/error.h"

namespace entrepot::os {

Status at_fork(void (*prepare)(), void (*in_parent)(), void (*in_child)()) {
  const int error = ::pthread_atfork(prepare, in_parent, in_child);
  return error == 0 ? Status::ok() : errno_status(error, "pthread_atfork");
}

bool move_mapping(Mapping& mapping, std::byte* address) {
  const auto bytes = static_cast<std::size_t>(mapping.bytes());
  if (::mremap(mapping.data(), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, address) != address) return false;
  static_cast<void>(mapping.leak());  // nothing is mapped at its old address any more
  return true;
}

BlockedSignals::BlockedSignals() : previous_mask_{} {
  sigset_t all{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &previous_mask_);
}

BlockedSignals::~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr); }

}  // namespace entrepot::os
