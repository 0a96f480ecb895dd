// Many clients at once, each in a process of its own.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>

#include "entrepot/entrepot.h"
#include "support.h"

namespace bench {
namespace {

constexpr std::size_t kKept = 64;  // objects that each client has in the store
constexpr std::uint32_t kWaitMs = 30'000;
constexpr std::size_t kMaxTimes = 1U << 18;  // that a client keeps

struct Share {  // what a client tells its parent
  std::uint64_t gets = 0;
  std::uint64_t get_ns = 0;
  std::uint64_t get_p99_ns = 0;
  std::uint64_t puts = 0;
  std::uint64_t put_ns = 0;
  std::uint64_t put_p99_ns = 0;
};

std::uint64_t at_quantile(std::vector<std::uint64_t>& values, double quantile) {
  if (values.empty()) return 0;
  const auto index = static_cast<std::ptrdiff_t>(quantile * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + index, values.end());
  return values[static_cast<std::size_t>(index)];
}

class Member {
 public:
  Member(const std::string& path, std::size_t bytes) : payload_(bytes, 'x'), random_(std::random_device{}()) {
    entrepot_connect_options options{};
    options.struct_size = sizeof options;
    options.path = path.c_str();
    options.connect_timeout_ms = kWaitMs;
    error_.struct_size = sizeof error_;
    check(entrepot_connect(&options, &client_, &error_));
    check(entrepot_open_session(client_, "bench", "crowd", &session_, &error_));
    for (auto& id : ids_)
      put(id);
  }
  ~Member() { entrepot_client_free(client_); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // Both halves end at the same moment for all: what a client does that comes late to one is less, not later.
  Share work(std::uint64_t middle_ns, std::uint64_t end_ns) {
    Share share;
    std::vector<std::uint64_t> times;
    times.reserve(kMaxTimes);
    for (std::uint64_t begin = now_ns(); begin < middle_ns;) {
      entrepot_object* object = nullptr;
      check(entrepot_get(client_, ids_[share.gets % kKept].data(), 0, &object, &error_));
      entrepot_object_free(object);
      const std::uint64_t now = now_ns();
      if (times.size() < kMaxTimes) times.push_back(now - begin);
      begin = now;
      ++share.gets;
    }
    share.get_ns = at_quantile(times, 0.5);
    share.get_p99_ns = at_quantile(times, 0.99);
    times.clear();
    while (now_ns() < end_ns) {
      auto& id = ids_[share.puts % kKept];
      check(entrepot_delete(client_, id.data(), nullptr, &error_));
      const std::uint64_t begin = now_ns();
      put(id);
      times.push_back(now_ns() - begin);
      ++share.puts;
    }
    share.put_ns = at_quantile(times, 0.5);
    share.put_p99_ns = at_quantile(times, 0.99);
    return share;
  }

 private:
  using Id = std::array<std::uint8_t, ENTREPOT_ID_BYTES>;

  void check(std::int32_t code) {
    errno = 0;
    if (code != 0) fail(error_.message);
  }

  void put(Id& id) {
    for (auto& byte : id)
      byte = static_cast<std::uint8_t>(random_());
    const entrepot_buffer buffer{payload_.data(), payload_.size()};
    entrepot_item item{};
    item.struct_size = sizeof item;
    item.session = session_;
    std::memcpy(item.id, id.data(), id.size());
    item.buffers = &buffer;
    item.buffer_count = 1;
    check(entrepot_put(client_, &item, kWaitMs, nullptr, &error_));
  }

  std::vector<char> payload_;
  std::mt19937_64 random_;
  entrepot_client* client_ = nullptr;
  std::uint32_t session_ = 0;
  entrepot_error error_{};
  std::array<Id, kKept> ids_{};
};

void read_whole(int file, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes != 0) {
    pollfd ready{file, POLLIN, 0};
    errno = 0;
    if (poll(&ready, 1, 120'000) <= 0) fail("a client did not answer within two minutes");
    const ssize_t got = read(file, at, bytes);
    if (got <= 0) fail("a client ended early");
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

}  // namespace

int crowd(const std::vector<std::string>& arguments) {
  const std::uint64_t count = to_number(arguments[1].c_str());
  const std::uint64_t milliseconds = to_number(arguments[2].c_str());
  const std::size_t bytes = to_number(arguments[3].c_str());
  std::array<int, 2> ready{};
  std::array<int, 2> start{};
  std::array<int, 2> result{};
  if (pipe(ready.data()) != 0 || pipe(start.data()) != 0 || pipe(result.data()) != 0) fail("cannot make pipes");
  std::vector<pid_t> children;
  for (std::uint64_t index = 0; index < count; ++index) {
    const pid_t pid = fork();
    if (pid < 0) fail("cannot fork");
    if (pid == 0) {
      close(start[1]);
      Member member(arguments[0], bytes);
      char token = 'r';
      if (write(ready[1], &token, 1) != 1) fail("cannot tell that it is ready");
      std::uint64_t begin = 0;
      read_whole(start[0], &begin, sizeof begin);
      const Share share = member.work(begin + milliseconds * 500'000U, begin + milliseconds * 1'000'000U);
      if (write(result[1], &share, sizeof share) != static_cast<ssize_t>(sizeof share)) fail("cannot report");
      _exit(0);
    }
    children.push_back(pid);
  }
  for (std::uint64_t index = 0; index < count; ++index) {
    char token = 0;
    read_whole(ready[0], &token, 1);
  }
  const std::uint64_t begin = now_ns();
  for (std::uint64_t index = 0; index < count; ++index) {
    if (write(start[1], &begin, sizeof begin) != sizeof begin) fail("cannot tell the clients to start");
  }
  std::vector<std::uint64_t> get_ns;
  std::vector<std::uint64_t> get_p99;
  std::vector<std::uint64_t> put_ns;
  std::vector<std::uint64_t> put_p99;
  std::uint64_t gets = 0;
  std::uint64_t puts = 0;
  for (std::uint64_t index = 0; index < count; ++index) {
    Share share;
    read_whole(result[0], &share, sizeof share);
    if (share.gets != 0) {
      get_ns.push_back(share.get_ns);
      get_p99.push_back(share.get_p99_ns);
    }
    if (share.puts != 0) {
      put_ns.push_back(share.put_ns);
      put_p99.push_back(share.put_p99_ns);
    }
    gets += share.gets;
    puts += share.puts;
  }
  for (const pid_t pid : children) {
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || status != 0) fail("a client failed");
  }
  Line()
      .samples("get", get_ns)
      .samples("get_p99", get_p99)
      .samples("put", put_ns)
      .samples("put_p99", put_p99)
      .number("gets", gets)
      .number("puts", puts)
      .print();
  return 0;
}

}  // namespace bench
