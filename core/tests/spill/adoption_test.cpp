// Recovery of spill files by the next daemon, of the same store or a new one, and of manifests truncated anywhere.
#include <filesystem>
#include <fstream>
#include <set>

#include "base/text.h"
#include "os/files.h"
#include "spill/manifest_format.h"
#include "spill/spill_harness.h"

namespace entrepot::testing {
namespace {

SpilledObject object_of(std::uint8_t number, std::vector<SpilledBlob> blobs) {
  SpilledObject object;
  object.id = {number};
  object.generation = 3;
  object.scope = "scope";
  object.session = "run-7";
  object.ttl_seconds = 60;
  object.names = {"orders", "more orders"};
  object.sealed_unix_ns = 12345;
  object.record = std::string("record\0with zeros", 17);
  object.blobs = std::move(blobs);
  return object;
}

// Spills and remembers `count` objects of one blob each, filled with seeds 100 + i.
std::vector<SpilledObject> spill_objects(SpillHarness& store, std::uint32_t count, std::uint64_t length = 70'000) {
  const std::uint32_t segment = store.segments.add(kMiB);
  std::vector<SpilledObject> objects;
  for (std::uint32_t i = 0; i < count; ++i) {
    const BlobLocation from{segment, 0, length, 1};
    store.segments.fill(from, 100 + i);
    const BlobKey key{i, i + 1};
    const auto location = store.spill(key, from);
    EXPECT_TRUE(location.is_ok());
    objects.push_back(object_of(static_cast<std::uint8_t>(i), {{key, length, *location}}));
    store.files->remember(objects.back());
  }
  store.settle_manifest();
  return objects;
}

bool holds(SpillHarness& store, const BlobKey& key, SpillLocation location, std::uint64_t length, std::uint64_t seed) {
  const std::uint32_t segment = store.segments.add(kMiB);
  const BlobLocation to{segment, 0, length, 1};
  const Status loaded = store.load(key, location, to);
  EXPECT_TRUE(loaded.is_ok()) << loaded.to_string();
  const std::string loaded_bytes = store.segments.bytes(to);
  store.segments.fill(to, seed);
  return loaded.is_ok() && loaded_bytes == store.segments.bytes(to);
}

TEST(SpillAdoption, TheNextDaemonHasTheCopiesThatItsTableKnows) {
  SpillHarness store;
  store.must_open();
  const auto objects = spill_objects(store, 4);
  const std::uint64_t used = store.files->stats().used_bytes;
  store.die();
  store.must_open();
  for (std::size_t i = 0; i < 3; ++i) {
    const SpilledBlob& blob = objects[i].blobs[0];
    EXPECT_TRUE(store.files->adopt(blob.key, blob.location, blob.length).is_ok());
  }
  const SpilledBlob& twice = objects[0].blobs[0];
  EXPECT_EQ(store.files->adopt(twice.key, twice.location, twice.length).code(), Code::kCorruptData);
  EXPECT_EQ(store.files->adopt({77, 1}, pack_location({9, 0}, {77, 1}), 1000).code(), Code::kObjectLost);
  EXPECT_EQ(store.files->adopt({77, 1}, pack_location({1, 1ULL << 40}, {77, 1}), 1000).code(), Code::kObjectLost);
  store.files->adopt_end();
  store.settle_manifest();
  EXPECT_EQ(store.files->stats().used_bytes, used / 4 * 3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const SpilledBlob& blob = objects[i].blobs[0];
    EXPECT_TRUE(holds(store, blob.key, blob.location, blob.length, 100 + i));
  }
  // The fourth object was not adopted, so it is removed from the manifest too, and its space is freed.
  store.die();
  store.options.instance = {9};
  store.must_open();
  std::set<std::uint8_t> ids;
  for (const SpilledObject& object : store.files->recover())
    ids.insert(object.id[0]);
  EXPECT_EQ(ids, (std::set<std::uint8_t>{0, 1, 2}));
}

TEST(SpillAdoption, AFreshStoreTakesOverWhatAnEarlierOneLeft) {
  SpillHarness store;
  store.must_open();
  auto objects = spill_objects(store, 5);
  store.files->forget(objects[4].id, objects[4].generation);
  store.files->release(objects[4].blobs[0].key, objects[4].blobs[0].location, objects[4].blobs[0].length);
  store.settle_manifest();
  // Twice: adopted copies can be adopted again.
  for (std::uint8_t life = 1; life <= 2; ++life) {
    store.die();
    store.options.instance = {life, 50};
    store.must_open();
    auto recovered = store.files->recover();
    ASSERT_EQ(recovered.size(), 4U);
    std::vector<SpilledObject> taken;
    for (SpilledObject& object : recovered) {
      EXPECT_EQ(object.scope, "scope");
      EXPECT_EQ(object.session, "run-7");
      EXPECT_EQ(object.names, (std::vector<std::string>{"orders", "more orders"}));
      EXPECT_EQ(object.record, std::string("record\0with zeros", 17));
      EXPECT_EQ(object.ttl_seconds, 60U);
      EXPECT_EQ(object.sealed_unix_ns, 12345U);
      // Blob numbers that were used by other blobs, possibly with equal generations.
      const BlobKey now{40U * life - object.id[0], 1};
      const auto location = store.files->rebind(object.blobs[0], now);
      ASSERT_TRUE(location.is_ok()) << location.status().to_string();
      EXPECT_EQ(store.files->rebind(object.blobs[0], now).code(), Code::kCorruptData);  // only once
      object.blobs[0].key = now;
      object.blobs[0].location = *location;
      store.files->remember(object);
      taken.push_back(object);
    }
    store.files->adopt_end();
    store.settle_manifest();
    for (const SpilledObject& object : taken)
      EXPECT_TRUE(
          holds(store, object.blobs[0].key, object.blobs[0].location, object.blobs[0].length, 100U + object.id[0]));
    EXPECT_EQ(store.files->stats().used_bytes, 4 * extent_bytes(70'000));
  }
  // A daemon that follows the second store's daemon recognizes those headers.
  const auto taken = [&] {
    store.die();
    store.options.instance = {3, 50};
    store.must_open();
    return store.files->recover();
  }();
  store.die();  // before adopt_end(): the earlier manifest still exists
  store.options.instance = {2, 50};
  store.must_open();
  for (const SpilledObject& object : taken)
    ASSERT_TRUE(store.files->adopt(object.blobs[0].key, object.blobs[0].location, object.blobs[0].length).is_ok());
  store.files->adopt_end();
  ASSERT_EQ(taken.size(), 4U);
  for (const SpilledObject& object : taken)
    EXPECT_TRUE(
        holds(store, object.blobs[0].key, object.blobs[0].location, object.blobs[0].length, 100U + object.id[0]));
}

TEST(SpillAdoption, WhatIsNotRememberedAgainIsForgotten) {
  SpillHarness store;
  store.must_open();
  (void)spill_objects(store, 3);
  store.die();
  store.options.instance = {9};
  store.must_open();
  ASSERT_EQ(store.files->recover().size(), 3U);
  store.files->adopt_end();
  store.settle_manifest();
  EXPECT_EQ(store.files->stats().used_bytes, 0U);
  store.die();
  store.must_open();
  EXPECT_TRUE(store.files->recover().empty());
}

TEST(SpillAdoption, ACopyIsFreeOnlyWhenTheManifestHasForgottenIt) {
  SpillHarness store;
  store.must_open();
  const auto objects = spill_objects(store, 1);
  const SpilledBlob& blob = objects[0].blobs[0];
  store.io.refuses_removal = true;
  store.io.fail_writes(FaultyIo::Fault::kBroken, 0, 1);  // the forget record, if a worker writes it at once
  store.files->forget(objects[0].id, objects[0].generation);
  const std::uint64_t before = store.files->stats().used_bytes;
  store.files->release(blob.key, blob.location, blob.length);
  EXPECT_GT(before, 0U);
  store.io.refuses_removal = false;
  store.settle_manifest();
  EXPECT_EQ(store.files->stats().used_bytes, 0U);
}

TEST(SpillAdoption, TheManifestSurvivesBeingCutOffAnywhere) {
  SpillHarness store;
  store.must_open();
  const auto objects = spill_objects(store, 3);
  store.files->forget(objects[1].id, objects[1].generation);
  store.settle_manifest();
  store.die();
  const std::string path = store.subfolder() + "/manifest";
  const std::string whole = *os::read_file(path);
  std::vector<std::uint64_t> ends = {head_bytes(false)};
  while (ends.back() < whole.size()) {
    const auto record = decode_record(std::string_view(whole).substr(ends.back()));
    ASSERT_TRUE(record.is_ok());
    ends.push_back(ends.back() + record->bytes);
  }
  ASSERT_EQ(ends.size(), 5U);
  const std::vector<std::set<std::uint8_t>> expected = {{}, {0}, {0, 1}, {0, 1, 2}, {0, 2}};
  for (std::uint64_t length = 0; length <= whole.size(); ++length) {
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(whole.data(), static_cast<std::streamoff>(length));
    SpillManifest manifest(store.io, path, store.options.instance);
    const auto replay = manifest.open();
    ASSERT_TRUE(replay.is_ok()) << length << ": " << replay.status().to_string();
    std::set<std::uint8_t> ids;
    for (const auto& entry : replay->objects)
      ids.insert(entry.object.id[0]);
    std::size_t records = 0;
    while (records + 1 < ends.size() && ends[records + 1] <= length)
      ++records;
    EXPECT_EQ(ids, expected[records]) << "cut off at " << length;
    const std::uint64_t good = length < head_bytes(false) ? 0 : ends[records];
    EXPECT_EQ(replay->dropped_bytes, length - good) << "cut off at " << length;
    // The manifest continues from there.
    (void)manifest.remember({object_of(9, {}), {}});
    ASSERT_TRUE(manifest.flush());
    SpillManifest next(store.io, path, store.options.instance);
    const auto again = next.open();
    ASSERT_TRUE(again.is_ok());
    EXPECT_EQ(again->objects.size(), ids.size() + 1) << "cut off at " << length;
    EXPECT_EQ(again->dropped_bytes, 0U);
  }
}

TEST(SpillAdoption, AManifestEditedAnywhereLosesOnlyWhatFollows) {
  SpillHarness store;
  store.must_open();
  (void)spill_objects(store, 3);
  store.die();
  const std::string path = store.subfolder() + "/manifest";
  const std::string whole = *os::read_file(path);
  for (std::uint64_t at = 0; at < whole.size(); ++at) {
    std::string edited = whole;
    edited[at] = static_cast<char>(~edited[at]);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << edited;
    SpillManifest manifest(store.io, path, store.options.instance);
    const auto replay = manifest.open();
    if (at >= 8 && at < 12) {  // version
      EXPECT_EQ(replay.code(), Code::kVersionMismatch);
      continue;
    }
    ASSERT_TRUE(replay.is_ok()) << replay.status().to_string();
    EXPECT_LT(replay->objects.size(), 3U) << at;
    EXPECT_GT(replay->dropped_bytes, 0U) << at;
  }
}

TEST(SpillAdoption, AManifestOfANewerFormatIsRefusedWithBothVersions) {
  SpillHarness store;
  store.must_open();
  (void)spill_objects(store, 1);
  store.die();
  const std::string path = store.subfolder() + "/manifest";
  std::string text = *os::read_file(path);
  text[8] = 9;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  const Status refused = store.open();
  EXPECT_EQ(refused.code(), Code::kVersionMismatch);
  EXPECT_NE(refused.message().find("format 9"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find(concat("format ", kManifestVersion)), std::string::npos) << refused.message();
  EXPECT_EQ(*os::read_file(path), text);  // unchanged
}

TEST(SpillManifest, IsRewrittenWhenMostOfItIsGarbage) {
  const Scratch scratch;
  FaultyIo io;
  const std::string path = scratch.path("manifest");
  SpillManifest manifest(io, path, {1});
  ASSERT_TRUE(manifest.open().is_ok());
  SpilledObject kept = object_of(1, {});
  kept.record = std::string(200'000, 'k');
  (void)manifest.remember({kept, {}});
  std::uint64_t largest = 0;
  for (std::uint32_t i = 0; i < 200; ++i) {
    SpilledObject passing = object_of(2, {});
    passing.generation = i;
    passing.record = std::string(50'000, 'p');
    (void)manifest.remember({passing, {}});
    ASSERT_TRUE(manifest.flush());
    (void)manifest.forget(passing.id, i);
    ASSERT_TRUE(manifest.flush());
    largest = std::max<std::uint64_t>(largest, std::filesystem::file_size(path));
  }
  EXPECT_LT(largest, 2 * kMiB);
  SpillManifest next(io, path, {1});
  const auto replay = next.open();
  ASSERT_TRUE(replay.is_ok());
  ASSERT_EQ(replay->objects.size(), 1U);
  EXPECT_EQ(replay->objects[0].object.record, kept.record);
}

TEST(SpillManifest, ThatCannotBeWrittenIsTakenAwayAndComesBack) {
  for (const auto fault : {FaultyIo::Fault::kNoSpace, FaultyIo::Fault::kBroken}) {
    const Scratch scratch;
    FaultyIo io;
    const std::string path = scratch.path("manifest");
    SpillManifest manifest(io, path, {1});
    ASSERT_TRUE(manifest.open().is_ok());
    for (std::uint8_t i = 0; i < 4; ++i)
      (void)manifest.remember({object_of(i, {}), {}});
    ASSERT_TRUE(manifest.flush());
    EXPECT_TRUE(manifest.note().empty());
    io.fail_writes(fault, 0, 1000);
    (void)manifest.forget(object_of(1, {}).id, 3);
    const std::uint64_t last = manifest.remember({object_of(7, {}), {}});
    EXPECT_FALSE(manifest.flush());
    EXPECT_FALSE(std::filesystem::exists(path));  // no stale manifest for the next daemon
    EXPECT_EQ(manifest.written(), last);          // so the space of released copies may be reused
    EXPECT_FALSE(manifest.note().empty());
    (void)manifest.remember({object_of(8, {}), {}});
    EXPECT_FALSE(manifest.flush());
    io.heal();
    (void)manifest.forget(object_of(8, {}).id, 3);
    ASSERT_TRUE(manifest.flush());
    EXPECT_TRUE(manifest.note().empty());
    SpillManifest next(io, path, {1});
    const auto replay = next.open();
    ASSERT_TRUE(replay.is_ok());
    std::set<std::uint8_t> ids;
    for (const auto& entry : replay->objects)
      ids.insert(entry.object.id[0]);
    EXPECT_EQ(ids, (std::set<std::uint8_t>{0, 2, 3, 7}));
  }
}

TEST(SpillManifest, CountsNothingAsWrittenWhileAStaleFileCannotEvenBeRemoved) {
  const Scratch scratch;
  FaultyIo io;
  const std::string path = scratch.path("manifest");
  SpillManifest manifest(io, path, {1});
  ASSERT_TRUE(manifest.open().is_ok());
  const std::uint64_t first = manifest.remember({object_of(1, {}), {}});
  ASSERT_TRUE(manifest.flush());
  EXPECT_EQ(manifest.written(), first);
  io.fail_writes(FaultyIo::Fault::kBroken, 0, 1000);
  io.refuses_removal = true;
  const std::uint64_t taken_back = manifest.forget(object_of(1, {}).id, 3);
  EXPECT_FALSE(manifest.flush());
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(manifest.written(), first) << "the next store would still find the object";
  io.heal();
  io.refuses_removal = false;
  ASSERT_TRUE(manifest.flush());
  EXPECT_EQ(manifest.written(), taken_back);
  SpillManifest next(io, path, {1});
  const auto replay = next.open();
  ASSERT_TRUE(replay.is_ok());
  EXPECT_TRUE(replay->objects.empty());
}

TEST(SpillManifest, OfAnEarlierStoreIsReplacedBeforeTheNewOneCountsAsWritten) {
  const Scratch scratch;
  FaultyIo io;
  const std::string path = scratch.path("manifest");
  SpillManifest earlier(io, path, {1});
  ASSERT_TRUE(earlier.open().is_ok());
  (void)earlier.remember({object_of(1, {}), {}});
  ASSERT_TRUE(earlier.flush());
  SpillManifest manifest(io, path, {2});
  ASSERT_TRUE(manifest.open().is_ok());
  manifest.begin_new();
  const std::uint64_t replaced = manifest.finish_new();  // with an empty one
  EXPECT_GT(replaced, manifest.written());
  EXPECT_TRUE(std::filesystem::exists(path));
  ASSERT_TRUE(manifest.flush());
  EXPECT_EQ(manifest.written(), replaced);
  EXPECT_FALSE(std::filesystem::exists(path));
  SpillManifest fresh(io, path, {3});
  ASSERT_TRUE(fresh.open().is_ok());
  EXPECT_EQ(fresh.finish_new(), fresh.written()) << "there was none to replace";
}

}  // namespace
}  // namespace entrepot::testing
