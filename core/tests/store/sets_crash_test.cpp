// The daemon dies at every step of a change to sets, hints and consumers.
#include "store/harness.h"
#include "store/simulated_crash.h"

namespace entrepot::testing {
namespace {

SetChange scanned(std::int8_t priority) {
  SetChange change;
  change.fields = kSetReading | kSetPriority;
  change.attributes.reading = priority > 0 ? ReadPattern::kLoopSequential : ReadPattern::kRandom;
  change.attributes.priority = priority;
  return change;
}

std::uint32_t define(Harness& h, std::int8_t priority) {
  const Result<SetGrant> granted = h.store->define_set(h.open("run"), "scan", 0, scanned(priority));
  EXPECT_TRUE(granted.is_ok()) << granted.status().to_string();
  return granted.is_ok() ? granted->handle : 0;
}

std::string sets(Harness& h) { return h.store->sets_json(h.open("run")).take(); }

bool has_set(Harness& h, std::int8_t priority) {
  const std::string reading = priority > 0 ? "loop_sequential" : "random";
  const std::string json = sets(h);
  const std::size_t at = json.find("\"name\":\"scan\"");
  if (at == std::string::npos) return false;
  const std::string its = json.substr(at, json.find('}', at) - at);
  return its.find("\"reading\":\"" + reading + "\"") != std::string::npos &&
         its.find("\"priority\":" + std::to_string(priority)) != std::string::npos;
}

SlotHints hints_of(const Harness& h) {
  return h.store->parts().catalog.directory().hints(*h.store->objects().find(kA));
}

void put_counted(Harness& h, std::uint32_t set, std::uint32_t consumers) {
  SealSpec spec = h.blob_spec(0, kA, h.open("run"), 100 * kKiB);
  spec.locality_set = set;
  spec.consumers = consumers;
  const SealOutcome outcome = h.seal(0, spec);
  EXPECT_TRUE(outcome.status.is_ok()) << outcome.status.to_string();
}

std::uint32_t consumed(Harness& h, std::string_view consumer) {
  const Result<std::uint32_t> left = h.store->consumed(std::span(&kA, 1), consumer)[0];
  EXPECT_TRUE(left.is_ok()) << left.status().to_string();
  return left.is_ok() ? *left : UINT32_MAX;
}

TEST(SetsCrash, ANewSet) {
  at_every_step([](Harness& h) { h.add_client(); }, [](Harness& h) { define(h, 1); },
                [](Harness& h, bool done) {
                  const bool exists = sets(h).find("scan") != std::string::npos;
                  if (done) {
                    EXPECT_TRUE(exists);
                  }
                  EXPECT_EQ(has_set(h, 1), exists) << sets(h);  // all or nothing
                },
                4);
}

TEST(SetsCrash, AChangeOfASet) {
  at_every_step(
      [](Harness& h) {
        h.add_client();
        define(h, 1);
      },
      [](Harness& h) { define(h, -1); },
      [](Harness& h, bool done) {
        EXPECT_TRUE(has_set(h, -1) || (!done && has_set(h, 1))) << sets(h);  // all attributes are either old or new
      },
      1);
}

TEST(SetsCrash, ASealIntoASet) {
  at_every_step(
      [](Harness& h) {
        h.add_client();
        define(h, 1);
      },
      [](Harness& h) { put_counted(h, define(h, 1), 2); },
      [](Harness& h, bool done) {
        if (done) {
          EXPECT_TRUE(h.has(kA));
        }
        if (!h.has(kA)) return;
        EXPECT_EQ(hints_of(h).consumers, 2U);
        EXPECT_NE(h.store->info_json(kA).take().find("\"locality_set\":\"scan\""), std::string::npos);
      },
      5, true);
}

TEST(SetsCrash, AHint) {
  at_every_step(
      [](Harness& h) {
        h.add_client();
        put_counted(h, 0, 2);
      },
      [](Harness& h) {
        const HintSpec spec{kHintPriority | kHintPinned | kHintSet, 3, true, define(h, 1)};
        EXPECT_TRUE(h.store->hint(std::span(&kA, 1), spec)[0].is_ok());
        ENTREPOT_SYNC_POINT("after");
      },
      [](Harness& h, bool done) {
        const SlotHints hints = hints_of(h);
        EXPECT_EQ(hints.consumers, 2U);
        EXPECT_EQ(hints.priority == 3, hints.pinned);  // both or neither
        if (done) {
          EXPECT_TRUE(hints.pinned);
        }
      },
      3, true);
}

void count_the_last(bool deletes) {
  at_every_step(
      [deletes](Harness& h) {
        h.add_client();
        put_counted(h, 0, 2);
        EXPECT_TRUE(h.store->set_deletes_consumed(h.open("run"), deletes).is_ok());
        EXPECT_EQ(consumed(h, "first"), 1U);
      },
      [](Harness& h) {
        EXPECT_EQ(consumed(h, "last"), 0U);
        ENTREPOT_SYNC_POINT("after");
      },
      [deletes](Harness& h, bool done) {
        if (!h.has(kA)) {
          EXPECT_TRUE(deletes);
          EXPECT_EQ(h.store->counted_consumptions(), 0U);
          return;
        }
        // A counted consumption takes effect, whenever the daemon died.
        EXPECT_EQ(hints_of(h).dead, h.store->counted_consumptions() == 2);
        EXPECT_FALSE(deletes && hints_of(h).dead);
        if (done) {
          EXPECT_TRUE(hints_of(h).dead);
        }
      },
      3, true);
}

TEST(ConsumersCrash, TheLastOfThem) { count_the_last(false); }
TEST(ConsumersCrash, TheLastOfThemWhereTheObjectThenGoes) { count_the_last(true); }

TEST(SetsCrash, RemovalOfASessionWithSetsAndCounts) {
  at_every_step(
      [](Harness& h) {
        h.add_client();
        put_counted(h, define(h, 1), 3);
        consumed(h, "first");
        consumed(h, "second");
      },
      [](Harness& h) {
        EXPECT_TRUE(h.store->remove_session("scope", "run").is_ok());
        ENTREPOT_SYNC_POINT("after");
      },
      [](Harness& h, bool) {
        EXPECT_EQ(h.store->parts().catalog.count(), 0U);
        EXPECT_EQ(h.store->sessions().count(), 0U);
        EXPECT_EQ(h.store->counted_consumptions(), 0U);
      },
      5, true);
}

}  // namespace
}  // namespace entrepot::testing
