// The limit of every put that copies: the same bytes into pages that are there already.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "client/copy.h"
#include "support.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bench {
namespace {

using Copy = void (*)(void*, const void*, std::size_t);

void plain(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

#if defined(__x86_64__)
// As simple as can be: one stream, in order. Both sides are aligned to 64 by warm_pages.
__attribute__((target("avx2"))) void streamed_avx2(void* to, const void* from, std::size_t bytes) {
  auto* target = static_cast<__m256i*>(to);
  const auto* source = static_cast<const __m256i*>(from);
  const std::size_t words = bytes / sizeof(__m256i);
  for (std::size_t word = 0; word + 1 < words; word += 2) {
    _mm256_stream_si256(target + word, _mm256_load_si256(source + word));
    _mm256_stream_si256(target + word + 1, _mm256_load_si256(source + word + 1));
  }
  _mm_sfence();
}

void streamed(void* to, const void* from, std::size_t bytes) {
  if (__builtin_cpu_supports("avx2") != 0) {
    streamed_avx2(to, from, bytes);
  } else {
    plain(to, from, bytes);
  }
}
#else
void streamed(void* to, const void* from, std::size_t bytes) { plain(to, from, bytes); }
#endif

struct Kind {
  const char* name;
  Copy copy;
};
constexpr Kind kKinds[] = {{"memcpy", plain}, {"streamed", streamed}, {"entrepot", entrepot::copy_payload}};

// The line where processes wait for each other, in memory that all of them share.
struct Gate {
  std::atomic<std::uint32_t> arrived{0};
  std::atomic<std::uint32_t> done{0};
  std::atomic<std::uint64_t> begin_ns{0};

  void wait_for(std::atomic<std::uint32_t>& counter, std::uint32_t goal) {
    const std::uint64_t limit = now_ns() + 120'000'000'000U;
    while (counter.load() < goal) {
      if (now_ns() > limit) fail("another process did not come to the gate");
      usleep(50);
    }
  }
};

std::uint64_t time_copy(Copy copy, const Pages& to, const Pages& from) {
  const std::uint64_t begin = now_ns();
  copy(to.data, from.data, to.bytes);
  return now_ns() - begin;
}

int alone(std::size_t bytes, std::uint64_t repeats, PageKind kind) {
  const Pages from = warm_pages(bytes, PageKind::kAnonymous);
  const Pages to = warm_pages(bytes, kind);
  std::vector<std::vector<std::uint64_t>> times(std::size(kKinds));
  const std::uint64_t cpu = cpu_ns();
  for (std::uint64_t repeat = 0; repeat < repeats; ++repeat) {
    for (std::size_t index = 0; index < std::size(kKinds); ++index)
      times[index].push_back(time_copy(kKinds[index].copy, to, from));
  }
  const std::uint64_t used = cpu_ns() - cpu;
  if (std::memcmp(to.data, from.data, bytes) != 0) fail("the copy differs");
  Line line;
  for (std::size_t index = 0; index < std::size(kKinds); ++index)
    line.samples(kKinds[index].name, times[index]);
  line.number("huge_bytes", to.huge_bytes).number("cpu_ns", used).print();
  return 0;
}

// Each round: all begin together, and the time is that of the last to end.
int together(std::size_t bytes, std::uint64_t repeats, PageKind kind, std::uint32_t processes) {
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail("cannot map the gate");
  auto* gate = new (shared) Gate;
  std::vector<pid_t> children;
  for (std::uint32_t child = 0; child < processes; ++child) {
    const pid_t pid = fork();
    if (pid < 0) fail("cannot fork");
    if (pid == 0) {
      const Pages from = warm_pages(bytes, PageKind::kAnonymous);
      const Pages to = warm_pages(bytes, kind);
      std::uint32_t round = 0;
      for (const Kind& way : kKinds) {
        for (std::uint64_t repeat = 0; repeat < repeats; ++repeat) {
          ++round;
          gate->arrived.fetch_add(1);
          gate->wait_for(gate->arrived, round * processes + round);  // the parent comes last
          way.copy(to.data, from.data, bytes);
          gate->done.fetch_add(1);
        }
      }
      _exit(0);
    }
    children.push_back(pid);
  }
  Line line;
  std::uint32_t round = 0;
  for (const Kind& way : kKinds) {
    std::vector<std::uint64_t> times;
    for (std::uint64_t repeat = 0; repeat < repeats; ++repeat) {
      ++round;
      gate->wait_for(gate->arrived, round * processes + round - 1);
      const std::uint64_t begin = now_ns();
      gate->arrived.fetch_add(1);
      gate->wait_for(gate->done, round * processes);
      times.push_back(now_ns() - begin);
    }
    line.samples(way.name, times);
  }
  for (const pid_t pid : children) {
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || status != 0) fail("a copying process failed");
  }
  line.print();
  return 0;
}

}  // namespace

int copies(const std::vector<std::string>& arguments) {
  const std::size_t bytes = to_number(arguments[0].c_str());
  const std::uint64_t repeats = to_number(arguments[1].c_str());
  const PageKind kind = page_kind(arguments[2]);
  const auto processes = static_cast<std::uint32_t>(to_number(arguments[3].c_str()));
  return processes <= 1 ? alone(bytes, repeats, kind) : together(bytes, repeats, kind, processes);
}

}  // namespace bench
