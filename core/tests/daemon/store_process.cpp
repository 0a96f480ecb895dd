#include "daemon/store_process.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include "base/text.h"
#include "os/events.h"
#include "os/files.h"
#include "os/socket.h"

namespace entrepot::testing {
namespace {

constexpr std::uint64_t kWatchdogMs = 20'000;
constexpr int kReadyInChild = 3;

os::Deadline soon() { return os::Deadline::after_ms(kWatchdogMs); }

}  // namespace

bool eventually(const std::function<bool()>& condition) {
  const os::Deadline deadline = soon();
  while (!condition()) {
    if (deadline.passed()) return false;
    ::poll(nullptr, 0, 5);
  }
  return true;
}

std::uint64_t json_number(const std::string& json, const std::string& key) {
  const std::size_t at = json.find("\"" + key + "\":");
  if (at == std::string::npos) return UINT64_MAX;
  return std::strtoull(json.c_str() + at + key.size() + 3, nullptr, 10);
}

bool process_exists(std::uint64_t pid) {
  const Result<std::string> stat = os::read_file("/proc/" + std::to_string(pid) + "/stat");
  if (!stat.is_ok()) return false;
  const std::size_t end = stat->rfind(')');
  return end == std::string::npos || end + 2 >= stat->size() || (*stat)[end + 2] != 'Z';
}

// ---- client ----

RawClient::RawClient(const std::string& socket_path) {
  const bool listening = eventually([&] {
    Result<UniqueFd> socket = os::connect_unix(socket_path, soon());
    if (socket.is_ok()) socket_ = socket.take();
    return socket.is_ok();
  });
  EXPECT_TRUE(listening) << "nobody listens at " << socket_path;
}

Status RawClient::say_hello(Hello hello, int pin_table_fd) {
  hello.label = hello.label.empty() ? "test" : hello.label;
  const std::span<const int> shown(&pin_table_fd, pin_table_fd >= 0 ? 1 : 0);
  Answer answer = ask(MessageType::kHello, to_wire(hello), shown);
  RETURN_IF_ERROR(answer.status);
  if (!from_wire(answer.body, identity)) return Status(Code::kInternal, "the answer to Hello cannot be read");
  if (answer.fds.size() != (hello.token == 0 ? 7U : 5U)) {
    return Status(Code::kInternal, concat("the answer to Hello has ", answer.fds.size(), " descriptors"));
  }
  if (hello.token == 0) {
    liveness = std::move(answer.fds[6]);
    pin_table = std::move(answer.fds[5]);
  }
  answer.fds.resize(5);
  regions = std::move(answer.fds);
  return Status::ok();
}

Status RawClient::come_back(RawClient& former) {
  Hello hello;
  hello.token = former.identity.token;
  hello.client = former.identity.client;
  hello.reports_leases = 1;
  RETURN_IF_ERROR(say_hello(hello, former.pin_table.get()));
  pin_table = std::move(former.pin_table);
  liveness = std::move(former.liveness);
  return Status::ok();
}

std::uint64_t RawClient::post(MessageType type, std::span<const std::uint8_t> body, std::span<const int> fds) {
  FrameHeader header{};
  header.magic = kFrameMagic;
  header.type = type;
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  header.fd_count = static_cast<std::uint32_t>(fds.size());
  header.request = next_request_++;
  std::vector<std::uint8_t> frame(sizeof(header) + body.size());
  std::memcpy(frame.data(), &header, sizeof(header));
  std::copy(body.begin(), body.end(), frame.begin() + sizeof(header));
  const Status sent = os::send_all(socket_.get(), frame, fds, soon());
  return sent.is_ok() ? header.request : 0;
}

bool RawClient::is_hung_up() const {
  pollfd event{socket_.get(), POLLIN, 0};
  if (::poll(&event, 1, 0) <= 0) return false;
  std::array<std::uint8_t, 65536> bytes{};
  std::vector<UniqueFd> fds;
  const auto got = os::receive_some(socket_.get(), bytes, fds);
  return !got.is_ok() || got->closed;
}

Answer RawClient::wait(std::uint64_t request) {
  Answer answer;
  if (request == 0) {
    answer.status = Status(Code::kStoreUnavailable, "the request could not be sent");
    return answer;
  }
  while (true) {
    FrameHeader header{};
    auto* raw = reinterpret_cast<std::uint8_t*>(&header);
    answer.fds.clear();
    answer.status = os::receive_all(socket_.get(), {raw, sizeof(header)}, answer.fds, soon());
    if (!answer.status.is_ok()) return answer;
    answer.body.resize(header.body_bytes);
    if (!answer.body.empty()) {
      answer.status = os::receive_all(socket_.get(), answer.body, answer.fds, soon());
      if (!answer.status.is_ok()) return answer;
    }
    if (header.request != request && header.request != 0) continue;
    if (header.type == MessageType::kError) {
      ErrorBody error;
      if (!from_wire(answer.body, error)) {
        answer.status = Status(Code::kInternal, "an error cannot be read");
      } else {
        answer.status = Status(error.code, error.message, error.retryable != 0);
      }
    }
    return answer;
  }
}

std::uint32_t RawClient::open(const std::string& session) {
  const auto opened = call<OpenSessionReply>(MessageType::kOpenSession, OpenSessionRequest{"scope", session});
  EXPECT_TRUE(opened.is_ok()) << opened.status().to_string();
  session_ = opened.is_ok() ? opened->session : 0;
  return session_;
}

Result<SealResult> RawClient::put(const IdBytes& id, const std::string& text) {
  if (session_ == 0) open();
  std::vector<UniqueFd> fds;
  ASSIGN_OR_RETURN(const LeaseReply lease,
                   call<LeaseReply>(MessageType::kLease, LeaseRequest{text.size(), text.size(), 10'000}, &fds));
  if (fds.empty()) return Status(Code::kInternal, "use one client for one put");
  ASSIGN_OR_RETURN(const os::Mapping mapping,
                   os::Mapping::map(fds[0].get(), 0, lease.segment_bytes, os::Access::kReadWrite));
  std::memcpy(mapping.data() + lease.offset, text.data(), text.size());
  SealObject object;
  object.id = id;
  object.session = session_;
  object.blobs = {{lease.segment, lease.offset, text.size()}};
  object.buffers = {{kNewBlob, 0, 0, text.size()}};
  object.tree = "text";
  ASSIGN_OR_RETURN(const SealReply reply, call<SealReply>(MessageType::kSeal, SealRequest{{object}}));
  if (reply.results.size() != 1) return Status(Code::kInternal, "one object was sealed");
  if (reply.results[0].code != Code::kOk) return Status(reply.results[0].code, reply.results[0].message);
  return reply.results[0];
}

Result<SealResult> RawClient::seal_inline(const IdBytes& id, const std::string& payload, bool replace) {
  if (session_ == 0) open();
  SealObject object;
  object.id = id;
  object.session = session_;
  object.replace = replace;
  object.buffers = {{kInlineBlob, 0, 0, payload.size()}};
  object.payload = payload;
  ASSIGN_OR_RETURN(const SealReply reply, call<SealReply>(MessageType::kSeal, SealRequest{{object}}));
  if (reply.results.size() != 1) return Status(Code::kInternal, "one object was sealed");
  if (reply.results[0].code != Code::kOk) return Status(reply.results[0].code, reply.results[0].message);
  return reply.results[0];
}

LookupResult RawClient::lookup(const IdBytes& id, std::uint32_t timeout_ms) {
  const auto reply = call<LookupReply>(MessageType::kLookup, LookupRequest{{id}, timeout_ms});
  EXPECT_TRUE(reply.is_ok()) << reply.status().to_string();
  return reply.is_ok() && reply->results.size() == 1 ? reply->results[0] : LookupResult{Code::kInternal, 0, 0, 0, {}};
}

bool RawClient::remove(const IdBytes& id) {
  const auto reply = call<DeleteReply>(MessageType::kDelete, DeleteRequest{{id}});
  EXPECT_TRUE(reply.is_ok()) << reply.status().to_string();
  return reply.is_ok() && reply->deleted.at(0) != 0;
}

std::string RawClient::json(MessageType type, std::span<const std::uint8_t> body) {
  const Answer answer = ask(type, body);
  JsonReply reply;
  return answer.status.is_ok() && from_wire(answer.body, reply) ? reply.json : std::string();
}

// ---- the store's processes ----

StoreProcess::StoreProcess(std::vector<std::string> arguments) : arguments_(std::move(arguments)) { start(); }

void StoreProcess::start() {
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  UniqueFd read_end(ready[0]);
  UniqueFd write_end(ready[1]);
  os::SpawnOptions spawn;
  spawn.program = ENTREPOTD_PATH;
  spawn.argv = {"entrepotd", "--address=unix://" + path(), "--log-file=" + folder_.path("log"),
                "--ready-fd=" + std::to_string(kReadyInChild)};
  // Without spilling, unless the test asks for it: the default directory is shared with other stores.
  const auto spills = [](const std::string& argument) { return argument.starts_with("--spill-path"); };
  if (std::none_of(arguments_.begin(), arguments_.end(), spills)) spawn.argv.emplace_back("--spill-path=none");
  spawn.argv.insert(spawn.argv.end(), arguments_.begin(), arguments_.end());
  spawn.fds = {{write_end.get(), kReadyInChild}};
  Result<os::Child> child = os::spawn(spawn);
  ASSERT_TRUE(child.is_ok()) << child.status().to_string();
  child_ = child.take();
  ended_ = false;
  write_end.reset();
  const auto readable = os::wait_readable(read_end.get(), soon());
  ASSERT_TRUE(readable.is_ok() && *readable) << log();
  std::array<char, 16> text{};
  ASSERT_GT(::read(read_end.get(), text.data(), text.size()), 0) << "it ended before it was ready: " << log();
  EXPECT_STREQ(text.data(), "ready\n");
}

void StoreProcess::start_again() { start(); }

StoreProcess::~StoreProcess() {
  if (::testing::Test::HasFailure()) std::fprintf(stderr, "log of the store:\n%s", log().c_str());
  Result<UniqueFd> socket = os::connect_unix(path(), os::Deadline::after_ms(1000));
  if (socket.is_ok()) {
    socket->reset();
    RawClient client(path());
    if (client.say_hello().is_ok()) {
      const std::string status = client.status();
      (void)client.ask(MessageType::kShutdown, {});
      for (const char* key : {"pid", "keeper_pid"}) {
        const std::uint64_t pid = json_number(status, key);
        EXPECT_TRUE(eventually([&] {
          while (os::reap(child_.pid)) {
          }
          return !process_exists(pid);
        })) << key;
      }
    }
  }
  if (!ended_ && process_exists(static_cast<std::uint64_t>(child_.pid))) {
    EXPECT_TRUE(os::send_signal(child_.pid, SIGKILL).is_ok());
  }
  (void)eventually([&] {
    (void)os::reap(child_.pid);
    return !process_exists(static_cast<std::uint64_t>(child_.pid));
  });
}

std::string StoreProcess::log() const {
  const Result<std::string> text = os::read_file(folder_.path("log"), 1U << 22);
  return text.is_ok() ? *text : text.status().message();
}

RawClient StoreProcess::client() {
  std::optional<RawClient> client;
  Status status;
  (void)eventually([&] {  // retries like every client: the keeper may be being replaced
    status = client.emplace(path()).say_hello();
    return status.is_ok() || !status.retryable();
  });
  EXPECT_TRUE(status.is_ok()) << status.to_string() << "\n" << log();
  return std::move(*client);
}

std::uint32_t StoreProcess::daemon_pid() { return static_cast<std::uint32_t>(json_number(client().status(), "pid")); }
std::uint32_t StoreProcess::keeper_pid() {
  return static_cast<std::uint32_t>(json_number(client().status(), "keeper_pid"));
}

void StoreProcess::kill(std::uint32_t pid) {
  ASSERT_GT(pid, 1U);
  ASSERT_TRUE(os::send_signal(static_cast<pid_t>(pid), SIGKILL).is_ok());
  EXPECT_TRUE(eventually([&] {
    if (static_cast<std::int32_t>(pid) == child_.pid && os::reap(child_.pid)) ended_ = true;
    return !process_exists(pid);
  }));
}

Result<os::ExitStatus> StoreProcess::wait_exit() {
  std::optional<os::ExitStatus> status;
  (void)eventually([&] { return (status = os::reap(child_.pid)).has_value(); });
  if (!status) return Status(Code::kTimeout, "it does not end");
  ended_ = true;
  return *status;
}

int run_until_exit(const std::vector<std::string>& arguments, const Scratch& folder, std::string& output) {
  // Standard error goes through a shell redirection, like a user's.
  os::SpawnOptions spawn;
  spawn.program = "/bin/sh";
  spawn.argv = {"sh", "-c", "exec \"$0\" \"$@\" 2>'" + folder.path("stderr") + "'", ENTREPOTD_PATH};
  spawn.argv.insert(spawn.argv.end(), arguments.begin(), arguments.end());
  const Result<os::Child> child = os::spawn(spawn);
  EXPECT_TRUE(child.is_ok()) << child.status().to_string();
  std::optional<os::ExitStatus> status;
  const bool ended = eventually([&] { return (status = os::reap(child->pid)).has_value(); });
  if (!ended) {
    EXPECT_TRUE(os::send_signal(child->pid, SIGKILL).is_ok());
  }
  const Result<std::string> text = os::read_file(folder.path("stderr"));
  output = text.is_ok() ? *text : std::string();
  EXPECT_TRUE(ended) << output;
  return ended && !status->signalled ? status->code : -1;
}

}  // namespace entrepot::testing
