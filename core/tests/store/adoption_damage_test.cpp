// Damaged control memory: what is lost with it, and what must be kept because a client may still be reading it.
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "store/harness.h"

namespace entrepot::testing {
namespace {

TEST(AdoptionDamage, AnEntryWithAWrongChecksumIsLostAloneAndSaidToBe) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open();
  ASSERT_TRUE(h.seal(client, h.blob_spec(client, kA, session, 64 * kKiB)).status.is_ok());
  ASSERT_TRUE(h.seal(client, h.blob_spec(client, kB, session, 64 * kKiB)).status.is_ok());
  const std::uint32_t slot = *h.store->objects().find(kA);
  const Slot& entry = h.store->parts().catalog.directory().at(slot);
  h.memory.region(RegionKind::kRecords).entries()[entry.record_offset + 60] ^= std::byte{1};
  const AdoptionReport report = h.restart();
  EXPECT_EQ(report.objects.lost, 1U);
  EXPECT_EQ(report.objects.adopted, 1U);
  EXPECT_EQ(h.store->objects().lookup(kA).code, Code::kObjectLost);
  EXPECT_EQ(h.store->info_json(kA).code(), Code::kObjectLost);
  EXPECT_TRUE(h.has(kB));
  EXPECT_NE(h.store->status_json({}).find("\"lost_on_adoption\":{\"objects\":1"), std::string::npos);
  // It can be put again.
  ASSERT_TRUE(h.seal(client, h.inline_spec(kA, session, "anew")).status.is_ok());
  EXPECT_TRUE(h.has(kA));
  h.expect_no_leak();
}

TEST(AdoptionDamage, ASegmentThatTheKeeperDoesNotHoldLosesItsObjectsOnly) {
  Harness h;
  const auto a = h.add_client();
  const auto b = h.add_client();
  const auto session = h.open();
  const SealSpec spec = h.blob_spec(a, kA, session, 64 * kKiB);
  ASSERT_TRUE(h.seal(a, spec).status.is_ok());
  ASSERT_TRUE(h.seal(b, h.blob_spec(b, kB, session, 64 * kKiB)).status.is_ok());
  h.source.files.erase({spec.blobs[0].segment, h.store->pool().generation(spec.blobs[0].segment)});
  const AdoptionReport report = h.restart();
  EXPECT_EQ(report.lost_segments, 1U);
  EXPECT_EQ(report.objects.lost, 1U);
  EXPECT_EQ(h.store->objects().lookup(kA).code, Code::kObjectLost);
  EXPECT_TRUE(h.has(kB));
  h.expect_no_leak();
}

// Memory that a client is reading is not overwritten, even if damaged control memory no longer refers to it.
class DamageUnderAPin : public ::testing::TestWithParam<const char*> {
 protected:
  void damage(std::uint32_t slot, std::uint32_t blob) {
    Slot& entry = h.memory.region(RegionKind::kSlots).as<Slot>()[slot];
    const std::uint32_t generation = Word::generation(entry.word.load());
    const std::string_view what = GetParam();
    if (what == "record") {
      h.memory.region(RegionKind::kRecords).entries()[entry.record_offset + 60] ^= std::byte{1};
    } else if (what == "slot") {
      entry.payload_bytes ^= 1;
    } else if (what == "generation") {
      entry.word.store(Word::make(generation + 1000, static_cast<std::uint8_t>(ObjectState::kSealed)));
    } else if (what == "word") {
      entry.word.store(Word::make(generation + 1, 0));
    } else {
      h.memory.region(RegionKind::kBlobs).as<Blob>()[blob].length ^= 64;
    }
  }
  // Fills all available memory. Returns whether any of it overlaps that of A.
  bool is_written_over(const SealSpec& spec, std::uint64_t record_offset, std::uint64_t record_bytes) {
    static const std::vector<ReportedLease> kNone;
    EXPECT_TRUE(h.store->reconnect(writer, h.store->clients().find(writer)->token, &kNone).is_ok());
    bool over = false;
    for (int i = 0; i < 12; ++i) {
      const LeaseGrant grant = h.lease(writer, 512 * kKiB);
      const BlobRange& its = spec.blobs[0];
      over = over || (grant.segment == its.segment && grant.offset < its.offset + its.length &&
                      its.offset < grant.offset + grant.length);
    }
    for (std::uint64_t i = 0; i < 20; ++i) {
      const IdBytes id = numbered_id(1000 + i);
      EXPECT_TRUE(h.seal(writer, h.inline_spec(id, session, std::string(300, 'x'))).status.is_ok());
      const Slot& entry = h.store->parts().catalog.directory().at(*h.store->objects().find(id));
      over = over || (entry.record_offset < record_offset + record_bytes &&
                      record_offset < entry.record_offset + entry.record_bytes);
    }
    return over;
  }

