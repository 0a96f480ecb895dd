#include "os/error.h"

#include <cerrno>
#include <system_error>

#include "base/text.h"

namespace entrepot::os {

Status errno_status(int error, std::string_view what) {
  const std::string message =
      concat(what, ": ", std::generic_category().message(error), " (errno ", error, ")",
             error == EFBIG ? ": beyond the limit of file sizes (ulimit -f), or of the file system" : "");
  switch (error) {
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return Status(Code::kStoreFull, message);
    case EACCES:
    case EPERM:
    case EROFS:
      return Status(Code::kAccessDenied, message);
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ENOTCONN:
    case ENOENT:
    case ESHUTDOWN:
      return Status(Code::kStoreUnavailable, message, true);
    case ETIMEDOUT:
    case EAGAIN:
      return Status(Code::kTimeout, message, true);
    default:
      return Status(Code::kInternal, message);
  }
}

}  // namespace entrepot::os
