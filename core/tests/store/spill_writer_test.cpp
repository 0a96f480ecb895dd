// The spill writer alone: what it writes, what it reports, and when it pauses.
#include "store/paging/spill_writer.h"

#include "store/paging_parts.h"

namespace entrepot::testing {
namespace {

using Slots = std::vector<std::uint32_t>;

class SpillWriting : public ::testing::Test {
 protected:
  SpillWriter::Written complete() {
    SpillWriter::Written all;
    for (const SpillCompletion& done : p.end_io()) {
      const SpillWriter::Written written = p.writer.complete(done);
      all.clean.insert(all.clean.end(), written.clean.begin(), written.clean.end());
      all.leaving.insert(all.leaving.end(), written.leaving.begin(), written.leaving.end());
    }
    return all;
  }

  PagingParts p;
};

TEST_F(SpillWriting, ACompleteCopyMakesAnObjectCleanAndIsInTheManifest) {
  const std::uint32_t slot = p.put(1);
  p.writer.write(slot);
  EXPECT_TRUE(p.writer.is_writing(slot));
  EXPECT_EQ(p.writer.bytes_in_flight(), 2 * kMiB);
  EXPECT_FALSE(p.residency.is_clean(slot));
  EXPECT_TRUE(p.spill.manifest.empty());
  const SpillWriter::Written written = complete();
  EXPECT_EQ(written.clean, Slots{slot});
  EXPECT_EQ(written.leaving, Slots{});
  EXPECT_TRUE(p.residency.is_clean(slot) && p.parts.catalog.is_resident(slot));
  EXPECT_TRUE(p.spill.manifest.contains(numbered_id(1)));
  EXPECT_TRUE(p.writer.is_idle());
  EXPECT_EQ(p.writer.bytes_in_flight(), 0U);
}

TEST_F(SpillWriting, ABlobIsWrittenOnceForAllItsObjects) {
  const std::uint32_t slot = p.put(1);
  const std::uint32_t other = p.put_sharing(2, slot);
  p.writer.write(slot);
  p.writer.write(slot);
  p.writer.write(other);
  EXPECT_EQ(p.spill.waiting.size(), 1U);
  EXPECT_TRUE(p.writer.is_writing(other));
  EXPECT_EQ(complete().clean, (Slots{slot, other}));
  p.writer.write(slot);
  EXPECT_TRUE(p.spill.waiting.empty()) << "it has a copy";
}

TEST_F(SpillWriting, ABlobThatIsBeingWrittenOutlivesItsObject) {
  const std::uint32_t slot = p.put(1);
  p.writer.write(slot);
  p.remove(1);
  EXPECT_EQ(p.parts.blobs.live(), 1U);
  EXPECT_EQ(complete().clean, Slots{});
  EXPECT_EQ(p.parts.blobs.live(), 0U);
  EXPECT_TRUE(p.spill.copies.empty());
  EXPECT_EQ(p.pool.blob_bytes(), 0U);
}

TEST_F(SpillWriting, WhatIsToLeaveIsReportedOnce) {
  const std::uint32_t slot = p.put(1);
  const std::uint32_t other = p.put_sharing(2, slot);
  p.writer.write_to_evict(slot);
  EXPECT_TRUE(p.writer.is_leaving(slot));
  EXPECT_FALSE(p.writer.is_leaving(other));
  const SpillWriter::Written written = complete();
  EXPECT_EQ(written.clean, (Slots{slot, other}));
  EXPECT_EQ(written.leaving, Slots{slot});
  EXPECT_FALSE(p.writer.is_leaving(slot));
}

TEST_F(SpillWriting, WhatEndedStaysAndWhatCouldNotBeWrittenIsTriedAgain) {
  const std::uint32_t ended = p.put(1);
  const std::uint32_t failed = p.put(2);
  p.writer.write_to_evict(ended);
  p.writer.write_to_evict(failed);
  p.writer.object_ended(ended);
  EXPECT_FALSE(p.writer.is_leaving(ended));
  p.spill.write_failure = Status(Code::kStoreFull, "the disk is full", true);
  EXPECT_EQ(complete().leaving, Slots{});
  EXPECT_EQ(p.writer.failed_writes(), 2U);
  EXPECT_TRUE(p.parts.catalog.is_resident(failed) && !p.residency.is_clean(failed));
  EXPECT_EQ(p.writer.next_retry_ns(), p.clock.monotonic_ns() + 1'000'000'000);
  EXPECT_EQ(p.writer.retry_leaving(), Slots{});
  EXPECT_TRUE(p.writer.is_idle()) << "it is paused";
  p.spill.write_failure = Status();
  p.clock.advance_ms(1000);
  EXPECT_EQ(p.writer.retry_leaving(), Slots{});
  EXPECT_TRUE(p.writer.is_writing(failed));
  EXPECT_EQ(p.writer.next_retry_ns(), UINT64_MAX) << "until the write is done";
  EXPECT_EQ(complete().leaving, Slots{failed});
  EXPECT_EQ(p.writer.next_retry_ns(), UINT64_MAX);
}

TEST_F(SpillWriting, WhatIsToLeaveWaitsForADiskWithRoom) {
  p.spill.quota = kMiB;
  const std::uint32_t refused = p.put(1);
  p.writer.write_to_evict(refused);
  EXPECT_TRUE(p.writer.is_idle() && p.writer.is_leaving(refused));
  p.spill.quota = 8 * kMiB;
  p.clock.advance_ms(1000);
  EXPECT_EQ(p.writer.retry_leaving(), Slots{});
  EXPECT_TRUE(p.writer.is_writing(refused));
  p.writer.object_ended(refused);
  static_cast<void>(complete());
  EXPECT_EQ(p.writer.next_retry_ns(), UINT64_MAX) << "it ended";
}

TEST_F(SpillWriting, AFailurePausesItForASecond) {
  const std::uint32_t slot = p.put(1);
  EXPECT_TRUE(p.writer.can_write());
  p.spill.quota = 3 * kMiB;
  EXPECT_EQ(p.writer.room_bytes(), 3 * kMiB);
  p.spill.write_failure = Status(Code::kStoreFull, "the disk is full", true);
  p.writer.write(slot);
  EXPECT_EQ(p.writer.room_bytes(), kMiB) << "what is being written counts";
  static_cast<void>(complete());
  EXPECT_TRUE(p.writer.is_paused(p.clock.monotonic_ns()));
  EXPECT_FALSE(p.writer.can_write());
  EXPECT_EQ(p.writer.room_bytes(), 0U);
  p.clock.advance_ms(999);
  EXPECT_TRUE(p.writer.is_paused(p.clock.monotonic_ns()));
  p.clock.advance_ms(1);
  EXPECT_FALSE(p.writer.is_paused(p.clock.monotonic_ns()));
  EXPECT_TRUE(p.writer.can_write());
  EXPECT_EQ(p.writer.room_bytes(), 3 * kMiB);
}

TEST_F(SpillWriting, ARefusalPausesItTooAndIsNoFailedWrite) {
  p.spill.quota = kMiB;
  p.writer.write(p.put(1));
  EXPECT_TRUE(p.writer.is_idle());
  EXPECT_TRUE(p.writer.is_paused(p.clock.monotonic_ns()));
  EXPECT_EQ(p.writer.failed_writes(), 0U);
}

TEST_F(SpillWriting, UnknownTicketsAreIgnored) {
  const std::uint32_t slot = p.put(1);
  p.writer.write(slot);
  SpillCompletion unknown;
  unknown.ticket = 4711;
  EXPECT_EQ(p.writer.complete(unknown).clean, Slots{});
  EXPECT_TRUE(p.writer.is_writing(slot));
  static_cast<void>(complete());
}

TEST_F(SpillWriting, WithoutABackendNothingCanBeWritten) {
  const SpillWriter writer({p.parts.catalog, p.parts.blobs, p.parts.manifest, p.residency, p.clock, nullptr});
  EXPECT_FALSE(writer.can_write());
  EXPECT_EQ(writer.room_bytes(), 0U);
}

}  // namespace
}  // namespace entrepot::testing
