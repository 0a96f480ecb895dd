#include "base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/cpu.h"
#include "base/crc32c_folding.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#endif

namespace entrepot {

namespace {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

// tables[k][b]: the CRC of byte b followed by k zero bytes. Eight tables process eight bytes per step.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1U) != 0 ? kCrc32cPolynomial : 0U);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t previous = tables[k - 1][byte];
      tables[k][byte] = (previous >> 8) ^ tables[0][previous & 0xffU];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint32_t update_table(std::uint32_t crc, const std::uint8_t* data, std::size_t bytes) {
  while (bytes >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    word ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i)
      crc ^= kTables[7 - i][(word >> (8 * i)) & 0xffU];
    data += 8;
    bytes -= 8;
  }
  for (; bytes > 0; --bytes)
    crc = (crc >> 8) ^ kTables[0][(crc ^ *data++) & 0xffU];
  return crc;
}

// The CRC instruction has a latency of three cycles and a throughput of one per cycle, so three parts of the data are
// summed side by side. Since the CRC is linear in its register, a table shifts the CRC of a part over the parts that
// follow it.
constexpr std::size_t kPartBytes = 4096;

#if defined(__x86_64__)
#define ENTREPOT_CRC_TARGET __attribute__((target("sse4.2,crc32")))
using Register = std::uint64_t;
ENTREPOT_CRC_TARGET inline Register crc_word(Register crc, std::uint64_t word) { return _mm_crc32_u64(crc, word); }
ENTREPOT_CRC_TARGET inline std::uint32_t crc_byte(std::uint32_t crc, std::uint8_t byte) {
  return _mm_crc32_u8(crc, byte);
}
constexpr std::string_view kHardwareName = "sse4.2";
#elif defined(__aarch64__)
#define ENTREPOT_CRC_TARGET __attribute__((target("+crc")))
using Register = std::uint32_t;
ENTREPOT_CRC_TARGET inline Register crc_word(Register crc, std::uint64_t word) { return __crc32cd(crc, word); }
ENTREPOT_CRC_TARGET inline std::uint32_t crc_byte(std::uint32_t crc, std::uint8_t byte) { return __crc32cb(crc, byte); }
constexpr std::string_view kHardwareName = "armv8";
#else
#define ENTREPOT_CRC_TARGET
using Register = std::uint32_t;
inline Register crc_word(Register crc, std::uint64_t word) {
  std::array<std::uint8_t, 8> bytes{};
  std::memcpy(bytes.data(), &word, bytes.size());
  return update_table(crc, bytes.data(), bytes.size());
}
inline std::uint32_t crc_byte(std::uint32_t crc, std::uint8_t byte) { return update_table(crc, &byte, 1); }
constexpr std::string_view kHardwareName = "table";
#endif

// Effect of kPartBytes zero bytes on a register, indexed by the register's bytes.
using PartTable = std::array<std::array<std::uint32_t, 256>, 4>;

PartTable make_part_table() {
  const std::array<std::uint8_t, kPartBytes> zeros{};
  PartTable table{};
  for (std::size_t place = 0; place < 4; ++place) {
    for (std::uint32_t byte = 1; byte < 256; ++byte) {
      const std::uint32_t lowest = byte & (~byte + 1);
      table[place][byte] = byte == lowest ? update_table(byte << (8 * place), zeros.data(), zeros.size())
                                          : table[place][lowest] ^ table[place][byte ^ lowest];
    }
  }
  return table;
}

std::uint32_t over_part(const PartTable& table, std::uint32_t crc) {
  return table[0][crc & 0xffU] ^ table[1][(crc >> 8) & 0xffU] ^ table[2][(crc >> 16) & 0xffU] ^ table[3][crc >> 24];
}

std::uint64_t word_at(const std::uint8_t* data) {
  std::uint64_t word = 0;
  std::memcpy(&word, data, 8);
  return word;
}

ENTREPOT_CRC_TARGET std::uint32_t update_three(std::uint32_t crc, const std::uint8_t* data) {
  static const PartTable table = make_part_table();
  Register first = crc;
  Register second = 0;
  Register third = 0;
  for (std::size_t at = 0; at < kPartBytes; at += 8) {
    first = crc_word(first, word_at(data + at));
    second = crc_word(second, word_at(data + kPartBytes + at));
    third = crc_word(third, word_at(data + 2 * kPartBytes + at));
  }
  const std::uint32_t both = over_part(table, static_cast<std::uint32_t>(first)) ^ static_cast<std::uint32_t>(second);
  return over_part(table, both) ^ static_cast<std::uint32_t>(third);
}

ENTREPOT_CRC_TARGET std::uint32_t update_hardware(std::uint32_t crc, const std::uint8_t* data, std::size_t bytes) {
  for (; bytes >= 3 * kPartBytes; bytes -= 3 * kPartBytes, data += 3 * kPartBytes)
    crc = update_three(crc, data);
  Register wide = crc;
  for (; bytes >= 8; bytes -= 8, data += 8)
    wide = crc_word(wide, word_at(data));
  crc = static_cast<std::uint32_t>(wide);
  for (; bytes > 0; --bytes)
    crc = crc_byte(crc, *data++);
  return crc;
}

#if defined(__x86_64__)
// Below this size, loading and reducing the registers costs more than the folding saves.
constexpr std::size_t kMinFolded = 1024;

std::uint32_t update_folded(std::uint32_t crc, const std::uint8_t* data, std::size_t bytes) {
  if (bytes < kMinFolded) return update_hardware(crc, data, bytes);
  const std::size_t folded = bytes / kCrcFoldingBytes * kCrcFoldingBytes;
  return update_hardware(crc32c_fold(crc, data, folded), data + folded, bytes - folded);
}
#endif

using Update = std::uint32_t (*)(std::uint32_t, const std::uint8_t*, std::size_t);

template <Update kUpdate>
std::uint32_t sum(const void* data, std::size_t bytes, std::uint32_t seed) {
  return ~kUpdate(~seed, static_cast<const std::uint8_t*>(data), bytes);
}

constexpr std::array kImplementations = {
#if defined(__x86_64__)
    Crc32cImplementation{"vpclmulqdq", &sum<update_folded>},
#endif
    Crc32cImplementation{kHardwareName, &sum<update_hardware>},
    Crc32cImplementation{"table", &sum<update_table>},
};

}  // namespace

std::span<const Crc32cImplementation> crc32c_implementations() {
  const std::span<const Crc32cImplementation> implementations = kImplementations;
  if (!cpu_has_crc32c()) return implementations.last(1);
  return cpu_has_wide_products() ? implementations : implementations.last(2);
}

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed) {
  static const auto kBest = crc32c_implementations().front().sum;
  return kBest(data, bytes, seed);
}

}  // namespace entrepot
