#include "net/event_loop.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/peer.h"
#include "os/clock.h"
#include "os/events.h"
#include "os/socket.h"

namespace entrepot {
namespace {

UniqueFd signalled_event() {
  UniqueFd event = os::create_event_fd().take();
  os::signal_event(event.get());
  return event;
}

struct EventLoopTest : ::testing::Test {
  void turn() {
    ASSERT_TRUE(loop.dispatch().is_ok());
    loop.run_due();
  }
  testing::TestLoop loop;
};

TEST_F(EventLoopTest, CallsBackWhileADescriptorIsReadyAndWatched) {
  const UniqueFd event = signalled_event();
  int calls = 0;
  EventLoop::Watch watch = loop.watch(event.get(), Interest::kRead,
                                      [&](const os::Ready& ready) {
                                        EXPECT_TRUE(ready.readable);
                                        EXPECT_FALSE(ready.hangup);
                                        calls += 1;
                                      })
                               .take();
  turn();
  turn();
  EXPECT_EQ(calls, 2) << "level-triggered";
  os::clear_event(event.get());
  turn();
  EXPECT_EQ(calls, 2);
  os::signal_event(event.get());
  EventLoop::Watch other = std::move(watch);
  EXPECT_FALSE(watch.is_active());  // NOLINT(bugprone-use-after-move): it is defined
  turn();
  EXPECT_EQ(calls, 3);
  other.reset();
  turn();
  EXPECT_EQ(calls, 3);
}

TEST_F(EventLoopTest, CallsBackForAnExceptionalConditionAndForNothingElse) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t bytes = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), any, bytes), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), any, &bytes), 0);
  const UniqueFd sender(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(sender.get(), any, bytes), 0);
  const UniqueFd receiver(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(receiver.valid());
  int calls = 0;
  EventLoop::Watch watch = loop.watch_urgent(receiver.get(),
                                             [&](const os::Ready& ready) {
                                               EXPECT_TRUE(ready.urgent);
                                               EXPECT_FALSE(ready.readable);
                                               calls += 1;
                                             })
                               .take();
  ASSERT_EQ(::send(sender.get(), "a", 1, 0), 1);
  ASSERT_TRUE(*os::wait_readable(receiver.get(), os::Deadline::after_ms(20'000)));
  turn();
  EXPECT_EQ(calls, 0) << "ordinary data";
  ASSERT_EQ(::send(sender.get(), "!", 1, MSG_OOB), 1);
  const os::Deadline deadline = os::Deadline::after_ms(20'000);
  while (calls == 0 && !deadline.passed())
    turn();
  EXPECT_EQ(calls, 1);
}

TEST_F(EventLoopTest, WorkInMemoryIsFoundWithoutWaitingAndAnnouncedBeforeSleep) {
  int work = 3;
  int sleeps = 0;
  bool comes_late = true;
  loop.poll_memory({[&] { return work > 0; },
                    [&] {
                      ++sleeps;
                      if (!std::exchange(comes_late, false)) return true;
                      work = 1;  // it came while the loop was deciding to sleep
                      return false;
                    }});
  for (; work > 0; --work)
    turn();
  EXPECT_EQ(sleeps, 0) << "there was work in each turn";
  turn();
  EXPECT_EQ(sleeps, 1);
  EXPECT_EQ(work, 1);
  work = 0;
  turn();
  EXPECT_EQ(sleeps, 2);
}

TEST_F(EventLoopTest, DescriptorsAreNotForgottenForWorkInMemory) {
  const UniqueFd event = signalled_event();
  int calls = 0;
  const EventLoop::Watch watch = loop.watch(event.get(), Interest::kRead, [&](const os::Ready&) { calls += 1; }).take();
  loop.poll_memory({[] { return true; }, [] { return false; }});
  for (int i = 0; i < 100 && calls == 0; ++i)
    turn();
  EXPECT_EQ(calls, 1);
}

TEST_F(EventLoopTest, EachInterestWakesForWhatItNames) {
  auto pair = os::socket_pair(os::SocketKind::kStream).take();
  std::vector<os::Ready> seen;
  EventLoop::Watch watch =
      loop.watch(pair.first.get(), Interest::kHangup, [&](const os::Ready& ready) { seen.push_back(ready); }).take();
  const std::vector<std::uint8_t> byte = {1};
  ASSERT_TRUE(os::send_some(pair.second.get(), byte).is_ok());
  turn();
  EXPECT_TRUE(seen.empty()) << "data is no end";
  ASSERT_TRUE(watch.change(Interest::kRead).is_ok());
  turn();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_TRUE(seen.back().readable && !seen.back().writable && !seen.back().hangup);
  ASSERT_TRUE(watch.change(Interest::kReadAndWrite).is_ok());
  turn();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_TRUE(seen.back().readable && seen.back().writable);
  ASSERT_TRUE(watch.change(Interest::kHangup).is_ok());
  pair.second.reset();
  turn();
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_TRUE(seen.back().hangup);
  watch.reset();
  EXPECT_FALSE(watch.change(Interest::kRead).is_ok());
}

TEST_F(EventLoopTest, AnEventOfAWatchThatAnEarlierEventRemovedIsDropped) {
  const UniqueFd events[] = {signalled_event(), signalled_event()};
  EventLoop::Watch watches[2];
  int calls = 0;
  for (int i = 0; i < 2; ++i) {
    watches[i] = loop.watch(events[i].get(), Interest::kRead,
                            [&, i](const os::Ready&) {
                              calls += 1;
                              watches[1 - i].reset();
                            })
                     .take();
  }
  turn();
  EXPECT_EQ(calls, 1);
}

TEST_F(EventLoopTest, AnEventNeverReachesTheNextOwnerOfItsDescriptorsNumber) {
  UniqueFd events[] = {signalled_event(), signalled_event()};
  EventLoop::Watch watches[2];
  UniqueFd next;
  EventLoop::Watch next_watch;
  int calls_of_next = 0;
  for (int i = 0; i < 2; ++i) {
    watches[i] =
        loop.watch(events[i].get(), Interest::kRead,
                   [&, i](const os::Ready&) {
                     if (next.valid()) return;
                     const int number = events[1 - i].get();
                     watches[1 - i].reset();
                     events[1 - i].reset();
                     next = os::create_event_fd().take();
                     EXPECT_EQ(next.get(), number);
                     next_watch =
                         loop.watch(next.get(), Interest::kRead, [&](const os::Ready&) { calls_of_next += 1; }).take();
                   })
            .take();
  }
  turn();
  EXPECT_TRUE(next.valid());
  EXPECT_EQ(calls_of_next, 0) << "nobody signalled it";
}

TEST_F(EventLoopTest, ACallbackMayRemoveItself) {
  const UniqueFd event = signalled_event();
  std::string seen;
  EventLoop::Watch watch;
  // Longer than std::function and std::string store in place, so that a sanitizer sees a read after its end.
  watch = loop.watch(event.get(), Interest::kRead,
                     [&, text = std::string(100, 'x')](const os::Ready&) {
                       watch.reset();
                       seen += text;
                     })
              .take();
  turn();
  turn();
  EXPECT_EQ(seen, std::string(100, 'x'));
}

TEST_F(EventLoopTest, ACallbackMayReplaceItself) {
  const UniqueFd event = signalled_event();
  std::vector<std::string> seen;
  EventLoop::Watch watch;
  watch =
      loop.watch(
              event.get(), Interest::kRead,
              [&, text = std::string(100, 'a')](const os::Ready&) {
                watch.reset();
                watch =
                    loop.watch(event.get(), Interest::kRead, [&](const os::Ready&) { seen.emplace_back("b"); }).take();
                seen.push_back(text);
              })
          .take();
  turn();
  turn();
  EXPECT_EQ(seen, (std::vector<std::string>{std::string(100, 'a'), "b"}));
}

TEST(EventLoopTimers, EndTheWaitAndAreCalledInTheOrderOfTheirDeadlines) {
  EventLoop loop(os::Poller::create().take());
  const std::uint64_t begin = os::monotonic_ns();
  std::vector<int> called;
  EventLoop::Timer timers[3];
  for (int i = 0; i < 3; ++i) {
    timers[i] = loop.timer([&, i](std::uint64_t now_ns) {
      EXPECT_GE(now_ns, begin);
      called.push_back(i);
    });
  }
  timers[1].arm(begin + 30'000'000);
  timers[2].arm(begin + 20'000'000);
  ASSERT_TRUE(loop.dispatch().is_ok());
  loop.run_due();
  EXPECT_GE(os::monotonic_ns() - begin, 20'000'000U);
  EXPECT_EQ(called.front(), 2) << "the later one too, only if this was slow";
  ASSERT_TRUE(!timers[1].is_armed() || loop.dispatch().is_ok());
  loop.run_due();
  EXPECT_EQ(called, (std::vector<int>{2, 1}));
  timers[2].arm(1);
  timers[0].arm(0);  // due: no wait
  ASSERT_TRUE(loop.dispatch().is_ok());
  called.clear();
  loop.run_due();
  EXPECT_EQ(called, (std::vector<int>{0, 2}));
}

TEST(EventLoopTimers, AWaitCanBeSkippedOnce) {
  EventLoop loop(os::Poller::create().take());
  const std::uint64_t begin = os::monotonic_ns();
  EventLoop::Timer timer = loop.timer([](std::uint64_t) {});
  timer.arm(begin + 50'000'000);
  loop.skip_wait();
  ASSERT_TRUE(loop.dispatch().is_ok());
  loop.run_due();
  ASSERT_TRUE(loop.dispatch().is_ok());
  EXPECT_GE(os::monotonic_ns() - begin, 50'000'000U);
}

TEST(EventLoopTimers, WithoutAnyAnEventIsAwaited) {
  EventLoop loop(os::Poller::create().take());
  const UniqueFd event = os::create_event_fd().take();
  int calls = 0;
  const EventLoop::Watch watch = loop.watch(event.get(), Interest::kRead, [&](const os::Ready&) { calls += 1; }).take();
  for (const bool expected : {false, true}) {
    os::clear_event(event.get());
    if (expected) loop.expect_event();
    std::thread signals([&] {
      os::pause_ms(20);
      os::signal_event(event.get());
    });
    ASSERT_TRUE(loop.dispatch().is_ok());
    signals.join();
  }
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace entrepot
