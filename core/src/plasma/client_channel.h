// ClientChannel: one Plasma client's connection, with what is to be sent to it and what it holds.
//
//   reading ──a request that has to wait──▶ busy ──its reply──▶ reading
//      └──a reply that the client does not read──▶ sending ──all sent──▶ reading
//
// Nothing is read while it is busy or sending, so a client that sends much or reads nothing costs a bounded amount.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/id.h"
#include "base/status.h"
#include "net/event_loop.h"
#include "os/unique_fd.h"
#include "plasma/message_reader.h"
#include "plasma/object_table.h"

namespace entrepot::plasma {

// Guarded by the front end's thread.
class ClientChannel {
 public:
  ClientChannel(ClientKey key, UniqueFd socket, std::string label, std::uint64_t max_body_bytes)
      : reader_(max_body_bytes), key_(key), socket_(std::move(socket)), label_(std::move(label)) {}

  [[nodiscard]] ClientKey key() const { return key_; }
  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] std::string label() const;                // for log lines
  void set_name(std::string_view name) { name_ = name; }  // what it calls itself
  [[nodiscard]] MessageReader& reader() { return reader_; }

  void send(Bytes message);
  // Sends the segment's descriptor behind the last message, unless this client has it.
  void send_segment(std::int32_t segment, std::shared_ptr<const UniqueFd> descriptor);
  // Sends what the socket takes. False: the client is gone.
  [[nodiscard]] bool flush();
  [[nodiscard]] bool is_sending() const { return !output_.empty(); }
  [[nodiscard]] std::uint64_t unsent_bytes() const { return unsent_bytes_; }

  [[nodiscard]] bool is_busy() const { return is_busy_; }
  void set_busy(bool busy) { is_busy_ = busy; }
  // Its messages are being handled: what is answered meanwhile is noticed there.
  [[nodiscard]] bool is_served() const { return is_served_; }
  void set_served(bool served) { is_served_ = served; }

  std::unordered_set<IdBytes, IdHash> held;  // what the client holds, created or got

  // Asks the loop for the events that matter now.
  [[nodiscard]] Status update_watch();
  void set_watch(EventLoop::Watch watch) { watch_ = std::move(watch); }

 private:
  struct Output {
    Bytes bytes;
    std::size_t sent = 0;
    std::shared_ptr<const UniqueFd> descriptor;  // null: none
  };

  MessageReader reader_;
  const ClientKey key_;
  UniqueFd socket_;
  const std::string label_;
  std::string name_;
  std::deque<Output> output_;
  std::uint64_t unsent_bytes_ = 0;
  std::unordered_set<std::int32_t> known_segments_;
  bool is_busy_ = false;
  bool is_served_ = false;
  Interest interest_ = Interest::kRead;
  EventLoop::Watch watch_;  // ended before the socket
};

}  // namespace entrepot::plasma
