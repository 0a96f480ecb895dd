#include "base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/cpu.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#endif

namespace entrepot {

namespace {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

constexpr std::uint32_t kPolynomial = 0x82f6'3b78U;  // reflected

// tables[k][b]: the CRC of byte b followed by k zero bytes; eight of them take eight bytes a step.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1U) != 0 ? kPolynomial : 0U);
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

#if defined(__x86_64__)
__attribute__((target("sse4.2,crc32"))) std::uint32_t update_hardware(std::uint32_t crc, const std::uint8_t* data,
                                                                      std::size_t bytes) {
  std::uint64_t wide = crc;
  for (; bytes >= 8; bytes -= 8, data += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (; bytes > 0; --bytes)
    crc = _mm_crc32_u8(crc, *data++);
  return crc;
}
constexpr std::string_view kHardwareName = "sse4.2";
#elif defined(__aarch64__)
__attribute__((target("+crc"))) std::uint32_t update_hardware(std::uint32_t crc, const std::uint8_t* data,
                                                              std::size_t bytes) {
  for (; bytes >= 8; bytes -= 8, data += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    crc = __crc32cd(crc, word);
  }
  for (; bytes > 0; --bytes)
    crc = __crc32cb(crc, *data++);
  return crc;
}
constexpr std::string_view kHardwareName = "armv8";
#else
std::uint32_t update_hardware(std::uint32_t crc, const std::uint8_t* data, std::size_t bytes) {
  return update_table(crc, data, bytes);
}
constexpr std::string_view kHardwareName = "table";
#endif

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed) {
  static const bool hardware = cpu_has_crc32c();
  const auto* first = static_cast<const std::uint8_t*>(data);
  return hardware ? ~update_hardware(~seed, first, bytes) : ~update_table(~seed, first, bytes);
}

std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t seed) {
  return ~update_table(~seed, static_cast<const std::uint8_t*>(data), bytes);
}

std::string_view crc32c_kind() { return cpu_has_crc32c() ? kHardwareName : std::string_view("table"); }

}  // namespace entrepot
