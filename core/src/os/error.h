// Conversion of errno to Status.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace entrepot::os {

// ENOMEM, ENOSPC, EDQUOT -> kStoreFull; EACCES, EPERM, EROFS -> kAccessDenied; EMFILE, ENFILE -> is_out_of_descriptors;
// ECONNREFUSED, ECONNRESET, EPIPE, ENOTCONN, ENOENT, ESHUTDOWN -> kStoreUnavailable (retryable); ETIMEDOUT, EAGAIN ->
// kTimeout (retryable); else kInternal. The message is `what: text of the error (errno N)`; for EMFILE it also says
// which process has how many descriptors, because it may be read in another one.
[[nodiscard]] Status errno_status(int error, std::string_view what);

// kAccessDenied and retryable: a limit of this process, or of the process that reported it, not lack of memory.
[[nodiscard]] inline bool is_out_of_descriptors(const Status& status) {
  return status.code() == Code::kAccessDenied && status.retryable();
}

// Soft limit of a process's descriptors if all are used up; 0 if some are left or we may not look.
[[nodiscard]] std::uint64_t exhausted_descriptor_limit(std::uint32_t pid);

}  // namespace entrepot::os
