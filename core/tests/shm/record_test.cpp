#include "shm/record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "fakes/fake_memory.h"
#include "os/memfd.h"
#include "shm/record_arena.h"

namespace entrepot {
namespace {

using testing::FakeStore;

struct Sample {
  std::vector<BufferRef> buffers = {{3, 1, 128, 1000}, {kInlineBlob, 0, 4, 5}, {9, 2, 0, 64}, {3, 1, 0, 1}};
  std::vector<RecordBlob> blobs = {{3, 1}, {9, 2}};
  std::string tree = "{\"type\":\"table\"}";
  std::string payload = "0123hello";

  [[nodiscard]] RecordParts parts() const { return {buffers, blobs, tree, payload}; }
};

// Memory with the alignment that records have in the arena.
struct alignas(kRecordAlign) Block {
  std::array<std::byte, 1024> bytes{};
};

std::span<std::byte> build(const Sample& sample, Block& block) {
  const std::uint32_t bytes = record_bytes(sample.parts()).take();
  const std::span<std::byte> out(block.bytes.data(), bytes);
  EXPECT_TRUE(build_record(sample.parts(), out).is_ok());
  return out;
}

TEST(Record, RoundTrip) {
  const Sample sample;
  Block block;
  const std::span<std::byte> bytes = build(sample, block);
  EXPECT_EQ(bytes.size() % kRecordAlign, 0U);
  const RecordView view = RecordView::parse(bytes).take();
  EXPECT_TRUE(view.check_crc().is_ok());
  ASSERT_EQ(view.buffers().size(), 4U);
  EXPECT_EQ(view.buffers()[0].length, 1000U);
  ASSERT_EQ(view.blobs().size(), 2U);
  EXPECT_EQ(view.blobs()[1].generation, 2U);
  EXPECT_EQ(view.tree(), sample.tree);
  const std::span<const std::byte> hello = view.inline_buffer(view.buffers()[1]);
  EXPECT_EQ(std::memcmp(hello.data(), "hello", hello.size()), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.payload().data()) % kRecordAlign, 0U);
}

TEST(Record, TheEmptyObjectHasARecord) {
  Block block;
  const std::span<std::byte> bytes = build({{}, {}, "", ""}, block);
  const RecordView view = RecordView::parse(bytes).take();
  EXPECT_TRUE(view.buffers().empty());
  EXPECT_TRUE(view.tree().empty());
}

TEST(Record, PartsThatDoNotFitTogetherAreRefused) {
  Block block;
  Sample beyond;
  beyond.buffers[1].length = 6;
  EXPECT_EQ(build_record(beyond.parts(), std::span(block.bytes).first(record_bytes(beyond.parts()).take())).code(),
            Code::kInvalidArgument);
  Sample unknown;
  unknown.buffers[0].generation = 7;
  EXPECT_EQ(build_record(unknown.parts(), std::span(block.bytes).first(record_bytes(unknown.parts()).take())).code(),
            Code::kInvalidArgument);
  Sample large;
  large.payload.resize(kInlineMaxBytes + 1);
  EXPECT_EQ(record_bytes(large.parts()).code(), Code::kInvalidArgument);
  const Sample sample;
  EXPECT_EQ(build_record(sample.parts(), std::span(block.bytes).first(64)).code(), Code::kInternal);
}

TEST(Record, AnotherVersionIsAVersionMismatch) {
  Block block;
  const std::span<std::byte> bytes = build(Sample(), block);
  reinterpret_cast<RecordHeader*>(bytes.data())->version = 2;
  EXPECT_EQ(RecordView::parse(bytes).code(), Code::kVersionMismatch);
}

TEST(Record, EveryFlippedBitIsNoticedByParseOrChecksum) {
  Block block;
  const std::span<std::byte> bytes = build(Sample(), block);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    // Flags have no meaning in version 1, and the checksum, which begins after them, does not cover them.
    if (bit / 8 >= offsetof(RecordHeader, flags) && bit / 8 < offsetof(RecordHeader, flags) + 2) continue;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const Result<RecordView> view = RecordView::parse(bytes);
    EXPECT_TRUE(!view.is_ok() || !view->check_crc().is_ok()) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

TEST(Record, NothingOutsideTheBytesIsReadWhateverTheySay) {
  std::mt19937 random(1);
  const Sample sample;
  Block block;
  const std::size_t size = build(sample, block).size();
  for (int round = 0; round < 20'000; ++round) {
    // Exactly as large as the record, so that AddressSanitizer detects any access beyond it.
    const std::unique_ptr<Block> copy = std::make_unique<Block>(block);
    const std::size_t at = random() % (sizeof(RecordHeader) + 4 * sizeof(BufferRef));
    const std::uint32_t value = random() % 3 == 0 ? 0xffff'fff0U : static_cast<std::uint32_t>(random() % 600);
    std::memcpy(copy->bytes.data() + at / 4 * 4, &value, sizeof(value));
    const std::size_t shown = random() % 4 == 0 ? random() % size : size;
    const Result<RecordView> view = RecordView::parse(std::span(copy->bytes).first(shown));
    if (!view.is_ok()) continue;
    const std::byte* const end = copy->bytes.data() + shown;
    for (const BufferRef& buffer : view->buffers()) {
      ASSERT_LE(reinterpret_cast<const std::byte*>(&buffer + 1), end);
      if (buffer.blob != kInlineBlob) continue;
      const auto bytes = view->inline_buffer(buffer);
      ASSERT_LE(bytes.data() + bytes.size(), end);
    }
    ASSERT_LE(reinterpret_cast<const std::byte*>(view->tree().data() + view->tree().size()), end);
    ASSERT_LE(view->payload().data() + view->payload().size(), end);
  }
}

TEST(Record, MisalignedBytesAreRefused) {
  Block block;
  const std::span<std::byte> bytes = build(Sample(), block);
  std::memmove(block.bytes.data() + 1, bytes.data(), bytes.size());
  EXPECT_EQ(RecordView::parse(std::span(block.bytes).subspan(1, bytes.size())).code(), Code::kCorruptData);
}

TEST(RecordArena, WritesReadsFreesAndReuses) {
  FakeStore store;
  RecordArena arena(store.memory);
  const Sample sample;
  std::uint32_t bytes = 0;
  const std::uint64_t offset = arena.write(sample.parts(), bytes).take();
  EXPECT_EQ(offset % kRecordAlign, 0U);
  EXPECT_EQ(arena.view(offset, bytes)->tree(), sample.tree);
  EXPECT_EQ(arena.used_bytes(), bytes);
  EXPECT_LE(store.memory.root().record_high_water.load(), arena.arena_bytes());
  ASSERT_TRUE(arena.free(offset, bytes).is_ok());
  EXPECT_EQ(arena.free(offset, bytes).code(), Code::kInternal);
  EXPECT_EQ(arena.used_bytes(), 0U);
  EXPECT_EQ(arena.write(sample.parts(), bytes).take(), offset);
}

TEST(RecordArena, AFailedWriteLeavesNothingBehind) {
  FakeStore store;
  RecordArena arena(store.memory);
  Sample broken;
  broken.buffers[0].blob = 1000;
  std::uint32_t bytes = 0;
  EXPECT_EQ(arena.write(broken.parts(), bytes).code(), Code::kInvalidArgument);
  EXPECT_EQ(arena.used_bytes(), 0U);
}

TEST(RecordArena, FullIsStoreFull) {
  FakeStore store({{RegionKind::kRecords, 2U << 20}});
  RecordArena arena(store.memory);
  EXPECT_TRUE(arena.allocate(1U << 20).is_ok());
  EXPECT_TRUE(arena.allocate(1U << 20).is_ok());
  EXPECT_EQ(arena.allocate(64).code(), Code::kStoreFull);
}

TEST(RecordArena, ReserveFindsOverlapsAndStrangeOffsets) {
  FakeStore store;
  {
    RecordArena arena(store.memory);
    ASSERT_TRUE(arena.allocate(4096).is_ok());
  }
  RecordArena arena(store.memory);  // as after an adoption
  EXPECT_TRUE(arena.reserve(0, 100).is_ok());
  EXPECT_EQ(arena.reserve(64, 100).code(), Code::kCorruptData);
  EXPECT_EQ(arena.reserve(13, 10).code(), Code::kCorruptData);
  EXPECT_EQ(arena.reserve(1ULL << 40, 64).code(), Code::kCorruptData);
  EXPECT_EQ(arena.reserve(UINT64_MAX - 63, 64).code(), Code::kCorruptData);
  EXPECT_EQ(arena.view(1ULL << 40, 64).code(), Code::kCorruptData);
}

TEST(RecordArena, ClientsCheckBoundsToo) {
  FakeStore store;
  RecordArena arena(store.memory);
  std::uint32_t bytes = 0;
  const std::uint64_t offset = arena.write(Sample().parts(), bytes).take();
  Slot slot{};
  slot.record_offset = offset;
  slot.record_bytes = bytes;
  EXPECT_TRUE(read_record(store.view, slot).is_ok());
  slot.record_offset = 1ULL << 50;
  EXPECT_EQ(read_record(store.view, slot).code(), Code::kCorruptData);
  slot.record_offset = offset;
  slot.record_bytes = 0xffff'ffffU;
  EXPECT_EQ(read_record(store.view, slot).code(), Code::kCorruptData);
}

TEST(RecordArena, TrimGivesPagesBackAndTheyReturn) {
  ControlMemory memory = ControlMemory::create(testing::numbered_instance(1)).take();
  RecordArena arena(memory);
  const std::uint64_t offset = arena.allocate(8U << 20).take();
  std::memset(arena.span(offset, 8U << 20).data(), 1, 8U << 20);
  const int fd = memory.region(RegionKind::kRecords).fd();
  const std::uint64_t full = *os::resident_bytes(fd);
  ASSERT_TRUE(arena.free(offset, 8U << 20).is_ok());
  EXPECT_GE(arena.trim().take(), 7U << 20);
  EXPECT_EQ(arena.trim().take(), 0U);
  EXPECT_LT(*os::resident_bytes(fd), full - (7U << 20));
  const std::uint64_t again = arena.allocate(4U << 20).take();
  // Memory is reserved before anything is written: no page is missing.
  EXPECT_GE(*os::resident_bytes(fd), 4U << 20);
  std::memset(arena.span(again, 4U << 20).data(), 2, 4U << 20);
  EXPECT_LT(*os::resident_bytes(fd), full);
}

}  // namespace
}  // namespace entrepot
