#include "shm/blobs.h"

#include <gtest/gtest.h>

#include "fakes/fake_memory.h"

namespace entrepot {
namespace {

using testing::FakeStore;

TEST(Blobs, PublishedPlacesAreResolvedByNumberAndGeneration) {
  FakeStore store;
  BlobWriter writer(store.memory);
  const BlobReader reader(store.view);
  const std::uint32_t blob = writer.allocate().take();
  EXPECT_FALSE(reader.resolve(blob, 1).has_value());
  EXPECT_EQ(writer.publish(blob, {3, 4096, 100, 9}), 1U);
  const std::optional<BlobLocation> place = reader.resolve(blob, 1);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->segment, 3U);
  EXPECT_EQ(place->offset, 4096U);
  EXPECT_EQ(place->length, 100U);
  EXPECT_EQ(place->segment_generation, 9U);
  EXPECT_FALSE(reader.resolve(blob, 2).has_value());
  EXPECT_FALSE(reader.resolve(0xffff'fffeU, 1).has_value());
  writer.free(blob);
  EXPECT_FALSE(reader.resolve(blob, 1).has_value());
  EXPECT_FALSE(writer.is_sealed(blob, 1));
}

TEST(Blobs, ReferencesAreCounted) {
  FakeStore store;
  BlobWriter writer(store.memory);
  const std::uint32_t blob = writer.allocate().take();
  writer.publish(blob, {});
  writer.add_reference(blob);
  writer.add_reference(blob);
  EXPECT_EQ(writer.references(blob), 2U);
  EXPECT_EQ(writer.drop_reference(blob), 1U);
  EXPECT_EQ(writer.drop_reference(blob), 0U);
  EXPECT_EQ(writer.references(12345), 0U);
  writer.free(blob);
  ASSERT_EQ(writer.allocate().take(), blob);
  EXPECT_EQ(writer.publish(blob, {}), 2U);
  EXPECT_EQ(writer.references(blob), 0U);
}

TEST(Blobs, AdoptionFindsSealedAndDamagedOnes) {
  FakeStore store;
  BlobWriter before(store.memory);
  std::vector<std::uint32_t> blobs;
  for (std::uint64_t i = 0; i < 4; ++i) {
    blobs.push_back(before.allocate().take());
    before.publish(blobs.back(), {1, i * 64, 64, 1});
  }
  before.add_reference(blobs[0]);
  before.free(blobs[1]);
  before.table().at(blobs[2]).length ^= 1;
  BlobWriter after(store.memory);
  const BlobAdoption adoption = after.adopt();
  EXPECT_EQ(adoption.sealed, (std::vector<std::uint32_t>{blobs[3], blobs[0]}));
  EXPECT_EQ(adoption.damaged, std::vector<std::uint32_t>{blobs[2]});
  EXPECT_EQ(after.references(blobs[0]), 0U);  // the caller rebuilds the counts
  EXPECT_FALSE(after.is_sealed(blobs[2], 1));
  EXPECT_EQ(after.place(blobs[3]).offset, 3 * 64U);
  EXPECT_EQ(after.next_generation(blobs[1]), 2U);
}

TEST(Blobs, EveryFieldOfThePlaceIsGuarded) {
  FakeStore store;
  BlobWriter writer(store.memory);
  const std::uint32_t number = writer.allocate().take();
  writer.publish(number, {1, 64, 128, 5});
  const Blob& blob = writer.at(number);
  Blob copy{};
  const auto reset = [&] {
    copy.offset = blob.offset;
    copy.length = blob.length;
    copy.segment = blob.segment;
    copy.segment_generation = blob.segment_generation;
  };
  reset();
  EXPECT_EQ(blob_crc(copy, 1), blob.crc);
  EXPECT_NE(blob_crc(copy, 2), blob.crc);
  copy.offset ^= 64;
  EXPECT_NE(blob_crc(copy, 1), blob.crc);
  reset();
  copy.length ^= 1;
  EXPECT_NE(blob_crc(copy, 1), blob.crc);
  reset();
  copy.segment ^= 1;
  EXPECT_NE(blob_crc(copy, 1), blob.crc);
  reset();
  copy.segment_generation ^= 1;
  EXPECT_NE(blob_crc(copy, 1), blob.crc);
}

}  // namespace
}  // namespace entrepot
