// The local socket protocol between client and daemon, version 1. docs/formats/socket-protocol.md is its prose.
//
// A unix stream socket. Every frame is a FrameHeader and a body; descriptors travel by SCM_RIGHTS with the first byte
// of their frame. The client numbers its requests; the daemon answers each exactly once (kReply or kError) with the
// same number, not necessarily in order: what waits is answered when it is done. FrameHeader and Hello/HelloReply never
// change their first fields, so that any two versions can tell each other which they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/wire.h"
#include "entrepot/codes.h"
#include "shm/layout.h"

namespace entrepot {

inline constexpr std::uint16_t kProtocolMajor = 1;
inline constexpr std::uint16_t kProtocolMinor = 0;          // a peer one minor older or newer is served
inline constexpr std::uint32_t kFrameMagic = 0x3154'5045U;  // "EPT1"
inline constexpr std::uint32_t kMaxBodyBytes = 64U << 20;
inline constexpr std::uint32_t kMaxFds = 16;
inline constexpr std::uint32_t kMaxBatch = 1U << 16;  // objects in one request

enum class MessageType : std::uint16_t {
  kReply = 1,
  kError = 2,
  kHello = 10,
  kLease = 11,
  kUnlease = 12,
  kSegment = 13,
  kSeal = 14,
  kLookup = 15,
  kDelete = 16,
  kReleased = 17,  // no answer: some pins went while memory_wanted was set
  kOpenSession = 20,
  kRemoveSession = 21,
  kListSessions = 22,
  kCloseSession = 23,
  kBindName = 30,
  kResolveName = 31,
  kUnbindName = 32,
  kList = 33,
  kInfo = 34,
  kStatus = 40,
  kWaitProvisioned = 41,
  kShutdown = 42,
  kFork = 43,  // a second registration for the child of a fork, made by the parent
};

struct FrameHeader {
  std::uint32_t magic;
  MessageType type;
  std::uint16_t flags;  // 0
  std::uint32_t body_bytes;
  std::uint32_t fd_count;
  std::uint64_t request;
};
static_assert(sizeof(FrameHeader) == 24);

struct ErrorBody {
  Code code{};
  std::uint8_t retryable = 0;
  std::string message;
  template <class V>
  void fields(V& v) {
    v(code, retryable, message);
  }
};

// A range that a reconnecting client still holds under lease; see Hello::leases.
struct HeldRange {
  std::uint32_t segment = 0;
  std::uint32_t segment_generation = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  template <class V>
  void fields(V& v) {
    v(segment, segment_generation, offset, length);
  }
};

// Hello. A reconnecting client sends its token and its pin table's descriptor (fd 0); a new one sends token 0.
struct Hello {
  std::uint16_t protocol_major = kProtocolMajor;
  std::uint16_t protocol_minor = kProtocolMinor;
  std::uint32_t layout_version = kLayoutVersion;
  std::uint64_t abi_stamp = kAbiStamp;
  std::string client_version;
  std::uint64_t token = 0;
  std::uint32_t client = 0;  // index, with token
  std::uint32_t pin_capacity = kMaxPinsPerClient;
  std::string label;       // shown in status: program name
  std::string credential;  // room for tokens; empty
  // With a token: 1 says that `leases` is all this client still holds (the rest of its segments is free for its next
  // leases); 0: it does not say, and everything unsealed in its segments counts as leased to it. A range of another
  // client, or of another generation of the segment, is ignored: it was lost.
  std::uint8_t leases_known = 0;
  std::vector<HeldRange> leases;
  template <class V>
  void fields(V& v) {
    v(protocol_major, protocol_minor, layout_version, abi_stamp, client_version, token, client, pin_capacity, label,
      credential, leases_known, leases);
  }
};

// Descriptors, in order: root, slots, blobs, index, records (all read-only), pin table (read-write), liveness (the
// client keeps it open and never uses it: its end-of-file tells daemon and keeper that the client died). A reconnecting
// client gets the first five only.
struct HelloReply {
  std::uint16_t protocol_major = kProtocolMajor;
  std::uint16_t protocol_minor = kProtocolMinor;
  std::uint32_t layout_version = kLayoutVersion;
  std::uint64_t abi_stamp = kAbiStamp;
  std::string daemon_version;
  InstanceId instance{};
  std::uint32_t client = 0;
  std::uint64_t token = 0;
  std::uint32_t incarnation = 0;
  std::string host;
  std::uint64_t capacity_bytes = 0;
  std::uint32_t daemon_pid = 0;
  std::uint8_t shared_between_users = 0;  // then pickling is off by default
  template <class V>
  void fields(V& v) {
    v(protocol_major, protocol_minor, layout_version, abi_stamp, daemon_version, instance, client, token, incarnation,
      host, capacity_bytes, daemon_pid, shared_between_users);
  }
};

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
inline constexpr std::uint8_t kSealReplace = 1;
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
struct SealObject {
  IdBytes id{};
  std::uint32_t session = 0;
  std::uint8_t flags = 0;
  std::vector<NewBlob> blobs;
  std::vector<SealBuffer> buffers;
  std::string tree;
  std::string payload;  // inline
  std::string name;     // bound in the same step if not empty; kSealReplace rebinds it too
  template <class V>
  void fields(V& v) {
    v(id, session, flags, blobs, buffers, tree, payload, name);
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
// pins and re-checks as for any other.
struct LookupRequest {
  std::vector<IdBytes> ids;
  std::uint32_t timeout_ms = 0;
  template <class V>
  void fields(V& v) {
    v(ids, timeout_ms);
  }
};
struct LookupResult {
  Code code{};  // kOk, kObjectNotFound, kObjectLost
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  template <class V>
  void fields(V& v) {
    v(code, slot, generation);
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

struct OpenSessionRequest {
  std::string scope;
  std::string session;
  std::uint8_t set_limits = 0;  // 1: the three below are to be stored; 0: keep what is there, or the defaults
  std::uint64_t ttl_seconds = 0;
  std::uint64_t limit_bytes = 0;
  std::uint64_t limit_objects = 0;
  template <class V>
  void fields(V& v) {
    v(scope, session, set_limits, ttl_seconds, limit_bytes, limit_objects);
  }
};
struct OpenSessionReply {
  std::uint32_t session = 0;
  std::uint32_t generation = 0;
  template <class V>
  void fields(V& v) {
    v(session, generation);
  }
};
// CloseSession: this connection has it open no longer; the last use of it is now.
struct CloseSessionRequest {
  std::uint32_t session = 0;
  template <class V>
  void fields(V& v) {
    v(session);
  }
};
struct RemoveSessionRequest {
  std::string scope;
  std::string session;
  template <class V>
  void fields(V& v) {
    v(scope, session);
  }
};

struct NameRequest {  // bind, resolve, unbind
  std::uint32_t session = 0;
  std::string name;
  IdBytes id{};                  // bind
  std::uint8_t replace = 0;      // bind
  std::uint32_t timeout_ms = 0;  // resolve: wait until it is bound
  template <class V>
  void fields(V& v) {
    v(session, name, id, replace, timeout_ms);
  }
};
struct NameReply {
  IdBytes id{};
  std::uint32_t generation = 0;
  template <class V>
  void fields(V& v) {
    v(id, generation);
  }
};

// List, Info, Status, ListSessions answer with JSON text (never on a hot path, and readable by people).
struct ListRequest {
  std::uint32_t session = 0;
  std::uint8_t all_sessions = 0;
  std::string pattern;       // glob over names and hex IDs
  std::uint32_t cursor = 0;  // first slot to look at
  std::uint32_t limit = 1000;
  template <class V>
  void fields(V& v) {
    v(session, all_sessions, pattern, cursor, limit);
  }
};
struct InfoRequest {
  IdBytes id{};
  template <class V>
  void fields(V& v) {
    v(id);
  }
};
struct JsonReply {
  std::string json;
  template <class V>
  void fields(V& v) {
    v(json);
  }
};
struct WaitRequest {  // kWaitProvisioned
  std::uint32_t timeout_ms = 0;
  template <class V>
  void fields(V& v) {
    v(timeout_ms);
  }
};
struct ForkReply {  // descriptors: pin table, liveness, and a connected socket of the new registration
  std::uint32_t client = 0;
  std::uint64_t token = 0;
  template <class V>
  void fields(V& v) {
    v(client, token);
  }
};
struct Empty {
  std::uint8_t none = 0;
  template <class V>
  void fields(V& v) {
    v(none);
  }
};

}  // namespace entrepot
