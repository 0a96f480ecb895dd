// The lease pool against a minimal fake daemon, which leases one memfd piece by piece and counts what is leased.
#include "client/lease_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "os/memfd.h"
#include "shm/layout.h"
#include "shm/leases.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kSegmentBytes = 8U << 20;
constexpr std::uint64_t kGranule = 64U << 10;

class FakeLeases : public Rpc {
 public:
  FakeLeases() : fd_(os::create_memfd("fake", kSegmentBytes).take()) {}

  Result<Frame> call(MessageType type, std::span<const std::uint8_t> body, const CallOptions&) override {
    if (type == MessageType::kLease && before_lease) std::exchange(before_lease, nullptr)();
    Result<Frame> answer = answer_to(type, body);
    if (type == MessageType::kUnlease && after_unlease) std::exchange(after_unlease, nullptr)();
    return answer;
  }
  Result<Frame> answer_to(MessageType type, std::span<const std::uint8_t> body) {
    const std::lock_guard lock(mutex_);
    Frame frame;
    if (type == MessageType::kUnlease) {
      UnleaseRequest request;
      EXPECT_TRUE(from_wire(body, request));
      returned += request.length;
      out_ -= request.length;
      if (request.done_with_segment != 0) {
        ++done;
        returned += std::exchange(out_, 0);
        replace_segment();
      }
      frame.body = to_wire(Empty{});
      return frame;
    }
    if (type == MessageType::kSegment) {
      frame.body = to_wire(SegmentReply{5, generation_, kSegmentBytes});
      frame.fds.push_back(os::duplicate(fd_.get()).take());
      return frame;
    }
    EXPECT_EQ(type, MessageType::kLease);
    LeaseRequest request;
    EXPECT_TRUE(from_wire(body, request));
    ++leases;
    last_want = request.want_bytes;
    if (is_full && is_full()) return Status(Code::kStoreFull, "memory was not provisioned in time", true);
    const std::uint64_t least = (request.min_bytes + kGranule - 1) / kGranule * kGranule;
    if (next_ + least > kSegmentBytes) return Status(Code::kStoreFull, "full");
    const std::uint64_t length =
        std::min((request.want_bytes + kGranule - 1) / kGranule * kGranule, kSegmentBytes - next_);
    LeaseReply reply{5, generation_, kSegmentBytes, next_, length, MemoryKind::kSmallPages};
    next_ += length;
    out_ += length;
    if (falsify) falsify(reply);
    frame.body = to_wire(reply);
    if (!std::exchange(sent_fd_, true)) frame.fds.push_back(os::duplicate(fd_.get()).take());
    if (sends_two_fds) frame.fds.push_back(os::duplicate(fd_.get()).take());
    return frame;
  }
  void post(MessageType) override {}
  std::shared_ptr<Connection> current_connection() override { return nullptr; }
  Status wait_reconnected(const std::shared_ptr<Connection>&, const Interrupt&) override { return Status::ok(); }

  void start_again() { next_ = 0; }  // leases its memory again from the start
  void replace_segment() {           // by another of the same number
    next_ = 0;
    sent_fd_ = false;
    ++generation_;
  }

  std::function<void()> before_lease;   // once
  std::function<void()> after_unlease;  // once: when it took effect, before its answer arrives

  std::function<bool()> is_full;             // whether it refuses a lease
  std::function<void(LeaseReply&)> falsify;  // every lease
  bool sends_two_fds = false;

  int leases = 0;
  int done = 0;
  std::uint64_t returned = 0;
  std::uint64_t last_want = 0;

 private:
  std::mutex mutex_;
  UniqueFd fd_;
  std::uint64_t next_ = 0;
  std::uint64_t out_ = 0;  // leased and not returned
  std::uint32_t generation_ = 1;
  bool sent_fd_ = false;
};

TEST(LeasePool, WhoeverWaitsForMemoryReturnsWhatItHoldsIdle) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  const auto small = pool.allocate(1000, 64, 0, 0, {});
  ASSERT_TRUE(small.is_ok());
  pool.sealed(*small);
  EXPECT_EQ(pool.allocate(kSegmentBytes, 4096, 0, 100, {}).code(), Code::kStoreFull);
  EXPECT_EQ(daemon.done, 0) << "the daemon may have had room within a tenth of a second";
  const auto large = pool.allocate(kSegmentBytes, 4096, 0, 10'000, {});
  EXPECT_TRUE(large.is_ok()) << large.status().to_string();
  EXPECT_EQ(daemon.done, 1);
}

