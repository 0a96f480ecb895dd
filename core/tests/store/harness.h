// A store over the process-local fake of shared memory: a clock that tests turn, and segments that hold no bytes (the
// store never looks at payload).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fakes/fake_memory.h"
#include "store/store.h"
#include "store/sync_point.h"

namespace entrepot::testing {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;

class FakeClock : public Clock {
 public:
  [[nodiscard]] std::uint64_t monotonic_ns() const override { return now_; }
  [[nodiscard]] std::uint64_t unix_ns() const override { return now_ + kEpoch; }
  void advance_ms(std::uint64_t ms) { now_ += ms * 1'000'000; }

 private:
  static constexpr std::uint64_t kEpoch = 1'700'000'000'000'000'000ULL;
  std::uint64_t now_ = 1'000'000'000;
};

// Says that memory is there, at once or when the test says so.
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
  [[nodiscard]] Found find(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes) override;
  void finish_all();  // of a source that does not answer at once

  Store* store = nullptr;
  bool at_once = true;
  Status failure;  // not ok: every provisioning fails with it
  std::vector<Job> waiting;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> there;  // (segment, generation) -> bytes
  std::uint64_t punched = 0;
};

class Harness {
 public:
  explicit Harness(std::uint64_t capacity = 64 * kMiB, std::uint64_t warm = 0);

  std::uint32_t add_client(const std::string& label = "test");
  void kill(std::uint32_t client);
  [[nodiscard]] PinTable& pins(std::uint32_t client) { return *tables_.at(client); }
  std::uint32_t open(const std::string& session = "", const SessionLimits* limits = nullptr, std::uint64_t owner = 1);

  // Expects an answer at once.
  LeaseGrant lease(std::uint32_t client, std::uint64_t min_bytes, std::uint64_t want_bytes = 0);
  Status lease_error(std::uint32_t client, std::uint64_t min_bytes);

  // An object of one blob of `bytes`, leased for it; or of inline payload.
  SealSpec blob_spec(std::uint32_t client, const IdBytes& id, std::uint32_t session, std::uint64_t bytes);
  static SealSpec inline_spec(const IdBytes& id, std::uint32_t session, std::string_view payload);
  SealOutcome seal(std::uint32_t client, const SealSpec& spec) { return store->seal(client, spec); }

  bool remove(const IdBytes& id);
  [[nodiscard]] bool has(const IdBytes& id) const { return store->objects().lookup(id).code == Code::kOk; }
  [[nodiscard]] std::uint32_t generation(const IdBytes& id) const { return store->objects().lookup(id).generation; }
  std::uint32_t pin(std::uint32_t client, const IdBytes& id);  // the position

  // The daemon dies where it stands and another takes over; clients are quarantined.
  AdoptionReport restart();

  // Deletes all, ends all clients: then nothing may be in use.
  void expect_no_leak();

  FakeClock clock;
  FakeSource source;
  ControlMemory memory;
  StoreOptions options;
  std::unique_ptr<Store> store;

 private:
  std::map<std::uint32_t, std::unique_ptr<PinTable>> tables_;
};

}  // namespace entrepot::testing
