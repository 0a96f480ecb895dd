// Messages about memory and objects: leases, segments, seal, lookup, delete, evict.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"
#include "net/frame.h"
#include "shm/layout.h"

namespace entrepot {

// Lease: the exclusive right to write to [offset, offset + length) of a segment. The answer may take as long as
// provisioning does, bounded by timeout_ms; kStoreFull gives the reason. The read-write descriptor is sent with this
// client's first lease of a segment; Segment requests it again.
//
// LeaseIsolated: the same, in a segment that is never leased to another client and that the daemon never fills, so that
// the client may pass its descriptor on to processes that write where they please.
struct LeaseRequest {
  std::uint64_t min_bytes = 0;
  std::uint64_t want_bytes = 0;
  std::uint32_t timeout_ms = 0;
  template <class V>
  void fields(V& v) {
    v(min_bytes, want_bytes, timeout_ms);
  }
};
struct LeaseReply {
  std::uint32_t segment = 0;
  std::uint32_t segment_generation = 0;
  std::uint64_t segment_bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  MemoryKind kind{};
  template <class V>
  void fields(V& v) {
    v(segment, segment_generation, segment_bytes, offset, length, kind);
  }
};

// Unlease: returns a range. done_with_segment: the client has removed its writable mapping.
struct UnleaseRequest {
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint8_t done_with_segment = 0;
  template <class V>
  void fields(V& v) {
    v(segment, offset, length, done_with_segment);
  }
};

// Reserve: memory for what this client is going to seal, promised once there is room for it; bounded by timeout_ms, then
// kStoreFull. The number is the client's choice, not 0 and not in use. The reservation ends with the connection.
struct ReserveRequest {
  std::uint32_t number = 0;
  std::uint64_t bytes = 0;
  std::uint32_t timeout_ms = 0;
  std::uint8_t restores = 0;  // 1: an earlier daemon has granted it, so it does not wait
  template <class V>
  void fields(V& v) {
    v(number, bytes, timeout_ms, restores);
  }
};

// Reservation: what became of a reservation; ends it if asked to, even while it waits.
struct ReservationRequest {
  std::uint32_t number = 0;
  std::uint8_t ends = 0;
  template <class V>
  void fields(V& v) {
    v(number, ends);
  }
};
struct ReservationReply {
  std::uint8_t held = 0;  // 0: it is not held, or has not been granted; then the rest is 0
  std::uint64_t bytes = 0;
  std::uint64_t used_bytes = 0;  // new bytes that the client has sealed under it
  template <class V>
  void fields(V& v) {
    v(held, bytes, used_bytes);
  }
};

// Segment: requests a descriptor (fd 0) to map.
//
// kIsolatedAccess is for a client that lets other processes map its isolated segments: writable, if the segment is
// isolated and was leased to this client, or to one that is gone. A daemon that does not know it takes it for
// kLeaseAccess, and so refuses more than it has to.
inline constexpr std::uint8_t kReadAccess = 0;
inline constexpr std::uint8_t kLeaseAccess = 1;  // writable, for the client that leases the segment
inline constexpr std::uint8_t kIsolatedAccess = 2;
struct SegmentRequest {
  std::uint32_t segment = 0;
  std::uint8_t writable = kReadAccess;
  template <class V>
  void fields(V& v) {
    v(segment, writable);
  }
};
struct SegmentReply {
  std::uint32_t segment = 0;
  std::uint32_t segment_generation = 0;
  std::uint64_t segment_bytes = 0;
  template <class V>
  void fields(V& v) {
    v(segment, segment_generation, segment_bytes);
  }
};

// Seal: publishes objects. New blobs must lie in ranges leased to this client; the daemon checks this and removes the
// ranges from the lease. A buffer refers to a new blob of the same object by kNewBlob | index, to a sealed blob by its
// number and generation, to the inline payload by kInlineBlob.
inline constexpr std::uint32_t kNewBlob = 0x8000'0000U;
struct NewBlob {
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  template <class V>
  void fields(V& v) {
    v(segment, offset, length);
  }
};
struct SealBuffer {
  std::uint32_t blob = 0;
  std::uint32_t generation = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  template <class V>
  void fields(V& v) {
    v(blob, generation, offset, length);
  }
};
// Description of an object without its bytes, for any way of putting it.
struct ObjectSpec {
  IdBytes id{};
  std::uint32_t session = 0;
  std::uint8_t replace = 0;  // 1: replaces an existing object with this ID, and rebinds the name
  std::string tree;
  std::string name;                // bound in the same step, unless empty
  std::uint32_t locality_set = 0;  // from DefineSet; 0: the session's default set
  std::uint32_t consumers = 0;     // dead once this many consumers are done; 0: the set's number
};
inline constexpr std::uint32_t kNoPin = 0xffff'ffffU;
struct SealObject : ObjectSpec {
  std::vector<NewBlob> blobs;
  std::vector<SealBuffer> buffers;
  std::string payload;  // inline
  // Position in the client's pin table, which it has reserved and not written: the daemon writes a pin of the new object
  // there, so that memory which the client still uses stays as it is. kNoPin: none.
  std::uint32_t pin_position = kNoPin;
  template <class V>
  void fields(V& v) {
    v(id, session, replace, blobs, buffers, tree, payload, name, locality_set, consumers, pin_position);
  }
};
struct SealRequest {
  std::vector<SealObject> objects;
  template <class V>
  void fields(V& v) {
    v(objects);
  }
};
// One result per object. kObjectExists: another sealed object has this ID; its slot is given so that the client can
// compare the contents (identical content is success). A failed object leaves nothing behind; the ranges of its new
// blobs stay leased.
struct SealResult {
  Code code{};
  std::string message;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  template <class V>
  void fields(V& v) {
    v(code, message, slot, generation);
  }
};
struct SealReply {
  std::vector<SealResult> results;
  template <class V>
  void fields(V& v) {
    v(results);
  }
};

// Lookup: finds objects; waits until all are sealed or the timeout expires. Slot and generation are a hint: the client
// pins and rechecks as usual. load_ms > 0: objects on disk are reloaded; a single one is waited for up to load_ms, for
// several the answer says at once which are not resident yet. 0: objects stay on disk.
struct LookupRequest {
  std::vector<IdBytes> ids;
  std::uint32_t timeout_ms = 0;
  std::uint32_t load_ms = 0;
  template <class V>
  void fields(V& v) {
    v(ids, timeout_ms, load_ms);
  }
};
// `presence` of a result
inline constexpr std::uint8_t kResident = 1;       // of an object that exists: it is in memory
inline constexpr std::uint8_t kGatewayServes = 2;  // of one that is not found: the store has a gateway, since 1.7
struct LookupResult {
  // kOk: the object exists. Otherwise kObjectNotFound, kObjectLost, kObjectDropped, or why it could not be reloaded
  // (kStoreFull, kTimeout, ...).
  Code code{};
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint8_t presence = 0;
  std::string message;
  template <class V>
  void fields(V& v) {
    v(code, slot, generation, presence, message);
  }
};
struct LookupReply {
  std::vector<LookupResult> results;
  template <class V>
  void fields(V& v) {
    v(results);
  }
};

struct DeleteRequest {
  std::vector<IdBytes> ids;
  template <class V>
  void fields(V& v) {
    v(ids);
  }
};
struct DeleteReply {
  std::vector<std::uint8_t> deleted;  // 1 if the object existed
  template <class V>
  void fields(V& v) {
    v(deleted);
  }
};

// DeleteGenerations: deletes each object only if it still has this generation, so that what has replaced it stays. The
// answer is a DeleteReply: 1 if this generation was there. Resent after a reconnect, it may be 0 for one that was
// deleted the first time.
struct ObjectGeneration {
  IdBytes id{};
  std::uint32_t generation = 0;
  template <class V>
  void fields(V& v) {
    v(id, generation);
  }
};
struct DeleteGenerationsRequest {
  std::vector<ObjectGeneration> objects;
  template <class V>
  void fields(V& v) {
    v(objects);
  }
};

// Evict: moves objects out of memory; those without a copy on disk are written first, in the background. Pinned objects
// stay.
struct EvictRequest {
  std::vector<IdBytes> ids;
  template <class V>
  void fields(V& v) {
    v(ids);
  }
};
struct EvictResult {
  Code code{};
  std::string message;
  template <class V>
  void fields(V& v) {
    v(code, message);
  }
};
struct EvictReply {
  std::vector<EvictResult> results;
  template <class V>
  void fields(V& v) {
    v(results);
  }
};

}  // namespace entrepot