TEST(LeasedRange, IsFilledWithWhatIsCopiedAndNothingBehindIt) {
  for (const MemoryKind kind : {MemoryKind::kSmallPages, MemoryKind::kHugePages}) {
    FakeLeases daemon;
    daemon.falsify = [kind](LeaseReply& reply) { reply.kind = kind; };
    LeasePool pool(daemon);
    const std::uint64_t bytes = (2U << 20) + 4099;  // in part a page
    ASSERT_LT(bytes + 4096, kSegmentBytes);
    const auto range = pool.allocate(bytes + 4096, 4096, 0, 0, {});
    ASSERT_TRUE(range.is_ok()) << range.status().to_string();
    EXPECT_EQ(range->memory->kind, kind);
    std::vector<std::byte> source(bytes);
    for (std::size_t at = 0; at < bytes; ++at)
      source[at] = static_cast<std::byte>(at % 251 + 1);
    range->fill(source.data(), bytes);
    EXPECT_EQ(std::memcmp(range->data(), source.data(), bytes), 0);
    EXPECT_EQ(range->data()[bytes], std::byte{0});
    pool.sealed(*range);
  }
}

TEST(LeasePool, CarvesManyRangesFromOneLeaseAndKeepsThemApart) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  std::vector<LeasedRange> ranges;
  for (int i = 0; i < 40; ++i) {
    auto range = pool.allocate(1000 + static_cast<std::uint64_t>(i) * 64, i % 2 == 0 ? 64 : 4096, 0, 0, {});
    ASSERT_TRUE(range.is_ok()) << range.status().to_string();
    EXPECT_EQ(range->offset % (i % 2 == 0 ? 64 : 4096), 0U);
    std::memset(range->data(), i, range->length);
    ranges.push_back(*range);
  }
  EXPECT_EQ(daemon.leases, 1);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    for (std::uint64_t at = 0; at < ranges[i].length; ++at) {
      ASSERT_EQ(static_cast<std::size_t>(ranges[i].data()[at]), i);
    }
  }
}

TEST(LeasePool, LeasesGrow) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  ASSERT_TRUE(pool.allocate(4U << 20, 4096, 0, 0, {}).is_ok());
  EXPECT_EQ(daemon.last_want, kFirstLeaseBytes);
  ASSERT_TRUE(pool.allocate(1U << 20, 4096, 0, 0, {}).is_ok());
  EXPECT_EQ(daemon.last_want, 2 * kFirstLeaseBytes);
}

TEST(LeasePool, WhatIsGivenBackIsUsedAgain) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  for (int i = 0; i < 100; ++i) {
    auto range = pool.allocate(3U << 20, 4096, 0, 0, {});
    ASSERT_TRUE(range.is_ok());
    pool.give_back(*range);
  }
  EXPECT_EQ(daemon.leases, 1);
}

TEST(LeasePool, ASegmentOfWhichNothingIsLeftIsGivenBack) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  auto range = pool.allocate(kSegmentBytes, 4096, 0, 0, {});
  ASSERT_TRUE(range.is_ok());
  pool.sealed(*range);
  EXPECT_EQ(daemon.done, 1);
  EXPECT_FALSE(pool.has_idle());
  auto again = pool.allocate(1000, 64, 0, 0, {});  // another generation of the segment, with its own descriptor
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  EXPECT_EQ(again->memory->generation, 2U);
}

