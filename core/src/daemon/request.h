// Requests of ready connections: decoding, calling the store, and replying.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.h"
#include "daemon/connections.h"

namespace entrepot {

// One request of one connection, with what is needed to answer it now or later.
class Request {
 public:
  Request(ServerState& state, Connection& connection, const Frame& frame)
      : state_(state),
        connection_(connection),
        frame_(frame),
        owner_(connection.owner),
        number_(frame.header.request) {}

  template <class Body>
  [[nodiscard]] bool read(Body& body) {
    if (from_wire(frame_.body, body)) return true;
    state_.refuse(owner_, number_,
                  Status(Code::kInvalidArgument, concat("a request of type ", frame_.header.type, " is malformed")));
    connection_.closing = true;
    return false;
  }
  [[nodiscard]] bool within_batch(std::size_t count) {
    if (count <= kMaxBatch) return true;
    state_.refuse(owner_, number_,
                  Status(Code::kInvalidArgument, concat(count, " objects in one request exceed the limit of ",
                                                        kMaxBatch, ": split the request")));
    return false;
  }
  // Validates text that is stored and shown. Lookups accept any bytes: an older store may have names that are not
  // UTF-8, which must still be found and removed.
  [[nodiscard]] bool is_text(std::string_view what, std::string_view text) {
    const Status sound = check_text(what, text);
    if (!sound.is_ok()) state_.refuse(owner_, number_, sound);
    return sound.is_ok();
  }
  [[nodiscard]] static Status check_text(std::string_view what, std::string_view text);
  // Charges the cost of a request that may wait; its answer releases it.
  [[nodiscard]] bool begin_waiting(std::uint64_t cost) {
    const Status room = state_.begin_wait(connection_, cost);
    if (!room.is_ok()) state_.refuse(owner_, number_, room);
    return room.is_ok();
  }
  template <class Body>
  void answer(const Body& body) {
    state_.reply(owner_, number_, body);
  }
  void answer(const Status& status) {
    if (status.is_ok()) {
      state_.reply(owner_, number_, Empty{});
    } else {
      state_.refuse(owner_, number_, status);
    }
  }
  void answer(const Result<std::string>& json) {
    if (json.is_ok()) {
      state_.reply(owner_, number_, JsonReply{*json});
    } else {
      state_.refuse(owner_, number_, json.status());
    }
  }
  void answer(const Result<NameOutcome>& name) {
    if (name.is_ok()) {
      state_.reply(owner_, number_, NameReply{name->id, name->generation});
    } else {
      state_.refuse(owner_, number_, name.status());
    }
  }
  [[nodiscard]] RequestOrigin origin() const { return {*connection_.client, owner_}; }

  void lease();
  void unlease();
  void segment();
  void seal();
  void lookup();
  void remove();
  void evict();
  void open_session();
  void close_session();
  void remove_session();
  void remove_unused();
  void define_set();
  void list_sets();
  void hint();
  void consumed();
  void bind_name();
  void resolve_name();
  void unbind_name();
  void list();
  void info();
  void wait_provisioned();
  void grow_pins();
  void upgrade();

 private:
  ServerState& state_;
  Connection& connection_;
  const Frame& frame_;
  std::uint64_t owner_;
  std::uint64_t number_;
};

}  // namespace entrepot
