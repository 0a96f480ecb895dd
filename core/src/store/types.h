// Requests and answers of the store, independent of the wire format.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "shm/layout.h"
#include "shm/locality.h"

namespace entrepot {

// Time source; tests substitute their own.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual std::uint64_t monotonic_ns() const = 0;
  [[nodiscard]] virtual std::uint64_t unix_ns() const = 0;
};

struct StoreOptions {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t warm_bytes = 0;                   // made warm ahead of demand
  bool warm_for_large = true;                     // two thirds of it in one segment for a large value
  std::uint64_t give_back_after_seconds = 30;     // free memory beyond warm_bytes, once not used for so long; 0: never
  std::uint64_t default_ttl_seconds = 24 * 3600;  // of named sessions
  // With a spill backend: when memory without a copy on disk exceeds the high mark, copies are written in the
  // background until it is below the low mark. Percent of the capacity.
  std::uint32_t spill_high_percent = 80;
  std::uint32_t spill_low_percent = 70;
  bool recovered_from_crash = false;  // the previous store's keeper and daemon were both killed
  std::string no_spill_reason;        // without a spill backend: the reason
  std::string host;
  std::string version;
};

// One life of an object under its ID: what replaces it has another generation.
struct ObjectLife {
  IdBytes id{};
  std::uint32_t generation = 0;
};

// Segment range that becomes a blob.
struct BlobRange {
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// Buffer of an object. `blob`: kNewBlobBit | index into SealSpec::blobs, kInlineBlob, or the number of a sealed blob.
inline constexpr std::uint32_t kNewBlobBit = 0x8000'0000U;
struct BufferSpec {
  std::uint32_t blob = 0;
  std::uint32_t generation = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// One object to seal. The strings must stay valid during the call.
struct SealSpec {
  IdBytes id{};
  std::uint32_t session = 0;  // handle
  bool replace = false;
  std::uint32_t locality_set = 0;  // handle; 0: the session's default one
  std::uint32_t consumers = 0;     // object is dead once so many have consumed it; 0: as its set says
  std::vector<BlobRange> blobs;
  std::vector<BufferSpec> buffers;
  std::string_view tree;
  std::string_view payload;
  std::string_view name;
  std::optional<std::uint32_t> pin_position{};  // where the client wants a pin of the object; see net/object_messages.h
};

// Where an object is. For kObjectExists: where the existing one is.
struct SealOutcome {
  Status status;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  // of a failure: 0, unless the object is sealed and only its name is not bound
  std::uint64_t record = 0;      // answer only once this record is written: see Store::when_recorded
};

// kOk: the object exists. For an existing object, any other code says why it could not be reloaded.
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

struct ReportedLease {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// Hints about objects. `fields` is a mask of HintField; fields outside it are left unchanged.
enum HintField : std::uint8_t { kHintPriority = 1, kHintPinned = 2, kHintSet = 4, kHintRecompute = 8 };
struct HintSpec {
  std::uint8_t fields = 0;
  std::int8_t priority = 0;
  bool pinned = false;
  std::uint32_t locality_set = 0;                                  // handle; 0: the session's default one
  std::uint64_t recompute_ns = RecomputeCode::kNotRecomputableNs;  // time to recompute it
};

struct SetGrant {
  std::uint32_t handle = 0;
  SetAttributes attributes;
};

struct NameOutcome {
  IdBytes id{};
  std::uint32_t generation = 0;
};

// Origin of a request. Waiting requests are dropped together with their owner.
struct RequestOrigin {
  std::uint32_t client = 0;
  std::uint64_t owner = 0;  // the connection
};

using LookupDone = std::function<void(std::vector<LookupOutcome>)>;
using LeaseDone = std::function<void(Result<LeaseGrant>)>;
using NameDone = std::function<void(Result<NameOutcome>)>;
// Tries again what was refused for lack of room, and returns whether it was answered. `last`: it must be.
using RoomAttempt = std::function<bool(bool last)>;
using ReserveDone = std::function<void(const Status&)>;
using ProvisionDone = std::function<void(Status)>;
using RecordDone = std::function<void(const Status&)>;

}  // namespace entrepot