TEST(LeasePool, ProtectedPagesAreReadOnlyUntilTheyAreLeasedAnew) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  auto range = pool.allocate(kOwnPagesBytes, os::page_bytes(), 0, 0, {});
  ASSERT_TRUE(range.is_ok());
  range->data()[0] = std::byte{1};
  ASSERT_TRUE(pool.protect(*range).is_ok());
  EXPECT_DEATH(range->data()[0] = std::byte{2}, "");
  auto other = pool.allocate(100, 64, 0, 0, {});  // keeps the segment
  ASSERT_TRUE(other.is_ok());
  pool.give_back_protected(*range);
  pool.return_idle({});
  EXPECT_DEATH(range->data()[0] = std::byte{2}, "");
  daemon.start_again();
  auto again = pool.allocate(kOwnPagesBytes, os::page_bytes(), 0, 0, {});
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  ASSERT_EQ(again->data(), range->data());
  again->data()[0] = std::byte{3};
}

TEST(LeasePool, OnlyWholeGranulesGoBackAndTheRestIsUsedAgain) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  auto kept = pool.allocate((1U << 20) + 100, 64, 0, 0, {});
  ASSERT_TRUE(kept.is_ok());
  pool.return_idle({});
  EXPECT_FALSE(pool.has_idle()) << "or the idle lease timer would never end";
  EXPECT_EQ(daemon.returned, kFirstLeaseBytes - (1U << 20) - kReturnGranule);
  auto crumb = pool.allocate(1000, 64, 0, 0, {});
  ASSERT_TRUE(crumb.is_ok());
  EXPECT_EQ(crumb->offset, kept->offset + kept->length);
  pool.give_back(*crumb);
  pool.give_back(*kept);
  pool.return_idle({});
  EXPECT_EQ(daemon.done, 1);
}

TEST(LeasePool, ReturnsAllThatIsIdle) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  auto kept = pool.allocate(1U << 20, 4096, 0, 0, {});
  ASSERT_TRUE(kept.is_ok());
  EXPECT_TRUE(pool.has_idle());
  pool.return_idle({});
  EXPECT_FALSE(pool.has_idle());
  EXPECT_EQ(daemon.returned, kFirstLeaseBytes - (1U << 20));
  EXPECT_EQ(daemon.done, 0);
  pool.give_back(*kept);
  pool.return_idle({});
  EXPECT_EQ(daemon.returned, kFirstLeaseBytes);
  EXPECT_EQ(daemon.done, 1);
}

TEST(LeasePool, TellsWhatItHoldsOnReconnect) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  auto used = pool.allocate(1U << 20, 4096, 0, 0, {});
  ASSERT_TRUE(used.is_ok());
  std::uint64_t bytes = 0;
  for (const ReportedRange& held : pool.snapshot_for_reconnect()) {
    EXPECT_EQ(held.segment, 5U);
    EXPECT_EQ(held.segment_generation, 1U);
    bytes += held.length;
  }
  EXPECT_EQ(bytes, kFirstLeaseBytes);
}

TEST(LeasePool, TellsNoMoreRangesThanADaemonTakes) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  std::vector<LeasedRange> apart;
  static_assert(kSegmentBytes == 2 * 64 * std::uint64_t{kMaxReportedRanges});  // all of which this test uses
  for (std::uint32_t i = 0; i + 1 < kMaxReportedRanges; ++i) {
    auto freed = pool.allocate(64, 64, 0, 0, {});
    auto sealed = pool.allocate(64, 64, 0, 0, {});
    ASSERT_TRUE(freed.is_ok() && sealed.is_ok());
    apart.push_back(freed.take());
    pool.sealed(*sealed);
  }
  auto used = pool.allocate(64, 64, 0, 0, {});
  auto used_too = pool.allocate(64, 64, 0, 0, {});
  ASSERT_TRUE(used.is_ok() && used_too.is_ok());
  for (const LeasedRange& range : apart)
    pool.give_back(range);
  const std::vector<ReportedRange> ranges = pool.snapshot_for_reconnect();
  EXPECT_EQ(ranges.size(), kMaxReportedRanges);
  EXPECT_TRUE(std::any_of(ranges.begin(), ranges.end(), [&](const ReportedRange& range) {
    return range.segment == used->segment() && range.offset == used->offset;
  })) << "what is being written is always told";
}

