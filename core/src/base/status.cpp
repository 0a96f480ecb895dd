#include "base/status.h"

namespace entrepot {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "Ok";
    case Code::kInternal:
      return "Internal";
    case Code::kObjectNotFound:
      return "ObjectNotFound";
    case Code::kObjectLost:
      return "ObjectLost";
    case Code::kCorruptData:
      return "CorruptData";
    case Code::kObjectExists:
      return "ObjectExists";
    case Code::kNotSealed:
      return "NotSealed";
    case Code::kStoreFull:
      return "StoreFull";
    case Code::kStoreUnavailable:
      return "StoreUnavailable";
    case Code::kTimeout:
      return "Timeout";
    case Code::kVersionMismatch:
      return "VersionMismatch";
    case Code::kAccessDenied:
      return "AccessDenied";
    case Code::kUnsupportedType:
      return "UnsupportedType";
    case Code::kInvalidReference:
      return "InvalidReference";
    case Code::kInvalidArgument:
      return "InvalidArgument";
    case Code::kObjectDropped:
      return "ObjectDropped";
    case Code::kInstanceLost:
      return "InstanceLost";
    case Code::kStreamFailed:
      return "StreamFailed";
    case Code::kStreamLost:
      return "StreamLost";
    case Code::kDirectoryUnavailable:
      return "DirectoryUnavailable";
  }
  return "Unknown";
}

std::string Status::to_string() const {
  std::string text(code_name(code_));
  if (!is_ok()) text.append(": ").append(message_);
  return text;
}

Status Status::with_context(std::string_view context) const {
  if (is_ok()) return {};
  std::string text(context);
  text.append(": ").append(message_);
  return Status(code_, std::move(text), retryable_);
}

}  // namespace entrepot
