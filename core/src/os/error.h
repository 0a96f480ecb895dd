// From errno to Status, in one place.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace entrepot::os {

// ENOMEM, ENOSPC, EDQUOT -> kStoreFull; EACCES, EPERM, EROFS -> kAccessDenied; EMFILE, ENFILE -> is_out_of_descriptors;
// ECONNREFUSED, ECONNRESET, EPIPE, ENOTCONN, ENOENT, ESHUTDOWN -> kStoreUnavailable (retryable); ETIMEDOUT, EAGAIN ->
// kTimeout (retryable); else kInternal. The message is `what: text of the error (errno N)`, and for EMFILE which
// process has how many, as who reads it may be another one.
[[nodiscard]] Status errno_status(int error, std::string_view what);

// kAccessDenied that is retryable: a limit of this process, or of the one that says so, and no lack of memory.
[[nodiscard]] inline bool is_out_of_descriptors(const Status& status) {
  return status.code() == Code::kAccessDenied && status.retryable();
}

// The soft limit of a process's descriptors if it has none left; 0 if it has some, or does not let us see them.
[[nodiscard]] std::uint64_t used_up_descriptors(std::uint32_t pid);

}  // namespace entrepot::os
