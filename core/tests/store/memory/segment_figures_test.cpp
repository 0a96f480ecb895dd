#include "store/memory/segment_figures.h"

#include <gtest/gtest.h>

#include "store/memory/segment_parts.h"

namespace entrepot::testing {
namespace {

struct Figures : ::testing::Test {
  SurvivingMemory machine;
  SegmentParts parts{machine, 32 * kMiB};
  LiveSegments& live = parts.live;
  SegmentFigures figures{live, parts.provisioning, parts.reclaimer, parts.sizes, parts.budget, parts.records};
};

TEST_F(Figures, OfNothingAreZero) {
  EXPECT_EQ(figures.warm_bytes(), 0U);
  EXPECT_EQ(figures.provisioning_bytes(), 0U);
  EXPECT_TRUE(figures.leased_by_client().empty());
  EXPECT_TRUE(figures.summary().empty());
  EXPECT_EQ(figures.largest_lease(), figures.largest_free());
}

TEST_F(Figures, EachStateIsCountedForItself) {
  const std::uint32_t leased = parts.make(2 * kMiB);
  live.lease(leased, kWriter);
  EXPECT_TRUE(live.ranges(leased).lease(kMiB).has_value());
  static_cast<void>(parts.make(4 * kMiB));
  static_cast<void>(parts.make_holding(2 * kMiB, 64 * kKiB, {7, 77}));
  EXPECT_EQ(figures.leased_by(kWriter.client), kMiB);
  EXPECT_EQ(figures.leased_by(7), 0U);
  EXPECT_EQ(figures.leased_by_client().at(kWriter.client), kMiB);
  EXPECT_EQ(figures.warm_bytes(), kMiB + 4 * kMiB + (2 * kMiB - 64 * kKiB));
  const auto summary = figures.summary();
  EXPECT_EQ(summary.at("leased").count, 1U);
  EXPECT_EQ(summary.at("free").bytes, 4 * kMiB);
  EXPECT_EQ(summary.at("returned").bytes, 2 * kMiB);
  EXPECT_EQ(summary.size(), 3U);
}

TEST_F(Figures, WhatIsBeingMadeIsNotWarmYet) {
  machine.source.at_once = false;
  LeaseWait wait;
  ASSERT_TRUE(parts.provisioning.start(4 * kMiB, wait).is_ok());
  EXPECT_EQ(figures.provisioning_bytes(), 4 * kMiB);
  EXPECT_EQ(figures.warm_bytes(), 0U);
  EXPECT_EQ(figures.summary().at("provisioning").count, 1U);
  machine.source.finish_all();
  EXPECT_EQ(figures.provisioning_bytes(), 0U);
  EXPECT_EQ(figures.warm_bytes(), 4 * kMiB);
  EXPECT_STREQ(figures.memory_kind(), "small pages");
}

TEST_F(Figures, ALeaseCanBeAsLargeAsWhatCouldBeGivenUpForIt) {
  const std::uint64_t at_first = figures.largest_lease();
  static_cast<void>(parts.make(8 * kMiB));
  static_cast<void>(parts.make(8 * kMiB));
  EXPECT_EQ(figures.largest_free(), at_first - 16 * kMiB) << "what could still be made is the largest piece";
  EXPECT_EQ(figures.largest_lease(), at_first) << "free segments are given up for it";
  EXPECT_NE(figures.describe_pressure().find("capacity 32"), std::string::npos) << figures.describe_pressure();
}

}  // namespace
}  // namespace entrepot::testing
