// Test harness: a store over the process-local fake of shared memory, a manual clock, and segments without bytes (the
// store never looks at payload).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fakes/fake_memory.h"
#include "store/store.h"
#include "store/sync_point.h"
#include "store/units.h"

namespace entrepot::testing {

inline const IdBytes kA = numbered_id(1);
inline const IdBytes kB = numbered_id(2);

class FakeClock : public Clock {
 public:
  [[nodiscard]] std::uint64_t monotonic_ns() const override { return now_; }
  [[nodiscard]] std::uint64_t unix_ns() const override { return now_ + kEpoch; }
  void advance_ms(std::uint64_t ms) { now_ += ms * 1'000'000; }

 private:
  static constexpr std::uint64_t kEpoch = 1'700'000'000'000'000'000ULL;
  std::uint64_t now_ = 1'000'000'000;
};

// Reports memory as provisioned, immediately or when the test calls finish_all().
class FakeSource : public MemorySource {
 public:
  struct Job {
    std::uint32_t segment;
    std::uint32_t generation;
    std::uint64_t bytes;
    bool urgent;
  };

  void provision(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes, bool urgent) override;
  [[nodiscard]] Status punch(std::uint32_t segment, std::uint64_t offset, std::uint64_t bytes) override;
  void drop(std::uint32_t segment, std::uint32_t generation) override;
  void follow_pressure(bool on) override { is_followed = on; }
  [[nodiscard]] Existing find(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes) override;
  [[nodiscard]] bool machine_is_short() const override { return is_short; }
  void finish_all();  // completes pending jobs if not at_once
  [[nodiscard]] std::uint64_t in_use() const;

  Store* store = nullptr;                       // is told what was provisioned,
  SegmentProvisioning* provisioning = nullptr;  // or this, in tests without a store
  bool at_once = true;
  MemoryKind kind = MemoryKind::kSmallPages;  // of provisioned memory
  Status failure;                             // if not ok, every provisioning fails with it
  std::uint64_t machine_bytes = UINT64_MAX;   // the machine's memory
  bool is_followed = false;                   // whether the store wants to be told of pressure
  bool is_short = false;                      // whether others need memory
  std::vector<Job> waiting;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> files;  // (segment, generation) -> bytes
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::map<std::uint64_t, std::uint64_t>> holes;  // holes per segment
  std::uint64_t punched = 0;
};

// Spill backend without bytes: records which copy is where, and does its I/O immediately or when the test says so.
class FakeSpillBackend : public SpillBackend {
 public:
  struct Copy {
    BlobKey key;
    std::uint64_t length = 0;
    bool adopted = true;
    bool released = false;
    auto operator<=>(const Copy&) const = default;
  };
  struct Job {
    std::uint64_t ticket = 0;
    bool is_read = false;
    BlobKey key;
    std::uint64_t length = 0;
    SpillLocation location = 0;
  };

  [[nodiscard]] std::uint64_t copy_bytes(std::uint64_t length) const override { return length; }
  Status write(std::uint64_t ticket, const BlobKey& blob, const BlobLocation& from) override;
  Status read(std::uint64_t ticket, const BlobKey& blob, SpillLocation from, const BlobLocation& to) override;
  void release(const BlobKey& blob, SpillLocation copy, std::uint64_t length) override;
  std::vector<SpillCompletion> take_completions() override;
  Status adopt(const BlobKey& blob, SpillLocation copy, std::uint64_t length) override;
  Result<SpillLocation> rebind(const SpilledBlob& old, const BlobKey& now) override;
  std::uint64_t adopt_end() override;
  std::uint64_t remember(const SpilledObject& object) override;
  std::uint64_t forget(const IdBytes& id, std::uint32_t generation) override;
  [[nodiscard]] std::uint64_t recorded() const override { return appended_ - unwritten.size(); }
  std::vector<SpilledObject> recover() override;
  bool has_predecessor() const override { return !manifest.empty(); }
  void discard_all() override;
  [[nodiscard]] SpillStats stats() const override;

