// From errno to Status, in one place.
#pragma once

#include <string_view>

#include "base/status.h"

namespace entrepot::os {

// ENOMEM, ENOSPC, EDQUOT, EMFILE, ENFILE -> kStoreFull; EACCES, EPERM, EROFS -> kAccessDenied; ECONNREFUSED,
// ECONNRESET, EPIPE, ENOTCONN, ENOENT, ESHUTDOWN -> kStoreUnavailable (retryable); ETIMEDOUT, EAGAIN -> kTimeout
// (retryable); else kInternal. The message is `what: text of the error (errno N)`.
[[nodiscard]] Status errno_status(int error, std::string_view what);

}  // namespace entrepot::os
