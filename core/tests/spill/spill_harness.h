// Helpers shared by the spill tests: a disk with injected failures, segments, and waiting for completions.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "os/direct_io.h"
#include "os/events.h"
#include "os/mapping.h"
#include "os/memfd.h"
#include "os/scratch.h"
#include "spill/spill_files.h"

namespace entrepot::testing {

inline constexpr std::uint64_t kMiB = 1U << 20;

// The real disk with injected faults.
class FaultyIo : public os::FileIo {
 public:
  enum class Fault : std::uint8_t { kNone, kNoSpace, kBroken, kShort, kTorn };

  // Fails `count` writes after the next `after` ones. kTorn: writes half and reports all of it.
  void fail_writes(Fault fault, int after = 0, int count = 1) {
    count_.store(count);
    after_.store(after);
    fault_.store(fault);
  }
  void fail_reads(int count) { bad_reads_.store(count); }
  void heal() { fault_.store(Fault::kNone); }
  std::atomic<bool> refuses_direct{false};
  std::atomic<bool> refuses_files{false};  // allocating space for a new file fails
  std::atomic<bool> refuses_removal{false};
  std::atomic<std::uint64_t> free_bytes{UINT64_MAX};  // UINT64_MAX: as the disk reports
  std::atomic<int> injected{0};

  Result<UniqueFd> open(const std::string& path, os::FileUse use, bool direct) override {
    if (direct && refuses_direct.load()) return Status(Code::kUnsupportedType, "no direct I/O here");
    return FileIo::open(path, use, direct);
  }
  Status preallocate(int fd, std::uint64_t bytes) override {
    if (refuses_files.load()) return no_space();
    return FileIo::preallocate(fd, bytes);
  }
  Result<std::uint64_t> write_some(int fd, std::span<const os::IoPiece> pieces, std::uint64_t offset) override {
    switch (take_fault()) {
      case Fault::kNoSpace:
        return no_space();
      case Fault::kBroken:
        return Status(Code::kInternal, "writing: Input/output error (errno 5)");
      case Fault::kShort:
        return FileIo::write_some(fd, half(pieces), offset);
      case Fault::kTorn: {
        std::uint64_t all = 0;
        for (const auto& piece : pieces)
          all += piece.bytes;
        const auto moved = FileIo::write_some(fd, half(pieces), offset);
        return moved.is_ok() ? Result<std::uint64_t>(all) : moved;
      }
      case Fault::kNone:
        break;
    }
    return FileIo::write_some(fd, pieces, offset);
  }
  Result<std::uint64_t> read_some(int fd, std::span<const os::IoPiece> pieces, std::uint64_t offset) override {
    if (bad_reads_.load() > 0 && bad_reads_.fetch_sub(1) > 0) {
      ++injected;
      return Status(Code::kInternal, "reading: Input/output error (errno 5)");
    }
    return FileIo::read_some(fd, pieces, offset);
  }
  Status remove(const std::string& path) override {
    if (refuses_removal.load()) return Status(Code::kInternal, "removing: Input/output error (errno 5)");
    return FileIo::remove(path);
  }
  Result<os::DiskSpace> space(const std::string& folder) override {
    auto space = FileIo::space(folder);
    if (space.is_ok() && free_bytes.load() != UINT64_MAX) space->free_bytes = free_bytes.load();
    return space;
  }

 private:
  static Status no_space() { return Status(Code::kStoreFull, "writing: No space left on device (errno 28)"); }
  Fault take_fault() {
    if (fault_.load() == Fault::kNone) return Fault::kNone;
    if (after_.fetch_sub(1) > 0) return Fault::kNone;
    if (count_.fetch_sub(1) <= 0) return Fault::kNone;
    ++injected;
    return fault_.load();
  }
  // Cuts the first piece of two pages or more in half and drops the pieces after it; if there is none, drops the last
  // piece.
  static std::vector<os::IoPiece> half(std::span<const os::IoPiece> pieces) {
    std::vector<os::IoPiece> out;
    for (os::IoPiece piece : pieces) {
      if (piece.bytes >= 2 * os::kDirectAlign) {
        piece.bytes = piece.bytes / 2 / os::kDirectAlign * os::kDirectAlign;
        out.push_back(piece);
        return out;
      }
      if (piece.bytes > 0) out.push_back(piece);
    }
    if (out.size() > 1) out.pop_back();
    return out;
  }

