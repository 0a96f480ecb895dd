#include "os/store_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>

#include "base/text.h"
#include "os/process_handle.h"
#include "os/spawn.h"
#include "os/test_deadline.h"

namespace entrepot::os {
namespace {

// Whether another process (a child of this one) could take the lock now.
bool is_free(int fd) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(take_store_lock(fd, Deadline::after_ms(0)).is_ok() ? 0 : 1);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// A process that takes the lock, reports it, runs `then` and waits forever.
class Holder {
 public:
  Holder(int fd, const std::function<void()>& then) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      if (!take_store_lock(fd, test_deadline()).is_ok()) ::_exit(1);
      then();
      [[maybe_unused]] const ssize_t written = ::write(ends[1], "x", 1);
      while (true)
        ::pause();
    }
    ::close(ends[1]);
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
    ::close(ends[0]);
  }
  ~Holder() { end(); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  void end() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

TEST(StoreLock, OneProcessHasItUntilItEnds) {
  const UniqueFd lock = create_store_lock().take();
  Holder holder(lock.get(), [] {});
  EXPECT_FALSE(is_free(lock.get()));
  ::kill(holder.pid(), SIGSTOP);  // a stopped process keeps the lock
  EXPECT_FALSE(is_free(lock.get()));
  const Status refused = take_store_lock(lock.get(), Deadline::after_ms(30));
  EXPECT_EQ(refused.code(), Code::kTimeout);
  EXPECT_NE(refused.message().find(concat("process ", holder.pid())), std::string::npos) << refused.message();
  holder.end();
  EXPECT_TRUE(take_store_lock(lock.get(), test_deadline()).is_ok());
  EXPECT_FALSE(is_free(lock.get())) << "now we have it, and no child of ours";
}

TEST(StoreLock, NoForkOfTheHolderCarriesItNotEvenOneThatNeverCameToExec) {
  const UniqueFd lock = create_store_lock().take();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  pid_t orphan = 0;
  {
    Holder holder(lock.get(), [&] {
      const pid_t child = ::fork();  // with copies of all descriptors, as between fork and exec
      if (child == 0) {
        while (true)
          ::pause();
      }
      [[maybe_unused]] const ssize_t written = ::write(ends[1], &child, sizeof(child));
    });
    ASSERT_EQ(::read(ends[0], &orphan, sizeof(orphan)), static_cast<ssize_t>(sizeof(orphan)));
    EXPECT_FALSE(is_free(lock.get()));
  }
  EXPECT_FALSE(ProcessHandle::open(orphan).has_exited());
  EXPECT_TRUE(is_free(lock.get())) << "the holder's child keeps it";
  EXPECT_TRUE(ProcessHandle::open(orphan).kill().is_ok());
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(StoreLock, AProgramThatTheHolderStartsDoesNotCarryItEither) {
  const UniqueFd lock = create_store_lock().take();
  pid_t child = 0;
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  {
    Holder holder(lock.get(), [&] {
      SpawnOptions options;
      options.program = "/bin/sleep";
      options.argv = {"sleep", "600"};
      const Result<Child> started = spawn(options);
      const pid_t pid = started.is_ok() ? started->pid : 0;
      [[maybe_unused]] const ssize_t written = ::write(ends[1], &pid, sizeof(pid));
    });
    ASSERT_EQ(::read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
    ASSERT_GT(child, 0);
    EXPECT_FALSE(is_free(lock.get()));
  }
  EXPECT_TRUE(is_free(lock.get()));
  EXPECT_TRUE(ProcessHandle::open(child).kill().is_ok());
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace entrepot::os
