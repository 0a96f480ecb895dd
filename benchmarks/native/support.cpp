#include "support.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace bench {
namespace {

constexpr std::size_t kHuge = std::size_t{2} << 20;

std::uint64_t read_clock(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

// From /proc/self/smaps: what huge pages back the mapping that begins at `data`.
std::size_t huge_bytes_at(const std::byte* data) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  std::size_t total = 0;
  while (std::getline(smaps, line)) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<unsigned long>(data);
      inside = begin <= at && at < end;
    } else if (inside && (line.starts_with("ShmemPmdMapped:") || line.starts_with("AnonHugePages:"))) {
      total += std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 10) << 10;
    }
  }
  return total;
}

}  // namespace

std::uint64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }
std::uint64_t cpu_ns() { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

void fail(const std::string& what) {
  std::fprintf(stderr, "bench_native: %s%s%s\n", what.c_str(), errno != 0 ? ": " : "",
               errno != 0 ? std::strerror(errno) : "");
  std::exit(1);
}

void run_on(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) fail("cannot run on processor " + std::to_string(cpu));
}

PageKind page_kind(std::string_view name) {
  if (name == "anonymous") return PageKind::kAnonymous;
  if (name == "shared") return PageKind::kShared;
  if (name == "shared-huge") return PageKind::kSharedHuge;
  errno = 0;
  fail("pages are anonymous, shared or shared-huge, but got " + std::string(name));
}

Pages warm_pages(std::size_t bytes, PageKind kind) {
  const std::size_t whole = (bytes + kHuge - 1) / kHuge * kHuge;
  void* reserved = mmap(nullptr, whole + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) fail("cannot reserve addresses");
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(reserved) + kHuge - 1) & ~(kHuge - 1));
  int flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;
  int file = -1;
  if (kind != PageKind::kAnonymous) {
    file = memfd_create("bench", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(whole)) != 0) fail("cannot make a memfd");
    flags = MAP_FIXED | MAP_SHARED;
  }
  void* mapped = mmap(aligned, whole, PROT_READ | PROT_WRITE, flags, file, 0);
  if (mapped == MAP_FAILED) fail("cannot map " + std::to_string(whole) + " bytes");
  if (file >= 0) close(file);
  auto* data = static_cast<std::byte*>(mapped);
  if (kind == PageKind::kSharedHuge) {
    for (std::size_t at = 0; at < whole; at += kHuge)
      data[at] = std::byte{1};
    // Best effort: huge_bytes says what came of it.
    for (std::size_t at = 0; at < whole; at += kHuge)
      (void)madvise(data + at, kHuge, MADV_COLLAPSE);
  }
  std::memset(data, 1, whole);
  return {data, bytes, huge_bytes_at(data)};
}

void Line::key(std::string_view name) {
  if (text_.size() > 1) text_ += ", ";
  text_.append("\"").append(name).append("\": ");
}

Line& Line::samples(std::string_view name, const std::vector<std::uint64_t>& values) {
  key(name);
  text_ += '[';
  for (std::size_t index = 0; index < values.size(); ++index) {
    if (index != 0) text_ += ", ";
    text_ += std::to_string(values[index]);
  }
  text_ += ']';
  return *this;
}

Line& Line::number(std::string_view name, std::uint64_t value) {
  key(name);
  text_ += std::to_string(value);
  return *this;
}

void Line::print() {
  text_ += "}\n";
  std::fputs(text_.c_str(), stdout);
  std::fflush(stdout);
}

std::uint64_t to_number(const char* text) {
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  if (end == text || *end != '\0') {
    errno = 0;
    fail(std::string("expected a whole number, but got ") + text);
  }
  return value;
}

}  // namespace bench
