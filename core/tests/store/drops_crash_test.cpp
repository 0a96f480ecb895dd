// The daemon dies at every step of a drop, and of resealing or deleting a dropped object.
#include <array>

#include "store/harness.h"
#include "store/simulated_crash.h"

namespace entrepot::testing {
namespace {

void put(Harness& h) {
  SealSpec spec = h.blob_spec(0, kA, h.open("run"), 100 * kKiB);
  spec.name = "name";
  const SealOutcome outcome = h.seal(0, spec);
  EXPECT_TRUE(outcome.status.is_ok()) << outcome.status.to_string();
}

void put_droppable(Harness& h) {
  h.add_client();
  put(h);
  HintSpec spec;
  spec.fields = kHintRecompute;
  spec.recompute_ns = 1000;
  const std::array<IdBytes, 1> ids = {kA};
  EXPECT_TRUE(h.store->hint(ids, spec)[0].is_ok());
}

void drop(Harness& h) { EXPECT_TRUE(h.store->pager().reclaim(kMiB, Pager::Purpose::kNew)); }

void put_and_drop(Harness& h) {
  put_droppable(h);
  drop(h);
}

Code code(const Harness& h) { return h.store->objects().lookup(kA).code; }

void expect_note(const Harness& h, bool expected) {
  EXPECT_EQ(h.store->parts().absent.dropped(), expected ? 1U : 0U);
  EXPECT_EQ(h.store->parts().catalog.count(), expected || code(h) == Code::kObjectNotFound ? 0U : 1U);
}

TEST(DropsCrash, ADrop) {
  at_every_step(
      put_droppable, drop,
      [](Harness& h, bool done) {
        EXPECT_TRUE(code(h) == Code::kObjectDropped || (!done && code(h) == Code::kOk && h.is_resident(kA)));
        expect_note(h, code(h) == Code::kObjectDropped);
        EXPECT_EQ(h.store->pool().blob_bytes() == 0, code(h) == Code::kObjectDropped);
        EXPECT_EQ(h.store->names().names_of(kA).size(), 1U);
      },
      4, true);
}

TEST(DropsCrash, ADropOfWhatIsBeingRead) {
  at_every_step(
      [](Harness& h) {
        put_droppable(h);
        h.pin(0, kA);
      },
      [](Harness& h) {
        ObjectResidency residency(const_cast<ObjectParts&>(h.store->parts()));
        EXPECT_FALSE(residency.drop(*h.store->objects().find(kA)));
      },
      [](Harness& h, bool) {
        EXPECT_EQ(code(h), Code::kOk);
        EXPECT_TRUE(h.is_resident(kA));
        expect_note(h, false);
      },
      1, true);
}

TEST(DropsCrash, SealingItAnew) {
  at_every_step(
      put_and_drop, put,
      [](Harness& h, bool done) {
        EXPECT_TRUE(code(h) == Code::kOk || (!done && code(h) == Code::kObjectDropped));
        expect_note(h, code(h) == Code::kObjectDropped);
        EXPECT_EQ(h.store->names().names_of(kA).size(), 1U);
        if (code(h) != Code::kOk) return;
        EXPECT_TRUE(h.store->parts().catalog.directory().hints(*h.store->objects().find(kA)).recomputed);
      },
      5, true);
}

TEST(DropsCrash, DeletingIt) {
  at_every_step(
      put_and_drop, [](Harness& h) { EXPECT_TRUE(h.remove(kA)); },
      [](Harness& h, bool done) {
        EXPECT_TRUE(code(h) == Code::kObjectNotFound || (!done && code(h) == Code::kObjectDropped));
        expect_note(h, code(h) == Code::kObjectDropped);
        EXPECT_EQ(h.store->names().names_of(kA).size(), code(h) == Code::kObjectDropped ? 1U : 0U);
      },
      2, true);
}

TEST(DropsCrash, TheEndOfItsSession) {
  at_every_step(
      put_and_drop, [](Harness& h) { EXPECT_TRUE(h.store->remove_session("scope", "run").is_ok()); },
      [](Harness& h, bool done) {
        if (done) {
          EXPECT_EQ(code(h), Code::kObjectNotFound);
        }
        expect_note(h, code(h) == Code::kObjectDropped);
      },
      1, true);
}

}  // namespace
}  // namespace entrepot::testing
