#include "spill/codec.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <utility>

#include "base/text.h"
#include "os/library.h"

namespace entrepot {

namespace {

constexpr std::int32_t kDefaultLevel = 1;
constexpr std::int32_t kMaxLevel = 19;

Status unusable(const Status& why, std::string_view package) {
  return {Code::kStoreUnavailable,
          concat(why.message(), "; install it (Debian's ", package, "), or spill with --spill-compression none")};
}

// Uses functions of LZ4 1.x and Zstandard 1.x that are stable within those versions.
class Lz4Packer final : public BlockPacker {
 public:
  static Result<std::unique_ptr<BlockPacker>> open() {
    auto library = os::Library::open("liblz4.so.1");
    if (!library.is_ok()) return unusable(library.status(), "liblz4-1");
    std::unique_ptr<Lz4Packer> packer(new Lz4Packer);
    packer->library_ = library.take();
    packer->pack_ = packer->library_->function<Pack>("LZ4_compress_default");
    packer->unpack_ = packer->library_->function<Unpack>("LZ4_decompress_safe");
    if (packer->pack_ == nullptr || packer->unpack_ == nullptr) {
      return unusable(Status(Code::kStoreUnavailable, "liblz4.so.1 lacks a function of LZ4 1.x"), "liblz4-1");
    }
    return std::unique_ptr<BlockPacker>(std::move(packer));
  }

  std::uint64_t pack(const std::byte* from, std::uint64_t bytes, std::byte* to, std::uint64_t max_bytes) override {
    const int packed = pack_(as_chars(from), reinterpret_cast<char*>(to), as_int(bytes), as_int(max_bytes));
    return packed > 0 ? static_cast<std::uint64_t>(packed) : 0;
  }
  bool unpack(const std::byte* from, std::uint64_t bytes, std::byte* to, std::uint64_t unpacked_bytes) override {
    return unpack_(as_chars(from), reinterpret_cast<char*>(to), as_int(bytes), as_int(unpacked_bytes)) ==
           as_int(unpacked_bytes);
  }

 private:
  using Pack = int(const char*, char*, int, int);
  using Unpack = int(const char*, char*, int, int);
  static const char* as_chars(const std::byte* bytes) { return reinterpret_cast<const char*>(bytes); }
  static int as_int(std::uint64_t bytes) { return static_cast<int>(std::min<std::uint64_t>(bytes, INT_MAX)); }

  std::shared_ptr<const os::Library> library_;
  Pack* pack_ = nullptr;
  Unpack* unpack_ = nullptr;
};

class ZstdPacker final : public BlockPacker {
 public:
  static Result<std::unique_ptr<BlockPacker>> open(std::int32_t level) {
    auto library = os::Library::open("libzstd.so.1");
    if (!library.is_ok()) return unusable(library.status(), "libzstd1");
    std::unique_ptr<ZstdPacker> packer(new ZstdPacker);
    packer->library_ = library.take();
    packer->level_ = level;
    if (!packer->take_functions() || !packer->take_contexts()) {
      return unusable(
          Status(Code::kStoreUnavailable, "libzstd.so.1 lacks a function of Zstandard 1.x, or is out of memory"),
          "libzstd1");
    }
    return std::unique_ptr<BlockPacker>(std::move(packer));
  }
  ~ZstdPacker() override {
    if (packing_ != nullptr) free_packing_(packing_);
    if (unpacking_ != nullptr) free_unpacking_(unpacking_);
  }

  std::uint64_t pack(const std::byte* from, std::uint64_t bytes, std::byte* to, std::uint64_t max_bytes) override {
    const std::size_t packed = pack_(packing_, to, max_bytes, from, bytes, level_);
    return is_error_(packed) != 0 ? 0 : packed;
  }
  bool unpack(const std::byte* from, std::uint64_t bytes, std::byte* to, std::uint64_t unpacked_bytes) override {
    const std::size_t got = unpack_(unpacking_, to, unpacked_bytes, from, bytes);
    return is_error_(got) == 0 && got == unpacked_bytes;
  }

 private:
  using Make = void*();
  using Free = std::size_t(void*);
  using Pack = std::size_t(void*, void*, std::size_t, const void*, std::size_t, int);
  using Unpack = std::size_t(void*, void*, std::size_t, const void*, std::size_t);
  using IsError = unsigned(std::size_t);

  [[nodiscard]] bool take_functions() {
    pack_ = library_->function<Pack>("ZSTD_compressCCtx");
    unpack_ = library_->function<Unpack>("ZSTD_decompressDCtx");
    is_error_ = library_->function<IsError>("ZSTD_isError");
    free_packing_ = library_->function<Free>("ZSTD_freeCCtx");
    free_unpacking_ = library_->function<Free>("ZSTD_freeDCtx");
    return pack_ != nullptr && unpack_ != nullptr && is_error_ != nullptr && free_packing_ != nullptr &&
           free_unpacking_ != nullptr;
  }
  [[nodiscard]] bool take_contexts() {
    auto* make_packing = library_->function<Make>("ZSTD_createCCtx");
    auto* make_unpacking = library_->function<Make>("ZSTD_createDCtx");
    if (make_packing == nullptr || make_unpacking == nullptr) return false;
    packing_ = make_packing();
    unpacking_ = make_unpacking();
    return packing_ != nullptr && unpacking_ != nullptr;
  }

  std::shared_ptr<const os::Library> library_;
  std::int32_t level_ = kDefaultLevel;
  Pack* pack_ = nullptr;
  Unpack* unpack_ = nullptr;
  IsError* is_error_ = nullptr;
  Free* free_packing_ = nullptr;
  Free* free_unpacking_ = nullptr;
  void* packing_ = nullptr;
  void* unpacking_ = nullptr;
};

}  // namespace

Result<SpillPacking> parse_packing(std::string_view text) {
  if (text == "none") return SpillPacking{};
  if (text == "lz4") return SpillPacking{SpillCodec::kLz4, 0};
  if (text == "zstd") return SpillPacking{SpillCodec::kZstd, kDefaultLevel};
  constexpr std::string_view kPrefix = "zstd:";
  if (text.starts_with(kPrefix)) {
    const std::string_view number = text.substr(kPrefix.size());
    std::int32_t level = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), level);
    const bool is_complete = error == std::errc{} && end == number.data() + number.size();
    if (is_complete && level >= 1 && level <= kMaxLevel) return SpillPacking{SpillCodec::kZstd, level};
  }
  return Status(Code::kInvalidArgument,
                concat("'", text, "' is not one of none, lz4, zstd and zstd:LEVEL with a level from 1 to ", kMaxLevel));
}

std::string to_text(const SpillPacking& packing) {
  switch (packing.codec) {
    case SpillCodec::kLz4:
      return "lz4";
    case SpillCodec::kZstd:
      return concat("zstd:", packing.level);
    case SpillCodec::kNone:
      break;
  }
  return "none";
}

Result<std::unique_ptr<BlockPacker>> open_packer(const SpillPacking& packing) {
  switch (packing.codec) {
    case SpillCodec::kLz4:
      return Lz4Packer::open();
    case SpillCodec::kZstd:
      return ZstdPacker::open(packing.level);
    case SpillCodec::kNone:
      break;
  }
  return Status(Code::kInternal, "there is no compressor");
}

}  // namespace entrepot
