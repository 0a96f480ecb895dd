// Messages about the store's gateway (since 1.7): a client through which the other clients reach other stores. The daemon
// passes calls on to it, and its answers back, and knows nothing of what they say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"
#include "net/frame.h"

namespace entrepot {

inline constexpr std::uint32_t kMaxCallBytes = 1U << 20;  // of a call's or an answer's payload

// ServeGateway: this connection is the store's gateway, until it ends or has been silent for 10 s. kObjectExists: another
// one is, and is not silent.
struct ServeGatewayRequest {
  std::string label;  // for messages, such as "process 4711 on host-a"; empty: this connection stops being the gateway
  template <class V>
  void fields(V& v) {
    v(label);
  }
};

// CallGateway: passes a call on. Answered when the gateway answers it, or, if it names objects, once all of them are
// sealed here, with an empty payload; after timeout_ms: kTimeout. kStoreUnavailable: there is no gateway.
struct CallGatewayRequest {
  std::string operation;
  std::vector<IdBytes> ids;
  std::string payload;
  std::uint32_t timeout_ms = 0;
  template <class V>
  void fields(V& v) {
    v(operation, ids, payload, timeout_ms);
  }
};
struct CallGatewayReply {
  std::string payload;
  template <class V>
  void fields(V& v) {
    v(payload);
  }
};

// NextCalls, from the gateway: what it was not given yet, waiting for up to timeout_ms, at most 2 s; possibly nothing. It
// asks again at once, which also shows that it is alive.
struct NextCallsRequest {
  std::uint32_t max_calls = 1;
  std::uint32_t timeout_ms = 0;
  template <class V>
  void fields(V& v) {
    v(max_calls, timeout_ms);
  }
};
struct GatewayCall {
  std::uint64_t number = 0;
  std::string operation;
  std::vector<IdBytes> ids;
  std::string payload;
  std::uint32_t timeout_ms = 0;  // left
  template <class V>
  void fields(V& v) {
    v(number, operation, ids, payload, timeout_ms);
  }
};
struct NextCallsReply {
  std::vector<GatewayCall> calls;
  template <class V>
  void fields(V& v) {
    v(calls);
  }
};

// AnswerCall, from the gateway. Of a call that has been answered otherwise: no effect.
struct AnswerCallRequest {
  std::uint64_t number = 0;
  Code code{};
  std::string message;
  std::string payload;
  template <class V>
  void fields(V& v) {
    v(number, code, message, payload);
  }
};

}  // namespace entrepot
