#include "daemon/listener.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "daemon/peer.h"
#include "daemon/test_keeper.h"
#include "os/clock.h"
#include "os/files.h"
#include "os/scratch.h"

namespace entrepot {
namespace {

// No descriptor can be opened while it lives; those that are open stay. UBSan needs one for the first look at the type of
// a polymorphic object, so tests touch the fixture, which is one, only before and after.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit none = before_;
    none.rlim_cur = 0;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

// A lock file that this process holds, and that says it belongs to a child.
struct AddressLock : ::testing::Test {
  AddressLock() { EXPECT_TRUE(write_address_owner(held.get(), static_cast<std::uint32_t>(owner), true).is_ok()); }
  ~AddressLock() override {
    ::kill(owner, SIGKILL);
    ::waitpid(owner, nullptr, 0);
  }

  static pid_t start_owner() {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    while (true)
      ::pause();
  }

  pid_t owner = start_owner();
  testing::Scratch folder;
  std::string path = folder.path("s.sock");
  UniqueFd held = os::lock_file(address_lock_path(path)).take();
};

TEST_F(AddressLock, OfALivingStoreIsAnErrorThatNamesIt) {
  const auto lock = lock_address(path);
  ASSERT_FALSE(lock.is_ok());
  EXPECT_EQ(lock.code(), Code::kStoreUnavailable);
  EXPECT_NE(lock.status().message().find(std::to_string(owner)), std::string::npos) << lock.status().message();
}

TEST_F(AddressLock, OfAKilledStoreIsWaitedFor) {
  ASSERT_EQ(::kill(owner, SIGKILL), 0);
  std::thread kernel([&] {
    os::pause_ms(100);
    held.reset();
  });
  const auto lock = lock_address(path);
  EXPECT_TRUE(lock.is_ok()) << lock.status().to_string();
  kernel.join();
}

struct ListenerTest : ::testing::Test {
  ListenerTest() {
    link.hold({DescriptorKind::kListenSocket, 0}, os::listen_unix(path).take());
    link.hold({DescriptorKind::kAddressLock, 0}, os::lock_file(address_lock_path(path)).take());
    EXPECT_TRUE(listener.start().is_ok());
    turn();  // a first look at the address begins
    turn();  // and is answered
  }
  void turn() {
    ASSERT_TRUE(loop.dispatch().is_ok());
    loop.run_due();
    keeper.receive();
  }
  [[nodiscard]] UniqueFd connect() const {
    auto socket = os::connect_unix(path, os::Deadline::after_ms(20'000));
    EXPECT_TRUE(socket.is_ok()) << socket.status().to_string();
    return socket.is_ok() ? socket.take() : UniqueFd();
  }
  // For a moment the name does not exist, and then nobody listens on it yet.
  [[nodiscard]] UniqueFd connect_to_replacement() {
    const std::uint64_t begin = os::monotonic_ns();
    while (os::monotonic_ns() - begin < 20'000'000'000) {
      if (auto socket = os::connect_unix(path, os::Deadline::after_ms(0)); socket.is_ok()) return socket.take();
      turn();
    }
    return connect();
  }

  testing::Scratch folder;
  std::string path = folder.path("s.sock");
  testing::TestKeeper keeper;
  EventLoop loop{os::Poller::create().take()};
  KeeperLink link{loop, keeper.take_daemon_end(), {}};
  std::vector<UniqueFd> accepted;
  Listener listener{loop, link, path, [this](UniqueFd socket, const os::PeerCredentials& peer) {
                      EXPECT_EQ(peer.uid, os::current_uid());
                      accepted.push_back(std::move(socket));
                    }};
};

TEST_F(ListenerTest, AcceptsAllThatAreQueued) {
  const UniqueFd first = connect();
  const UniqueFd second = connect();
  turn();
  EXPECT_EQ(accepted.size(), 2U);
}

TEST_F(ListenerTest, WithoutDescriptorsItPausesAndThenAcceptsWhatWaited) {
  const UniqueFd client = connect();
  const std::uint64_t begin = os::monotonic_ns();
  bool waited = false;
  EventLoop& events = loop;
  {
    const NoDescriptors limit;
    waited = events.dispatch().is_ok();
    events.run_due();
    waited = waited && events.dispatch().is_ok();
  }
  EXPECT_TRUE(waited && accepted.empty());
  EXPECT_GE(os::monotonic_ns() - begin, 100'000'000U) << "a busy loop";
  loop.run_due();
  turn();
  EXPECT_EQ(accepted.size(), 1U);
}

// As by a daemon that was killed after it had recreated the socket and before the keeper held that one.
TEST_F(ListenerTest, ASocketThatNoProcessHasIsReplaced) {
  std::filesystem::remove(path);
  os::listen_unix(path).take().reset();
  ASSERT_TRUE(std::filesystem::exists(path));
  ASSERT_FALSE(os::connect_unix(path, os::Deadline::after_ms(0)).is_ok());
  const std::uint64_t begin = os::monotonic_ns();
  const UniqueFd client = connect_to_replacement();
  while (accepted.empty() && os::monotonic_ns() - begin < 20'000'000'000)
    turn();
  EXPECT_EQ(accepted.size(), 1U);
}

TEST_F(ListenerTest, ASocketThatLostItsNameIsReplaced) {
  const UniqueFd early = connect();
  std::filesystem::remove(path);
  const std::uint64_t begin = os::monotonic_ns();
  const UniqueFd late = connect_to_replacement();
  while (accepted.size() < 2 && os::monotonic_ns() - begin < 20'000'000'000)  // the file exists before the loop has it
    turn();
  EXPECT_EQ(accepted.size(), 2U);
  EXPECT_TRUE(keeper.held.contains({DescriptorKind::kListenSocket, 0}));
}

// The file system under the socket's folder hangs.
TEST_F(ListenerTest, AFileSystemThatDoesNotAnswerStopsNobody) {
  std::atomic<bool> asked = false;
  std::atomic<bool> answers = false;
  std::atomic<bool> done = false;
  EventLoop other_loop{os::Poller::create().take()};
  Listener other{other_loop, link, path,
                 [this](UniqueFd socket, const os::PeerCredentials&) { accepted.push_back(std::move(socket)); },
                 [&](const AddressWatch::Question& question, const std::atomic<bool>& abandoned) {
                   asked = true;
                   while (!answers)
                     os::pause_ms(1);
                   AddressState state = AddressWatch::look(question, abandoned);
                   done = true;
                   return state;
                 }};
  ASSERT_TRUE(other.start().is_ok());
  const std::uint64_t begin = os::monotonic_ns();
  const auto other_turn = [&] {
    other_loop.skip_wait();
    ASSERT_TRUE(other_loop.dispatch().is_ok());
    other_loop.run_due();
  };
  while (!asked && os::monotonic_ns() - begin < 20'000'000'000)
    other_turn();
  ASSERT_TRUE(asked);
  const UniqueFd client = connect();
  other_turn();
  EXPECT_EQ(accepted.size(), 1U);
  other.stop();  // waits for a second at most
  EXPECT_FALSE(answers);
  std::filesystem::remove(path);
  answers = true;
  while (!done && os::monotonic_ns() - begin < 20'000'000'000)
    os::pause_ms(1);
  EXPECT_TRUE(done);
  EXPECT_FALSE(std::filesystem::exists(path)) << "a daemon that has ended does not take the address";
}

TEST_F(ListenerTest, WhatComesAfterItsStopWaitsForTheNextDaemon) {
  listener.stop();
  const UniqueFd client = connect();
  loop.skip_wait();  // nothing else is waited for
  turn();
  EXPECT_TRUE(accepted.empty());
  const auto waiting = os::accept_unix(link.fd({DescriptorKind::kListenSocket, 0}));
  EXPECT_TRUE(waiting.is_ok() && waiting->valid());
}

}  // namespace
}  // namespace entrepot
