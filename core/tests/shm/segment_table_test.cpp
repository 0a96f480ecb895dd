#include "shm/segment_table.h"

#include <gtest/gtest.h>

#include "fakes/fake_memory.h"

namespace entrepot {
namespace {

using testing::FakeStore;

TEST(SegmentTable, TheLifeOfASegment) {
  FakeStore store;
  SegmentTable table(store.memory);
  const std::uint32_t segment = table.add(kSegmentAlign).take();
  EXPECT_EQ(table.state(segment), SegmentState::kProvisioning);
  EXPECT_EQ(table.bytes(segment), kSegmentAlign);
  EXPECT_EQ(table.writer(segment).token, 0U);
  table.set_kind(segment, MemoryKind::kHugePages);
  table.set_state(segment, SegmentState::kFree);
  table.lease(segment, {7, 4711});
  EXPECT_EQ(table.state(segment), SegmentState::kLeased);
  EXPECT_EQ(table.kind(segment), MemoryKind::kHugePages);
  EXPECT_EQ(table.writer(segment).client, 7U);
  EXPECT_EQ(table.writer(segment).token, 4711U);
  table.end_lease(segment, true);
  EXPECT_EQ(table.state(segment), SegmentState::kReturned);
  EXPECT_EQ(table.writer(segment).token, 4711U);  // the former writer is still recorded
  table.forget_writer(segment);
  EXPECT_EQ(table.writer(segment).token, 0U);
  EXPECT_EQ(table.generation(segment), 1U);
  table.remove(segment);
  EXPECT_FALSE(table.is_live(segment));
  EXPECT_EQ(table.add(kSegmentAlign).take(), segment);
  EXPECT_EQ(table.generation(segment), 2U);
}

TEST(SegmentTable, OddSizesAreRefusedAndStrangeNumbersAreNotLive) {
  FakeStore store;
  SegmentTable table(store.memory);
  EXPECT_EQ(table.add(0).code(), Code::kInvalidArgument);
  EXPECT_EQ(table.add(1000).code(), Code::kInvalidArgument);
  EXPECT_FALSE(table.is_live(0));
  EXPECT_FALSE(table.is_live(0xffff'ffffU));
}

TEST(SegmentTable, AdoptionKeepsStateAndWriter) {
  FakeStore store;
  SegmentTable before(store.memory);
  const std::uint32_t leased = before.add(kSegmentAlign).take();
  const std::uint32_t damaged = before.add(kSegmentAlign).take();
  const std::uint32_t removed = before.add(kSegmentAlign).take();
  before.lease(leased, {1, 2});
  before.table().at(damaged).bytes *= 2;
  before.remove(removed);
  SegmentTable after(store.memory);
  const SegmentAdoption adoption = after.adopt();
  EXPECT_EQ(adoption.live, std::vector<std::uint32_t>{leased});
  EXPECT_EQ(adoption.damaged, std::vector<std::uint32_t>{damaged});
  EXPECT_EQ(after.state(leased), SegmentState::kLeased);
  EXPECT_EQ(after.writer(leased).token, 2U);
}

TEST(SegmentTable, ACrashBetweenWriterAndStateNeverLosesTheWriterOfALease) {
  FakeStore store;
  SegmentTable table(store.memory);
  const std::uint32_t segment = table.add(kSegmentAlign).take();
  table.set_state(segment, SegmentState::kFree);
  // First half of lease(): the adopting daemon sees a free segment with a former writer, which is safe.
  table.table().at(segment).writer_token = 99;
  SegmentTable after(store.memory);
  EXPECT_EQ(after.adopt().live, std::vector<std::uint32_t>{segment});
  EXPECT_EQ(after.state(segment), SegmentState::kFree);
}

TEST(SegmentTable, BoundsOfLeasesOutliveTheDaemonAndAreNeverTooNarrow) {
  FakeStore store;
  SegmentTable table(store.memory);
  const std::uint32_t segment = table.add(2 * kSegmentAlign).take();
  table.set_state(segment, SegmentState::kFree);
  EXPECT_EQ(table.leases(segment).end, 0U);
  table.set_leases(segment, {kLeaseUnit + 1, 3 * kLeaseUnit + 1});
  SegmentTable after(store.memory);
  EXPECT_EQ(after.adopt().live, std::vector<std::uint32_t>{segment});
  EXPECT_EQ(after.leases(segment).first, kLeaseUnit);
  EXPECT_EQ(after.leases(segment).end, 4 * kLeaseUnit);
  for (std::uint32_t bit = 0; bit < 64; ++bit) {
    const std::uint64_t whole = after.table().at(segment).leases.load();
    after.table().at(segment).leases = whole ^ (1ULL << bit);
    EXPECT_EQ(after.leases(segment).first, 0U) << "bit " << bit;
    EXPECT_EQ(after.leases(segment).end, 2 * kSegmentAlign) << "bit " << bit;
    after.table().at(segment).leases = whole;
  }
  table.set_leases(segment, {});
  EXPECT_EQ(after.leases(segment).end, 0U);
}

}  // namespace
}  // namespace entrepot