  Harness h;
  std::uint32_t writer = h.add_client();
  std::uint32_t reader = h.add_client();
  std::uint32_t session = h.open();
};

TEST_P(DamageUnderAPin, KeepsWhatIsReadUntilItIsLetGo) {
  for (const bool pinned : {true, false}) {
    SCOPED_TRACE(pinned);
    const SealSpec spec = h.blob_spec(writer, kA, session, 64 * kKiB);
    ASSERT_TRUE(h.seal(writer, spec).status.is_ok());
    const std::uint32_t slot = *h.store->objects().find(kA);
    const Slot& entry = h.store->parts().catalog.directory().at(slot);
    const std::uint64_t offset = entry.record_offset;
    const std::uint64_t bytes = entry.record_bytes;
    const std::uint32_t blob = h.store->parts().catalog.blobs_of(slot)[0];
    const std::uint32_t position = pinned ? h.pin(reader, kA) : 0;
    damage(slot, blob);
    h.restart();
    EXPECT_FALSE(h.has(kA));
    EXPECT_EQ(h.store->parts().withheld.is_withholding(), pinned);
    EXPECT_EQ(is_written_over(spec, offset, bytes), !pinned) << "not pinned, it is the control";
    if (pinned) h.pins(reader).unpin(position);
    h.store->rescan_pins();
    EXPECT_FALSE(h.store->parts().withheld.is_withholding());
    EXPECT_FALSE(h.store->objects().waits_for_pins());
    ASSERT_TRUE(h.store->remove_session("scope", "").is_ok());
    session = h.open();
  }
  h.expect_no_leak();
}

INSTANTIATE_TEST_SUITE_P(Of, DamageUnderAPin, ::testing::Values("record", "slot", "generation", "word", "blob"),
                         [](const auto& info) { return std::string(info.param); });

TEST(AdoptionDamage, WhoseTableCannotBeReadKeepsAllUntilItIsGone) {
  Harness h(8 * kMiB, 0, true);
  const auto writer = h.add_client();
  const auto reader = h.add_client();
  const auto session = h.open();
  ASSERT_TRUE(h.seal(writer, h.blob_spec(writer, kA, session, 64 * kKiB)).status.is_ok());
  ASSERT_TRUE(h.seal(writer, h.blob_spec(writer, kB, session, 64 * kKiB)).status.is_ok());
  h.store->pins().remove(reader);
  h.store->pins().add_unreadable(reader);
  EXPECT_TRUE(h.remove(kA));
  EXPECT_EQ(h.store->parts().deferred.count(), 1U) << "it may pin it";
  const std::array<IdBytes, 1> other = {kB};
  static_cast<void>(h.store->evict(other));
  h.run_io();
  EXPECT_TRUE(h.is_resident(kB));
  h.kill(reader);
  EXPECT_EQ(h.store->parts().deferred.count(), 0U);
  h.expect_no_leak();
}

// The daemon died while it changed a session's limits, and what it was to continue from is damaged.
TEST(AdoptionDamage, LimitsFromADamagedRedoRecordAreNotTaken) {
  for (const bool damaged : {false, true}) {
    SCOPED_TRACE(damaged);
    Harness h;
    const SessionLimits limits{200, 2000, 20};
    h.open("run", &limits);
    Session& session = h.memory.region(RegionKind::kSessions).as<Session>()[*h.store->sessions().find("scope", "run")];
    struct {
      SessionLimits limits;
      std::uint32_t crc;
      std::uint32_t valid;
    } const redo{{200, damaged ? 2001U : 2000U, 20}, session.crc, 1};
    std::memcpy(session.reserved.data(), &redo, sizeof(redo));
    session.limit_bytes = 1000;  // as before the change
    EXPECT_EQ(h.restart().damaged_entries, damaged ? 1U : 0U);
    const std::uint32_t* const existing = h.store->sessions().find("scope", "run");
    ASSERT_EQ(existing == nullptr, damaged) << "the other one is the control";
    if (existing != nullptr) {
      EXPECT_EQ(h.store->sessions().at(*existing).limit_bytes, 2000U);
    }
    h.expect_no_leak();
  }
}

TEST(AdoptionDamage, AClientWhoseEntryIsDamagedIsThereUntilItDies) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open();
  ASSERT_TRUE(h.seal(client, h.blob_spec(client, kA, session, 64 * kKiB)).status.is_ok());
  static_cast<void>(h.pin(client, kA));
  const std::uint64_t token = h.store->clients().find(client)->token;
  h.memory.region(RegionKind::kClients).as<ClientEntry>()[client].pid ^= 1;
  EXPECT_EQ(h.restart().damaged_entries, 1U);
  ASSERT_NE(h.store->clients().find(client), nullptr);
  EXPECT_EQ(h.store->clients().find(client)->identity.pin_capacity, 0U);
  EXPECT_EQ(h.store->reconnect(client, token, nullptr).code(), Code::kAccessDenied);
  EXPECT_TRUE(h.remove(kA));
  EXPECT_EQ(h.store->parts().deferred.count(), 1U) << "it still reads it";
  h.kill(client);
  EXPECT_EQ(h.store->parts().deferred.count(), 0U);
  h.expect_no_leak();
}