  std::atomic<Fault> fault_{Fault::kNone};
  std::atomic<int> after_{0};
  std::atomic<int> count_{0};
  std::atomic<int> bad_reads_{0};
};

// Segments whose bytes are visible to the test.
class TestSegments {
 public:
  std::uint32_t add(std::uint64_t bytes) {
    auto fd = os::create_memfd("spill-test", bytes);
    EXPECT_TRUE(fd.is_ok());
    auto mapping = os::Mapping::map(fd->get(), 0, bytes, os::Access::kReadWrite);
    EXPECT_TRUE(mapping.is_ok());
    const auto number = static_cast<std::uint32_t>(all_.size());
    all_.push_back({fd.take(), mapping.take()});
    return number;
  }
  std::byte* data(const BlobLocation& place) { return all_[place.segment].memory.data() + place.offset; }
  void fill(const BlobLocation& place, std::uint64_t seed);
  // Text-like: compresses to less than half. One in `random_blocks` MiB does not compress; 0: all do.
  void fill_text(const BlobLocation& place, std::uint64_t seed, std::uint64_t random_blocks = 0);
  [[nodiscard]] std::string bytes(const BlobLocation& place) {
    return {reinterpret_cast<const char*>(data(place)), place.length};
  }
  [[nodiscard]] SegmentMappings::Open opener() {
    return [this](std::uint32_t segment, std::uint32_t) -> Result<UniqueFd> {
      if (segment >= all_.size()) return Status(Code::kInternal, "there is no such segment");
      return os::duplicate(all_[segment].fd.get());
    };
  }

 private:
  struct Segment {
    UniqueFd fd;
    os::Mapping memory;
  };
  std::vector<Segment> all_;
};

// SpillFiles in the test's own directory; can be closed and reopened as by the next daemon.
class SpillHarness {
 public:
  explicit SpillHarness(std::uint64_t quota = 64 * kMiB, std::size_t folders = 1);

  [[nodiscard]] Status open();  // errors as for SpillFiles::open
  void must_open();
  void die() { files.reset(); }  // like SIGKILL: queued work is lost, data on disk stays
  [[nodiscard]] SpillCompletion wait(std::uint64_t ticket);
  [[nodiscard]] Result<SpillLocation> spill(const BlobKey& blob, const BlobLocation& from);
  [[nodiscard]] Status load(const BlobKey& blob, SpillLocation from, const BlobLocation& to);
  // Waits until the workers have written the manifest and deleted released files.
  void settle_manifest();
  [[nodiscard]] std::string folder(std::size_t number = 0) const { return options.folders[number]; }
  [[nodiscard]] std::string subfolder(std::size_t number = 0) const;
  [[nodiscard]] std::vector<std::string> spill_paths(std::size_t number = 0) const;

  Scratch scratch;
  FaultyIo io;
  TestSegments segments;
  SpillOptions options;
  std::unique_ptr<SpillFiles> files;

 private:
  UniqueFd event_;
  std::map<std::uint64_t, SpillCompletion> done_;
  std::uint64_t next_ticket_ = 1;
};

// Tests of copies that differ from memory: compressed, encrypted, or both.
class SpillCopies : public ::testing::TestWithParam<SpillPacking> {
 protected:
  BlobLocation place(std::uint64_t length, std::uint64_t offset = 0) {
    return {store.segments.add((offset + length + 65'535) / 65'536 * 65'536), offset, length, 1};
  }
  // Loads the copy into separate memory and compares.
  void expect_loads(const BlobKey& key, SpillLocation location, const BlobLocation& original,
                    std::uint64_t offset = 64) {
    const BlobLocation to = place(original.length, offset);
    const Status loaded = store.load(key, location, to);
    ASSERT_TRUE(loaded.is_ok()) << loaded.to_string();
    EXPECT_TRUE(store.segments.bytes(to) == store.segments.bytes(original)) << "length " << original.length;
  }

  SpillHarness store{256 * kMiB};
};

// Inverts the file's byte at `offset`.
void flip_byte(const std::string& path, std::uint64_t offset);

}  // namespace entrepot::testing
