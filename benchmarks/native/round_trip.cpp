// The floor of every request to a daemon: bytes to another process and back.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "support.h"

namespace bench {
namespace {

constexpr std::size_t kMessage = 64;

bool pass(int from, int to) {
  std::array<char, kMessage> message{};
  std::size_t got = 0;
  while (got < kMessage) {
    const ssize_t count = read(from, message.data() + got, kMessage - got);
    if (count <= 0) return false;
    got += static_cast<std::size_t>(count);
  }
  return write(to, message.data(), kMessage) == static_cast<ssize_t>(kMessage);
}

}  // namespace

int round_trip(const std::vector<std::string>& arguments) {
  const std::uint64_t count = to_number(arguments[0].c_str());
  const int here = std::stoi(arguments[1]);
  const int peer_cpu = std::stoi(arguments[2]);
  const std::uint64_t think_ns = arguments.size() > 3 ? to_number(arguments[3].c_str()) : 0;
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) fail("cannot make a socket pair");
  const pid_t child = fork();
  if (child < 0) fail("cannot fork");
  if (child == 0) {
    close(ends[0]);
    run_on(peer_cpu);
    while (pass(ends[1], ends[1])) {
    }
    _exit(0);
  }
  close(ends[1]);
  run_on(here);
  std::array<char, kMessage> message{};
  std::vector<std::uint64_t> times;
  times.reserve(count);
  const std::uint64_t cpu = cpu_ns();
  for (std::uint64_t index = 0; index < count; ++index) {
    for (const std::uint64_t until = now_ns() + think_ns; think_ns != 0 && now_ns() < until;) {
    }
    const std::uint64_t begin = now_ns();
    if (write(ends[0], message.data(), kMessage) != static_cast<ssize_t>(kMessage)) fail("cannot write");
    std::size_t got = 0;
    while (got < kMessage) {
      const ssize_t read_now = read(ends[0], message.data() + got, kMessage - got);
      if (read_now <= 0) fail("cannot read");
      got += static_cast<std::size_t>(read_now);
    }
    times.push_back(now_ns() - begin);
  }
  const std::uint64_t used = cpu_ns() - cpu;
  close(ends[0]);
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) fail("the other process failed");
  Line().samples("round_trip", times).number("cpu_ns", used).print();
  return 0;
}

}  // namespace bench
