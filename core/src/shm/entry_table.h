// EntryTable: common base of the control memory's tables; manages the life of an entry's word.
//
//   free(g) ──allocate──▶ taken(g), word still free ──publish──▶ live state(g) ──set_state──▶ ... ──free──▶ free(g + 1)
//                           └─abandon──▶ free(g)                                                    └─▶ retired, if
//                                                                                                       g = 2^32 - 1
//
// Generations start at 1, so that 0 can mean "none" elsewhere. An entry whose last generation has ended is retired: its
// word is free with kRetiredFlag, and it is never allocated again, because its generation cannot be incremented. To a
// daemon that adopts the memory, an entry that was taken but never published is free: nothing was promised about it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/align.h"
#include "base/status.h"
#include "base/text.h"
#include "shm/layout.h"
#include "shm/region.h"

namespace entrepot {

inline constexpr std::uint32_t kLastGeneration = 0xffff'ffffU;

// T must have `std::atomic<std::uint64_t> word`. Guarded by the daemon's thread; readers in other processes only load
// words.
template <class T>
class EntryTable {
 public:
  // `region` and `high_water` must outlive the table. `high_water` is Root's mark for the kind, or
  // region.marks().high_water.
  EntryTable(Region& region, std::atomic<std::uint32_t>& high_water)
      : region_(&region), high_water_(&high_water), next_fresh_(high_water.load(std::memory_order_relaxed)) {}

  // Visits every entry below the high-water mark: free entries become allocatable, retired ones are counted, and for
  // all others `visit(index, entry)` decides: true keeps the entry, false frees it. Call once, before anything else.
  template <class Visit>
  void adopt(Visit&& visit) {
    free_.clear();
    live_ = 0;
    retired_ = 0;
    for (std::uint32_t index = next_fresh_; index-- > 0;) {  // downwards, so that low indices are allocated first
      const std::uint64_t word = at(index).word.load(std::memory_order_acquire);
      if (Word::state(word) == 0) {
        if (is_retired(word)) {
          ++retired_;
        } else {
          free_.push_back(index);
        }
        continue;
      }
      ++live_;
      if (!visit(index, at(index))) free(index);
    }
  }

  // Allocates an entry that has pages; its word is still free, and its fields may be written now. kStoreFull at
  // capacity.
  [[nodiscard]] Result<std::uint32_t> allocate() {
    std::uint32_t index = 0;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else {
      RETURN_IF_ERROR(grow());
      index = next_fresh_++;
    }
    ++live_;
    return index;
  }

  // Ensures that the next allocate() succeeds.
  [[nodiscard]] Status prepare() { return free_.empty() ? grow() : Status::ok(); }

  // Undoes an allocate() that was not published.
  void abandon(std::uint32_t index) {
    --live_;
    free_.push_back(index);
  }

  // Generation that publish() will give the entry.
  [[nodiscard]] std::uint32_t next_generation(std::uint32_t index) const {
    const std::uint32_t generation = Word::generation(at(index).word.load(std::memory_order_relaxed));
    return generation == 0 ? 1 : generation;
  }

  // Makes the fields visible by storing the word (release). Returns the word.
  std::uint64_t publish(std::uint32_t index, std::uint8_t state, std::uint8_t kind = 0, std::uint16_t flags = 0) {
    const std::uint64_t word = Word::make(next_generation(index), state, kind, flags);
    at(index).word.store(word, std::memory_order_release);
    return word;
  }

  // Changes the state within the same generation. Uses a sequentially consistent exchange, because pins are scanned
  // after it. Returns the previous word.
  std::uint64_t set_state(std::uint32_t index, std::uint8_t state) {
    const std::uint64_t old = at(index).word.load(std::memory_order_relaxed);
    const std::uint64_t word = Word::make(Word::generation(old), state, Word::kind(old), Word::flags(old));
    return at(index).word.exchange(word, std::memory_order_seq_cst);
  }

