#include "spill/spill_harness.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/text.h"
#include "os/clock.h"

namespace entrepot::testing {

namespace {

// The word at `index` of a pseudorandom sequence (SplitMix64). A function of values only: sanitizers check each access
// to memory, so a generator with state would take most of these tests' time.
std::uint64_t random_word(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t word = (seed << 32) + (index + 1) * 0x9e37'79b9'7f4a'7c15;
  word = (word ^ (word >> 30)) * 0xbf58'476d'1ce4'e5b9;
  word = (word ^ (word >> 27)) * 0x94d0'49bb'1331'11eb;
  return word ^ (word >> 31);
}

}  // namespace

void TestSegments::fill(const BlobLocation& place, std::uint64_t seed) {
  std::byte* out = data(place);
  for (std::uint64_t at = 0; at < place.length; at += 8) {
    const std::uint64_t word = random_word(seed, at / 8);
    std::memcpy(out + at, &word, std::min<std::uint64_t>(8, place.length - at));
  }
}

void TestSegments::fill_text(const BlobLocation& place, std::uint64_t seed, std::uint64_t random_blocks) {
  constexpr std::string_view kWords = "the quick brown fox jumps over a lazy dog and sleeps well ";
  const std::string text = concat(kWords, kWords);
  std::byte* out = data(place);
  for (std::uint64_t at = 0; at < place.length; at += 16) {
    const bool noise = random_blocks != 0 && (at / kMiB) % random_blocks == random_blocks - 1;
    const std::uint64_t noise_words[2] = {random_word(seed, at / 8), random_word(seed, at / 8 + 1)};
    const void* from = noise ? static_cast<const void*>(noise_words) : text.data() + (at + seed) % kWords.size();
    std::memcpy(out + at, from, std::min<std::uint64_t>(16, place.length - at));
    out[at] = static_cast<std::byte>(noise_words[0]);
  }
}

SpillHarness::SpillHarness(std::uint64_t quota, std::size_t folders) {
  for (std::size_t i = 0; i < folders; ++i)
    options.folders.push_back(scratch.path("spill" + std::to_string(i)));
  options.socket_path = scratch.path("s.sock");
  options.instance = {1, 2, 3};
  options.limits = {quota, 0, 0, 0};
  options.lock_wait_ms = 0;
  auto event = os::create_event_fd();
  EXPECT_TRUE(event.is_ok());
  event_ = event.take();
}

Status SpillHarness::open() {
  auto opened = SpillFiles::open(io, options, segments.opener(), event_.get());
  RETURN_IF_ERROR(opened);
  files = std::move(opened).value();
  return Status::ok();
}

void SpillHarness::must_open() {
  const Status opened = open();
  ASSERT_TRUE(opened.is_ok()) << opened.to_string();
}

SpillCompletion SpillHarness::wait(std::uint64_t ticket) {
  const auto deadline = os::Deadline::after_ms(20'000);
  while (!done_.contains(ticket)) {
    const auto readable = os::wait_readable(event_.get(), deadline);
    if (!readable.is_ok() || !*readable) {
      ADD_FAILURE() << "no completion of ticket " << ticket;
      return {ticket, false, Status(Code::kTimeout, "the test waited too long"), 0};
    }
    os::clear_event(event_.get());
    for (SpillCompletion& completion : files->take_completions())
      done_[completion.ticket] = std::move(completion);
  }
  SpillCompletion completion = std::move(done_[ticket]);
  done_.erase(ticket);
  return completion;
}

Result<SpillLocation> SpillHarness::spill(const BlobKey& blob, const BlobLocation& from) {
  const std::uint64_t ticket = next_ticket_++;
  RETURN_IF_ERROR(files->write(ticket, blob, from));
  const SpillCompletion done = wait(ticket);
  RETURN_IF_ERROR(done.status);
  EXPECT_FALSE(done.is_read);
  return done.location;
}

Status SpillHarness::load(const BlobKey& blob, SpillLocation from, const BlobLocation& to) {
  const std::uint64_t ticket = next_ticket_++;
  RETURN_IF_ERROR(files->read(ticket, blob, from, to));
  const SpillCompletion done = wait(ticket);
  EXPECT_TRUE(done.is_read);
  return done.status;
}

void SpillHarness::settle_manifest() {
  const auto deadline = os::Deadline::after_ms(20'000);
  while (!files->is_drained()) {
    const auto readable = os::wait_readable(event_.get(), os::Deadline::after_ms(20));
    ASSERT_TRUE(readable.is_ok());
    os::clear_event(event_.get());
    for (SpillCompletion& completion : files->take_completions())
      done_[completion.ticket] = std::move(completion);
    ASSERT_FALSE(deadline.passed()) << "the manifest is not written";
  }
}

std::string SpillHarness::subfolder(std::size_t number) const {
  return store_subfolder(folder(number), options.socket_path);
}

std::vector<std::string> SpillHarness::spill_paths(std::size_t number) const {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(subfolder(number))) {
    if (entry.path().filename().string().starts_with("spill-")) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

void flip_byte(const std::string& path, std::uint64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const int byte = file.get();
  ASSERT_NE(byte, EOF) << path << " at " << offset;
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(~byte));
  file.flush();
  ASSERT_TRUE(file.good());
}

}  // namespace entrepot::testing
