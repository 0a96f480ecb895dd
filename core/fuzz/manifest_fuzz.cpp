// Manifest and copy headers edited by anybody: everything read must be covered by a checksum, and an edited file must
// yield an error or fewer objects. Where the input says so, checksums are corrected first, to reach code that mere
// damage never would.
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "fuzz/fuzz_input.h"
#include "os/memfd.h"
#include "spill/extent_format.h"
#include "spill/manifest_format.h"

namespace entrepot::fuzz {
namespace {

constexpr std::uint8_t kMendChecksums = 1;
constexpr std::uint8_t kOfACopy = 2;
constexpr std::uint8_t kWholeFile = 4;

// One file in memory under any name; no other file exists.
class MemoryIo : public os::FileIo {
 public:
  explicit MemoryIo(int file) : file_(file) {}
  Result<UniqueFd> open(const std::string&, os::FileUse, bool) override { return os::duplicate(file_); }
  Status truncate(int fd, std::uint64_t bytes) override {
    return ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? Status::ok() : Status(Code::kInternal, "ftruncate");
  }

 private:
  int file_;
};

void mend_records(std::string& text, std::size_t at) {
  while (text.size() >= at + kManifestFrameBytes) {
    std::uint32_t length = 0;
    std::memcpy(&length, text.data() + at, sizeof(length));
    if (length == 0 || length > text.size() - at - kManifestFrameBytes) return;
    const std::uint32_t crc = Crc32c().add(length).add_bytes(text.data() + at + kManifestFrameBytes, length).value();
    std::memcpy(text.data() + at + sizeof(length), &crc, sizeof(crc));
    at += kManifestFrameBytes + length;
  }
}

void check_object(const RememberedObject& object) {
  require(object.copies.size() == object.object.blobs.size(), "each blob of a manifest has its copy's identity");
  std::string record = encode_remember(object);
  const auto again = decode_record(record);
  require(again.is_ok() && again->object.has_value(), "what was read can be written and read");
  require(again->bytes == record.size(), "a record is as long as it was written");
  require(encode_remember(*again->object) == record, "what was read is the same after it was written");
}

void read_records(std::string_view text) {
  while (!text.empty()) {
    const auto record = decode_record(text);
    if (!record.is_ok()) {
      require(record.code() == Code::kCorruptData, "a bad record is corrupt data");
      return;
    }
    require(record->bytes > 0 && record->bytes <= text.size(), "a record lies inside of its file");
    if (record->object) check_object(*record->object);
    text.remove_prefix(record->bytes);
  }
}

// Opens it like the daemon, twice: the second time must find what the first left.
void open_file(const std::string& text) {
  const int file = ::memfd_create("fuzz-manifest", 0);
  require(file >= 0, "a file can be made in memory");
  const UniqueFd owner(file);
  require(::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()), "it can be written");
  MemoryIo io(file);
  std::size_t objects = 0;
  for (int times = 0; times < 2; ++times) {
    SpillManifest manifest(io, "manifest", InstanceId{1});
    const auto replay = manifest.open();
    if (!replay.is_ok()) {
      require(replay.code() == Code::kVersionMismatch, "only another version is an error");
      return;
    }
    require(replay->dropped_bytes == 0 || !replay->damage.empty(), "what was dropped has a reason");
    require(replay->dropped_bytes <= text.size(), "no more is dropped than there was");
    require(times == 0 || replay->objects.size() == objects, "a second look finds the same objects");
    require(times == 0 || !replay->exists || replay->dropped_bytes == 0, "what is damaged is cut off for good");
    objects = replay->objects.size();
    for (const RememberedObject& object : replay->objects)
      check_object(object);
  }
}

void read_copy(const Bytes& bytes, std::uint64_t length) {
  const auto header = decode_header(as_std_bytes(bytes), length);
  if (!header.is_ok()) return;
  require(header->length == length, "a header is of the length that was asked for");
  require(header->block_crcs.size() == block_count(length), "a header has a checksum for each block");
}

void read_encrypted_copy(const Bytes& bytes, std::uint64_t length) {
  const auto header = decode_header(as_std_bytes(bytes), length, true);
  if (!header.is_ok()) return;
  require(header->seal.has_value(), "an encrypted header is not taken for another");
  require(header->seal->tags.size() == block_count(length), "a header has a tag for each block");
}

void run(FuzzInput input) {
  const std::uint8_t how = input.byte();
  if ((how & kOfACopy) != 0) {
    const auto length = input.number<std::uint64_t>();
    const auto location = input.number<std::uint64_t>();
    const auto place = unpack_location(location, {input.number<std::uint32_t>(), input.number<std::uint32_t>()});
    require(!place.is_ok() || place->file != 0, "a place is in a file");
    const auto rest = input.all();
    if (length <= kMaxSpillBytes) read_copy({rest.begin(), rest.end()}, length);
    if (length <= kMaxSpillBytes) read_encrypted_copy({rest.begin(), rest.end()}, length);
    return;
  }
  const auto rest = input.all();
  std::string text(rest.begin(), rest.end());
  const bool whole = (how & kWholeFile) != 0;
  if ((how & kMendChecksums) != 0) mend_records(text, whole ? head_bytes(false) : 0);
  if (whole) return open_file(text);
  read_records(text);
}

RememberedObject an_object() {
  RememberedObject out;
  out.object.id = IdBytes{1, 2, 3};
  out.object.generation = 5;
  out.object.scope = "scope";
  out.object.session = "run";
  out.object.names = {"orders", "latest"};
  out.object.record = std::string(48, 'r');
  out.object.blobs = {{{3, 4}, 100'000, 77}, {{9, 1}, 64, 78}};
  out.copies = {{{InstanceId{1}, {3, 4}}, 0}, {{InstanceId{2}, {8, 8}}, 8192}};
  return out;
}

}  // namespace

std::vector<Bytes> seeds() {
  const RememberedObject object = an_object();
  const std::string records = encode_remember(object) + encode_forget(object.object.id, 5) + encode_remember(object);
  const std::string file = encode_head({InstanceId{1}, std::nullopt}) + records;
  std::vector<Bytes> all;
  for (const std::uint8_t mend : {std::uint8_t{0}, kMendChecksums}) {
    Bytes some = {mend};
    append(some, bytes_of(records.data(), records.size()));
    all.push_back(some);
    Bytes whole = {static_cast<std::uint8_t>(mend | kWholeFile)};
    append(whole, bytes_of(file.data(), file.size()));
    all.push_back(whole);
  }
  SpillHeader header;
  header.identity = {InstanceId{1}, {3, 4}};
  header.length = 3U << 20;
  header.block_crcs = {1, 2, 3};
  std::vector<std::byte> page(header_bytes(header.length));
  encode_header(header, page);
  Bytes copy = {kOfACopy};
  const SpillLocation location = pack_location({2, 1U << 20}, {3, 4});
  const std::uint32_t key[] = {3, 4};
  append(copy, bytes_of(&header.length, sizeof(header.length)));
  append(copy, bytes_of(&location, sizeof(location)));
  append(copy, bytes_of(key, sizeof(key)));
  append(copy, bytes_of(page.data(), page.size()));
  all.push_back(copy);
  header.codec = SpillCodec::kZstd;
  header.block_bytes = {100, 1U << 20, 7};
  encode_header(header, page);
  copy.erase(copy.end() - static_cast<std::ptrdiff_t>(page.size()), copy.end());
  append(copy, bytes_of(page.data(), page.size()));
  all.push_back(copy);
  return all;
}

}  // namespace entrepot::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  entrepot::fuzz::run(entrepot::fuzz::FuzzInput(data, size));
  return 0;
}