TEST(LeasePool, ASegmentReplacedBeforeItsReturnIsAnsweredIsLeased) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  const auto former = pool.allocate(1U << 20, 4096, 0, 0, {});
  ASSERT_TRUE(former.is_ok());
  pool.give_back(*former);
  std::promise<void> requested;
  std::promise<void> returned;
  std::promise<void> leased;
  daemon.before_lease = [&] {
    requested.set_value();
    returned.get_future().wait();
    daemon.replace_segment();
  };
  daemon.after_unlease = [&] {
    returned.set_value();
    leased.get_future().wait();
  };
  std::thread idle([&] {
    requested.get_future().wait();
    pool.return_idle({});
  });
  const auto range = pool.allocate(6U << 20, 4096, 0, 0, {});
  leased.set_value();
  idle.join();
  ASSERT_TRUE(range.is_ok()) << range.status().to_string();
  EXPECT_EQ(range->memory->generation, former->memory->generation + 1);
  std::memset(range->data(), 1, range->length);
  std::uint64_t held = 0;
  for (const ReportedRange& reported : pool.snapshot_for_reconnect()) {
    EXPECT_EQ(reported.segment_generation, range->memory->generation);
    held += reported.length;
  }
  EXPECT_EQ(held, 8U << 20) << "all of the new lease, nothing of the former segment";
  pool.give_back(*former);  // not a range of the new segment
  pool.sealed(*former);
  EXPECT_EQ(pool.allocate(2U << 20, 4096, 0, 0, {}).take().offset, 6U << 20);
}

TEST(LeasePool, ALeaseOutsideOfItsSegmentIsRefused) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  const std::vector<std::function<void(LeaseReply&)>> lies = {
      [](LeaseReply& lease) { lease.offset = kSegmentBytes - kGranule; },
      [](LeaseReply& lease) { lease.offset = kSegmentBytes + kGranule; },
      [](LeaseReply& lease) { lease.length = UINT64_MAX - kGranule; },
  };
  for (const auto& lie : lies) {
    daemon.falsify = lie;
    const auto range = pool.allocate(1000, 64, 0, 0, {});
    EXPECT_EQ(range.code(), Code::kInternal);
    EXPECT_NE(range.status().message().find("is outside of it"), std::string::npos) << range.status().to_string();
    daemon.start_again();
  }
  daemon.falsify = nullptr;
  EXPECT_TRUE(pool.allocate(1000, 64, 0, 0, {}).is_ok());
}

TEST(LeasePool, ASegmentReplacedWhileItIsWrittenToIsRefused) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  const auto written = pool.allocate(1U << 20, 4096, 0, 0, {});
  ASSERT_TRUE(written.is_ok());
  daemon.replace_segment();
  const auto range = pool.allocate(6U << 20, 4096, 0, 0, {});
  EXPECT_EQ(range.code(), Code::kInternal);
  EXPECT_NE(range.status().message().find("while this client was writing to it"), std::string::npos)
      << range.status().to_string();
}

TEST(LeasePool, ALeaseWithSeveralDescriptorsIsRefused) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  daemon.sends_two_fds = true;
  const auto range = pool.allocate(1000, 64, 0, 0, {});
  EXPECT_EQ(range.code(), Code::kInternal);
  EXPECT_NE(range.status().message().find("2 descriptors instead of one"), std::string::npos)
      << range.status().to_string();
}

TEST(LeasePool, ADescriptorOfAnotherGenerationIsRefused) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  daemon.falsify = [](LeaseReply& lease) { lease.offset = kSegmentBytes; };
  ASSERT_EQ(pool.allocate(1000, 64, 0, 0, {}).code(), Code::kInternal);  // the descriptor came with this lease
  daemon.start_again();
  daemon.falsify = [](LeaseReply& lease) { lease.segment_generation += 1; };
  const auto range = pool.allocate(1000, 64, 0, 0, {});
  EXPECT_EQ(range.code(), Code::kInternal);
  EXPECT_NE(range.status().message().find("was replaced while leased"), std::string::npos)
      << range.status().to_string();
}

TEST(LeasePool, TheSmallestRangeThatFitsIsTaken) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  const auto allocate = [&](std::uint64_t bytes) { return pool.allocate(bytes, 4096, 0, 0, {}).take(); };
  const LeasedRange first = allocate(3U << 19);
  const LeasedRange kept = allocate(kGranule);
  const LeasedRange middle = allocate(1U << 19);
  const LeasedRange last = allocate(kGranule);  // behind it, almost 2 MiB are free
  pool.give_back(first);
  pool.give_back(middle);
  EXPECT_EQ(allocate(1U << 18).offset, middle.offset);
  EXPECT_EQ(daemon.leases, 1);
  pool.give_back(kept);
  pool.give_back(last);
}

