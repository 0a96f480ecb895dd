// PlasmaPeer: a Plasma client of a fuzz target. Sends requests, reads what comes back, and checks it: replies come in
// the order of their requests, descriptors where they belong, and the bytes of every object are those that its name
// and sizes demand, whoever wrote it.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "fuzz/plasma_wire.h"
#include "os/unique_fd.h"

namespace entrepot::fuzz {

// What an object of this name and these sizes contains, data and metadata together.
[[nodiscard]] Bytes content_of(const IdBytes& id, std::uint64_t data_bytes, std::uint64_t metadata_bytes);

class PlasmaPeer {
 public:
  struct Reply {
    plasma::MessageType type{};
    Bytes body;
  };

  explicit PlasmaPeer(UniqueFd socket) : socket_(std::move(socket)) {}

  // `reply`: the type of the reply that it must get; nothing if there is none.
  void send(const Bytes& bytes, std::optional<plasma::MessageType> reply, std::span<const int> descriptors = {});
  // So many requests at once, of which not all may be sent: the rest is never.
  void send_many(const Bytes& bytes, plasma::MessageType reply, std::size_t count);
  // The next reply, if one has arrived.
  [[nodiscard]] std::optional<Reply> receive();

  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] bool is_connected() const { return socket_.valid(); }
  void hang_up() { socket_.reset(); }
  [[nodiscard]] bool waits() const { return !expected_.empty(); }  // for a reply

  // Fills an object that it has created; false: the segment's descriptor has not come yet.
  [[nodiscard]] bool write(const IdBytes& id);
  // Compares what it has got with what its name and sizes demand.
  void check(const IdBytes& id, const wire::Place& place);

  std::map<IdBytes, wire::Place> created;  // and not sealed
  std::multiset<IdBytes> held;             // what it may release
  Ids wanted;                              // by the get that waits
  bool may_be_cut_off = false;             // it has broken the protocol
  bool reads = true;

 private:
  void read_socket();
  void expect_segments(const Reply& reply);
  void take_segments();

  UniqueFd socket_;
  std::deque<plasma::MessageType> expected_;
  Bytes came_;
  std::deque<UniqueFd> descriptors_;
  std::deque<int> announced_;  // segments whose descriptors come next
  std::map<int, UniqueFd> segments_;
};

}  // namespace entrepot::fuzz