  void finish_all();                                 // completes pending jobs, successfully or with `failure`
  void write_records(std::size_t count = SIZE_MAX);  // the oldest ones; the store learns of it in run_pending()
  void daemon_died();                                // its pending I/O and unwritten records are lost; copies remain
  std::uint64_t used() const;

  bool at_once = true;
  bool records_at_once = true;  // the manifest is written with each change
  std::uint64_t quota = UINT64_MAX;
  Status write_failure;
  Status read_failure;
  std::vector<Job> waiting;
  std::map<SpillLocation, Copy> copies;
  std::map<IdBytes, SpilledObject> manifest;    // on disk
  std::deque<std::function<void()>> unwritten;  // records that are not

 private:
  std::uint64_t append(std::function<void()> record);
  void free_released();

  std::uint64_t appended_ = 0;
  std::deque<std::pair<std::uint64_t, SpillLocation>> released_;  // by the record that must be written first
  std::vector<SpillCompletion> done_;
  SpillLocation next_ = 1;
};

class Harness {
 public:
  explicit Harness(std::uint64_t capacity = 64 * kMiB, std::uint64_t warm = 0, bool spills = false);

  std::uint32_t add_client(const std::string& label = "test");
  void kill(std::uint32_t client);
  void kill_unseen(std::uint32_t client) { tables_.erase(client); }  // the next daemon finds it dead
  [[nodiscard]] PinTable& pins(std::uint32_t client) { return *tables_.at(client); }
  std::uint32_t open(const std::string& session = "", const SessionLimits* limits = nullptr, std::uint32_t client = 1);

  // Requests a lease that must be granted immediately.
  LeaseGrant lease(std::uint32_t client, std::uint64_t min_bytes, std::uint64_t want_bytes = 0);
  Status lease_error(std::uint32_t client, std::uint64_t min_bytes);

  // Specs of an object: one leased blob of `bytes`, or inline payload.
  // An object of one blob at the start of a lease.
  static SealSpec spec_in(const LeaseGrant& grant, const IdBytes& id, std::uint32_t session, std::uint64_t bytes);
  SealSpec blob_spec(std::uint32_t client, const IdBytes& id, std::uint32_t session, std::uint64_t bytes);
  static SealSpec inline_spec(const IdBytes& id, std::uint32_t session, std::string_view payload);
  SealOutcome seal(std::uint32_t client, const SealSpec& spec) { return store->seal(client, spec); }

  bool remove(const IdBytes& id);
  [[nodiscard]] bool has(const IdBytes& id) const { return store->objects().lookup(id).code == Code::kOk; }
  [[nodiscard]] std::uint32_t generation(const IdBytes& id) const { return store->objects().lookup(id).generation; }
  std::uint32_t pin(std::uint32_t client, const IdBytes& id);  // returns the position

  // Processes completions of the spill backend and their consequences until nothing more happens.
  void run_io();
  [[nodiscard]] bool is_resident(const IdBytes& id) const { return store->objects().lookup(id).resident; }
  // Like a client's get: waits for a load.
  LookupOutcome get(const IdBytes& id, std::uint64_t load_ms = 1000);

  // The daemon dies at once and a successor adopts its memory; clients are quarantined.
  AdoptionReport restart();
  // Keeper and daemon die; a new store starts with fresh memory and no clients.
  void begin_anew();

  // Deletes all objects and disconnects all clients; nothing may be in use after that.
  void expect_no_leak();

  FakeClock clock;
  FakeSource source;
  FakeSpillBackend spill;
  bool spills = false;
  ControlMemory memory;
  StoreOptions options;
  std::unique_ptr<Store> store;

 private:
  std::map<std::uint32_t, std::unique_ptr<PinTable>> tables_;
};

}  // namespace entrepot::testing
