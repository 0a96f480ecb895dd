#include "shm/region.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "base/crc32c.h"
#include "fakes/fake_memory.h"
#include "os/memfd.h"

namespace entrepot {
namespace {

using testing::numbered_instance;

constexpr std::uint64_t kCapacity = 4096;

Region make(RegionKind kind = RegionKind::kSlots, std::uint64_t capacity = kCapacity) {
  return Region::create(kind, numbered_instance(1), capacity).take();
}

Status attach(const Region& region, RegionKind kind = RegionKind::kSlots,
              const std::optional<InstanceId>& instance = numbered_instance(1)) {
  const Result<Region> reader = Region::attach_read_only(region.read_only_fd().take(), kind, instance);
  const Result<Region> adopted = Region::adopt(os::duplicate(region.fd()).take(), kind, instance);
  EXPECT_EQ(reader.code(), adopted.code());
  return reader.status();
}

// Changes the header in place and updates its checksum if `fix_crc`.
void change_header(const Region& region, const std::function<void(RegionHeader&)>& change, bool fix_crc = true) {
  auto* header = const_cast<RegionHeader*>(region.header());
  change(*header);
  if (fix_crc) header->crc = crc32c(header, offsetof(RegionHeader, crc));
}

TEST(Region, EveryKindCanBeMadeAtItsFullSize) {
  for (const RegionKind kind : kAllRegions) {
    const Result<Region> region = Region::create(kind, numbered_instance(1));
    ASSERT_TRUE(region.is_ok()) << region_name(kind) << ": " << region.status().message();
    EXPECT_EQ(region->capacity(), region_default_capacity(kind));
    EXPECT_LE(*os::resident_bytes(region->fd()), 128U << 10) << region_name(kind);  // address space, not memory
    EXPECT_NE(region_name(kind), "unknown");
  }
}

TEST(Region, ReadersSeeWhatTheWriterWrites) {
  Region region = make();
  ASSERT_TRUE(region.ensure(sizeof(Slot)).is_ok());
  const Region reader =
      Region::attach_read_only(region.read_only_fd().take(), RegionKind::kSlots, numbered_instance(1)).take();
  region.as<Slot>()[0].word.store(77);
  EXPECT_EQ(reader.as<Slot>()[0].word.load(), 77U);
  EXPECT_EQ(reader.instance(), numbered_instance(1));
  EXPECT_EQ(reader.capacity(), kCapacity);
}

TEST(Region, EnsureReservesMemoryOnceAndRemembers) {
  Region region = make();
  const std::uint64_t before = *os::resident_bytes(region.fd());
  ASSERT_TRUE(region.ensure(1).is_ok());
  const std::uint64_t once = *os::resident_bytes(region.fd());
  EXPECT_GT(once, before);
  ASSERT_TRUE(region.ensure(64U << 10).is_ok());
  EXPECT_EQ(*os::resident_bytes(region.fd()), once);
  ASSERT_TRUE(region.ensure(region.entries_bytes()).is_ok());
  EXPECT_EQ(region.ensure(region.entries_bytes() + 1).code(), Code::kInvalidArgument);
  const Region adopted = Region::adopt(os::duplicate(region.fd()).take(), RegionKind::kSlots, std::nullopt).take();
  EXPECT_EQ(adopted.marks().ensured_bytes.load(), region.entries_bytes());
}

TEST(Region, DiscardGivesMemoryBack) {
  Region region = make();
  ASSERT_TRUE(region.ensure(region.entries_bytes()).is_ok());
  region.as<Slot>()[2000].word.store(5);
  const std::uint64_t before = *os::resident_bytes(region.fd());
  ASSERT_TRUE(region.discard_range(0, region.entries_bytes()).is_ok());
  EXPECT_LT(*os::resident_bytes(region.fd()), before);
  EXPECT_EQ(region.as<Slot>()[2000].word.load(), 0U);
  EXPECT_EQ(region.discard_range(8, region.entries_bytes()).code(), Code::kInvalidArgument);
}

TEST(Region, WrongCapacityIsRefused) {
  EXPECT_EQ(Region::create(RegionKind::kSlots, {}, std::uint64_t{kMaxSlots} + 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(Region::create_private(RegionKind::kSlots, {}, 0).code(), Code::kInvalidArgument);
}

TEST(RegionAdoption, WholeRegionIsTaken) { EXPECT_TRUE(attach(make()).is_ok()); }

TEST(RegionAdoption, AnotherLayoutVersionIsAVersionMismatchThatNamesBoth) {
  const Region region = make();
  // A newer layout may have its checksum elsewhere, so the version must be checked first.
  change_header(region, [](RegionHeader& header) { header.layout_version = kLayoutVersion + 1; }, false);
  const Status status = attach(region);
  EXPECT_EQ(status.code(), Code::kVersionMismatch);
  EXPECT_NE(status.message().find(std::to_string(kLayoutVersion + 1)), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("slots"), std::string::npos) << status.message();
}

TEST(RegionAdoption, AnotherAbiIsAVersionMismatch) {
  const Region region = make();
  change_header(region, [](RegionHeader& header) { header.abi_stamp ^= 4ULL << 32; });
  EXPECT_EQ(attach(region).code(), Code::kVersionMismatch);
}

TEST(RegionAdoption, OtherMessagesDoNotMatterToMemory) {
  const Region region = make();
  change_header(region, [](RegionHeader& header) { header.abi_stamp ^= 4; });
  EXPECT_TRUE(attach(region).is_ok());
}

TEST(RegionAdoption, AnotherInstanceIsAnInvalidReferenceThatNamesBoth) {
  const Status status = attach(make(), RegionKind::kSlots, numbered_instance(2));
  EXPECT_EQ(status.code(), Code::kInvalidReference);
  EXPECT_NE(status.message().find(to_hex(numbered_instance(1))), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(to_hex(numbered_instance(2))), std::string::npos) << status.message();
  EXPECT_TRUE(attach(make(), RegionKind::kSlots, std::nullopt).is_ok());
}

TEST(RegionAdoption, DamagedHeadersAreCorrupt) {
  const std::vector<std::function<void(RegionHeader&)>> damages = {
      [](RegionHeader& header) { header.magic = 1; },
      [](RegionHeader& header) { header.kind = RegionKind::kBlobs; },
      [](RegionHeader& header) { header.capacity = 0; },
      [](RegionHeader& header) { header.capacity = std::uint64_t{kMaxSlots} + 1; },
      [](RegionHeader& header) { header.capacity = kCapacity * 2; },  // more than the file holds
  };
  for (std::size_t i = 0; i < damages.size(); ++i) {
    const Region region = make();
    change_header(region, damages[i]);
    EXPECT_EQ(attach(region).code(), Code::kCorruptData) << i;
  }
}

TEST(RegionAdoption, EveryFlippedBitOfTheHeaderIsNoticed) {
  const Region region = make();
  auto* bytes = reinterpret_cast<std::uint8_t*>(const_cast<RegionHeader*>(region.header()));
  for (std::size_t bit = 0; bit < sizeof(RegionHeader) * 8; ++bit) {
    bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] ^ (1U << (bit % 8)));
    EXPECT_FALSE(attach(region).is_ok()) << "bit " << bit;
    bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] ^ (1U << (bit % 8)));
  }
  EXPECT_TRUE(attach(region).is_ok());
}

