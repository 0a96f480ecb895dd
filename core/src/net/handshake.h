// Handshake messages: Hello and its answer, and the registration of a forked child.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "net/frame.h"
#include "shm/layout.h"

namespace entrepot {

// Limit of ranges in one Hello: more than a client needs that writes as many objects at once as a request may name. The
// daemon keeps each range as long as the client holds it.
inline constexpr std::uint32_t kMaxReportedRanges = kMaxBatch;

// A range that a reconnecting client still leases; see Hello::leases.
struct ReportedRange {
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
  std::uint32_t client = 0;  // client index; valid with a token
  std::uint32_t pin_capacity = kMaxPinsPerClient;
  std::string label;       // shown in status: program name
  std::string credential;  // reserved for authentication tokens; empty
  // With a token. 1: `leases` is everything that this client still leases, and the rest of its segments is free for its
  // next leases; 0: unknown, and everything unsealed in its segments counts as leased to it. A range of another client,
  // or of another generation of the segment, is ignored as lost. At most kMaxReportedRanges.
  std::uint8_t reports_leases = 0;
  std::vector<ReportedRange> leases;
  template <class V>
  void fields(V& v) {
    v(protocol_major, protocol_minor, layout_version, abi_stamp, client_version, token, client, pin_capacity, label,
      credential, reports_leases, leases);
  }
};

// Descriptors, in order: root, slots, blobs, index, records (all read-only), pin table (read-write), liveness (the
// client keeps it open and never uses it; its end-of-file tells daemon and keeper that the client died). A reconnecting
// client gets only the first five.
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
  std::uint8_t shared_between_users = 0;  // if so, pickling is off by default
  template <class V>
  void fields(V& v) {
    v(protocol_major, protocol_minor, layout_version, abi_stamp, daemon_version, instance, client, token, incarnation,
      host, capacity_bytes, daemon_pid, shared_between_users);
  }
};

struct ForkReply {  // descriptors: pin table, liveness, and a connected socket of the new registration
  std::uint32_t client = 0;
  std::uint64_t token = 0;
  std::uint32_t pins = 0;  // capacity of its pin table
  template <class V>
  void fields(V& v) {
    v(client, token, pins);
  }
};

// GrowPins: requests capacity for at least `pins` pins in the caller's pin table; the answer gives the actual capacity.
struct GrowPinsRequest {
  std::uint32_t pins = 0;
  template <class V>
  void fields(V& v) {
    v(pins);
  }
};
struct GrowPinsReply {
  std::uint32_t pins = 0;
  template <class V>
  void fields(V& v) {
    v(pins);
  }
};

// OpenRings: the answer has one descriptor, the memory of this connection's rings (net/frame_ring.h). They end with the
// connection.
struct OpenRingsReply {
  std::uint64_t ring_bytes = 0;  // of each; a client that expects another number does not use them
  template <class V>
  void fields(V& v) {
    v(ring_bytes);
  }
};

}  // namespace entrepot
