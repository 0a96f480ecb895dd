#include "os/events.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "os/process.h"
#include "os/socket.h"
#include "os/test_deadline.h"

namespace entrepot::os {
namespace {

TEST(Clock, DeadlinesCountDown) {
  EXPECT_EQ(Deadline::never().poll_ms(), -1);
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_TRUE(Deadline::after_ms(UINT64_MAX).is_never());
  const Deadline past = Deadline::after_ms(0);
  EXPECT_TRUE(past.passed());
  EXPECT_EQ(past.poll_ms(), 0);
  const Deadline later = Deadline::after_ms(60'000);
  EXPECT_GT(later.poll_ms(), 50'000);
  EXPECT_LE(later.poll_ms(), 60'000);
}

TEST(Poller, TellsWhoIsReadyForWhat) {
  Poller poller = Poller::create().take();
  auto [a, b] = socket_pair(SocketKind::kStream).take();
  ASSERT_TRUE(poller.add(a.get(), 11, true, false).is_ok());
  EXPECT_TRUE(poller.wait(Deadline::after_ms(1))->empty());
  const std::array<std::uint8_t, 1> byte{1};
  ASSERT_TRUE(send_some(b.get(), byte).is_ok());
  std::vector<Ready> ready = poller.wait(test_deadline()).take();
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(ready[0].key, 11U);
  EXPECT_TRUE(ready[0].readable);
  EXPECT_FALSE(ready[0].writable);
  ASSERT_TRUE(poller.change(a.get(), 12, false, true).is_ok());
  ready = poller.wait(test_deadline()).take();
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(ready[0].key, 12U);
  EXPECT_TRUE(ready[0].writable);
  ASSERT_TRUE(poller.change(a.get(), 13, false, false).is_ok());
  b.reset();
  ready = poller.wait(test_deadline()).take();
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_TRUE(ready[0].hangup);
  poller.remove(a.get());
  EXPECT_TRUE(poller.wait(Deadline::after_ms(1))->empty());
}

TEST(Events, EventFdWakesAPollerFromAnotherThread) {
  Poller poller = Poller::create().take();
  const UniqueFd event = create_event_fd().take();
  ASSERT_TRUE(poller.add(event.get(), 1, true, false).is_ok());
  std::thread waker([&] { signal_event(event.get()); });
  EXPECT_EQ(poller.wait(test_deadline())->size(), 1U);
  waker.join();
  clear_event(event.get());
  clear_event(event.get());  // clearing an unset event does not block
  EXPECT_FALSE(*wait_readable(event.get(), Deadline::after_ms(0)));
}

TEST(Events, SignalsComeThroughTheDescriptor) {
  const UniqueFd signals = create_signal_fd({SIGUSR1}).take();
  EXPECT_EQ(*read_signal(signals.get()), 0);
  ASSERT_TRUE(send_signal(current_pid(), SIGUSR1).is_ok());
  ASSERT_TRUE(*wait_readable(signals.get(), test_deadline()));
  EXPECT_EQ(*read_signal(signals.get()), SIGUSR1);
}

}  // namespace
}  // namespace entrepot::os
