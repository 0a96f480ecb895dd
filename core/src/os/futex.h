// Futexes in memory that processes share: sleep until another process changes a word.
#pragma once

#include <atomic>
#include <cstdint>

namespace entrepot::os {

// Sleeps while `word` is `value`, for `max_ns` (under a second) at most. May return early, so look at the word again.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, std::uint32_t max_ns);

// Wakes one thread that sleeps on `word`, if there is one.
void futex_wake(const std::atomic<std::uint32_t>& word);

}  // namespace entrepot::os
