// Error codes: stable numbers, used on the socket protocol and in the C ABI.
#pragma once

#include <cstdint>

namespace entrepot {

enum class Code : std::uint16_t {
  kOk = 0,
  kInternal = 1,
  kObjectNotFound = 2,
  kObjectLost = 3,
  kCorruptData = 4,
  kObjectExists = 5,
  kNotSealed = 6,
  kStoreFull = 7,
  kStoreUnavailable = 8,
  kTimeout = 9,
  kVersionMismatch = 10,
  kAccessDenied = 11,
  kUnsupportedType = 12,
  kInvalidReference = 13,
  kInvalidArgument = 14,
  kObjectDropped = 15,
  kInstanceLost = 16,
  kStreamFailed = 17,
  kStreamLost = 18,
  kDirectoryUnavailable = 19,
};

}  // namespace entrepot
