#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace entrepot {

#if defined(__x86_64__)
// Uses cpuid directly: __builtin_cpu_supports needs a variable from libgcc or compiler-rt, which some toolchains lack.
namespace {

struct Features {
  bool avx2 = false;
  bool wide_products = false;
  bool crc32c = false;
  bool amd = false;
};

// Registers that the kernel saves (XCR0). Valid only if cpuid reports OSXSAVE.
unsigned saved_registers() {
  unsigned low = 0;
  unsigned high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

Features detect_features() {
  constexpr unsigned kXmmAndYmm = 0x6;
  Features features;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return features;
  features.amd = b == signature_AMD_ebx && d == signature_AMD_edx && c == signature_AMD_ecx;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return features;
  features.crc32c = (c & bit_SSE4_2) != 0;
  const bool products = (c & bit_PCLMUL) != 0;
  const bool vectors = (c & bit_OSXSAVE) != 0 && (c & bit_AVX) != 0 && (saved_registers() & kXmmAndYmm) == kXmmAndYmm;
  if (vectors && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    features.avx2 = (b & bit_AVX2) != 0;
    features.wide_products = features.avx2 && products && (c & bit_VPCLMULQDQ) != 0;
  }
  return features;
}

const Features& features() {
  static const Features kFeatures = detect_features();
  return kFeatures;
}

}  // namespace

bool cpu_has_avx2() { return features().avx2; }
bool cpu_is_amd() { return features().amd; }
bool cpu_has_wide_products() { return features().wide_products; }
bool cpu_has_crc32c() { return features().crc32c; }

#elif defined(__aarch64__) && defined(__linux__)

bool cpu_has_avx2() { return false; }
bool cpu_is_amd() { return false; }
bool cpu_has_wide_products() { return false; }

bool cpu_has_crc32c() {
  constexpr unsigned long kCrc32 = 1UL << 7;  // HWCAP_CRC32
  static const bool kHas = (getauxval(AT_HWCAP) & kCrc32) != 0;
  return kHas;
}

#else

bool cpu_has_avx2() { return false; }
bool cpu_is_amd() { return false; }
bool cpu_has_wide_products() { return false; }
bool cpu_has_crc32c() { return false; }

#endif

}  // namespace entrepot
