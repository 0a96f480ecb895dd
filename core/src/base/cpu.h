#pragma once

// What the CPU that the program runs on can do. A released binary is built for the oldest CPU of its architecture;
// whatever a newer one does faster is chosen at run time, by these. Each asks once and remembers. Defined in the room
// os, because on some architectures only the kernel knows.

namespace entrepot {

// AVX2, by the CPU and by the kernel, which must save its registers. False off x86_64.
[[nodiscard]] bool cpu_has_avx2();

// Whether AMD made it: its cores write memory fastest in one stream. False off x86_64.
[[nodiscard]] bool cpu_is_amd();

// Carry-less products of 256-bit registers: VPCLMULQDQ beside AVX2 and PCLMULQDQ. False off x86_64.
[[nodiscard]] bool cpu_has_wide_products();

// Instructions for CRC-32C: SSE 4.2 on x86_64, the CRC extension on aarch64. False elsewhere.
[[nodiscard]] bool cpu_has_crc32c();

}  // namespace entrepot
