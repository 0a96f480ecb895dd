#include "os/memfd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "os/mapping.h"

namespace entrepot::os {
namespace {

constexpr std::uint64_t kBytes = 4U << 20;

TEST(Memfd, IsPrivateSealedAndOfFixedSize) {
  const UniqueFd fd = create_memfd("test", kBytes).take();
  struct stat info{};
  ASSERT_EQ(::fstat(fd.get(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(*file_bytes(fd.get()), kBytes);
  EXPECT_TRUE(check_sealed(fd.get()).is_ok());
  EXPECT_NE(::ftruncate(fd.get(), 1), 0);
  EXPECT_NE(::ftruncate(fd.get(), 2 * kBytes), 0);
}

TEST(Memfd, UnsealedOrForeignDescriptorsAreRefused) {
  const UniqueFd plain(::memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_TRUE(plain.valid());
  EXPECT_EQ(check_sealed(plain.get()).code(), Code::kInvalidArgument);
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(check_sealed(file.get()).code(), Code::kInvalidArgument);
  EXPECT_EQ(create_memfd("none", 0).code(), Code::kInvalidArgument);
}

TEST(Memfd, ReadOnlyDescriptorCannotBecomeWritable) {
  const UniqueFd fd = create_memfd("test", kBytes).take();
  const UniqueFd reader = reopen_read_only(fd.get()).take();
  EXPECT_TRUE(is_writable(fd.get()));
  EXPECT_FALSE(is_writable(reader.get()));
  EXPECT_TRUE(*same_file(fd.get(), reader.get()));
  EXPECT_EQ(Mapping::map(reader.get(), 0, kBytes, Access::kReadWrite).code(), Code::kAccessDenied);
  const Mapping mapping = Mapping::map(reader.get(), 0, kBytes, Access::kReadOnly).take();
  EXPECT_NE(::mprotect(mapping.data(), page_bytes(), PROT_READ | PROT_WRITE), 0);
  EXPECT_FALSE(punch(reader.get(), 0, page_bytes()).is_ok());
}

TEST(Memfd, SameFileTellsTwoApart) {
  const UniqueFd a = create_memfd("a", kBytes).take();
  const UniqueFd b = create_memfd("a", kBytes).take();
  EXPECT_FALSE(*same_file(a.get(), b.get()));
  EXPECT_TRUE(*same_file(a.get(), duplicate(a.get()).take().get()));
}

TEST(Memfd, ReserveAndPunchChangeResidentBytes) {
  const UniqueFd fd = create_memfd("test", kBytes).take();
  EXPECT_EQ(*resident_bytes(fd.get()), 0U);
  ASSERT_TRUE(reserve(fd.get(), 0, 1U << 20).is_ok());
  EXPECT_EQ(*resident_bytes(fd.get()), 1U << 20);
  EXPECT_EQ(*file_bytes(fd.get()), kBytes);
  const Mapping writer = Mapping::map(fd.get(), 0, kBytes, Access::kReadWrite).take();
  const Mapping reader = Mapping::map(fd.get(), 0, kBytes, Access::kReadOnly).take();
  std::memset(writer.data(), 7, 1U << 20);
  EXPECT_EQ(reader.data()[4096], std::byte{7});
  ASSERT_TRUE(punch(fd.get(), 0, 1U << 20).is_ok());
  EXPECT_EQ(*resident_bytes(fd.get()), 0U);
  EXPECT_EQ(reader.data()[4096], std::byte{0});
}

TEST(Memfd, ReserveBeyondTheEndFails) {
  const UniqueFd fd = create_memfd("test", kBytes).take();
  EXPECT_FALSE(reserve(fd.get(), kBytes, 4096).is_ok());
}

TEST(Mapping, CopyOnWriteLeavesTheFileAlone) {
  const UniqueFd fd = create_memfd("test", kBytes).take();
  const Mapping writer = Mapping::map(fd.get(), 0, kBytes, Access::kReadWrite).take();
  writer.data()[0] = std::byte{1};
  const UniqueFd read_only = reopen_read_only(fd.get()).take();
  const Mapping own = Mapping::map(read_only.get(), 0, kBytes, Access::kCopyOnWrite).take();
  own.data()[0] = std::byte{2};
  EXPECT_EQ(writer.data()[0], std::byte{1});
}

TEST(Mapping, AlignmentAndMoves) {
  const UniqueFd fd = create_memfd("test", kBytes).take();
  Mapping mapping = Mapping::map(fd.get(), 0, kBytes, Access::kReadWrite, kHugePageBytes).take();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapping.data()) % kHugePageBytes, 0U);
  const std::byte* address = mapping.data();
  Mapping moved = std::move(mapping);
  EXPECT_EQ(moved.data(), address);
  EXPECT_TRUE(moved.contains(address + kBytes - 1));
  EXPECT_FALSE(moved.contains(address + kBytes));
  moved.reset();
  EXPECT_FALSE(moved.valid());
  EXPECT_EQ(Mapping::map(fd.get(), 1, 4096, Access::kReadOnly).code(), Code::kInvalidArgument);
}

TEST(MappingDeathTest, ProtectedPagesCannotBeWritten) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        const UniqueFd fd = create_memfd("test", kBytes).take();
        Mapping mapping = Mapping::map(fd.get(), 0, kBytes, Access::kReadWrite).take();
        if (!mapping.protect_read_only(0, page_bytes()).is_ok()) ::_exit(0);
        mapping.data()[page_bytes()] = std::byte{1};  // the next page stays writable
        mapping.data()[0] = std::byte{1};
        ::_exit(0);
      },
      "");
}

TEST(Mapping, PopulateMakesPages) {
  const UniqueFd fd = create_memfd("test", kBytes).take();
  const Mapping mapping = Mapping::map(fd.get(), 0, kBytes, Access::kReadWrite).take();
  const Status status = populate_write(mapping.data(), kBytes);
  if (status.code() == Code::kUnsupportedType) GTEST_SKIP() << status.message();
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(*resident_bytes(fd.get()), kBytes);
  EXPECT_TRUE(populate_read(mapping.data(), kBytes).is_ok());
}

TEST(Mapping, CollapseKeepsTheContents) {
  const UniqueFd fd = create_memfd("test", kBytes).take();
  const Mapping mapping = Mapping::map(fd.get(), 0, kBytes, Access::kReadWrite, kHugePageBytes).take();
  mapping.data()[5] = std::byte{42};
  mapping.data()[kBytes - 1] = std::byte{43};
  const Result<bool> collapsed = collapse(mapping.data(), kBytes);
  ASSERT_TRUE(collapsed.is_ok()) << collapsed.status().message();
  EXPECT_EQ(mapping.data()[5], std::byte{42});
  EXPECT_EQ(mapping.data()[kBytes - 1], std::byte{43});
  if (*collapsed) {
    EXPECT_EQ(*resident_bytes(fd.get()), kBytes);
  }
  EXPECT_EQ(collapse(mapping.data() + 4096, kHugePageBytes).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace entrepot::os
