#include "store/harness.h"

#include <cstdlib>

namespace entrepot::testing {
namespace {

constexpr std::uint64_t kToken = 1'000'000;  // + client

ControlMemory make_memory() {
  Result<ControlMemory> memory = ControlMemory::create_private(numbered_instance(1), {{RegionKind::kSlots, 8192},
                                                                                      {RegionKind::kBlobs, 8192},
                                                                                      {RegionKind::kRecords, 64 * kMiB},
                                                                                      {RegionKind::kSegments, 1024},
                                                                                      {RegionKind::kSessions, 256},
                                                                                      {RegionKind::kNames, 2048},
                                                                                      {RegionKind::kClients, 256}});
  if (!memory.is_ok()) {
    ADD_FAILURE() << memory.status().to_string();
    std::abort();
  }
  return memory.take();
}

}  // namespace

void FakeSource::provision(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes, bool urgent) {
  waiting.push_back({segment, generation, bytes, urgent});
  if (at_once) finish_all();
}

void FakeSource::finish_all() {
  for (const Job& job : std::exchange(waiting, {})) {
    Status status = failure;
    if (in_use() > machine_bytes || job.bytes > machine_bytes - in_use()) {
      status = Status(Code::kStoreFull, "the machine has no more");
    }
    if (status.is_ok()) files[{job.segment, job.generation}] = job.bytes;
    if (provisioning != nullptr) {
      provisioning->provisioned(job.segment, job.generation, status, kind);
    } else {
      store->provisioned(job.segment, job.generation, status, kind);
    }
  }
}

std::uint64_t FakeSource::in_use() const {
  std::uint64_t bytes = 0;
  for (const auto& [segment, size] : files) {
    bytes += size;
    const auto its = holes.find(segment);
    if (its == holes.end()) continue;
    for (const auto& [offset, length] : its->second)
      bytes -= length;
  }
  return bytes;
}

Status FakeSource::punch(std::uint32_t segment, std::uint64_t offset, std::uint64_t bytes) {
  punched += bytes;
  const auto it = files.lower_bound({segment, 0});  // one generation of a segment exists at a time
  if (it == files.end() || it->first.first != segment) {
    ADD_FAILURE() << "punched segment " << segment << ", which does not exist";
    return Status(Code::kInternal, "no such segment");
  }
  holes[it->first][offset] = bytes;
  return Status::ok();
}

void FakeSource::drop(std::uint32_t segment, std::uint32_t generation) {
  files.erase({segment, generation});
  holes.erase({segment, generation});
}

MemorySource::Existing FakeSource::find(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes) {
  const auto it = files.find({segment, generation});
  const auto its = holes.find({segment, generation});
  Existing existing{it != files.end() && it->second == bytes, {}};
  if (its != holes.end()) existing.holes.assign(its->second.begin(), its->second.end());
  return existing;
}

// ---- FakeSpillBackend ----

Status FakeSpillBackend::write(std::uint64_t ticket, const BlobKey& blob, const BlobLocation& from) {
  if (used() + from.length > quota) return Status(Code::kStoreFull, "the quota is used up", true);
  const SpillLocation location = next_++;
  copies[location] = {blob, from.length};
  waiting.push_back({ticket, false, blob, from.length, location});
  if (at_once) finish_all();
  return Status::ok();
}

Status FakeSpillBackend::read(std::uint64_t ticket, const BlobKey& blob, SpillLocation from, const BlobLocation& to) {
  const auto it = copies.find(from);
  EXPECT_TRUE(it != copies.end() && it->second.key == blob && it->second.length == to.length);
  waiting.push_back({ticket, true, blob, to.length, from});
  if (at_once) finish_all();
  return Status::ok();
}

void FakeSpillBackend::release(const BlobKey& blob, SpillLocation copy, std::uint64_t length) {
  const auto it = copies.find(copy);
  ASSERT_TRUE(it != copies.end()) << "released twice";
  EXPECT_TRUE(it->second.key == blob && it->second.length == length);
  for (const Job& job : waiting)
    EXPECT_NE(job.location, copy) << "released while I/O goes on";
  EXPECT_FALSE(std::exchange(it->second.released, true)) << "released twice";
  released_.emplace_back(appended_, copy);
  free_released();
}

// A copy stays until the manifest on disk no longer lists it.
void FakeSpillBackend::free_released() {
  for (; !released_.empty() && released_.front().first <= recorded(); released_.pop_front())
    copies.erase(released_.front().second);
}

void FakeSpillBackend::finish_all() {
  for (const Job& job : std::exchange(waiting, {})) {
    const Status& status = job.is_read ? read_failure : write_failure;
    if (!job.is_read && !status.is_ok()) copies.erase(job.location);
    done_.push_back({job.ticket, job.is_read, status, job.is_read || !status.is_ok() ? 0 : job.location});
  }
}

void FakeSpillBackend::daemon_died() {
  for (const Job& job : std::exchange(waiting, {})) {
    if (!job.is_read) copies.erase(job.location);
  }
  done_.clear();
  for (auto& [location, copy] : copies)
    copy.adopted = copy.released = false;
  appended_ -= unwritten.size();
  unwritten.clear();
  released_.clear();
}

std::uint64_t FakeSpillBackend::append(std::function<void()> record) {
  ++appended_;
  unwritten.push_back(std::move(record));
  if (records_at_once) write_records();
  return appended_;
}

void FakeSpillBackend::write_records(std::size_t count) {
  for (; count > 0 && !unwritten.empty(); --count) {
    unwritten.front()();
    unwritten.pop_front();
  }
  free_released();
}

std::vector<SpillCompletion> FakeSpillBackend::take_completions() { return std::exchange(done_, {}); }

Status FakeSpillBackend::adopt(const BlobKey& blob, SpillLocation copy, std::uint64_t length) {
  const auto it = copies.find(copy);
  if (it == copies.end() || it->second.key != blob || it->second.length != length) {
    return Status(Code::kObjectLost, "there is no such copy");
  }
  EXPECT_FALSE(std::exchange(it->second.adopted, true)) << "adopted twice";
  return Status::ok();
}

Result<SpillLocation> FakeSpillBackend::rebind(const SpilledBlob& old, const BlobKey& now) {
  const Status adopted = adopt(old.key, old.location, old.length);
  if (!adopted.is_ok()) return adopted;
  copies.erase(old.location);
  const SpillLocation location = next_++;
  copies[location] = {now, old.length};
  return location;
}

std::uint64_t FakeSpillBackend::adopt_end() {
  std::erase_if(copies, [](const auto& entry) { return !entry.second.adopted; });
  return appended_;
}

std::uint64_t FakeSpillBackend::remember(const SpilledObject& object) {
  for (const SpilledBlob& blob : object.blobs) {
    const auto it = copies.find(blob.location);
    EXPECT_TRUE(it != copies.end() && it->second.key == blob.key && it->second.length == blob.length);
  }
  return append([this, object] { manifest[object.id] = object; });
}

std::uint64_t FakeSpillBackend::forget(const IdBytes& id, std::uint32_t generation) {
  return append([this, id, generation] {
    const auto it = manifest.find(id);
    if (it != manifest.end() && it->second.generation == generation) manifest.erase(it);
  });
}

std::vector<SpilledObject> FakeSpillBackend::recover() {
  std::vector<SpilledObject> objects;
  for (const auto& [id, object] : std::exchange(manifest, {}))
    objects.push_back(object);
  return objects;
}

void FakeSpillBackend::discard_all() {
  copies.clear();
  manifest.clear();
}

std::uint64_t FakeSpillBackend::used() const {
  std::uint64_t bytes = 0;
  for (const auto& [location, copy] : copies)
    bytes += copy.length;
  return bytes;
}

SpillStats FakeSpillBackend::stats() const {
  SpillStats stats;
  stats.used_bytes = used();
  stats.quota_bytes = quota;
  return stats;
}

// ---- Harness ----

void Harness::run_io() {
  for (int turn = 0; turn < 10'000; ++turn) {
    const auto before = store->pager().stats().loads + store->pager().stats().evictions + spill.used();
    spill.finish_all();
    store->take_spill_completions();
    store->run_pending();
    const auto after = store->pager().stats().loads + store->pager().stats().evictions + spill.used();
    if (before == after && spill.waiting.empty() && !store->pager().has_io_in_progress()) return;
  }
  ADD_FAILURE() << "I/O without end";
}

LookupOutcome Harness::get(const IdBytes& id, std::uint64_t load_ms) {
  std::optional<std::vector<LookupOutcome>> got;
  store->lookup({0, 77}, {id}, 0, load_ms, [&](auto outcomes) { got = std::move(outcomes); });
  if (!got) run_io();
  if (!got) {
    clock.advance_ms(load_ms + 1);
    store->tick();
  }
  EXPECT_TRUE(got.has_value());
  return got ? (*got)[0] : LookupOutcome{};
}

Harness::Harness(std::uint64_t capacity, std::uint64_t warm, bool with_cold)
    : spills(with_cold), memory(make_memory()) {
  options.capacity_bytes = capacity;
  options.warm_bytes = warm;
  options.host = "host";
  options.version = "1";
  store = std::make_unique<Store>(memory, source, clock, options, spills ? &spill : nullptr);
  source.store = store.get();
  const Status status = store->start_fresh();
  EXPECT_TRUE(status.is_ok()) << status.to_string();
}

std::uint32_t Harness::add_client(const std::string& label) {
  const Result<std::uint32_t> client = store->begin_client();
  EXPECT_TRUE(client.is_ok()) << client.status().to_string();
  Result<PinTable> table = PinTable::create_private(1024);
  EXPECT_TRUE(table.is_ok()) << table.status().to_string();
  tables_[*client] = std::make_unique<PinTable>(table.take());
  store->publish_client(*client, kToken + *client, {4711, 1000, 1024, label});
  EXPECT_TRUE(store->pins().add_private(*client, *tables_[*client]).is_ok());
  return *client;
}

void Harness::kill(std::uint32_t client) {
  store->disconnected(client, client + 100);
  store->client_died(client);
  tables_.erase(client);
}

std::uint32_t Harness::open(const std::string& session, const SessionLimits* limits, std::uint32_t client) {
  const Result<std::uint32_t> handle = store->open_session(client, "scope", session, limits);
  EXPECT_TRUE(handle.is_ok()) << handle.status().to_string();
  return handle.is_ok() ? *handle : 0;
}

LeaseGrant Harness::lease(std::uint32_t client, std::uint64_t min_bytes, std::uint64_t want_bytes) {
  std::optional<Result<LeaseGrant>> got;
  store->lease({client, client + 100}, min_bytes, want_bytes, 0,
               [&](Result<LeaseGrant> grant) { got = std::move(grant); });
  EXPECT_TRUE(got.has_value());
  if (!got) return {};
  EXPECT_TRUE(got->is_ok()) << got->status().to_string();
  return got->is_ok() ? **got : LeaseGrant{};
}

Status Harness::lease_error(std::uint32_t client, std::uint64_t min_bytes) {
  std::optional<Result<LeaseGrant>> got;
  store->lease({client, client + 100}, min_bytes, min_bytes, 0,
               [&](Result<LeaseGrant> grant) { got = std::move(grant); });
  EXPECT_TRUE(got.has_value());
  if (!got) return Status(Code::kInternal, "no answer");
  EXPECT_FALSE(got->is_ok());
  return got->status();
}

SealSpec Harness::blob_spec(std::uint32_t client, const IdBytes& id, std::uint32_t session, std::uint64_t bytes) {
  return spec_in(lease(client, bytes, bytes), id, session, bytes);
}

SealSpec Harness::spec_in(const LeaseGrant& grant, const IdBytes& id, std::uint32_t session, std::uint64_t bytes) {
  SealSpec spec;
  spec.id = id;
  spec.session = session;
  spec.blobs = {{grant.segment, grant.offset, bytes}};
  spec.buffers = {{kNewBlobBit, 0, 0, bytes}};
  spec.tree = "tree";
  return spec;
}

SealSpec Harness::inline_spec(const IdBytes& id, std::uint32_t session, std::string_view payload) {
  SealSpec spec;
  spec.id = id;
  spec.session = session;
  spec.buffers = {{kInlineBlob, 0, 0, payload.size()}};
  spec.tree = "tree";
  spec.payload = payload;
  return spec;
}

bool Harness::remove(const IdBytes& id) {
  const std::vector<IdBytes> ids = {id};
  return store->remove(ids)[0] != 0;
}

std::uint32_t Harness::pin(std::uint32_t client, const IdBytes& id) {
  const LookupOutcome outcome = store->objects().lookup(id);
  EXPECT_EQ(outcome.code, Code::kOk);
  return pins(client).pin(outcome.slot, outcome.generation);
}

void Harness::begin_anew() {
  sync_hook = {};
  store.reset();
  tables_.clear();
  source.waiting.clear();
  source.files.clear();
  spill.daemon_died();
  memory = make_memory();
  store = std::make_unique<Store>(memory, source, clock, options, spills ? &spill : nullptr);
  source.store = store.get();
  const Status status = store->start_fresh();
  EXPECT_TRUE(status.is_ok()) << status.to_string();
}

AdoptionReport Harness::restart() {
  sync_hook = {};
  source.waiting.clear();
  spill.daemon_died();
  store = std::make_unique<Store>(memory, source, clock, options, spills ? &spill : nullptr);
  source.store = store.get();
  store->adopt_clients();
  std::vector<std::uint32_t> gone;
  for (const auto& [client, state] : store->clients().all()) {
    if (tables_.contains(client)) {
      EXPECT_TRUE(store->pins().add_private(client, *tables_[client]).is_ok());
    } else {
      gone.push_back(client);
    }
  }
  const Result<AdoptionReport> report = store->adopt_rest();
  EXPECT_TRUE(report.is_ok()) << report.status().to_string();
  for (const std::uint32_t client : gone)
    store->client_died(client);
  return report.is_ok() ? *report : AdoptionReport{};
}

void Harness::expect_no_leak() {
  for (const std::uint32_t session : store->sessions().live()) {
    const std::string scope(store->sessions().scope(session));
    const std::string name(store->sessions().name(session));
    EXPECT_TRUE(store->remove_session(scope, name).is_ok());
  }
  std::vector<std::uint32_t> clients;
  for (const auto& [client, state] : store->clients().all())
    clients.push_back(client);
  for (const std::uint32_t client : clients)
    kill(client);
  store->rescan_pins();
  if (spills) run_io();
  EXPECT_EQ(spill.copies.size(), 0U);
  EXPECT_EQ(spill.manifest.size(), 0U);
  EXPECT_EQ(store->parts().blobs.clean_bytes(), 0U);
  EXPECT_EQ(store->parts().blobs.spilled_bytes(), 0U);
  EXPECT_EQ(store->parts().catalog.count(), 0U);
  EXPECT_EQ(store->parts().deferred.count(), 0U);
  EXPECT_EQ(store->parts().catalog.payload_bytes(), 0U);
  EXPECT_EQ(store->parts().blobs.live(), 0U);
  EXPECT_EQ(store->parts().catalog.directory().live(), 0U);
  EXPECT_EQ(store->names().count(), 0U);
  EXPECT_EQ(store->sessions().count(), 0U);
  EXPECT_EQ(store->pool().blob_bytes(), 0U);
  EXPECT_EQ(store->pool().leased_bytes(), 0U);
  EXPECT_NE(store->status_json({}).find("\"record_bytes\":0"), std::string::npos) << store->status_json({});
  for (const auto& [name, line] : store->pool().summary())
    EXPECT_EQ(name, "free") << line.count;
}

}  // namespace entrepot::testing