TEST(LeasePool, AFullStoreIsReported) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  EXPECT_EQ(pool.allocate(2 * kSegmentBytes, 64, 0, 0, {}).code(), Code::kStoreFull);
}

LeasePool::Patience patience(std::uint32_t wait_ms, std::uint32_t provisioning_ms, std::function<bool()> is_coming) {
  return {wait_ms, 100, provisioning_ms, std::move(is_coming)};
}

TEST(LeasePool, WhoCanDoWithoutWaitsForMemoryThatIsBeingProvisioned) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  int left = 4;
  daemon.is_full = [&] { return --left > 0; };
  const auto range = pool.try_allocate(1U << 20, 4096, patience(0, 60'000, [&] { return left > 0; }));
  ASSERT_TRUE(range.is_ok()) << range.status().to_string();
  EXPECT_EQ(daemon.leases, 4);
  pool.give_back(*range);
}

TEST(LeasePool, WhoCanDoWithoutDoesNotWaitForAFullStore) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  daemon.is_full = [] { return true; };
  EXPECT_EQ(pool.try_allocate(1U << 20, 4096, patience(0, 60'000, [] { return false; })).code(), Code::kStoreFull);
  EXPECT_EQ(daemon.leases, 1);
}

TEST(LeasePool, WhoCanDoWithoutWaitsNoLongerThanItsPatience) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  daemon.is_full = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // as long as the daemon waits for memory
    return true;
  };
  EXPECT_EQ(pool.try_allocate(1U << 20, 4096, patience(5, 50, [] { return true; })).code(), Code::kStoreFull);
  EXPECT_GT(daemon.leases, 1);
  EXPECT_LE(daemon.leases, 11);
}

TEST(LeasePool, ARefusalWithoutAWaitIsNotRepeated) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  daemon.is_full = [] { return true; };
  EXPECT_EQ(pool.try_allocate(1U << 20, 4096, patience(10'000, 60'000, [] { return true; })).code(), Code::kStoreFull);
  EXPECT_EQ(daemon.leases, 1);
}

TEST(LeasePool, ALargeValueGetsASegmentOfItsSizeFirst) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  daemon.is_full = [] { return true; };
  const std::uint64_t bytes = 100U << 20;
  EXPECT_FALSE(pool.try_allocate(bytes, 2U << 20, patience(0, 0, [] { return false; })).is_ok());
  EXPECT_EQ(daemon.last_want, bytes);  // nothing for its alignment, which a segment has
}

TEST(LeasePool, AValueThatIsNotAlignedInItsLeaseGetsALargerOne) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  const auto first = pool.allocate(kGranule, 64, 0, 0, {});  // what follows it is not aligned
  ASSERT_TRUE(first.is_ok()) << first.status().to_string();
  const auto second = pool.try_allocate(1U << 20, 2U << 20, patience(0, 0, [] { return false; }));
  ASSERT_TRUE(second.is_ok()) << second.status().to_string();
  EXPECT_EQ(second->offset % (2U << 20), 0U);
  pool.give_back(*first);
  pool.give_back(*second);
}

TEST(LeasePool, ThreadsNeverShareARange) {
  FakeLeases daemon;
  LeasePool pool(daemon);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int number = 1; number <= 4; ++number) {
    threads.emplace_back([&, number] {
      std::mt19937 random(static_cast<unsigned>(number));
      for (int turn = 0; turn < 300; ++turn) {
        auto range = pool.allocate(64 + random() % 200'000, random() % 2 == 0 ? 64 : 4096, 0, 0, {});
        if (!range.is_ok()) continue;  // temporarily full
        std::memset(range->data(), number, range->length);
        for (std::uint64_t at = 0; at < range->length; at += 61) {
          if (range->data()[at] != static_cast<std::byte>(number)) ++wrong;
        }
        pool.give_back(*range);
        if (turn % 50 == 0) pool.return_idle({});
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace entrepot
