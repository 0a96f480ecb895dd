#include "base/crc32c_folding.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define ENTREPOT_FOLDING __attribute__((target("avx2,pclmul,vpclmulqdq,sse4.2,crc32")))

namespace entrepot {

namespace {

// x^n modulo the polynomial, reflected: bit 31 is x^0.
constexpr std::uint32_t power_of_x(std::uint32_t n) {
  std::uint32_t power = 0x8000'0000U;
  for (; n > 0; --n)
    power = (power >> 1) ^ ((power & 1U) != 0 ? kCrc32cPolynomial : 0U);
  return power;
}

// Factors that move 128 bits over the `bits` that follow: one for the first half, which is 64 bits further away, and
// one for the second. A reflected power in the low half of a 64-bit register carries an extra factor x^32, and the
// product of two such registers an extra x; both are compensated here.
struct Factors {
  std::int64_t first;
  std::int64_t second;
};
constexpr Factors factors_over(std::uint32_t bits) {
  return {power_of_x(bits + 64 - 32 - 1), power_of_x(bits - 32 - 1)};
}

// Prefetch distance. Large data is usually on its way to disk and not read again here; prefetching it past the caches
// leaves more of them to others that move it at the same time. A prefetch past the end has no effect.
constexpr std::size_t kAhead = 2048;
constexpr std::size_t kLine = 64;
constexpr std::size_t kRegisters = kCrcFoldingBytes / sizeof(__m256i);
constexpr Factors kOverStep = factors_over(8 * kCrcFoldingBytes);
constexpr Factors kOverRegister = factors_over(256);
constexpr Factors kOverHalf = factors_over(128);

ENTREPOT_FOLDING inline __m256i load(const std::uint8_t* data) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
}

ENTREPOT_FOLDING inline __m256i both_lanes(const Factors& factors) {
  return _mm256_set_epi64x(factors.second, factors.first, factors.second, factors.first);
}

ENTREPOT_FOLDING inline __m256i fold(__m256i sum, __m256i factors, __m256i next) {
  const __m256i first = _mm256_clmulepi64_epi128(sum, factors, 0x00);
  const __m256i second = _mm256_clmulepi64_epi128(sum, factors, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(first, second), next);
}

}  // namespace

// Uses eight registers, so that the products' latencies overlap.
ENTREPOT_FOLDING std::uint32_t crc32c_fold(std::uint32_t crc, const std::uint8_t* data, std::size_t bytes) {
  __m256i sums[kRegisters];  // std::array would drop the type's alignment
  for (std::size_t i = 0; i < kRegisters; ++i)
    sums[i] = load(data + i * sizeof(__m256i));
  sums[0] = _mm256_xor_si256(sums[0], _mm256_set_epi32(0, 0, 0, 0, 0, 0, 0, static_cast<std::int32_t>(crc)));
  const __m256i over_step = both_lanes(kOverStep);
  for (std::size_t at = kCrcFoldingBytes; at < bytes; at += kCrcFoldingBytes) {
#pragma GCC unroll 4
    for (std::size_t line = 0; line < kCrcFoldingBytes; line += kLine)
      _mm_prefetch(reinterpret_cast<const char*>(data + at + kAhead + line), _MM_HINT_NTA);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kRegisters; ++i)
      sums[i] = fold(sums[i], over_step, load(data + at + i * sizeof(__m256i)));
  }
  const __m256i over_register = both_lanes(kOverRegister);
  __m256i sum = sums[0];
  for (std::size_t i = 1; i < kRegisters; ++i)
    sum = fold(sum, over_register, sums[i]);
  const __m128i over_half = _mm_set_epi64x(kOverHalf.second, kOverHalf.first);
  const __m128i front = _mm256_castsi256_si128(sum);
  const __m128i last = _mm_xor_si128(
      _mm_xor_si128(_mm_clmulepi64_si128(front, over_half, 0x00), _mm_clmulepi64_si128(front, over_half, 0x11)),
      _mm256_extracti128_si256(sum, 1));
  // These 16 bytes have the same CRC as all the data before them.
  const std::uint64_t half = _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(last)));
  return static_cast<std::uint32_t>(_mm_crc32_u64(half, static_cast<std::uint64_t>(_mm_extract_epi64(last, 1))));
}

}  // namespace entrepot

#endif
