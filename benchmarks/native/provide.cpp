// What memory costs that is made when somebody waits for it: small pages and huge ones, in turn, and what each costs
// its writers and readers afterwards. The first round may meet memory that the host has not backed yet; later ones
// do not, unless `keep` holds on to all that was made before.
#include <cerrno>
#include <cstring>
#include <utility>

#include "client/copy.h"
#include "os/mapping.h"
#include "os/memfd.h"
#include "support.h"

namespace bench {
namespace {

template <typename T>
T must(entrepot::Result<T> result) {
  errno = 0;
  if (!result.is_ok()) fail(result.status().to_string());
  return std::move(result.value());
}

void must(const entrepot::Status& status) {
  errno = 0;
  if (!status.is_ok()) fail(status.to_string());
}

struct Times {
  std::vector<std::uint64_t> made;
  std::vector<std::uint64_t> first_copy;  // by a writer that maps it anew
  std::vector<std::uint64_t> later_copy;
  std::vector<std::uint64_t> first_sum;  // by a reader that maps it anew
  std::vector<std::uint64_t> later_sum;

  void tell(Line& line, const std::string& kind) const {
    line.samples(kind + "_made", made)
        .samples(kind + "_first_copy", first_copy)
        .samples(kind + "_later_copy", later_copy)
        .samples(kind + "_first_sum", first_sum)
        .samples(kind + "_later_sum", later_sum);
  }
};

std::uint64_t sum_of(const std::byte* data, std::size_t bytes, std::uint64_t& sum) {
  const std::uint64_t begin = now_ns();
  for (std::size_t at = 0; at + sizeof sum <= bytes; at += sizeof sum) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + at, sizeof word);
    sum += word;
  }
  return now_ns() - begin;
}

entrepot::UniqueFd one_turn(std::size_t bytes, bool huge, const Pages& source, Times& times) {
  using entrepot::os::Access;
  using entrepot::os::Mapping;
  constexpr std::uint64_t kAlign = entrepot::os::kHugePageBytes;
  entrepot::UniqueFd file = must(entrepot::os::create_memfd("bench", bytes));
  {
    const Mapping mapping = must(Mapping::map(file.get(), 0, bytes, Access::kReadWrite, kAlign));
    const std::uint64_t begin = now_ns();
    if (!huge) {
      must(entrepot::os::populate_write(mapping.data(), bytes));
    } else if (!must(entrepot::os::collapse(mapping.data(), bytes))) {
      errno = 0;
      fail("the kernel gives no huge pages");
    }
    times.made.push_back(now_ns() - begin);
  }
  {
    const Mapping mapping = must(Mapping::map(file.get(), 0, bytes, Access::kReadWrite, kAlign));
    for (auto* list : {&times.first_copy, &times.later_copy}) {
      const std::uint64_t begin = now_ns();
      entrepot::copy_payload(mapping.data(), source.data, bytes);
      list->push_back(now_ns() - begin);
    }
  }
  const Mapping mapping = must(Mapping::map(file.get(), 0, bytes, Access::kReadOnly, kAlign));
  std::uint64_t sums[2] = {0, 0};
  times.first_sum.push_back(sum_of(mapping.data(), bytes, sums[0]));
  times.later_sum.push_back(sum_of(mapping.data(), bytes, sums[1]));
  errno = 0;
  if (sums[0] != sums[1] || sums[0] == 0) fail("the bytes changed");
  return file;
}

}  // namespace

int provide(const std::vector<std::string>& arguments) {
  const std::size_t bytes = to_number(arguments[0].c_str());
  const std::uint64_t rounds = to_number(arguments[1].c_str());
  const bool keep = arguments[2] == "keep";
  errno = 0;
  if (bytes == 0 || bytes % entrepot::os::kHugePageBytes != 0) fail("BYTES is a multiple of 2 MiB");
  const Pages source = warm_pages(bytes, PageKind::kAnonymous);
  Times kinds[2];
  std::vector<entrepot::UniqueFd> kept;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (const bool first : {true, false}) {
      const bool huge = first == (round % 2 == 1);
      entrepot::UniqueFd file = one_turn(bytes, huge, source, kinds[huge ? 1 : 0]);
      if (keep) kept.push_back(std::move(file));
    }
  }
  Line line;
  kinds[0].tell(line, "small");
  kinds[1].tell(line, "huge");
  line.print();
  return 0;
}

}  // namespace bench
