#include "store/memory/segment_adopter.h"

#include <gtest/gtest.h>

#include <memory>

#include "store/memory/segment_parts.h"

namespace entrepot::testing {
namespace {

struct Daemon {
  explicit Daemon(SurvivingMemory& machine)
      : parts(machine, 16 * kMiB), adopter(parts.live, parts.reclaimer, machine.source) {}
  SegmentParts parts;
  SegmentAdopter adopter;
};

struct Adopter : ::testing::Test {
  // The daemon dies; what it knew about blobs is adopted by the test.
  std::uint32_t die() {
    machine.source.waiting.clear();
    daemon = std::make_unique<Daemon>(machine);
    return daemon->adopter.begin();
  }
  [[nodiscard]] LiveSegments& live() { return daemon->parts.live; }
  [[nodiscard]] SegmentAdopter& adopter() { return daemon->adopter; }
  [[nodiscard]] std::uint32_t generation(std::uint32_t segment) { return live().table().generation(segment); }
  // Returned, with a blob in its first MiB and pages missing behind it.
  std::uint32_t make_with_hole() {
    const std::uint32_t segment = daemon->parts.make_holding(4 * kMiB, kMiB, kWriter);
    live().orphan(segment);
    daemon->parts.reclaimer.retire_free_ranges(segment, UINT64_MAX);
    EXPECT_EQ(machine.source.punched, 3 * kMiB);
    return segment;
  }

