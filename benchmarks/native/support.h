// What the measurements share: a clock, warm pages, processors, and results as one line of JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

[[nodiscard]] std::uint64_t now_ns();
[[nodiscard]] std::uint64_t cpu_ns();  // of this process

// Ends the program with `what` and errno's words; a benchmark has nobody to hand a failure to.
[[noreturn]] void fail(const std::string& what);

void run_on(int cpu);  // -1: any

// Memory that was written once. `huge`: 2 MiB pages where the kernel gives them.
struct Pages {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t huge_bytes = 0;  // how much of it the kernel really backs with huge pages
};
enum class PageKind : std::uint8_t { kAnonymous, kShared, kSharedHuge };
[[nodiscard]] Pages warm_pages(std::size_t bytes, PageKind kind);
[[nodiscard]] PageKind page_kind(std::string_view name);  // "anonymous", "shared", "shared-huge"

// {"key": [1, 2, ...], ...}
class Line {
 public:
  Line& samples(std::string_view key, const std::vector<std::uint64_t>& values);
  Line& number(std::string_view key, std::uint64_t value);
  void print();

 private:
  void key(std::string_view name);
  std::string text_ = "{";
};

[[nodiscard]] std::uint64_t to_number(const char* text);

int copies(const std::vector<std::string>& arguments);
int provide(const std::vector<std::string>& arguments);
int round_trip(const std::vector<std::string>& arguments);
int store_get(const std::vector<std::string>& arguments);
int store_put(const std::vector<std::string>& arguments);
int store_loop(const std::vector<std::string>& arguments);
int steps(const std::vector<std::string>& arguments);
int spill(const std::vector<std::string>& arguments);
int aggregate(const std::vector<std::string>& arguments);
int shuffle(const std::vector<std::string>& arguments);
int crowd(const std::vector<std::string>& arguments);

}  // namespace bench
