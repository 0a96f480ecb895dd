// Request: one request of a connection that is past its Hello: its body, checked, and its answer, now or later.
//
//   read ──▶ answered
//    └──hold()──▶ held ──the answer is known──▶ answered
//                  └──its connection ends──▶ forgotten: the store drops it, and nobody is answered
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "daemon/connections.h"
#include "store/types.h"

namespace entrepot {

// A request whose answer is not known yet. Reply or refuse once, which also releases what it was charged with. May be
// copied, and may outlive its connection. Guarded by the daemon's thread.
class HeldRequest {
 public:
  HeldRequest(Connections& connections, std::uint64_t owner, std::uint64_t number, std::uint64_t cost)
      : connections_(&connections), owner_(owner), number_(number), cost_(cost) {}

  template <class Body>
  void reply(const Body& body, std::vector<UniqueFd> fds = {}) const {
    connections_->end_wait(owner_, cost_);
    connections_->reply(owner_, number_, body, std::move(fds));
  }
  void refuse(const Status& status) const;
  void answer(const Status& status) const;
  void answer(const Result<NameOutcome>& name) const;

 private:
  Connections* connections_;
  std::uint64_t owner_;
  std::uint64_t number_;
  std::uint64_t cost_;
};

inline constexpr std::uint64_t kBytesPerWaiter = 64;  // of a held body, per unit of what it costs

// Lives as long as its frame is handled. Guarded by the daemon's thread.
class Request {
 public:
  // The connection must have a client.
  Request(Connections& connections, Connection& connection, const Frame& frame)
      : connections_(connections), connection_(connection), frame_(frame) {}

  [[nodiscard]] std::uint64_t owner() const { return connection_.owner(); }
  [[nodiscard]] std::uint32_t client() const { return *connection_.client(); }
  [[nodiscard]] RequestOrigin origin() const { return {client(), owner()}; }
  // What it costs its connection to hold this request with its body.
  [[nodiscard]] std::uint64_t holding_cost() const { return kWaiterCost + frame_.body.size() / kBytesPerWaiter; }
  [[nodiscard]] MessageType type() const { return frame_.header.type; }

  // --- checks; if they return false (or none), the request was refused

  template <class Body>
  [[nodiscard]] bool read(Body& body) {
    if (from_wire(frame_.body, body)) return true;
    refuse_malformed();
    return false;
  }
  [[nodiscard]] bool within_batch(std::size_t count);
  // Validates text that is stored and shown. Lookups accept any bytes: an older store may have names that are not
  // UTF-8, which must still be found and removed.
  [[nodiscard]] bool is_text(std::string_view what, std::string_view text);
  [[nodiscard]] static Status check_text(std::string_view what, std::string_view text);
  // Charges a request that may have to wait. try_hold() does not refuse it.
  [[nodiscard]] std::optional<HeldRequest> try_hold(std::uint64_t cost = kWaiterCost);
  [[nodiscard]] std::optional<HeldRequest> hold(std::uint64_t cost = kWaiterCost);

  // --- answers

  template <class Body>
  void reply(const Body& body, std::vector<UniqueFd> fds = {}) {
    connections_.reply(owner(), number(), body, std::move(fds));
  }
  void refuse(const Status& status) { connections_.refuse(owner(), number(), status); }
  void answer(const Status& status);
  void answer(const Result<std::string>& json);
  void answer(const Result<NameOutcome>& name);

 private:
  [[nodiscard]] std::uint64_t number() const { return frame_.header.request; }
  void refuse_malformed();

  Connections& connections_;
  Connection& connection_;
  const Frame& frame_;
};

}  // namespace entrepot
