// The daemon dies at every step of an eviction and of a load: its successor finds every object, in memory or on
// disk.
#include <functional>
#include <set>

#include "store/harness.h"

namespace entrepot::testing {
namespace {

struct SimulatedCrash {};

// Two objects that share a blob; the first has another blob of its own.
void prepare(Harness& h, bool spilled) {
  h.add_client();
  const auto session = h.open("run");
  SealSpec both = h.blob_spec(0, kA, session, 100 * kKiB);
  const LeaseGrant more = h.lease(0, 70 * kKiB, 70 * kKiB);
  both.blobs.push_back({more.segment, more.offset, 70 * kKiB});
  both.buffers.push_back({kNewBlobBit | 1U, 0, 0, 70 * kKiB});
  ASSERT_TRUE(h.seal(0, both).status.is_ok());
  SealSpec shared;
  shared.id = kB;
  shared.session = session;
  shared.buffers = {{0, h.store->parts().blobs.generation(0), 0, 100}};
  ASSERT_TRUE(h.seal(0, shared).status.is_ok());
  if (!spilled) return;
  const std::vector<IdBytes> ids = {kA};
  ASSERT_TRUE(h.store->evict(ids)[0].is_ok());
  h.run_io();
  ASSERT_FALSE(h.is_resident(kA) || h.is_resident(kB));
}

void at_every_step_of(bool spilled, bool pinned, const std::function<void(Harness&)>& change,
                      std::uint64_t least_steps) {
  for (std::uint64_t step = 0;; ++step) {
    Harness h(8 * kMiB, 0, true);
    prepare(h, spilled);
    if (pinned) h.pin(0, kB);
    const std::uint32_t generation = h.generation(kA);
    std::uint64_t passed = 0;
    bool done = false;
    sync_hook = [&](std::string_view) {
      if (passed++ == step) throw SimulatedCrash{};
    };
    try {
      change(h);
      done = true;
    } catch (const SimulatedCrash&) {
    }
    SCOPED_TRACE(::testing::Message() << "cut at step " << step << ", done " << done);
    for (int deaths = 0; deaths < 2; ++deaths) {  // twice: an adoption leaves an adoptable state
      const AdoptionReport report = h.restart();
      EXPECT_EQ(report.objects.lost, 0U);
      EXPECT_EQ(report.objects.adopted, 2U);
      EXPECT_EQ(h.generation(kA), generation);
      if (pinned) {
        EXPECT_TRUE(h.is_resident(kB)) << "a pin holds over a death";
      }
    }
    EXPECT_TRUE(h.get(kA).resident && h.get(kB).resident);
    EXPECT_EQ(h.store->parts().blobs.spilled_bytes(), 0U);
    h.expect_no_leak();
    if (::testing::Test::HasFailure()) return;
    if (done) {
      EXPECT_GE(step, least_steps) << "the change has fewer steps than it should";
      return;
    }
  }
}

void evict_both(Harness& h) {
  const std::vector<IdBytes> ids = {kA, kB};
  for (const Status& status : h.store->evict(ids))
    EXPECT_TRUE(status.is_ok());
  h.run_io();
  (void)h.store->evict(ids);
}

TEST(PagingCrash, Eviction) { at_every_step_of(false, false, evict_both, 5); }
TEST(PagingCrash, EvictionOfWhatIsPinned) { at_every_step_of(false, true, evict_both, 2); }
TEST(PagingCrash, Load) {
  at_every_step_of(
      true, false,
      [](Harness& h) {
        EXPECT_TRUE(h.get(kB).resident);
        EXPECT_TRUE(h.get(kA).resident);
      },
      3);
}

TEST(PagingCrash, DeleteOfWhatIsNotInMemory) {
  for (std::uint64_t step = 0;; ++step) {
    Harness h(8 * kMiB, 0, true);
    prepare(h, true);
    std::uint64_t passed = 0;
    bool done = false;
    sync_hook = [&](std::string_view) {
      if (passed++ == step) throw SimulatedCrash{};
    };
    try {
      EXPECT_TRUE(h.remove(kA));
      EXPECT_TRUE(h.remove(kB));
      done = true;
    } catch (const SimulatedCrash&) {
    }
    SCOPED_TRACE(::testing::Message() << "cut at step " << step << ", done " << done);
    const AdoptionReport report = h.restart();
    EXPECT_EQ(report.objects.lost, 0U);
    if (done) {
      EXPECT_EQ(report.objects.adopted, 0U);
    }
    h.expect_no_leak();
    if (::testing::Test::HasFailure()) return;
    if (done) {
      EXPECT_GE(step, 6U);
      return;
    }
  }
}

}  // namespace
}  // namespace entrepot::testing
