// What the parts of store/object depend on, without a Store, over the process-local fake of shared memory.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fakes/fake_memory.h"
#include "shm/memory_budget.h"
#include "shm/record_arena.h"
#include "store/harness.h"
#include "store/object/blob_table.h"
#include "store/object/consumer_table.h"
#include "store/object/object_catalog.h"

namespace entrepot::testing {

inline constexpr std::uint32_t kClient = 3;

// Provisions at once, and has whatever memory a successor looks for.
class InstantSource : public MemorySource {
 public:
  void provision(std::uint32_t segment, std::uint32_t generation, std::uint64_t, bool) override {
    pool->provisioned(segment, generation, Status::ok(), MemoryKind::kSmallPages);
  }
  [[nodiscard]] Status punch(std::uint32_t, std::uint64_t, std::uint64_t) override { return Status::ok(); }
  void drop(std::uint32_t, std::uint32_t) override {}
  [[nodiscard]] bool machine_is_short() const override { return is_short; }
  void follow_pressure(bool on) override { is_followed = on; }
  [[nodiscard]] Existing find(std::uint32_t, std::uint32_t, std::uint64_t) override { return {true, {}}; }

  SegmentPool* pool = nullptr;
  bool is_short = false;
  bool is_followed = false;
};

[[nodiscard]] inline ControlMemory control_memory(std::uint64_t blobs = 64) {
  Result<ControlMemory> memory = ControlMemory::create_private(numbered_instance(1), {{RegionKind::kSlots, 64},
                                                                                      {RegionKind::kBlobs, blobs},
                                                                                      {RegionKind::kRecords, kMiB},
                                                                                      {RegionKind::kSegments, 64},
                                                                                      {RegionKind::kSessions, 32},
                                                                                      {RegionKind::kNames, 64},
                                                                                      {RegionKind::kClients, 32}});
  EXPECT_TRUE(memory.is_ok()) << memory.status().to_string();
  return memory.take();
}

// One daemon's tables. A second one over the same memory is its successor.
struct ObjectFixture {
  explicit ObjectFixture(ControlMemory& control)
      : memory(&control),
        budget(kCapacity),
        records(control),
        sessions(control, clock),
        sets(control, sessions),
        consumers(control),
        names(control),
        pool(control, records, source, budget, options()),
        catalog(control, records, sessions) {
    source.pool = &pool;
  }

  // For a fresh store. Returns the index of a session.
  std::uint32_t start() {
    EXPECT_TRUE(catalog.adopt().is_ok());
    return session("run");
  }

  std::uint32_t session(std::string_view name) {
    const Result<std::uint32_t> index = sessions.open("scope", name, nullptr, 0);
    EXPECT_TRUE(index.is_ok()) << index.status().to_string();
    return index.is_ok() ? *index : 0;
  }

  // A range of its own lease.
  BlobRange lease(std::uint64_t bytes) {
    LeaseWait wait;
    for (int turn = 0; turn < 2; ++turn) {
      const Result<std::optional<LeaseGrant>> grant = pool.lease({kClient, 1}, bytes, bytes, wait);
      if (grant.is_ok() && grant->has_value()) return {(*grant)->segment, (*grant)->offset, bytes};
    }
    ADD_FAILURE() << "no lease of " << bytes << " bytes";
    return {};
  }

  // A blob in a range of its own, to which the slots refer.
  std::uint32_t put_blob(BlobTable& blobs, std::uint64_t bytes, std::initializer_list<std::uint32_t> slots) {
    const std::vector<BlobRange> ranges = {lease(bytes)};
    Result<FreshBlobs> fresh = blobs.publish(ranges);
    EXPECT_TRUE(fresh.is_ok()) << fresh.status().to_string();
    for (const std::uint32_t slot : slots)
      blobs.add_reference(fresh->blobs()[0], slot);
    fresh->commit();
    blobs.take_ranges(ranges);
    return fresh->blobs()[0];
  }

  // A sealed object that can be found. Returns its slot. Its blobs still lack its reference.
  std::uint32_t put_object(const IdBytes& id, std::uint32_t session_index, std::vector<RecordBlob> refs = {},
                           std::uint64_t payload_bytes = 1000) {
    const Result<std::uint32_t> slot = catalog.allocate();
    EXPECT_TRUE(slot.is_ok()) << slot.status().to_string();
    SlotFields fields;
    fields.id = id;
    fields.session = session_index;
    fields.payload_bytes = payload_bytes;
    const Result<std::uint64_t> record = records.write({{}, refs, "tree", {}}, fields.record_bytes);
    EXPECT_TRUE(record.is_ok()) << record.status().to_string();
    fields.record_offset = *record;
    catalog.publish_sealed(*slot, fields, MemoryKind::kUnknown);
    catalog.add(*slot);
    EXPECT_TRUE(catalog.insert(*slot).is_ok());
    return *slot;
  }

  // A copy as the pager makes it.
  static SpillLocation write_copy(FakeSpillBackend& spill, const BlobTable& blobs, std::uint32_t blob) {
    EXPECT_TRUE(spill.write(1, blobs.key(blob), blobs.place(blob)).is_ok());
    const std::vector<SpillCompletion> done = spill.take_completions();
    EXPECT_EQ(done.size(), 1U);
    return done.at(0).location;
  }

  static constexpr std::uint64_t kCapacity = 64 * kMiB;
  [[nodiscard]] static StoreOptions options() {
    StoreOptions options;
    options.capacity_bytes = kCapacity;
    return options;
  }

  FakeClock clock;
  ControlMemory* memory;
  MemoryBudget budget;
  RecordArena records;
  SessionTable sessions;
  LocalitySetTable sets;
  ConsumerTable consumers;
  NameTable names;
  PinScanner pins;
  InstantSource source;
  SegmentPool pool;
  ObjectCatalog catalog;
};

// A client's pins, which the daemon's scans see.
class Reader {
 public:
  explicit Reader(PinScanner& scanner) : table_(make()) { EXPECT_TRUE(scanner.add_private(kClient, table_).is_ok()); }

  void pin(const PinTarget& target) { position_ = table_.pin(target.slot, target.generation); }
  void unpin() { table_.unpin(position_); }

 private:
  static PinTable make() {
    Result<PinTable> table = PinTable::create_private(64);
    EXPECT_TRUE(table.is_ok()) << table.status().to_string();
    return table.take();
  }

  PinTable table_;
  std::uint32_t position_ = PinTable::kNoPosition;
};

}  // namespace entrepot::testing