  // Ends the entry's life: generation + 1, or retired.
  void free(std::uint32_t index) {
    const std::uint32_t generation = Word::generation(at(index).word.load(std::memory_order_relaxed));
    --live_;
    freed_since_trim_ = true;
    if (generation == kLastGeneration) {
      at(index).word.exchange(Word::make(generation, 0, 0, kRetiredFlag), std::memory_order_seq_cst);
      ++retired_;
      return;
    }
    at(index).word.exchange(Word::make(generation + 1, 0), std::memory_order_seq_cst);
    free_.push_back(index);
  }

  [[nodiscard]] T& at(std::uint32_t index) { return region_->template as<T>()[index]; }
  [[nodiscard]] const T& at(std::uint32_t index) const { return region_->template as<T>()[index]; }
  [[nodiscard]] std::uint64_t word(std::uint32_t index) const { return at(index).word.load(std::memory_order_relaxed); }

  // For untrusted numbers: true if the entry exists, is live and has this generation.
  [[nodiscard]] bool is_live(std::uint32_t index, std::uint32_t generation) const {
    if (index >= next_fresh_) return false;
    const std::uint64_t value = word(index);
    return Word::state(value) != 0 && Word::generation(value) == generation;
  }

  [[nodiscard]] std::uint32_t size() const { return next_fresh_; }  // all indices ever used are below this
  [[nodiscard]] std::uint32_t live() const { return live_; }        // allocated, published or not
  [[nodiscard]] std::uint32_t retired() const { return retired_; }

  // Returns the pages of the free entries at the end of the table to the system, if it is a whole step of growth or
  // more. Only for kinds whose generations nobody outside compares, or come from elsewhere: these begin again at 1.
  // Returns the number of bytes returned.
  std::uint64_t trim() {
    if (!std::exchange(freed_since_trim_, false)) return 0;
    if ((next_fresh_ - live_ - retired_) * sizeof(T) < Region::kGrowBytes) return 0;
    std::uint32_t end = next_fresh_;
    while (end > 0 && Word::state(word(end - 1)) == 0 && !is_retired(word(end - 1)))
      --end;
    const std::uint64_t bytes = round_up(end * sizeof(T), Region::kGrowBytes);
    const auto mark = static_cast<std::uint32_t>(bytes / sizeof(T));
    if (mark >= next_fresh_) return 0;
    std::erase_if(free_, [&](std::uint32_t index) { return index >= mark; });
    free_.shrink_to_fit();
    std::sort(free_.begin(), free_.end(), std::greater<>());  // low ones first, so that the end becomes free again
    next_fresh_ = mark;
    high_water_->store(mark, std::memory_order_release);  // no scan and no reader goes beyond it
    const Result<std::uint64_t> returned = region_->shrink(bytes);
    return returned.is_ok() ? *returned : 0;
  }

  // Sets the generation that a free entry's next life gets.
  void set_next_generation(std::uint32_t index, std::uint32_t generation) {
    at(index).word.store(Word::make(generation, 0), std::memory_order_relaxed);
  }

 private:
  static bool is_retired(std::uint64_t word) {
    return Word::generation(word) == kLastGeneration && (Word::flags(word) & kRetiredFlag) != 0;
  }

  // Pages first, then the mark: a crash in between only forgets that the pages exist.
  Status grow() {
    const std::uint32_t mark = high_water_->load(std::memory_order_relaxed);
    if (next_fresh_ < mark) return Status::ok();
    if (mark >= region_->capacity()) {
      return Status(Code::kStoreFull,
                    concat("all ", region_->capacity(), " ", region_name(region_->kind()), " are in use (", retired_,
                           " retired); delete unneeded objects or sessions"));
    }
    std::uint64_t next = mark + Region::kGrowBytes / sizeof(T);
    if (next > region_->capacity()) next = region_->capacity();
    RETURN_IF_ERROR(region_->ensure(next * sizeof(T)));
    high_water_->store(static_cast<std::uint32_t>(next), std::memory_order_release);
    return Status::ok();
  }

  Region* region_;
  std::atomic<std::uint32_t>* high_water_;
  std::uint32_t next_fresh_;
  std::uint32_t live_ = 0;
  std::uint32_t retired_ = 0;
  bool freed_since_trim_ = true;  // an adopted table may end in free entries
  std::vector<std::uint32_t> free_;
};

}  // namespace entrepot