TEST(AdoptionDamage, ADamagedOpeningOnlyLetsItsSessionExpireUntilTheClientReconnects) {
  Harness h;
  const auto client = h.add_client();
  h.open("damaged", nullptr, client);
  h.open("intact", nullptr, client);
  h.memory.region(RegionKind::kOpenings).as<Opening>()[0].session_generation += 1;
  EXPECT_EQ(h.restart().damaged_entries, 1U);
  EXPECT_EQ(h.store->remove_unused_session("scope", "intact", 0)->opened_by, 1U);
  EXPECT_TRUE(h.store->remove_unused_session("scope", "damaged", 0)->removed);
  h.expect_no_leak();
}

// A daemon without a spill backend, for example because it got no key, continues without the objects on disk.
TEST(AdoptionWithoutColdStorage, WhatIsOnDiskAloneIsSaidToBeThereAndComesBack) {
  Harness h(64 * kMiB, 0, true);
  const auto client = h.add_client();
  const SessionLimits limits{0, 1'000'000, 10};
  const auto session = h.open("kept", &limits);
  SealSpec named = h.blob_spec(client, kA, session, 64 * kKiB);
  named.name = "a";
  ASSERT_TRUE(h.seal(client, named).status.is_ok());
  ASSERT_TRUE(h.seal(client, h.blob_spec(client, kB, session, 64 * kKiB)).status.is_ok());
  const std::uint32_t generation = h.generation(kA);
  const std::vector<IdBytes> both{kA, kB};
  (void)h.store->evict(both);
  h.run_io();
  ASSERT_FALSE(h.is_resident(kA) || h.is_resident(kB));

  h.spills = false;
  h.options.no_spill_reason = "there is no key";
  EXPECT_EQ(h.restart().objects.lost, 2U);
  const LookupOutcome left = h.store->objects().lookup(kA);
  EXPECT_EQ(left.code, Code::kObjectLost);
  EXPECT_NE(left.message.find("its only copy is on disk"), std::string::npos) << left.message;
  EXPECT_NE(left.message.find("there is no key"), std::string::npos) << left.message;
  EXPECT_EQ(left.message.find("damaged"), std::string::npos) << left.message;
  ASSERT_TRUE(h.seal(client, h.inline_spec(kB, session, "anew")).status.is_ok());
  h.restart();  // and the one after it has no spill backend either

  h.spills = true;
  EXPECT_EQ(h.restart().objects.lost, 0U);
  EXPECT_EQ(h.get(kA).code, Code::kOk);
  EXPECT_EQ(h.generation(kA), generation);
  EXPECT_TRUE(h.is_resident(kB)) << "recreated objects count";
  EXPECT_EQ(h.spill.copies.size(), 1U);
  const auto info = h.store->info_json(kA);
  ASSERT_TRUE(info.is_ok());
  EXPECT_NE(info->find("\"a\""), std::string::npos) << *info;
  // The session and its limits are unchanged.
  EXPECT_EQ(h.seal(client, h.blob_spec(client, numbered_id(3), session, 2 * kMiB)).status.code(), Code::kStoreFull);
  EXPECT_EQ(h.restart().objects.lost, 0U);
  EXPECT_EQ(h.get(kA).code, Code::kOk);
  h.expect_no_leak();
}

TEST(AdoptionWithoutColdStorage, ACopyThatIsGoneIsSaidToBeGone) {
  Harness h(64 * kMiB, 0, true);
  const auto client = h.add_client();
  const auto session = h.open();
  ASSERT_TRUE(h.seal(client, h.blob_spec(client, kA, session, 64 * kKiB)).status.is_ok());
  const std::vector<IdBytes> ids{kA};
  (void)h.store->evict(ids);
  h.run_io();
  h.spill.copies.clear();
  EXPECT_EQ(h.restart().objects.lost, 1U);
  const LookupOutcome lost = h.store->objects().lookup(kA);
  EXPECT_EQ(lost.code, Code::kObjectLost);
  EXPECT_EQ(lost.message, "its copy on disk is gone (there is no such copy)");
}

}  // namespace
}  // namespace entrepot::testing
