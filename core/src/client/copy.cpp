#include "client/copy.h"

#include <cstdint>
#include <cstring>

#include "base/cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace entrepot {
namespace {

#if defined(__x86_64__)
// Intel cores are fastest with four pages at once, whose lines are in different banks and are each followed by the
// hardware prefetcher; AMD cores with one page after the other (1 GiB on an EPYC: 44 ms; with four pages 64 ms; memcpy
// 57 ms).
constexpr std::size_t kPage = 4096;
constexpr std::size_t kStreams = 4;

__attribute__((target("avx2"))) inline void stream_lines_avx2(std::byte* to, const std::byte* from) {
  const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32));
  const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 64));
  const __m256i d = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 96));
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), a);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 32), b);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 64), c);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 96), d);
}

// `to` must be 64-byte aligned; returns the number of bytes copied (a multiple of 128).
__attribute__((target("avx2"))) std::size_t stream_avx2(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t done = 0;
  const std::size_t together = cpu_is_amd() ? 0 : bytes;
  for (; done + kStreams * kPage <= together; done += kStreams * kPage) {
    for (std::size_t line = 0; line < kPage; line += 128) {
      for (std::size_t page = 0; page < kStreams; ++page) {
        const std::size_t at = done + page * kPage + line;
        _mm_prefetch(reinterpret_cast<const char*>(from + at + 128), _MM_HINT_T0);  // never faults, wherever it points
        _mm_prefetch(reinterpret_cast<const char*>(from + at + 192), _MM_HINT_T0);
        stream_lines_avx2(to + at, from + at);
      }
    }
  }
  for (; done + 128 <= bytes; done += 128)
    stream_lines_avx2(to + done, from + done);
  _mm_sfence();
  return done;
}

std::size_t stream_sse2(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t done = 0;
  for (; done + 64 <= bytes; done += 64) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done + 16));
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done + 32));
    const __m128i d = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done + 48));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + done), a);
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + done + 16), b);
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + done + 32), c);
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + done + 48), d);
  }
  _mm_sfence();
  return done;
}

std::size_t stream(std::byte* to, const std::byte* from, std::size_t bytes) {
  return cpu_has_avx2() ? stream_avx2(to, from, bytes) : stream_sse2(to, from, bytes);
}
#else
// Elsewhere memcpy is used: aarch64 CPUs detect long runs of full-line writes and do not read those lines first.
std::size_t stream(std::byte*, const std::byte*, std::size_t) { return 0; }
#endif

}  // namespace

void copy_payload(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (bytes < kStreamingMinBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  const std::size_t head = (64U - (reinterpret_cast<std::uintptr_t>(target) & 63U)) & 63U;
  std::memcpy(target, source, head);
  const std::size_t streamed = stream(target + head, source + head, bytes - head);
  const std::size_t done = head + streamed;
  std::memcpy(target + done, source + done, bytes - done);
}

std::string_view copy_kind() {
#if defined(__x86_64__)
  return cpu_has_avx2() ? "avx2" : "sse2";
#else
  return "memcpy";
#endif
}

}  // namespace entrepot
