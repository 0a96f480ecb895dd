#include "store/paging_parts.h"

#include <utility>

#include "store/object/object_recovery.h"

namespace entrepot::testing {
namespace {

constexpr SegmentWriterRef kWriter{1, 1001};

template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.is_ok()) << result.status().to_string();
  return result.take();
}

StoreOptions parts_options(std::uint64_t capacity) {
  StoreOptions options;
  options.capacity_bytes = capacity;
  return options;
}

ControlMemory parts_memory() {
  return must(ControlMemory::create_private(numbered_instance(1), {{RegionKind::kSlots, 512},
                                                                   {RegionKind::kBlobs, 512},
                                                                   {RegionKind::kRecords, 8 * kMiB},
                                                                   {RegionKind::kSegments, 256},
                                                                   {RegionKind::kSessions, 16},
                                                                   {RegionKind::kNames, 64},
                                                                   {RegionKind::kClients, 16}}));
}

}  // namespace

void PoolSource::provision(std::uint32_t segment, std::uint32_t generation, std::uint64_t, bool) {
  waiting.push_back({segment, generation});
  if (at_once) finish();
}

void PoolSource::finish(const Status& status) {
  for (const Job& job : std::exchange(waiting, {}))
    pool->provisioned(job.segment, job.generation, status, MemoryKind::kSmallPages);
}

PagingParts::PagingParts(bool spills, std::uint64_t capacity)
    : memory(parts_memory()),
      options(parts_options(capacity)),
      budget(options.capacity_bytes),
      records(memory),
      sessions(memory, clock),
      sets(memory, sessions),
      consumers(memory),
      names(memory),
      pool(memory, records, source, budget, options),
      parts({memory, clock, sessions, sets, consumers, names, pool, records, pins, spills ? &spill : nullptr}),
      objects(parts),
      residency(parts),
      candidates({parts.catalog, residency, sets, pins, clock, spills}),
      writer({parts.catalog, parts.blobs, parts.manifest, residency, clock, spills ? &spill : nullptr}),
      reads(must(PinTable::create_private(64))) {
  source.pool = &pool;
  spill.at_once = false;
  EXPECT_TRUE(pins.add_private(kReader, reads).is_ok());
  EXPECT_TRUE(ObjectRecovery(parts).adopt().is_ok());
  parts.listener = this;
  session_ = sessions.handle(must(sessions.open("scope", "run", nullptr, 1000)));
}

std::uint32_t PagingParts::seal(SealSpec& spec, std::uint64_t number) {
  spec.id = numbered_id(number);
  spec.session = session_;
  spec.tree = "tree";
  const SealOutcome sealed = objects.seal(kWriter.client, spec);
  EXPECT_TRUE(sealed.status.is_ok()) << sealed.status.to_string();
  for (const BlobRange& blob : spec.blobs)
    pool.sealed(blob.segment);
  return sealed.slot;
}

std::uint32_t PagingParts::put(std::uint64_t number, std::uint64_t bytes) {
  LeaseWait wait;
  const std::optional<LeaseGrant> grant = must(pool.lease(kWriter, bytes, bytes, wait));
  EXPECT_TRUE(grant.has_value());
  SealSpec spec;
  spec.blobs = {{grant->segment, grant->offset, bytes}};
  spec.buffers = {{kNewBlobBit, 0, 0, bytes}};
  return seal(spec, number);
}

std::uint32_t PagingParts::put_sharing(std::uint64_t number, std::uint32_t other) {
  const std::uint32_t blob = parts.catalog.blobs_of(other).front();
  SealSpec spec;
  spec.buffers = {{blob, parts.blobs.generation(blob), 0, 100}};
  return seal(spec, number);
}

std::uint32_t PagingParts::put_spilled(std::uint64_t number, std::uint64_t bytes) {
  const std::uint32_t slot = put(number, bytes);
  write_and_evict(slot);
  return slot;
}

void PagingParts::write_and_evict(std::uint32_t slot) {
  writer.write(slot);
  for (const SpillCompletion& done : end_io())
    static_cast<void>(writer.complete(done));
  const std::vector<std::uint32_t> slots = {slot};
  EXPECT_EQ(residency.evict(slots).evicted, slots);
  candidates.evicted(slot);
  candidates.forget_absent(slot);
}

void PagingParts::fill(std::uint64_t first_number) {
  LeaseWait wait;
  for (std::uint64_t number = first_number;; ++number) {
    const Result<std::optional<LeaseGrant>> grant = pool.lease(kWriter, 2 * kMiB, 2 * kMiB, wait);
    if (!grant.is_ok() || !grant->has_value()) break;
    SealSpec spec;
    spec.blobs = {{(*grant)->segment, (*grant)->offset, 2 * kMiB}};
    spec.buffers = {{kNewBlobBit, 0, 0, 2 * kMiB}};
    static_cast<void>(seal(spec, number));
  }
  pool.client_disconnected(kWriter.client);
  pool.client_died(kWriter.client);
}

void PagingParts::remove(std::uint64_t number) {
  const IdBytes id = numbered_id(number);
  EXPECT_EQ(objects.remove(std::span(&id, 1)), std::vector<std::uint8_t>{1});
}

void PagingParts::hint(std::uint32_t slot, const SlotHints& hints) {
  objects.set_hints(slot, hints);
  candidates.hints_changed(slot);
}

void PagingParts::pin(std::uint32_t slot) {
  EXPECT_NE(reads.pin(slot, parts.catalog.directory().generation(slot)), PinTable::kNoPosition);
}

std::vector<SpillCompletion> PagingParts::end_io() {
  spill.finish_all();
  return spill.take_completions();
}

}  // namespace entrepot::testing
