#include "os/thread.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <string>

#include "os/log_writer.h"
#include "os/spawn.h"
#include "os/unique_fd.h"

namespace entrepot::os {
namespace {

constexpr uid_t kNobodyElse = 34'517;  // a user with no other process

// Runs `check` in a process whose user may have no other process or thread. Returns what it returned; empty if that
// cannot be tried here.
std::string without_threads(const std::function<std::string()>& check) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit only_itself{1, 1};
    const bool limited =
        ::setrlimit(RLIMIT_NPROC, &only_itself) == 0 && ::setgroups(0, nullptr) == 0 && ::setuid(kNobodyElse) == 0;
    const std::string outcome = limited ? check() : "cannot become another user";
    const ssize_t written = ::write(in.get(), outcome.data(), outcome.size());
    ::_exit(written == static_cast<ssize_t>(outcome.size()) ? 0 : 1);
  }
  in.reset();
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t got = 0; (got = ::read(out.get(), piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<std::size_t>(got));
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return text;
}

TEST(Thread, RunsUntilItIsJoined) {
  std::atomic<bool> ran{false};
  auto thread = start_thread("a thread", [&ran] { ran = true; });
  ASSERT_TRUE(thread.is_ok()) << thread.status().to_string();
  thread->join();
  EXPECT_TRUE(ran);
}

TEST(Thread, TheLimitOfProcessesIsAnErrorThatNamesIt) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become a user without processes";
  const std::string outcome = without_threads([] {
    const auto thread = start_thread("a thread", [] {});
    return thread.is_ok() ? std::string("it started") : thread.status().to_string();
  });
  EXPECT_EQ(outcome.find("StoreUnavailable: cannot start a thread: "), 0U) << outcome;
  EXPECT_NE(outcome.find("ulimit -u"), std::string::npos) << outcome;
}

TEST(Thread, TheLimitOfProcessesIsNamedForAProcessToo) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become a user without processes";
  const std::string outcome = without_threads([] {
    SpawnOptions options;
    options.program = "/bin/true";
    options.argv = {"true"};
    const auto child = spawn(options);
    return child.is_ok() ? std::string("it started") : child.status().to_string();
  });
  EXPECT_NE(outcome.find("cannot start a process for /bin/true"), std::string::npos) << outcome;
  EXPECT_NE(outcome.find("ulimit -u"), std::string::npos) << outcome;
}

TEST(Thread, ALogWithoutAThreadIsWrittenWhenItIsFlushed) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become a user without processes";
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd out(ends[0]);
  const UniqueFd in(ends[1]);
  const std::string outcome = without_threads([&in] {
    LogWriter writer(in.get(), 10'000, [](std::uint64_t, int) { return std::string("dropped\n"); });
    writer.add("why it ends\n");
    if (writer.start().is_ok()) return std::string("it has a thread");
    const auto began = std::chrono::steady_clock::now();
    if (!writer.flush(std::chrono::seconds(30), std::chrono::seconds(10))) return std::string("lines are lost");
    return std::string(std::chrono::steady_clock::now() - began < std::chrono::seconds(10) ? "written" : "it waited");
  });
  EXPECT_EQ(outcome, "written");
  std::array<char, 100> text{};
  ASSERT_GT(::fcntl(out.get(), F_SETFL, O_NONBLOCK), -1);
  ASSERT_GT(::read(out.get(), text.data(), text.size()), 0) << errno;
  EXPECT_STREQ(text.data(), "why it ends\n");
}

}  // namespace
}  // namespace entrepot::os
