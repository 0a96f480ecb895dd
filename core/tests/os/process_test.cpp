#include "os/process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/text.h"
#include "os/events.h"
#include "os/socket.h"
#include "os/spawn.h"
#include "os/test_deadline.h"

namespace entrepot::os {
namespace {

SpawnOptions shell(const std::string& script) {
  SpawnOptions options;
  options.program = "/bin/sh";
  options.argv = {"sh", "-c", script};
  return options;
}

// Waits for `child` to exit and reaps it.
ExitStatus wait_end(const Child& child) {
  if (child.pidfd.valid()) {
    EXPECT_TRUE(*wait_readable(child.pidfd.get(), test_deadline()));
  }
  const Deadline watchdog = test_deadline();
  while (!watchdog.passed()) {
    if (const auto status = reap(child.pid)) return *status;
    ::usleep(500);  // only needed where the kernel has no pidfds
  }
  ADD_FAILURE() << "process " << child.pid << " did not end";
  return {};
}

std::string read_to_end(int fd) {
  std::string text;
  std::array<std::uint8_t, 256> piece{};
  std::vector<UniqueFd> fds;
  while (true) {
    EXPECT_TRUE(*wait_readable(fd, test_deadline()));
    const Result<IoResult> got = receive_some(fd, piece, fds);
    if (!got.is_ok() || got->bytes == 0) return text;
    text.append(reinterpret_cast<const char*>(piece.data()), got->bytes);
  }
}

TEST(Process, ExitCodeAndSignalAreReported) {
  const Child three = spawn(shell("exit 3")).take();
  ExitStatus status = wait_end(three);
  EXPECT_FALSE(status.signalled);
  EXPECT_EQ(status.code, 3);
  const Child killed = spawn(shell("kill -9 $$")).take();
  status = wait_end(killed);
  EXPECT_TRUE(status.signalled);
  EXPECT_EQ(status.code, SIGKILL);
  EXPECT_NE(status.to_string().find("signal 9"), std::string::npos);
}

TEST(Process, AFailedExecIsReportedToTheParent) {
  SpawnOptions options;
  options.program = "/nonexistent/program";
  options.argv = {"program"};
  const Result<Child> child = spawn(options);
  EXPECT_FALSE(child.is_ok());
  EXPECT_NE(child.status().message().find("/nonexistent/program"), std::string::npos);
}

TEST(Process, ChildHasTheGivenDescriptorsAndNoOthers) {
  auto [ours, theirs] = socket_pair(SocketKind::kStream).take();
  const UniqueFd stray(::dup(0));  // without close-on-exec
  ASSERT_TRUE(stray.valid());
  SpawnOptions options = shell("ls /proc/self/fd >&7");
  options.fds = {{theirs.get(), 7}};
  const Child child = spawn(options).take();
  theirs.reset();
  const std::string listing = read_to_end(ours.get());
  EXPECT_EQ(wait_end(child).code, 0);
  // 0, 1, 2, the descriptor that was passed, and the one through which ls reads the directory.
  EXPECT_EQ(listing, "0\n1\n2\n3\n7\n");
}

TEST(Process, DescriptorsMayExchangeNumbers) {
  auto [first, first_child] = socket_pair(SocketKind::kStream).take();
  auto [second, second_child] = socket_pair(SocketKind::kStream).take();
  SpawnOptions options = shell(concat("echo A >&", second_child.get(), "; echo B >&", first_child.get()));
  options.fds = {{first_child.get(), second_child.get()}, {second_child.get(), first_child.get()}};
  const Child child = spawn(options).take();
  first_child.reset();
  second_child.reset();
  EXPECT_EQ(read_to_end(first.get()), "A\n");
  EXPECT_EQ(read_to_end(second.get()), "B\n");
  EXPECT_EQ(wait_end(child).code, 0);
}

TEST(Process, SignalToAProcessThatIsGoneIsSuccess) {
  const Child child = spawn(shell("exit 0")).take();
  wait_end(child);
  EXPECT_TRUE(send_signal(child.pid, SIGTERM).is_ok());
  EXPECT_EQ(send_signal(0, SIGTERM).code(), Code::kInvalidArgument);
}

TEST(Process, KnowsItself) {
  EXPECT_EQ(current_pid(), ::getpid());
  EXPECT_TRUE(self_executable()->starts_with("/"));
  EXPECT_FALSE(host_name().empty());
  EXPECT_FALSE(program_label().empty());
  EXPECT_GE(cpu_count(), 1U);
}

}  // namespace
}  // namespace entrepot::os
