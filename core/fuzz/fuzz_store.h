// Store for fuzz targets: real control memory in memfds, the tests' clock, and a memory source and disk without bytes.
#pragma once

#include <memory>
#include <utility>

#include "fuzz/fuzz_input.h"
#include "os/log.h"
#include "store/harness.h"

namespace entrepot::fuzz {

// Small tables, so that inputs reach their ends, and because each input gets a new store.
[[nodiscard]] inline std::map<RegionKind, std::uint64_t> small_tables() {
  return {{RegionKind::kSlots, 512},       {RegionKind::kBlobs, 512},   {RegionKind::kIndex, 4ULL << 12},
          {RegionKind::kRecords, 4 << 20}, {RegionKind::kSegments, 64}, {RegionKind::kSessions, 32},
          {RegionKind::kNames, 256},       {RegionKind::kClients, 32},  {RegionKind::kSets, 64},
          {RegionKind::kConsumptions, 256}};
}

struct FuzzStore {
  FuzzStore() : memory(ControlMemory::create(testing::numbered_instance(1), small_tables()).take()) {
    GTEST_FLAG_SET(break_on_failure, true);  // for expectations in the fakes
    set_log_level(LogLevel::kOff);           // a hundred thousand lines would be noise
    options.capacity_bytes = 8 * testing::kMiB;
    options.host = "host";
    options.version = "1";
    begin();
    require(store->start_fresh().is_ok(), "an empty store starts");
  }

  void begin() {
    store.reset();
    store = std::make_unique<Store>(memory, source, clock, options, &spill);
    source.store = store.get();
  }

  // Ends all clients and sessions; afterwards nothing may be in use.
  void require_no_leak() {
    source.at_once = spill.at_once = true;
    source.failure = spill.write_failure = spill.read_failure = Status::ok();
    source.finish_all();
    for (const std::uint32_t session : store->sessions().live()) {
      const std::string scope(store->sessions().scope(session));
      const std::string name(store->sessions().name(session));
      require(store->remove_session(scope, name).is_ok(), "a session can be removed");
    }
    store->rescan_pins();
    for (int turn = 0; turn < 100; ++turn) {
      spill.finish_all();
      store->take_spill_completions();
      store->run_pending();
    }
    require(spill.copies.empty() && spill.manifest.empty(), "no copy is left on disk");
    require(store->parts().catalog.count() == 0 && store->parts().deferred.count() == 0, "no object is left");
    require(store->parts().blobs.live() == 0, "no blob is left");
    require(store->parts().catalog.directory().live() == 0, "no slot is left");
    require(store->names().count() == 0, "no name is left");
    require(store->pool().blob_bytes() == 0, "no memory is in use");
    require(store->pool().leased_bytes() == 0, "no memory is leased");
    require(store->counted_consumptions() == 0, "no consumption is left");
    require(store->status_json({}).find("\"record_bytes\":0") != std::string::npos, "no record is left");
  }

  testing::FakeClock clock;
  testing::FakeSource source;
  testing::FakeSpillBackend spill;
  ControlMemory memory;
  StoreOptions options;
  std::unique_ptr<Store> store;
};

}  // namespace entrepot::fuzz
