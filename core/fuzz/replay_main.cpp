// Drives a fuzz target without libFuzzer: with its seeds, mutations of them, and the given files and directories.
//
//   <target> [--write-seeds FOLDER] [--mutations N] [--seed S] [FILE|FOLDER ...]
//
// The same seed gives the same mutations. If ENTREPOT_FUZZ_LAST names a file, each input is written to it before it
// runs, so that the input that ended the process remains.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>

#include "fuzz/fuzz_input.h"

namespace entrepot::fuzz {
namespace {

Bytes read_input(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "a named input can be read");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_input(const std::filesystem::path& path, const Bytes& input) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
  require(file.good(), "an input can be written");
}

void replay_one(const Bytes& input) {
  if (const char* last = std::getenv("ENTREPOT_FUZZ_LAST")) write_input(last, input);
  // A copy of exactly this size, so that the address sanitizer sees every access beyond it.
  const Bytes exact(input);
  (void)LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

Bytes mutated(const std::vector<Bytes>& from, std::mt19937_64& random) {
  Bytes input = from[random() % from.size()];
  const std::uint64_t changes = 1 + random() % 8;
  for (std::uint64_t i = 0; i < changes; ++i) {
    const std::size_t at = input.empty() ? 0 : random() % input.size();
    switch (random() % 6) {
      case 0:
        if (!input.empty()) input[at] ^= static_cast<std::uint8_t>(1U << (random() % 8));
        break;
      case 1:
        if (!input.empty()) input[at] = static_cast<std::uint8_t>(random());
        break;
      case 2:  // a number at a boundary
        if (!input.empty()) {
          const std::uint64_t edges[] = {0, 1, 0x7fff'ffff, 0x8000'0000, 0xffff'ffff, UINT64_MAX, UINT64_MAX - 63};
          const std::uint64_t edge = edges[random() % std::size(edges)];
          std::memcpy(input.data() + at, &edge, std::min<std::size_t>(input.size() - at, random() % 2 == 0 ? 4 : 8));
        }
        break;
      case 3:
        input.resize(at);
        break;
      case 4: {  // a piece of another input
        const Bytes& other = from[random() % from.size()];
        if (other.empty()) break;
        const std::size_t begin = random() % other.size();
        const std::size_t count = std::min<std::size_t>(other.size() - begin, 1 + random() % 64);
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(at),
                     other.begin() + static_cast<std::ptrdiff_t>(begin),
                     other.begin() + static_cast<std::ptrdiff_t>(begin + count));
        break;
      }
      default:
        if (!input.empty()) input.erase(input.begin() + static_cast<std::ptrdiff_t>(at));
        break;
    }
  }
  return input;
}

int replay(int count, char** arguments) {
  std::vector<Bytes> inputs = seeds();
  require(!inputs.empty(), "a target has seeds");
  std::uint64_t mutations = 0;
  std::uint64_t seed = 1;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const bool has_value = i + 1 < count;
    if (argument == "--write-seeds" && has_value) {
      const std::filesystem::path folder = arguments[++i];
      std::filesystem::create_directories(folder);
      for (std::size_t number = 0; number < inputs.size(); ++number)
        write_input(folder / ("seed-" + std::to_string(number)), inputs[number]);
      return 0;
    }
    if (argument == "--mutations" && has_value) {
      mutations = std::stoull(arguments[++i]);
    } else if (argument == "--seed" && has_value) {
      seed = std::stoull(arguments[++i]);
    } else if (std::filesystem::is_directory(argument)) {
      for (const auto& entry : std::filesystem::directory_iterator(argument))
        if (entry.is_regular_file()) inputs.push_back(read_input(entry.path()));
    } else {
      inputs.push_back(read_input(argument));
    }
  }
  for (const Bytes& input : inputs)
    replay_one(input);
  std::cout << inputs.size() << " inputs, " << mutations << " mutations with --seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  for (std::uint64_t i = 0; i < mutations; ++i)
    replay_one(mutated(inputs, random));
  return 0;
}

}  // namespace
}  // namespace entrepot::fuzz

int main(int count, char** arguments) { return entrepot::fuzz::replay(count, arguments); }
