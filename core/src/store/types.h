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
#include "shm/locality.h"

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
  std::uint64_t give_back_after_seconds = 30;     // what is free beyond that; 0: never
  std::uint64_t default_ttl_seconds = 24 * 3600;  // of sessions with a name
  // With cold storage: when so much of the capacity is taken and has no copy, copies are written in the background,
  // until it is less than the low mark. Shares of 100.
  std::uint32_t spill_high_percent = 80;
  std::uint32_t spill_low_percent = 70;
  bool follows_killed = false;  // the store that was here before was killed, keeper and daemon
  std::string no_spill_why;     // without cold storage: why there is none
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
  std::uint32_t locality_set = 0;  // handle; 0: the session's default one
  std::uint32_t consumers = 0;     // dead when so many have had it; 0: what its set says
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

// kOk: it exists. Any other code for an object that exists says why it could not be brought back to memory.
struct LookupOutcome {
  Code code = Code::kObjectNotFound;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  bool resident = false;
  std::string message{};  // of a failed load
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

// What a request says about objects; `fields` of HintField, the others stay what they are.
enum HintField : std::uint8_t { kHintPriority = 1, kHintPinned = 2, kHintSet = 4, kHintRecompute = 8 };
struct HintSpec {
  std::uint8_t fields = 0;
  std::int8_t priority = 0;
  bool pinned = false;
  std::uint32_t locality_set = 0;                         // handle; 0: the session's default one
  std::uint64_t recompute_ns = RecomputeCode::kCannotNs;  // to make it again
};

struct SetGrant {
  std::uint32_t handle = 0;
  SetAttributes attributes;
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
