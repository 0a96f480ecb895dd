// Messages about memory and the objects in it: leases, segments, sealing, looking up, deleting, evicting.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"
#include "net/frame.h"
#include "shm/layout.h"

namespace entrepot {

// Lease: the exclusive right to write [offset, offset + length) of a segment. The answer may take as long as
// provisioning does, bounded by timeout_ms; kStoreFull says why not. The descriptor (read-write) comes with the first
// lease of a segment that this client gets; Segment brings it again.
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

// Unlease: gives a range back. done_with_segment: the client has unmapped its writable mapping.
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

// Segment: a descriptor (fd 0) to map; read-only, or writable for the client to which the segment is leased.
struct SegmentRequest {
  std::uint32_t segment = 0;
  std::uint8_t writable = 0;
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

// Seal: publish objects. New blobs lie in ranges that this client has leased; the daemon checks that, and takes those
// ranges out of the lease. A buffer refers to a new blob of the same object by kNewBlob | index, to a sealed blob by
// its number and generation, to the inline payload by kInlineBlob.
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
// What an object is, but for its bytes: the same from whoever puts it to the store.
struct ObjectSpec {
  IdBytes id{};
  std::uint32_t session = 0;
  std::uint8_t replace = 0;  // 1: takes the place of an object of this ID, and of whatever has its name
  std::string tree;
  std::string name;                // bound in the same step if not empty
  std::uint32_t locality_set = 0;  // from DefineSet; 0: the session's default one
  std::uint32_t consumers = 0;     // dead when so many have had it; 0: what its set says
};
struct SealObject : ObjectSpec {
  std::vector<NewBlob> blobs;
  std::vector<SealBuffer> buffers;
  std::string payload;  // inline
  template <class V>
  void fields(V& v) {
    v(id, session, replace, blobs, buffers, tree, payload, name, locality_set, consumers);
  }
};
struct SealRequest {
  std::vector<SealObject> objects;
  template <class V>
  void fields(V& v) {
    v(objects);
  }
};
// One result an object; kObjectExists means: another sealed object has this ID, and its place is given so that the
// client can compare the contents itself (identical content is success). A failed object leaves nothing behind; its
// new blobs' ranges stay leased.
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

// Lookup: where objects are; waits until all are sealed or the time is over. Slot and generation are a hint: the client
// pins and re-checks as for any other. load_ms: objects that lie in cold storage are brought back; one alone is waited
// for so long, of several the answer says at once which are not resident yet. 0: they stay where they are.
struct LookupRequest {
  std::vector<IdBytes> ids;
  std::uint32_t timeout_ms = 0;
  std::uint32_t load_ms = 0;
  template <class V>
  void fields(V& v) {
    v(ids, timeout_ms, load_ms);
  }
};
struct LookupResult {
  // kOk: it exists. kObjectNotFound, kObjectLost, kObjectDropped; or why it could not be brought back (kStoreFull,
  // kTimeout, ...).
  Code code{};
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint8_t resident = 0;
  std::string message;
  template <class V>
  void fields(V& v) {
    v(code, slot, generation, resident, message);
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
  std::vector<std::uint8_t> deleted;  // 1 where the object was there
  template <class V>
  void fields(V& v) {
    v(deleted);
  }
};

// Evict: moves objects out of memory; what has no copy yet is written first, in the background. Pinned ones stay.
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
