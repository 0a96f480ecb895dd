# CMake toolchain that compiles wheels with zig. zig includes the sources of libc++ and musl and the symbols of every
# glibc, so it can build for other architectures, for older glibcs than the machine's, and for musl. tools/wheel.py sets these
# variables:
#
#   ENTREPOT_ZIG       the program zig
#   ENTREPOT_ZIG_ARCH  x86_64 or aarch64
#   ENTREPOT_ZIG_LIBC  gnu.VERSION, the oldest glibc that the binaries have to run with, e.g. gnu.2.27; or musl
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR "$ENV{ENTREPOT_ZIG_ARCH}")
if(NOT DEFINED ENV{ENTREPOT_ZIG} OR NOT DEFINED ENV{ENTREPOT_ZIG_ARCH} OR NOT DEFINED ENV{ENTREPOT_ZIG_LIBC})
  message(FATAL_ERROR "ENTREPOT_ZIG, ENTREPOT_ZIG_ARCH and ENTREPOT_ZIG_LIBC must be set; make wheel sets them.")
endif()

# With an explicit target, zig builds for its oldest CPU; without one, for this machine's CPU.
set(CMAKE_CXX_COMPILER "$ENV{ENTREPOT_ZIG}" c++ -target "$ENV{ENTREPOT_ZIG_ARCH}-linux-$ENV{ENTREPOT_ZIG_LIBC}")

# CMake accepts only single words as archiver commands, so these are scripts.
foreach(tool ar ranlib)
  string(TOUPPER "${tool}" variable)
  set(script "${CMAKE_BINARY_DIR}/zig-${tool}")
  file(CONFIGURE OUTPUT "${script}" CONTENT "#!/bin/sh\nexec '$ENV{ENTREPOT_ZIG}' ${tool} \"$@\"\n" @ONLY)
  file(CHMOD "${script}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(CMAKE_${variable} "${script}")
  set(CMAKE_CXX_COMPILER_${variable} "${script}")
endforeach()

# Without zig's sanitizer traps, which are for debugging. Stripped here, because the machine's strip supports only its
# own architecture.
set(CMAKE_CXX_FLAGS_INIT "-fno-sanitize=undefined")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-s -pie")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "-s -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/extension.map")

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
