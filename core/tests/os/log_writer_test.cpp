#include "os/log_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>

#include "base/text.h"
#include "os/clock.h"
#include "os/events.h"
#include "os/unique_fd.h"

namespace entrepot::os {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr std::size_t kCapacity = 1000;
constexpr seconds kWatchdog(60);

std::string note(std::uint64_t dropped, int error) { return concat("dropped ", dropped, " errno ", error, "\n"); }

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    out = UniqueFd(ends[0]);
    in = UniqueFd(ends[1]);
    room = ::fcntl(in.get(), F_SETPIPE_SZ, 4096);
    EXPECT_GT(room, 0);
  }
  void fill() const {
    const std::string dots(static_cast<std::size_t>(room), '.');
    ASSERT_EQ(::write(in.get(), dots.data(), dots.size()), room);
  }
  // Reads until `end` arrives.
  [[nodiscard]] std::string read_until(const std::string& end) const {
    std::string text;
    while (text.find(end) == std::string::npos) {
      const auto readable = wait_readable(out.get(), Deadline::after_ms(60'000));
      if (!readable.is_ok() || !*readable) return text + " (nothing more came)";
      std::array<char, 4096> piece{};
      const ssize_t got = ::read(out.get(), piece.data(), piece.size());
      if (got <= 0) return text + " (end of file)";
      text.append(piece.data(), static_cast<std::size_t>(got));
    }
    return text;
  }
  UniqueFd out;
  UniqueFd in;
  int room = 0;
};

std::string line(int number) { return concat("line ", 1000 + number, " of the log\n"); }

TEST(LogWriter, WritesWholeLinesInTheirOrder) {
  const Pipe pipe;
  LogWriter writer(pipe.in.get(), kCapacity, note);
  std::string all;
  for (int number = 0; number < 20; ++number) {
    writer.add(line(number));
    all += line(number);
  }
  EXPECT_TRUE(writer.flush(kWatchdog, kWatchdog));
  EXPECT_EQ(pipe.read_until(line(19)), all);
  EXPECT_EQ(writer.dropped(), 0U);
}

TEST(LogWriter, AFullPipeKeepsNobodyWaiting) {
  const Pipe pipe;
  pipe.fill();
  LogWriter writer(pipe.in.get(), kCapacity, note);
  constexpr int kLines = 500;
  for (int number = 0; number < kLines; ++number)
    writer.add(line(number));
  const std::uint64_t dropped = writer.dropped();
  // At most one batch is being written and one is pending.
  EXPECT_GE(dropped, kLines - 2 * kCapacity / line(0).size());
  EXPECT_LT(dropped, static_cast<std::uint64_t>(kLines));
  EXPECT_FALSE(writer.flush(milliseconds(20), kWatchdog)) << "a flush is bounded";

  // Once the pipe is read, the kept lines arrive, and the number of dropped ones: after the batch that was being
  // written, so in one line or two, before or after the pending lines.
  const std::string dots = pipe.read_until(".");
  ASSERT_EQ(dots.find_first_not_of('.'), std::string::npos);
  ASSERT_TRUE(writer.flush(kWatchdog, kWatchdog));
  writer.add("end\n");
  const std::string text = pipe.read_until("end\n");
  EXPECT_NE(text.find(line(0)), std::string::npos);
  std::uint64_t written = 0;
  for (int number = 0; number < kLines; ++number)
    written += text.find(line(number)) == std::string::npos ? 0 : 1;
  EXPECT_EQ(written + dropped, static_cast<std::uint64_t>(kLines));
  std::uint64_t reported = 0;
  const std::string begin = "dropped ";
  for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1))
    reported += std::stoull(text.substr(at + begin.size()));
  EXPECT_EQ(reported, dropped) << text;
  EXPECT_TRUE(writer.flush(kWatchdog, kWatchdog));
}

TEST(LogWriter, WhatCannotBeWrittenIsCountedAndToldOnce) {
  UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  LogWriter writer(full.get(), kCapacity, note);
  for (int number = 0; number < 3; ++number)
    writer.add(line(number));
  ASSERT_TRUE(writer.flush(kWatchdog, kWatchdog));
  EXPECT_EQ(writer.dropped(), 3U);
  // There is space on the disk again.
  const Pipe pipe;
  ASSERT_EQ(::dup2(pipe.in.get(), full.get()), full.get());
  writer.add(line(3));
  const std::string text = pipe.read_until(note(3, ENOSPC));
  EXPECT_EQ(text, line(3) + note(3, ENOSPC));
}

TEST(LogWriter, ANonBlockingDescriptorIsWaitedFor) {
  const Pipe pipe;
  pipe.fill();
  ASSERT_EQ(::fcntl(pipe.in.get(), F_SETFL, O_NONBLOCK), 0);
  LogWriter writer(pipe.in.get(), kCapacity, note);
  writer.add(line(0));
  EXPECT_FALSE(writer.flush(milliseconds(20), kWatchdog));
  EXPECT_TRUE(pipe.read_until(line(0)).ends_with(line(0)));
  EXPECT_TRUE(writer.flush(kWatchdog, kWatchdog));
  EXPECT_EQ(writer.dropped(), 0U);
}

TEST(LogWriter, AFlushDoesNotWaitForWhoeverReadsNothing) {
  const Pipe pipe;
  pipe.fill();
  LogWriter writer(pipe.in.get(), kCapacity, note);
  writer.add(line(0));
  const auto began = steady_clock::now();
  EXPECT_FALSE(writer.flush(kWatchdog, milliseconds(20)));
  EXPECT_LT(steady_clock::now() - began, kWatchdog);
  EXPECT_TRUE(pipe.read_until(line(0)).ends_with(line(0)));
  EXPECT_TRUE(writer.flush(kWatchdog, kWatchdog));
}

}  // namespace
}  // namespace entrepot::os
