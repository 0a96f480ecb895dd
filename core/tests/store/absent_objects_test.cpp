// Absent objects: what a lookup says about objects that were lost or dropped, and until when.
#include "store/object/absent_objects.h"

#include "store/object_fixture.h"

namespace entrepot::testing {
namespace {

class AbsentObjectsTest : public ::testing::Test {
 protected:
  // A dropped object, as ObjectResidency leaves it.
  std::uint32_t drop(const IdBytes& id, std::uint32_t session, std::uint64_t payload_bytes = 3 * kMiB) {
    const std::uint32_t slot = f_.put_object(id, session, {}, payload_bytes);
    SlotHints hints;
    hints.recompute = RecomputeCode::of_ns(2'000'000'000);
    f_.catalog.directory().set_hints(slot, hints);
    f_.catalog.directory().mark_dropped(slot);
    f_.catalog.remove(slot);
    return slot;
  }

  ControlMemory memory_ = control_memory();
  ObjectFixture f_{memory_};
  std::uint32_t session_ = f_.start();
  AbsentObjects absent_{f_.catalog, f_.sessions};
};

TEST_F(AbsentObjectsTest, SaysWhyAnObjectWasLostUntilItIsForgotten) {
  EXPECT_EQ(absent_.lookup(kA).code, Code::kObjectNotFound);
  absent_.add_lost(kA, "its copy is damaged");
  EXPECT_EQ(absent_.lookup(kA).code, Code::kObjectLost);
  EXPECT_EQ(absent_.lookup(kA).message, "its copy is damaged");
  EXPECT_EQ(absent_.lookup(kB).code, Code::kObjectNotFound);
  EXPECT_TRUE(absent_.forget(kA));
  EXPECT_EQ(absent_.lookup(kA).code, Code::kObjectNotFound);
  EXPECT_FALSE(absent_.forget(kA));
}

TEST_F(AbsentObjectsTest, SaysWhatADroppedObjectWouldHaveCost) {
  const std::uint32_t slot = drop(kA, session_);
  absent_.add_dropped(slot);
  EXPECT_TRUE(absent_.is_dropped(kA));
  EXPECT_EQ(absent_.dropped(), 1U);
  const LookupOutcome outcome = absent_.lookup(kA);
  EXPECT_EQ(outcome.code, Code::kObjectDropped);
  EXPECT_NE(outcome.message.find("its 3 MiB to disk"), std::string::npos) << outcome.message;
  EXPECT_NE(outcome.message.find("recomputing it (2"), std::string::npos) << outcome.message;
}

TEST_F(AbsentObjectsTest, AMarkerIsASlotUntilItIsForgotten) {
  absent_.add_dropped(drop(kA, session_));
  absent_.add_lost(kA, "too");
  EXPECT_EQ(f_.catalog.directory().live(), 1U);
  EXPECT_EQ(absent_.lookup(kA).code, Code::kObjectDropped);
  EXPECT_TRUE(absent_.forget(kA));
  EXPECT_EQ(f_.catalog.directory().live(), 0U);
  EXPECT_EQ(absent_.dropped(), 0U);
  EXPECT_EQ(absent_.lookup(kA).code, Code::kObjectNotFound) << "both reasons are gone";
}

TEST_F(AbsentObjectsTest, MarkersEndWithTheirSession) {
  const std::uint32_t other = f_.session("other");
  absent_.add_dropped(drop(kA, session_));
  absent_.add_dropped(drop(kB, other));
  EXPECT_EQ(absent_.forget_dropped(session_), std::vector<IdBytes>{kA});
  EXPECT_FALSE(absent_.is_dropped(kA));
  EXPECT_TRUE(absent_.is_dropped(kB));
  EXPECT_EQ(f_.catalog.directory().live(), 1U);
  EXPECT_TRUE(absent_.forget_dropped(session_).empty());
}

TEST_F(AbsentObjectsTest, AdoptsAMarkerOnlyIfNothingSupersededIt) {
  const std::uint32_t marker = drop(kA, session_);
  const std::uint32_t second = drop(kA, session_);
  const std::uint32_t superseded = drop(kB, session_);
  static_cast<void>(f_.put_object(kB, session_));
  const std::uint32_t ended = f_.session("ended");
  const std::uint32_t orphan = drop(numbered_id(3), ended);
  f_.sessions.mark_dead(ended);
  f_.sessions.free(ended);
  for (const std::uint32_t slot : {marker, second, superseded, orphan})
    absent_.adopt_dropped(slot);
  EXPECT_EQ(absent_.dropped(), 1U);
  EXPECT_TRUE(absent_.is_dropped(kA));
  EXPECT_EQ(f_.catalog.directory().state(marker), ObjectState::kDropped);
  for (const std::uint32_t slot : {second, superseded, orphan})
    EXPECT_EQ(f_.catalog.directory().state(slot), ObjectState::kFree);
}

}  // namespace
}  // namespace entrepot::testing
