// The daemon dies at every step of every change: its successor finds either the old or the new state, complete, and
// nothing leaks.
#include "store/harness.h"
#include "store/simulated_crash.h"

namespace entrepot::testing {
namespace {

TEST(Adoption, WhatWasSealedIsThereAfterARestart) {
  Harness h;
  const auto client = h.add_client();
  const auto run = h.open("run");
  SealSpec spec = h.blob_spec(client, kA, run, 300 * kKiB);
  spec.name = "orders";
  ASSERT_TRUE(h.seal(client, spec).status.is_ok());
  SealSpec shared;
  shared.id = kB;
  shared.session = run;
  shared.buffers = {{0, h.store->parts().blobs.generation(0), 0, 100}};
  ASSERT_TRUE(h.seal(client, shared).status.is_ok());
  const std::uint32_t generation = h.generation(kA);
  const std::uint64_t used = h.store->pool().blob_bytes();
  const AdoptionReport report = h.restart();
  EXPECT_EQ(report.objects.adopted, 2U);
  EXPECT_EQ(h.generation(kA), generation);
  EXPECT_EQ(h.store->pool().blob_bytes(), used);
  EXPECT_EQ(h.store->parts().blobs.references(0), 2U);
  EXPECT_EQ(h.store->parts().catalog.payload_bytes(), 300 * kKiB + 100);
  const std::uint32_t* session = h.store->sessions().find("scope", "run");
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(h.store->sessions().use(*session).objects, 2U);
  ASSERT_NE(h.store->names().resolve(*session, "orders"), nullptr);
  EXPECT_EQ(h.store->sessions().handle(*session), run);  // clients keep using their session handle
  EXPECT_TRUE(h.remove(kA));
  EXPECT_EQ(h.store->pool().blob_bytes(), used);
  h.expect_no_leak();
}

TEST(Adoption, APinHeldThroughARestartKeepsWhatWasDeleted) {
  Harness h;
  const auto client = h.add_client();
  ASSERT_TRUE(h.seal(client, h.blob_spec(client, kA, h.open(), 300 * kKiB)).status.is_ok());
  const auto position = h.pin(client, kA);
  EXPECT_TRUE(h.remove(kA));
  const AdoptionReport report = h.restart();
  EXPECT_EQ(report.objects.deferred, 1U);
  EXPECT_FALSE(h.has(kA));
  EXPECT_EQ(h.store->parts().deferred.count(), 1U);
  EXPECT_EQ(h.store->pool().blob_bytes(), 300 * kKiB);
  h.pins(client).unpin(position);
  h.store->rescan_pins();
  EXPECT_EQ(h.store->pool().blob_bytes(), 0U);
  h.expect_no_leak();
}

TEST(Adoption, QuarantineKeepsAWritersSegmentUntilItDies) {
  Harness h(4 * kMiB);
  const auto a = h.add_client();
  const auto b = h.add_client();
  h.lease(a, 1900 * kKiB);
  h.lease(a, 1900 * kKiB);
  h.restart();
  EXPECT_EQ(h.store->pool().summary().at("quarantined").count, 2U);
  EXPECT_EQ(h.lease_error(b, 1900 * kKiB).code(), Code::kStoreFull);
  h.kill(a);
  h.lease(b, 1900 * kKiB);
  h.expect_no_leak();
}

TEST(Adoption, AnAbsentWriterKeepsWhatItLeasedAndNoMore) {
  Harness h(64 * kMiB);
  const auto a = h.add_client();
  const auto b = h.add_client();
  const auto run = h.open("run");
  for (std::uint64_t number = 1; number <= 40; ++number)
    ASSERT_TRUE(h.seal(a, h.blob_spec(a, numbered_id(number), run, kMiB)).status.is_ok());
  for (std::uint64_t number = 1; number <= 40; ++number) {
    if (number % 4 != 0) h.remove(numbered_id(number));
  }
  const std::uint64_t leased = h.store->pool().leased_by(a);
  const LeaseGrant held = h.lease(a, kMiB, kMiB);
  h.lease(b, 30 * kMiB, 30 * kMiB);  // needs the free memory in the first client's segments
  ASSERT_GT(h.source.punched, 0U);
  h.restart();
  EXPECT_LE(h.store->pool().leased_by(a), leased + held.length);
  EXPECT_EQ(h.store->pool().committed_bytes(), h.source.in_use());
  h.kill(b);
  h.lease(h.add_client(), 30 * kMiB, 30 * kMiB);
  // The first client continues with its lease.
  const std::vector<ReportedLease> its = {{held.segment, held.generation, held.offset, held.length}};
  ASSERT_TRUE(h.store->reconnect(a, h.store->clients().find(a)->token, &its).is_ok());
  EXPECT_EQ(h.store->pool().leased_by(a), held.length);
  h.expect_no_leak();
}

// A range that its writer may still fill, or seal by resending the same request, is never handed to anyone else.
TEST(AdoptionCrash, WhatAWriterHeldStaysItsOwn) {
  std::vector<ReportedLease> held;
  const auto lease = [&](Harness& h) {
    const LeaseGrant grant = h.lease(h.add_client(), kMiB, kMiB);
    held = {{grant.segment, grant.generation, grant.offset, grant.length}};
  };
  at_every_step(
      [&](Harness& h) {
        lease(h);
        h.restart();
      },
      [&](Harness& h) { EXPECT_TRUE(h.store->reconnect(0, h.store->clients().find(0)->token, &held).is_ok()); },
      [](Harness& h, bool) { EXPECT_GE(h.store->pool().leased_by(0), kMiB); }, 1);
  SealSpec spec;
  at_every_step(
      [&](Harness& h) {
        lease(h);
        spec.id = kA;
        spec.session = h.open();
        spec.blobs = {{held[0].segment, held[0].offset, kMiB}};
        spec.buffers = {{kNewBlobBit, 0, 0, kMiB}};
        spec.tree = "tree";
      },
      [&](Harness& h) { EXPECT_TRUE(h.seal(0, spec).status.is_ok()); },
      [](Harness& h, bool) { EXPECT_TRUE(h.has(kA) || h.store->pool().leased_by(0) >= kMiB); }, 3);
}

TEST(AdoptionCrash, Seal) {
  at_every_step([](Harness& h) { h.add_client(); },
                [](Harness& h) {
                  SealSpec spec = h.blob_spec(0, kA, h.open("run"), 100 * kKiB);
                  spec.name = "orders";
                  EXPECT_TRUE(h.seal(0, spec).status.is_ok());
                },
                [](Harness& h, bool done) {
                  const std::uint32_t* session = h.store->sessions().find("scope", "run");
                  const bool named = session != nullptr && h.store->names().resolve(*session, "orders") != nullptr;
                  if (done) {
                    EXPECT_TRUE(h.has(kA) && named);
                  }
                  if (named) {
                    EXPECT_TRUE(h.has(kA));
                  }
                  EXPECT_EQ(h.store->parts().blobs.live(), h.has(kA) ? 1U : 0U);
                  EXPECT_EQ(h.store->pool().blob_bytes(), h.has(kA) ? 100 * kKiB : 0U);
                },
                10);
}

TEST(AdoptionCrash, ReplaceOfAPinnedObjectWithItsName) {
  std::uint32_t before = 0;
  at_every_step(
      [&](Harness& h) {
        h.add_client();
        SealSpec spec = h.blob_spec(0, kA, h.open("run"), 64 * kKiB);
        spec.name = "orders";
        EXPECT_TRUE(h.seal(0, spec).status.is_ok());
        before = h.generation(kA);
        h.pin(0, kA);
      },
      [](Harness& h) {
        SealSpec spec = h.blob_spec(0, kA, h.open("run"), 128 * kKiB);
        spec.name = "orders";
        spec.replace = true;
        EXPECT_TRUE(h.seal(0, spec).status.is_ok());
      },
      [&](Harness& h, bool done) {
        ASSERT_TRUE(h.has(kA));  // always either the old or the new object
        const bool replaced = h.generation(kA) != before;
        if (done) {
          EXPECT_TRUE(replaced);
        }
        EXPECT_EQ(h.store->parts().catalog.count(), 1U);
        EXPECT_EQ(h.store->parts().deferred.count(), replaced ? 1U : 0U);  // the old object is pinned
        EXPECT_EQ(h.store->parts().catalog.payload_bytes(), replaced ? 128 * kKiB : 64 * kKiB);
        EXPECT_EQ(h.store->names().count(), 1U);
      },
      8);
}

TEST(AdoptionCrash, Rebind) {
  at_every_step(
      [](Harness& h) {
        h.add_client();
        SealSpec spec = h.inline_spec(kA, h.open("run"), "a");
        spec.name = "orders";
        EXPECT_TRUE(h.seal(0, spec).status.is_ok());
        EXPECT_TRUE(h.seal(0, h.inline_spec(kB, h.open("run"), "b")).status.is_ok());
      },
      [](Harness& h) { EXPECT_TRUE(h.store->bind_name(h.open("run"), "orders", kB, true).is_ok()); },
      [](Harness& h, bool done) {
        const IdBytes* id = h.store->names().resolve(*h.store->sessions().find("scope", "run"), "orders");
        ASSERT_NE(id, nullptr);  // bound to either the old or the new object
        if (done) {
          EXPECT_EQ(*id, kB);
        }
        EXPECT_EQ(h.store->names().count(), 1U);
        EXPECT_TRUE(h.has(kA) && h.has(kB));
      },
      3);
}

TEST(AdoptionCrash, DeleteOfABatchThatSharesBlobs) {
  at_every_step(
      [](Harness& h) {
        h.add_client();
        const auto run = h.open("run");
        SealSpec spec = h.blob_spec(0, kA, run, 64 * kKiB);
        spec.name = "a";
        EXPECT_TRUE(h.seal(0, spec).status.is_ok());
        SealSpec shared;
        shared.id = kB;
        shared.session = run;
        shared.name = "b";
        shared.buffers = {{0, h.store->parts().blobs.generation(0), 0, 100}};
        EXPECT_TRUE(h.seal(0, shared).status.is_ok());
      },
      [](Harness& h) {
        const std::vector<IdBytes> ids = {kA, kB};
        EXPECT_EQ(h.store->remove(ids), (std::vector<std::uint8_t>{1, 1}));
      },
      [](Harness& h, bool done) {
        const std::uint32_t existing = (h.has(kA) ? 1U : 0U) + (h.has(kB) ? 1U : 0U);
        if (done) {
          EXPECT_EQ(existing, 0U);
        }
        EXPECT_EQ(h.store->parts().catalog.count(), existing);
        EXPECT_EQ(h.store->names().count(), existing);
        EXPECT_EQ(h.store->pool().blob_bytes(), existing == 0 ? 0 : 64 * kKiB);
      },
      8);
}

TEST(AdoptionCrash, RemovalOfASession) {
  at_every_step(
      [](Harness& h) {
        h.add_client();
        for (std::uint64_t i = 0; i < 3; ++i) {
          SealSpec spec = h.blob_spec(0, numbered_id(i), h.open("run"), 64 * kKiB);
          const std::string name = std::to_string(i);
          spec.name = name;
          EXPECT_TRUE(h.seal(0, spec).status.is_ok());
        }
      },
      [](Harness& h) {
        EXPECT_TRUE(h.store->remove_session("scope", "run").is_ok());
        ENTREPOT_SYNC_POINT("after");
      },
      [](Harness& h, bool) {
        // The session was marked before the first object was deleted, so the next daemon completes the removal.
        EXPECT_EQ(h.store->parts().catalog.count(), 0U);
        EXPECT_EQ(h.store->sessions().count(), 0U);
        EXPECT_EQ(h.store->names().count(), 0U);
      },
      8);
}

TEST(AdoptionCrash, ChangeOfASessionsLimits) {
  at_every_step(
      [](Harness& h) {
        const SessionLimits limits{100, 1000, 10};
        h.add_client();
        EXPECT_TRUE(h.seal(0, h.inline_spec(kA, h.open("run", &limits), "a")).status.is_ok());
      },
      [](Harness& h) {
        const SessionLimits limits{200, 2000, 20};
        h.open("run", &limits);
      },
      [](Harness& h, bool done) {
        EXPECT_TRUE(h.has(kA));
        const std::uint32_t* index = h.store->sessions().find("scope", "run");
        ASSERT_NE(index, nullptr);
        const Session& session = h.store->sessions().at(*index);
        if (done) {
          EXPECT_EQ(session.ttl_seconds, 200U);
        }
        EXPECT_EQ(session.limit_bytes, session.ttl_seconds * 10);
        EXPECT_EQ(session.limit_objects, session.ttl_seconds / 10);
      },
      3);
}

TEST(AdoptionCrash, OpeningAndClosingASession) {
  at_every_step(
      [](Harness& h) {
        h.add_client();
        h.open("closed", nullptr, 0);
      },
      [](Harness& h) {
        h.open("opened", nullptr, 0);
        const std::uint32_t closed = h.store->sessions().handle(*h.store->sessions().find("scope", "closed"));
        EXPECT_TRUE(h.store->close_session(0, closed).is_ok());
        ENTREPOT_SYNC_POINT("after");
      },
      [](Harness& h, bool done) {
        const auto opened_by = [&](const char* name) {
          const std::uint32_t* index = h.store->sessions().find("scope", name);
          return index == nullptr ? 0U : h.store->sessions().use(*index).opened_by;
        };
        EXPECT_LE(opened_by("opened") + opened_by("closed"), 2U);
        if (done) {
          EXPECT_EQ(opened_by("opened"), 1U);
          EXPECT_EQ(opened_by("closed"), 0U);
        }
      },
      4);
}

TEST(AdoptionCrash, LeaseAndSegment) {
  at_every_step([](Harness& h) { h.add_client(); }, [](Harness& h) { h.lease(0, 64 * kKiB); },
                [](Harness& h, bool done) {
                  if (done) {
                    EXPECT_EQ(h.store->pool().summary().at("quarantined").count, 1U);
                  }
                  EXPECT_LE(h.store->pool().committed_bytes(), 2 * kMiB);
                },
                3);
}

}  // namespace
}  // namespace entrepot::testing
