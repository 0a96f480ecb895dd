// ValueMemory: memory of a store for values that are still being made, so that a put seals them where they are instead
// of copying them. One per process, because an address must tell whose memory it is.
//
//              freeze()               sealed()
//   writable ───────────▶ frozen ───────────────────▶ sealed (pinned)
//      │                    ├──not_sealed()──▶ kept: further puts copy it
//      │                    └──outcome_unknown()──▶ private
//      └──fork, or the store is closed──▶ private: pages of this process, copied once (as from kept and frozen)
//
//   free(): the range of a writable or kept value goes back to the lease pool; a sealed one is unpinned. The range of a
//   frozen value belongs to the put that froze it.
//
// Each allocation is a mapping of its own of a leased range. From freeze() on it is copy-on-write: the program may go on
// writing to its value, at its own cost, and the sealed bytes stay as they are. Therefore a value is sealed in place
// once; a second put of it copies, because nobody can tell whether it was written to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "client/fork_watch.h"
#include "client/lease_pool.h"
#include "client/pinned_set.h"
#include "os/mapping.h"

namespace entrepot {

class Client;

inline constexpr std::uint64_t kMinValueBytes = 2U << 20;  // below, a copy is cheaper than a mapping

struct ValueMemoryCounts {
  std::uint64_t allocations = 0;  // at present
  std::uint64_t bytes = 0;        // of them
  std::uint64_t allocated = 0;    // since the process began
  std::uint64_t refused = 0;      // since then: the store had no memory for them
  std::uint64_t sealed = 0;       // since then: put without a copy
  std::string last_refusal;       // its reason
};

class ValueMemory : public ForkWatcher {
 public:
  [[nodiscard]] static ValueMemory& instance();

  // The client of a store, asked for at each allocation, because another store may have replaced the one before. Null:
  // there is none any more.
  using CurrentClient = std::function<std::shared_ptr<Client>()>;
  // While one is active, allocate() takes memory from the last one activated. Returns a number for deactivate().
  [[nodiscard]] std::uint64_t activate(CurrentClient client);
  void deactivate(std::uint64_t number);
  [[nodiscard]] bool is_active() const { return is_active_.load(std::memory_order_relaxed); }

  // Returns memory at the start of a page, or null, if the store has none for it: use other memory. May wait
  // for as long as the store takes to make it: seconds for each GiB.
  [[nodiscard]] std::byte* allocate(std::uint64_t bytes, bool zeroed);
  // Bytes allocated at exactly this address. nullopt: not by allocate().
  [[nodiscard]] std::optional<std::uint64_t> bytes_at(const void* address) const;
  // Changes the size if that needs no other memory.
  [[nodiscard]] bool resize(void* address, std::uint64_t bytes);
  [[nodiscard]] bool free(void* address);  // false: not allocated here
  [[nodiscard]] ValueMemoryCounts counts() const;

  // --- for a put by this client
  struct Place {
    std::byte* start = nullptr;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;  // of the whole allocation
  };
  // The writable allocation of this client that contains these bytes.
  [[nodiscard]] std::optional<Place> locate(const Client& client, const void* data, std::uint64_t length) const;
  // Makes it copy-on-write; returns the range to be sealed. nullopt: it is not writable any more, or cannot be frozen.
  // One of the next three follows.
  [[nodiscard]] std::optional<LeasedRange> freeze(const std::byte* start);
  [[nodiscard]] bool sealed(const std::byte* start, std::shared_ptr<HeldPin> pin);  // false: it does not need the pin
  [[nodiscard]] bool not_sealed(const std::byte* start);  // false: the range is not needed any more, give it back
  void outcome_unknown(const std::byte* start);  // the range may be sealed or not: its memory must not depend on it

  // The client is being closed: its leases end.
  void make_private(Client& client);

  // --- ForkWatcher: registered before all clients, so that its mutex is taken before theirs
  void before_fork() override;
  void after_fork_in_parent() override;
  void after_fork_in_child() override;
  void unlocked_in_parent() override;

 private:
  enum class State : std::uint8_t { kWritable, kFrozen, kKept, kSealed, kPrivate };
  struct Allocation {
    os::Mapping mapping;
    std::uint64_t bytes = 0;  // as requested
    State state = State::kWritable;
    LeasedRange range;
    std::weak_ptr<Client> client;  // whose range it is
    std::uint64_t owner = 0;       // its number
    std::shared_ptr<HeldPin> pin;  // while sealed

    [[nodiscard]] bool is_inherited() const { return state == State::kSealed || state == State::kPrivate; }
    [[nodiscard]] bool has_range() const { return state == State::kWritable || state == State::kKept; }
  };
  using Allocations = std::map<const std::byte*, Allocation>;

  ValueMemory() = default;
  [[nodiscard]] bool may_be_allocated(const void* address) const;  // quick; false: not by allocate()
  [[nodiscard]] std::byte* allocate_in_store(std::uint64_t bytes, bool zeroed);
  [[nodiscard]] std::shared_ptr<Client> active_client() const;
  // Gives an allocation that is not sealed private pages; returns the range that it had, if any. Requires mutex_.
  [[nodiscard]] static std::optional<LeasedRange> detach(Allocation& allocation);

  std::atomic<std::uint64_t> live_ = 0;  // size of allocations_; lets free() of other memory be quick
  std::atomic<bool> is_active_ = false;  // whether active_ has an entry

  mutable std::mutex mutex_;                                                 // held across a fork
  std::vector<std::pair<std::uint64_t, CurrentClient>> active_;              // guarded by mutex_
  std::uint64_t next_number_ = 1;                                            // guarded by mutex_
  Allocations allocations_;                                                  // guarded by mutex_; by address
  ValueMemoryCounts counts_;                                                 // guarded by mutex_
  std::vector<std::pair<std::shared_ptr<Client>, LeasedRange>> after_fork_;  // guarded by mutex_; to be returned
};

}  // namespace entrepot
