#include "os/process_handle.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "os/fork.h"
#include "os/process.h"
#include "os/socket.h"
#include "os/test_deadline.h"

namespace entrepot::os {
namespace {

// A child that runs `what` and then waits forever; killed and reaped by the destructor.
class Forked {
 public:
  explicit Forked(const std::function<void()>& what = [] {}) : pid_(::fork()) {
    if (pid_ != 0) return;
    what();
    while (true)
      ::pause();
  }
  ~Forked() {
    ::kill(pid_, SIGKILL);
    end();
  }
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void stop() const {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  void end() const { ::waitpid(pid_, nullptr, 0); }

 private:
  pid_t pid_;
};

class Handle : public ::testing::TestWithParam<bool> {
 protected:
  static ProcessHandle of(pid_t pid) { return GetParam() ? ProcessHandle::open(pid) : ProcessHandle::by_number(pid); }
};

TEST_P(Handle, AStoppedProcessIsNotGoneAndIsEndedForCertain) {
  const Forked child;
  const ProcessHandle handle = of(child.pid());
  EXPECT_EQ(handle.pid(), child.pid());
  child.stop();
  EXPECT_FALSE(handle.has_exited());
  EXPECT_FALSE(*handle.wait_exited(Deadline::after_ms(20)));
  ASSERT_TRUE(handle.kill().is_ok());
  EXPECT_TRUE(*handle.wait_exited(test_deadline()));
  EXPECT_TRUE(handle.has_exited()) << "a zombie runs nothing any more";
  child.end();
  EXPECT_TRUE(handle.has_exited());
  EXPECT_TRUE(handle.kill().is_ok()) << "gone already is as good";
}

TEST_P(Handle, AProcessThatIsReapedIsNobodys) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  const ProcessHandle handle = of(pid);
  EXPECT_TRUE(handle.has_exited());
  EXPECT_TRUE(*handle.wait_exited(Deadline::after_ms(0)));
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutPidfds, Handle, ::testing::Bool());

TEST(ProcessHandle, AKilledProcessIsEndingAtOnce) {
  const Forked child;
  EXPECT_FALSE(is_ending(child.pid()));
  child.stop();
  EXPECT_FALSE(is_ending(child.pid()));
  ASSERT_EQ(::kill(child.pid(), SIGKILL), 0);
  EXPECT_TRUE(is_ending(child.pid())) << "however far it has got";
  child.end();
  EXPECT_TRUE(is_ending(child.pid())) << "it is not there any more";
}

TEST(ProcessHandle, OfNobodyIsGone) {
  const ProcessHandle nobody;
  EXPECT_TRUE(nobody.has_exited());
  EXPECT_TRUE(nobody.send_signal(SIGTERM).is_ok());
  EXPECT_EQ(nobody.fd(), -1);
}

TEST(ProcessHandle, TheParentIsFoundAndNoOtherTakenForIt) {
  EXPECT_EQ(ProcessHandle::of_parent(::getppid()).pid(), ::getppid());
  EXPECT_FALSE(ProcessHandle::of_parent(::getppid()).has_exited());
  const Forked stranger;
  EXPECT_TRUE(ProcessHandle::of_parent(stranger.pid()).has_exited())
      << "it is no parent of ours, whatever it was before";
  EXPECT_TRUE(ProcessHandle::of_parent(0).has_exited());
}

bool stop_after_fork = false;  // each child stops itself before it can exec

SpawnOptions half_started() {
  static const Status once = at_fork(nullptr, nullptr, [] {
    if (stop_after_fork) ::raise(SIGSTOP);
  });
  EXPECT_TRUE(once.is_ok());
  SpawnOptions options;
  options.program = "/bin/sh";
  options.argv = {"sh", "-c", "exit 0"};
  stop_after_fork = true;
  return options;
}

TEST(Spawn, AChildThatDoesNotComeToExecIsKilledAfterABoundedTime) {
  SpawnOptions options = half_started();
  options.exec_wait_ms = 50;
  const Result<Child> child = spawn(options);
  stop_after_fork = false;
  ASSERT_EQ(child.code(), Code::kTimeout);
  EXPECT_NE(child.status().message().find("killed"), std::string::npos) << child.status().message();
  EXPECT_FALSE(reap().has_value()) << "it is reaped";
}

TEST(Spawn, AChildThatIsNotWaitedForHoldsNobodyUp) {
  SpawnOptions options = half_started();
  options.exec_wait_ms = 0;
  Result<Child> child = spawn(options);
  stop_after_fork = false;
  ASSERT_TRUE(child.is_ok()) << child.status().to_string();
  const ProcessHandle handle(child.take());
  EXPECT_FALSE(handle.has_exited());
  ASSERT_TRUE(handle.kill().is_ok());
  EXPECT_TRUE(*handle.wait_exited(test_deadline()));
  EXPECT_TRUE(reap(handle.pid()).has_value());
}

TEST(Spawn, AChildEndsWithItsParentUntilItOutlivesIt) {
  auto [ours, theirs] = socket_pair(SocketKind::kStream).take();
  const int channel = theirs.get();
  const Forked parent([channel] {
    SpawnOptions options;
    options.program = "/bin/sh";
    options.argv = {"sh", "-c", "kill -STOP $$"};
    options.fds = {{channel, 7}};
    options.ends_with_parent = true;
    (void)spawn(options);
  });
  theirs.reset();
  const ProcessHandle handle = ProcessHandle::open(parent.pid());
  ASSERT_TRUE(handle.kill().is_ok());
  // The other end is held by the parent and its stopped child, so end-of-file means that both are gone.
  std::array<std::uint8_t, 1> byte{};
  std::vector<UniqueFd> fds;
  EXPECT_EQ(receive_all(ours.get(), byte, fds, test_deadline()).code(), Code::kStoreUnavailable);
}

TEST(Spawn, AProgramIsRunByItsDescriptorWhateverLiesAtItsPath) {
  auto [ours, theirs] = socket_pair(SocketKind::kStream).take();
  const UniqueFd program(::open("/bin/sh", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(program.valid());
  SpawnOptions options;
  options.program_fd = program.get();
  options.argv = {"sh", "-c", "echo x >&7"};
  options.fds = {{theirs.get(), 7}};
  const Child child = spawn(options).take();
  theirs.reset();
  std::array<std::uint8_t, 2> text{};
  std::vector<UniqueFd> fds;
  EXPECT_TRUE(receive_all(ours.get(), text, fds, test_deadline()).is_ok());
  EXPECT_EQ(text[0], 'x');
  ::waitpid(child.pid, nullptr, 0);
}

}  // namespace
}  // namespace entrepot::os
