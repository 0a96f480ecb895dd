// What the store is asked and what it answers, free of any wire.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "shm/layout.h"

namespace entrepot {

// Time, so that tests can turn it.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual std::uint64_t monotonic_ns() const = 0;
  [[nodiscard]] virtual std::uint64_t unix_ns() const = 0;
};

struct StoreOptions {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t warm_bytes = 0;                   // kept warm ahead of demand
  std::uint64_t default_ttl_seconds = 24 * 3600;  // of sessions with a name
  std::string host;
  std::string version;
};

// A range of a segment that becomes a blob.
struct BlobRange {
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// A buffer of an object. `blob`: kNewBlobBit | index into SealSpec::blobs, kInlineBlob, or the number of a sealed blob.
inline constexpr std::uint32_t kNewBlobBit = 0x8000'0000U;
struct BufferSpec {
  std::uint32_t blob = 0;
  std::uint32_t generation = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// One object to seal. The texts stay alive during the call.
struct SealSpec {
  IdBytes id{};
  std::uint32_t session = 0;  // handle
  bool replace = false;
  std::vector<BlobRange> blobs;
  std::vector<BufferSpec> buffers;
  std::string_view tree;
  std::string_view payload;
  std::string_view name;
};

// Where an object is. For kObjectExists: where the other one is.
struct SealOutcome {
  Status status;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
};

struct LookupOutcome {
  Code code = Code::kObjectNotFound;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
};

struct LeaseGrant {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;
  std::uint64_t segment_bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  MemoryKind kind = MemoryKind::kUnknown;
  bool first = false;  // the client has no writable descriptor of this segment yet
};

struct HeldLease {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

struct NameOutcome {
  IdBytes id{};
  std::uint32_t generation = 0;
};

// Who asked. Requests that wait are dropped with their owner.
struct Asker {
  std::uint32_t client = 0;
  std::uint64_t owner = 0;  // the connection
};

using LookupDone = std::function<void(std::vector<LookupOutcome>)>;
using LeaseDone = std::function<void(Result<LeaseGrant>)>;
using NameDone = std::function<void(Result<NameOutcome>)>;
using ProvisionDone = std::function<void(Status)>;

}  // namespace entrepot
