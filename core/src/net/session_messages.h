// Messages about sessions, locality sets, names, and the store's status.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"
#include "net/frame.h"

namespace entrepot {

struct OpenSessionRequest {
  std::string scope;
  std::string session;
  std::uint8_t set_limits = 0;  // 1: store the three limits below; 0: keep the current ones, or the defaults
  std::uint64_t ttl_seconds = 0;
  std::uint64_t limit_bytes = 0;
  std::uint64_t limit_objects = 0;
  std::uint8_t deletes_consumed = 0;  // delete objects after their last consumer: 1: no, 2: yes, 0: unchanged
  template <class V>
  void fields(V& v) {
    v(scope, session, set_limits, ttl_seconds, limit_bytes, limit_objects, deletes_consumed);
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
// CloseSession: this client no longer has the session open; updates its last use.
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
// RemoveUnused: removes the session unless somebody has it open, or has used it since it was listed.
struct RemoveUnusedRequest {
  std::string scope;
  std::string session;
  std::uint64_t last_used_unix_ns = 0;  // from ListSessions; 0: regardless of the last use
  template <class V>
  void fields(V& v) {
    v(scope, session, last_used_unix_ns);
  }
};
struct RemoveUnusedReply {
  std::uint8_t removed = 0;
  std::uint32_t opened_by = 0;  // number of clients; 0 and not removed: it was used meanwhile
  template <class V>
  void fields(V& v) {
    v(removed, opened_by);
  }
};

// DefineSet: creates or changes a locality set of the session, identified by its handle if nonzero, else by its name
// (empty: the default set). `changed`: SetField bits (shm/locality.h) of the attributes to set.
struct DefineSetRequest {
  std::uint32_t session = 0;
  std::uint32_t set = 0;
  std::string name;
  std::uint8_t changed = 0;
  std::uint64_t attributes = 0;  // SetAttributes::pack()
  template <class V>
  void fields(V& v) {
    v(session, set, name, changed, attributes);
  }
};
struct DefineSetReply {
  std::uint32_t set = 0;
  std::uint64_t attributes = 0;  // current values
  template <class V>
  void fields(V& v) {
    v(set, attributes);
  }
};
struct ListSetsRequest {  // answered with JSON
  std::uint32_t session = 0;
  template <class V>
  void fields(V& v) {
    v(session);
  }
};
// Hint: user hints about objects. `changed`: 1 priority, 2 pinned, 4 locality set, 8 recompute_ns.
struct HintRequest {
  std::vector<IdBytes> ids;
  std::uint8_t changed = 0;
  std::int8_t priority = 0;
  std::uint8_t pinned = 0;
  std::uint32_t locality_set = 0;
  std::uint64_t recompute_ns = ~0ULL;  // cost of recomputing them, which allows dropping; ~0: cannot be
  template <class V>
  void fields(V& v) {
    v(ids, changed, priority, pinned, locality_set, recompute_ns);
  }
};
// Consumed: marks the objects as consumed by `consumer`; idempotent.
struct ConsumedRequest {
  std::vector<IdBytes> ids;
  std::string consumer;
  template <class V>
  void fields(V& v) {
    v(ids, consumer);
  }
};
struct PerObjectResult {
  Code code{};
  std::string message;
  std::uint32_t left = 0;  // Consumed: consumers that are not done yet
  template <class V>
  void fields(V& v) {
    v(code, message, left);
  }
};
struct PerObjectReply {  // of Hint and Consumed
  std::vector<PerObjectResult> results;
  template <class V>
  void fields(V& v) {
    v(results);
  }
};

struct NameRequest {  // bind, resolve and unbind
  std::uint32_t session = 0;
  std::string name;
  IdBytes id{};                  // bind only
  std::uint8_t replace = 0;      // bind only
  std::uint32_t timeout_ms = 0;  // resolve: waits until it is bound
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

// List, Info, Status and ListSessions answer with JSON text (never on a hot path, and human-readable).
struct ListRequest {
  std::uint32_t session = 0;
  std::uint8_t all_sessions = 0;
  std::string pattern;       // glob over names and hex IDs
  std::uint32_t cursor = 0;  // first slot to examine
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
// Upgrade: another build's entrepotd takes over the store with all its contents. The answer is sent before that: then
// this daemon exits, and clients reconnect to the next one as after a crash.
struct UpgradeRequest {
  std::string program;  // absolute path
  template <class V>
  void fields(V& v) {
    v(program);
  }
};
struct UpgradeReply {
  std::string version;  // of the program
  template <class V>
  void fields(V& v) {
    v(version);
  }
};

}  // namespace entrepot