  SurvivingMemory machine;
  std::unique_ptr<Daemon> daemon = std::make_unique<Daemon>(machine);
};

TEST_F(Adopter, TakesOverMemoryAndItsPrice) {
  const std::uint32_t free = daemon->parts.make(2 * kMiB);
  const std::uint32_t holding = daemon->parts.make_holding(4 * kMiB, kMiB, kWriter);
  EXPECT_EQ(die(), 0U);
  ASSERT_TRUE(adopter().adopt_blob({holding, 0, kMiB, generation(holding)}).is_ok());
  adopter().end(false);
  EXPECT_TRUE(daemon->parts.is_free(free));
  EXPECT_EQ(live().state(holding), SegmentState::kReturned);
  EXPECT_EQ(live().committed_bytes(), 6 * kMiB);
  EXPECT_EQ(live().blob_bytes(), kMiB);
  EXPECT_EQ(daemon->parts.budget.granted(BudgetItem::kSegments), 6 * kMiB);
}

TEST_F(Adopter, ASegmentWhoseBlobsAreGoneIsFree) {
  const std::uint32_t holding = daemon->parts.make_holding(4 * kMiB, kMiB, kWriter);
  die();
  adopter().end(false);
  EXPECT_TRUE(daemon->parts.is_free(holding));
}

TEST_F(Adopter, WhatIsNotThereIsNotAdopted) {
  const std::uint32_t gone = daemon->parts.make(2 * kMiB);
  const std::uint32_t damaged = daemon->parts.make(2 * kMiB);
  machine.source.files.erase({gone, generation(gone)});
  SegmentTable(machine.control).table().at(damaged).bytes = 4 * kMiB;
  machine.source.at_once = false;
  LeaseWait wait;
  ASSERT_TRUE(daemon->parts.provisioning.start(2 * kMiB, wait).is_ok());
  EXPECT_EQ(die(), 2U) << "the unfinished one does not count: nothing depends on it";
  adopter().end(false);
  EXPECT_TRUE(live().all().empty());
  EXPECT_EQ(live().table().live(), 0U);
  EXPECT_EQ(live().committed_bytes(), 0U);
}

TEST_F(Adopter, ABlobMustLieInASegmentOfItsGenerationAndInNoOtherBlob) {
  const std::uint32_t holding = daemon->parts.make_holding(4 * kMiB, kMiB, kWriter);
  die();
  const std::uint32_t now = generation(holding);
  EXPECT_EQ(adopter().adopt_blob({99, 0, kMiB, 1}).code(), Code::kObjectLost);
  EXPECT_EQ(adopter().adopt_blob({holding, 0, kMiB, now + 1}).code(), Code::kObjectLost);
  EXPECT_EQ(adopter().adopt_blob({holding, 0, 0, now}).code(), Code::kCorruptData);
  EXPECT_EQ(adopter().adopt_blob({holding, 4 * kMiB, kMiB, now}).code(), Code::kCorruptData);
  EXPECT_EQ(adopter().adopt_blob({holding, kMiB, UINT64_MAX, now}).code(), Code::kCorruptData);
  EXPECT_TRUE(adopter().adopt_blob({holding, 0, kMiB, now}).is_ok());
  EXPECT_EQ(adopter().adopt_blob({holding, kMiB - kBlobAlign, kMiB, now}).code(), Code::kCorruptData);
  EXPECT_EQ(live().blob_bytes(), kMiB);
}

TEST_F(Adopter, WhatAWriterMayHaveLeasedStaysLeased) {
  const std::uint32_t segment = daemon->parts.make(2 * kMiB);
  live().lease(segment, kWriter);
  ASSERT_TRUE(live().ranges(segment).lease_exactly(2 * kLeaseGranule, 6 * kLeaseGranule).is_ok());
  live().ranges(segment).seal(4 * kLeaseGranule, kLeaseGranule);
  live().record_leases(segment);
  die();
  ASSERT_TRUE(adopter().adopt_blob({segment, 4 * kLeaseGranule, kLeaseGranule, generation(segment)}).is_ok());
  adopter().end(false);
  EXPECT_EQ(live().state(segment), SegmentState::kQuarantined);
  EXPECT_TRUE(live().is_writer(segment, kWriter.client));
  EXPECT_EQ(live().leased_bytes(), 5 * kLeaseGranule);
  EXPECT_FALSE(live().at(segment).ranges.is_leased(0, 1));
  EXPECT_TRUE(live().at(segment).ranges.is_leased(2 * kLeaseGranule, 2 * kLeaseGranule));
  EXPECT_FALSE(live().at(segment).ranges.is_leased(8 * kLeaseGranule, 1));
}

TEST_F(Adopter, PagesThatWereReturnedAreNotLeasedToTheWriterAroundThem) {
  const std::uint32_t segment = daemon->parts.make(2 * kMiB);
  live().lease(segment, kWriter);
  ASSERT_TRUE(live().ranges(segment).lease_exactly(0, kLeaseGranule).is_ok());
  ASSERT_TRUE(live().ranges(segment).lease_exactly(2 * kMiB - kLeaseGranule, kLeaseGranule).is_ok());
  live().record_leases(segment);
  daemon->parts.reclaimer.retire_free_ranges(segment, UINT64_MAX);
  die();
  adopter().end(false);
  EXPECT_EQ(live().leased_bytes(), 2 * kLeaseGranule);
  EXPECT_EQ(live().committed_bytes(), 2 * kLeaseGranule);
}

TEST_F(Adopter, PagesThatWereReturnedAreNotUsedAgain) {
  const std::uint32_t holding = make_with_hole();
  die();
  ASSERT_TRUE(adopter().adopt_blob({holding, 0, kMiB, generation(holding)}).is_ok());
  adopter().end(false);
  EXPECT_EQ(live().at(holding).ranges.free_bytes(), 0U);
  EXPECT_EQ(live().committed_bytes(), kMiB);
  EXPECT_EQ(daemon->parts.budget.granted(BudgetItem::kSegments), kMiB);
}

TEST_F(Adopter, AnEmptySegmentWithoutAllOfItsPagesIsDropped) {
  const std::uint32_t holding = make_with_hole();
  die();
  adopter().end(false);
  EXPECT_FALSE(live().contains(holding));
  EXPECT_EQ(machine.source.in_use(), 0U);
  EXPECT_EQ(live().committed_bytes(), 0U);
}

TEST_F(Adopter, WithheldMemoryIsNeitherUsedNorReturnedUntilItIsReleased) {
  const std::uint32_t free = daemon->parts.make(2 * kMiB);
  const std::uint32_t holding = make_with_hole();
  const std::uint32_t emptied = daemon->parts.make_holding(2 * kMiB, kMiB, {4, 44});
  die();
  ASSERT_TRUE(adopter().adopt_blob({holding, 0, kMiB, generation(holding)}).is_ok());
  adopter().end(true);
  EXPECT_FALSE(daemon->parts.is_free(free));
  EXPECT_TRUE(live().at(emptied).withheld);
  EXPECT_FALSE(daemon->parts.reclaimer.reclaim(14 * kMiB));
  EXPECT_EQ(daemon->parts.reclaimer.reclaimable_bytes(), 0U);
  EXPECT_EQ(live().at(holding).ranges.retired_bytes(), 0U);
  adopter().release_withheld();
  EXPECT_TRUE(daemon->parts.is_free(free));
  EXPECT_TRUE(daemon->parts.is_free(emptied));
  EXPECT_EQ(live().at(holding).ranges.retired_bytes(), 3 * kMiB);
  EXPECT_EQ(live().committed_bytes(), machine.source.in_use());
  adopter().release_withheld();  // nothing is withheld any more
  EXPECT_EQ(live().committed_bytes(), machine.source.in_use());
}

}  // namespace
}  // namespace entrepot::testing
