// Deferred frees and withheld memory: what readers pin is not reused.
#include "store/object/deferred_frees.h"

#include "store/object/withheld_memory.h"
#include "store/object_fixture.h"

namespace entrepot::testing {
namespace {

class DeferredFreesTest : public ::testing::Test {
 protected:
  // An unlinked object with a blob of its own.
  PinTarget put_and_unlink(const IdBytes& id) {
    const std::uint32_t blob = f_.put_blob(blobs_, 100 * kKiB, {});
    const std::uint32_t slot = f_.put_object(id, session_, {blobs_.ref(blob)}, 100 * kKiB);
    blobs_.add_reference(blob, slot);
    f_.catalog.unlink(slot);
    return f_.catalog.target(slot);
  }

  void expect_all_is_free() {
    EXPECT_EQ(deferred_.count(), 0U);
    EXPECT_EQ(deferred_.payload_bytes(), 0U);
    EXPECT_EQ(f_.catalog.directory().live(), 0U);
    EXPECT_EQ(f_.records.used_bytes(), 0U);
    EXPECT_EQ(f_.pool.blob_bytes(), 0U);
    EXPECT_EQ(blobs_.live(), 0U);
  }

  ControlMemory memory_ = control_memory();
  ObjectFixture f_{memory_};
  std::uint32_t session_ = f_.start();
  Reader reader_{f_.pins};
  BlobTable blobs_{memory_, f_.pool, nullptr, ""};
  DeferredFrees deferred_{f_.catalog, blobs_, f_.pins};
};

TEST_F(DeferredFreesTest, FreesAtOnceWhatNobodyPins) {
  const PinTarget target = put_and_unlink(kA);
  deferred_.free_or_defer({target, put_and_unlink(kB)});
  expect_all_is_free();
  EXPECT_NE(f_.catalog.directory().generation(target.slot), target.generation);
}

TEST_F(DeferredFreesTest, FreesWhatIsPinnedOnceItIsReleased) {
  const PinTarget target = put_and_unlink(kA);
  reader_.pin(target);
  deferred_.free_or_defer({target, put_and_unlink(kB)});
  EXPECT_EQ(deferred_.count(), 1U);
  EXPECT_EQ(deferred_.payload_bytes(), 100 * kKiB);
  EXPECT_EQ(blobs_.live(), 1U);
  EXPECT_FALSE(deferred_.rescan());
  EXPECT_TRUE(f_.catalog.record(target.slot).is_ok());
  reader_.unpin();
  EXPECT_TRUE(deferred_.rescan());
  expect_all_is_free();
  EXPECT_FALSE(deferred_.rescan());
}

TEST_F(DeferredFreesTest, APinOfAnEarlierGenerationHoldsNothing) {
  const PinTarget target = put_and_unlink(kA);
  reader_.pin({target.slot, target.generation - 1});
  deferred_.free_or_defer({target});
  expect_all_is_free();
}

TEST_F(DeferredFreesTest, AClientWhoseTableCannotBeReadMayPinAnything) {
  f_.pins.add_unreadable(kClient + 1);
  deferred_.free_or_defer({put_and_unlink(kA)});
  EXPECT_EQ(deferred_.count(), 1U);
  f_.pins.remove(kClient + 1);
  EXPECT_TRUE(deferred_.rescan());
  expect_all_is_free();
}

TEST_F(DeferredFreesTest, WhatIsDeferredWithoutAScanWaitsForTheNextOne) {
  const PinTarget target = put_and_unlink(kA);
  deferred_.defer(target.slot);
  EXPECT_EQ(deferred_.count(), 1U);
  EXPECT_TRUE(deferred_.rescan());
  expect_all_is_free();
}

TEST_F(DeferredFreesTest, NothingADamagedSlotNamesIsFreed) {
  const PinTarget target = put_and_unlink(kA);
  f_.catalog.directory().mark_lost(target.slot);
  const std::uint64_t used = f_.records.used_bytes();
  deferred_.free_or_defer({target});
  EXPECT_EQ(f_.catalog.directory().live(), 0U);
  EXPECT_EQ(f_.records.used_bytes(), used);
  EXPECT_EQ(blobs_.live(), 1U);
}

class WithheldMemoryTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::uint64_t allocate() {
    const Result<std::uint64_t> offset = f_.records.allocate(64);
    EXPECT_TRUE(offset.is_ok()) << offset.status().to_string();
    return *offset;
  }

  // Returns the place of a record that seems free.
  std::uint64_t free_a_record() {
    const std::uint64_t offset = allocate();
    EXPECT_TRUE(f_.records.free(offset, 64).is_ok());
    return offset;
  }

  ControlMemory memory_ = control_memory();
  ObjectFixture f_{memory_};
  std::uint32_t session_ = f_.start();
  Reader reader_{f_.pins};
  WithheldMemory withheld_{f_.catalog, f_.pins, f_.records, f_.pool};
};

TEST_F(WithheldMemoryTest, IsHeldBackWhileAReaderPinsWhatIsDamaged) {
  const std::uint32_t slot = f_.put_object(kA, session_);
  f_.catalog.directory().mark_lost(slot);
  reader_.pin(f_.catalog.target(slot));
  const std::uint64_t place = free_a_record();
  withheld_.withhold(std::vector{slot});
  EXPECT_TRUE(withheld_.is_withholding());
  EXPECT_NE(allocate(), place);
  EXPECT_FALSE(withheld_.release());
  EXPECT_TRUE(withheld_.is_withholding());
  reader_.unpin();
  EXPECT_TRUE(withheld_.release());
  EXPECT_FALSE(withheld_.is_withholding());
  EXPECT_EQ(allocate(), place);
  EXPECT_FALSE(withheld_.release()) << "there is nothing to release any more";
}

TEST_F(WithheldMemoryTest, IsHeldBackWhileAReaderPinsWhatIsUnknown) {
  const std::uint32_t slot = f_.put_object(kA, session_);
  reader_.pin({slot, f_.catalog.directory().generation(slot) + 5});
  withheld_.withhold({});
  EXPECT_TRUE(withheld_.is_withholding());
  reader_.unpin();
  EXPECT_TRUE(withheld_.release());
}

TEST_F(WithheldMemoryTest, IsReusedIfAllPinsAreExplained) {
  const std::uint32_t sealed = f_.put_object(kA, session_);
  const std::uint32_t deleted = f_.put_object(kB, session_);
  const std::uint32_t damaged = f_.put_object(numbered_id(3), session_);
  f_.catalog.unlink(deleted);
  f_.catalog.directory().mark_lost(damaged);  // nobody pins it
  reader_.pin(f_.catalog.target(sealed));
  reader_.pin(f_.catalog.target(deleted));
  const std::uint64_t place = free_a_record();
  withheld_.withhold(std::vector{damaged});
  EXPECT_FALSE(withheld_.is_withholding());
  EXPECT_EQ(allocate(), place);
}

}  // namespace
}  // namespace entrepot::testing
