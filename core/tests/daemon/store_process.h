// A real entrepotd for a test, and a client that speaks the protocol by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "net/protocol.h"
#include "os/clock.h"
#include "os/mapping.h"
#include "os/process.h"
#include "os/scratch.h"
#include "os/spawn.h"
#include "os/unique_fd.h"
#include "shm/pins.h"

namespace entrepot::testing {

inline constexpr IdBytes kA = {1};
inline constexpr IdBytes kB = {2};

// Polls a condition every few milliseconds; returns false after twenty seconds.
[[nodiscard]] bool eventually(const std::function<bool()>& condition);

// Number that follows `"key":` in JSON text; UINT64_MAX if there is none.
[[nodiscard]] std::uint64_t json_number(const std::string& json, const std::string& key);
[[nodiscard]] bool process_exists(std::uint64_t pid);

struct Answer {
  Status status;
  std::vector<std::uint8_t> body;
  std::vector<UniqueFd> fds;
};

class RawClient {
 public:
  // Connects without Hello. Retries while the store is restarting.
  explicit RawClient(const std::string& socket_path);

  [[nodiscard]] Status say_hello(Hello hello = {}, int pin_table = -1);
  // Sends Hello with the token and table of `former`, whose socket may be closed.
  [[nodiscard]] Status come_back(RawClient& former);

  std::uint64_t post(MessageType type, std::span<const std::uint8_t> body, std::span<const int> fds = {});
  [[nodiscard]] Answer wait(std::uint64_t request);
  [[nodiscard]] Answer ask(MessageType type, std::span<const std::uint8_t> body, std::span<const int> fds = {}) {
    return wait(post(type, body, fds));
  }
  template <class Reply, class Request>
  [[nodiscard]] Result<Reply> call(MessageType type, const Request& request, std::vector<UniqueFd>* fds = nullptr) {
    Answer answer = ask(type, to_wire(request));
    if (!answer.status.is_ok()) return answer.status;
    Reply reply;
    if (!from_wire(answer.body, reply)) return Status(Code::kInternal, "the answer cannot be read");
    if (fds != nullptr) *fds = std::move(answer.fds);
    return reply;
  }

  std::uint32_t open(const std::string& session = "");
  // Leases memory, writes `text` and seals it as one blob.
  [[nodiscard]] Result<SealResult> put(const IdBytes& id, const std::string& text);
  [[nodiscard]] Result<SealResult> seal_inline(const IdBytes& id, const std::string& payload, bool replace = false);
  [[nodiscard]] LookupResult lookup(const IdBytes& id, std::uint32_t timeout_ms = 0);
  [[nodiscard]] bool remove(const IdBytes& id);
  [[nodiscard]] std::string json(MessageType type, std::span<const std::uint8_t> body = {});
  [[nodiscard]] std::string status() { return json(MessageType::kStatus); }

  [[nodiscard]] int fd() const { return socket_.get(); }
  void hang_up() { socket_.reset(); }
  [[nodiscard]] bool is_hung_up() const;  // the store has closed the connection; discards unread data
  void die() { *this = RawClient(); }     // closes the liveness socket too

  HelloReply identity;
  std::vector<UniqueFd> regions;
  UniqueFd pin_table;
  UniqueFd liveness;

  RawClient() = default;
  explicit RawClient(UniqueFd socket) : socket_(std::move(socket)) {}  // already past Hello

 private:
  UniqueFd socket_;
  std::uint64_t next_request_ = 1;
  std::uint32_t session_ = 0;
};

class StoreProcess {
 public:
  // Starts a store and waits until it is ready. `arguments` follow address and log file. Spills only if they say so.
  explicit StoreProcess(std::vector<std::string> arguments = {"--size=64MiB", "--warm-bytes=8MiB"});
  ~StoreProcess();  // kills whatever is left of it
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  [[nodiscard]] std::string path() const { return folder_.path("s.sock"); }
  [[nodiscard]] std::string log() const;
  [[nodiscard]] RawClient client();  // connected, past Hello
  [[nodiscard]] std::uint32_t daemon_pid();
  [[nodiscard]] std::uint32_t keeper_pid();
  [[nodiscard]] std::int32_t first_pid() const { return child_.pid; }  // the process started first: a keeper
  void kill(std::uint32_t pid);                                        // sends SIGKILL and waits for the end
  [[nodiscard]] Result<os::ExitStatus> wait_exit();                    // of the process that was started
  void start_again();                                                  // at the same address
  const Scratch& folder() const { return folder_; }

 private:
  void start();

  Scratch folder_;
  std::vector<std::string> arguments_;
  os::Child child_;
  bool ended_ = false;
};

// Runs entrepotd to its end, with its standard error in `said`. Returns its exit code.
[[nodiscard]] int run_until_exit(const std::vector<std::string>& arguments, const Scratch& folder, std::string& output);

}  // namespace entrepot::testing
