// What the classes of the pager need, without a store: real tables, pool and policy over the process-local fake of
// shared memory, and the fake spill backend, which does its I/O when the test says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/harness.h"
#include "store/paging/eviction_candidates.h"
#include "store/paging/spill_writer.h"

namespace entrepot::testing {

inline constexpr std::uint64_t kPartsCapacity = 32 * kMiB;  // 16 segments of 2 MiB

// Makes segments for a pool without a store, at once or when the test calls finish().
class PoolSource : public MemorySource {
 public:
  struct Job {
    std::uint32_t segment = 0;
    std::uint32_t generation = 0;
  };

  void provision(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes, bool urgent) override;
  [[nodiscard]] Status punch(std::uint32_t, std::uint64_t, std::uint64_t) override { return Status::ok(); }
  void drop(std::uint32_t, std::uint32_t) override {}
  [[nodiscard]] bool machine_is_short() const override { return false; }
  void follow_pressure(bool) override {}
  [[nodiscard]] Existing find(std::uint32_t, std::uint32_t, std::uint64_t) override { return {}; }
  void finish(const Status& status = Status::ok());

  SegmentPool* pool = nullptr;
  bool at_once = true;
  std::vector<Job> waiting;
};

class PagingParts : public ResidencyListener {
 public:
  explicit PagingParts(bool spills = true, std::uint64_t capacity = kPartsCapacity);

  // Seals an object with one blob. Returns its slot.
  std::uint32_t put(std::uint64_t number, std::uint64_t bytes = 2 * kMiB);
  // Seals an object that shares the blob of another one.
  std::uint32_t put_sharing(std::uint64_t number, std::uint32_t other);
  std::uint32_t put_spilled(std::uint64_t number, std::uint64_t bytes = 2 * kMiB);
  // Puts objects of 2 MiB until there is no memory for another one, and returns what is leased.
  void fill(std::uint64_t first_number);
  void remove(std::uint64_t number);
  void hint(std::uint32_t slot, const SlotHints& hints);
  [[nodiscard]] Code lookup(std::uint64_t number) const { return objects.lookup(numbered_id(number)).code; }
  // Pins the object for a client of its own, until the end of the test.
  void pin(std::uint32_t slot);
  // Ends the I/O that is in progress, and returns the completions.
  std::vector<SpillCompletion> end_io();
  void write_and_evict(std::uint32_t slot);

  void object_sealed(std::uint32_t slot) override { candidates.object_sealed(slot); }
  void object_ended(std::uint32_t slot) override { candidates.object_ended(slot); }

  FakeClock clock;
  FakeSpillBackend spill;
  PoolSource source;
  ControlMemory memory;
  StoreOptions options;
  MemoryBudget budget;
  RecordArena records;
  SessionTable sessions;
  LocalitySetTable sets;
  ConsumerTable consumers;
  NameTable names;
  PinScanner pins;
  SegmentPool pool;
  ObjectParts parts;
  ObjectTable objects;
  ObjectResidency residency;
  EvictionCandidates candidates;
  SpillWriter writer;
  PinTable reads;  // of client kReader
  static constexpr std::uint32_t kReader = 5;

 private:
  [[nodiscard]] std::uint32_t seal(SealSpec& spec, std::uint64_t number);

  std::uint32_t session_ = 0;
};

}  // namespace entrepot::testing