TEST(RegionAdoption, TruncatedRegionIsRefused) {
  // The same header in a memfd that is shorter than the header claims.
  const Region region = make();
  const UniqueFd cut = os::create_memfd("cut", kRegionHeaderBytes + 4096).take();
  const os::Mapping mapping = os::Mapping::map(cut.get(), 0, kRegionHeaderBytes, os::Access::kReadWrite).take();
  std::memcpy(mapping.data(), region.header(), sizeof(RegionHeader));
  Status status = Region::adopt(os::duplicate(cut.get()).take(), RegionKind::kSlots, std::nullopt).status();
  EXPECT_EQ(status.code(), Code::kCorruptData);
  EXPECT_NE(status.message().find("truncated"), std::string::npos) << status.message();
  const UniqueFd tiny = os::create_memfd("tiny", 100).take();
  status = Region::adopt(os::duplicate(tiny.get()).take(), RegionKind::kSlots, std::nullopt).status();
  EXPECT_EQ(status.code(), Code::kCorruptData);
}

TEST(RegionAdoption, MemoryThatCouldBeTruncatedLaterIsRefused) {
  const UniqueFd fd(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fd.get(), 1 << 20), 0);
  EXPECT_EQ(Region::attach_read_only(os::duplicate(fd.get()).take(), RegionKind::kSlots, std::nullopt).code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace entrepot
