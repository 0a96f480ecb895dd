#pragma once

// CPU feature detection. Released binaries are built for the oldest CPU of their architecture; faster code for newer
// ones is selected at run time by these functions, which cache their result.

namespace entrepot {

// AVX2, supported by the CPU and by the kernel, which must save its registers. False off x86_64.
[[nodiscard]] bool cpu_has_avx2();

// Whether the CPU is made by AMD: its cores write memory fastest in one stream. False off x86_64.
[[nodiscard]] bool cpu_is_amd();

// Carry-less multiplication of 256-bit registers: VPCLMULQDQ with AVX2 and PCLMULQDQ. False off x86_64.
[[nodiscard]] bool cpu_has_wide_products();

// CRC-32C instructions: SSE 4.2 on x86_64, the CRC extension on aarch64. False elsewhere.
[[nodiscard]] bool cpu_has_crc32c();

}  // namespace entrepot
