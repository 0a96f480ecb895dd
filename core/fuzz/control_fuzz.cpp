// Corrupt control memory. A client that reads it, and a daemon that adopts it, must get objects, none, or an error;
// neither may read outside its mappings or loop forever. The first byte selects the reader; the rest are patches:
// region, position, bytes.
#include <array>

#include "client/pinned_set.h"
#include "fuzz/fuzz_store.h"
#include "os/memfd.h"

namespace entrepot::fuzz {
namespace {

using testing::kKiB;
using testing::numbered_id;

constexpr std::uint64_t kObjects = 6;

// A client's view of segments: memory of the right size for those that exist.
class Segments : public Rpc {
 public:
  explicit Segments(const Store& store) {
    for (std::uint32_t number = 0; number < 64; ++number) {
      if (store.pool().is_live(number))
        segments_[number] = {number, store.pool().generation(number), store.pool().bytes(number)};
    }
  }
  Result<Frame> call(MessageType type, std::span<const std::uint8_t> body, const CallOptions&) override {
    SegmentRequest request;
    require(type == MessageType::kSegment && from_wire(body, request), "a reader asks for segments only");
    const auto match = segments_.find(request.segment);
    if (match == segments_.end()) return Status(Code::kInvalidArgument, "there is no such segment");
    Frame frame;
    frame.body = to_wire(match->second);
    frame.fds.push_back(os::create_memfd("fuzz-segment", match->second.segment_bytes).take());
    return frame;
  }
  void post(MessageType) override {}
  std::shared_ptr<Connection> current_connection() override { return nullptr; }
  Status wait_reconnected(const std::shared_ptr<Connection>&, const Interrupt&) override {
    return Status(Code::kStoreUnavailable, "there is no daemon");
  }

 private:
  std::map<std::uint32_t, SegmentReply> segments_;
};

// Creates some of everything: blobs, a shared one, inline payload, a spilled one, names, sets, consumers, a deleted
// one.
void fill(FuzzStore& world) {
  Store& store = *world.store;
  const std::uint32_t client = store.begin_client().take();
  store.publish_client(client, 7, {1, 1, 64, "seed"});
  SessionLimits limits{60, 4 << 20, 100};
  const std::uint32_t session = store.open_session(1, "scope", "run", &limits).take();
  const SetGrant set = store.define_set(session, "set", 0, {}).take();
  std::optional<LeaseGrant> grant;
  store.lease({client, 1}, 512 * kKiB, 512 * kKiB, 0, [&](auto granted) { grant = granted.take(); });
  require(grant.has_value(), "there is memory to lease");
  std::uint64_t offset = grant->offset;
  for (std::uint64_t number = 1; number <= kObjects; ++number) {
    SealSpec spec;
    spec.id = numbered_id(number);
    spec.session = session;
    spec.tree = "a tree";
    spec.locality_set = number % 2 == 0 ? set.handle : 0;
    spec.consumers = number % 3 == 0 ? 2 : 0;
    const std::string name = "name-" + std::to_string(number);
    spec.name = name;
    if (number == 2) {
      spec.payload = "inline payload";
      spec.buffers = {{kInlineBlob, 0, 0, 6}, {kInlineBlob, 0, 7, 7}};
    } else if (number == 3) {
      spec.buffers = {{0, store.parts().blobs.generation(0), 100, 50}};
    } else {
      spec.blobs = {{grant->segment, offset, 5000}};
      spec.buffers = {{kNewBlobBit, 0, 0, 4000}, {kNewBlobBit, 0, 4000, 1000}};
      offset += 5056;
    }
    require(store.seal(client, spec).status.is_ok(), "a good object is sealed");
  }
  const std::vector<IdBytes> spill = {numbered_id(4)};
  require(store.evict(spill)[0].is_ok(), "an object can be evicted");
  for (int turn = 0; turn < 8; ++turn) {
    world.spill.finish_all();
    store.take_spill_completions();
    store.run_pending();
  }
  (void)store.consumed(std::vector{numbered_id(6)}, "task");
  require(store.remove(std::vector{numbered_id(5)})[0] == 1, "an object can be deleted");
}

std::uint64_t used_bytes(const FuzzStore& world, RegionKind kind) {
  const Root& root = world.memory.root();
  const Region& region = world.memory.region(kind);
  switch (kind) {
    case RegionKind::kRoot:
      return sizeof(Root);
    case RegionKind::kSlots:
      return root.slot_high_water.load() * sizeof(Slot);
    case RegionKind::kBlobs:
      return root.blob_high_water.load() * sizeof(Blob);
    case RegionKind::kRecords:
      return std::min<std::uint64_t>(root.record_high_water.load(), 8192);
    case RegionKind::kSegments:
      return root.segment_high_water.load() * sizeof(Segment);
    case RegionKind::kIndex:
      return 0;  // anywhere
    default:
      return region.marks().high_water.load() * region_entry_bytes(kind);
  }
}

// Applies an input's patches. Only to existing pages: reading a page that was never written yields zeros anyway.
void patch(FuzzStore& world, FuzzInput& input) {
  std::array<std::uint64_t, kAllRegions.size()> used{};  // computed before any patch changes the marks
  for (std::size_t i = 0; i < used.size(); ++i)
    used[i] = used_bytes(world, kAllRegions[i]);
  const std::uint64_t index_word = world.memory.root().index_word.load();
  while (!input.empty()) {
    const std::size_t which = input.byte() % kAllRegions.size();
    const Region& region = world.memory.region(kAllRegions[which]);
    const auto place = input.number<std::uint16_t>();
    const std::uint8_t length = input.byte();
    std::byte* begin = region.entries();
    std::uint64_t bytes = used[which];
    if (kAllRegions[which] == RegionKind::kIndex) {
      begin += (1ULL << IndexWord::log2(index_word)) * 8;
      bytes = (1ULL << IndexWord::log2(index_word)) * 8;
    }
    if ((length & 0x80U) != 0) {  // the header and the marks after it
      begin = region.entries() - kRegionHeaderBytes;
      bytes = sizeof(RegionHeader) + sizeof(RegionMarks);
    }
    const auto what = input.take(length & 0x1fU);
    if (bytes == 0) continue;
    const std::uint64_t at = place % bytes;
    std::memcpy(begin + at, what.data(), std::min<std::uint64_t>(what.size(), bytes - at));
  }
}

// Reads every byte of `bytes`, so that a sanitizer or a fault detects one that is not readable.
template <class Range>
void touch(const Range& bytes) {
  std::uint64_t sum = 0;
  for (const auto byte : bytes)
    sum += static_cast<std::uint8_t>(byte);
  asm volatile("" : : "r"(sum));
}

void read_as_client(FuzzStore& world, Segments& rpc) {
  auto fds = world.memory.client_fds();
  require(fds.is_ok(), "the regions can be opened for reading");
  auto view = ControlView::attach(std::move(fds).value(), testing::numbered_instance(1));
  if (!view.is_ok()) return;
  auto pins = PinTable::create_private(64);
  require(pins.is_ok(), "a pin table can be made");
  SegmentViews views(rpc);
  const auto set = std::make_shared<PinnedSet>(view.take(), pins.take(), UniqueFd());
  for (std::uint64_t number = 1; number <= kObjects + 1; ++number) {
    const IdBytes id = numbered_id(number);
    {
      InlineObject object;
      if (set->peek(id, object)) {
        touch(object.record().tree());
        touch(object.record().payload());
      }
    }
    const auto tree = set->tree(id);
    if (tree.is_ok() && tree->has_value()) touch((*tree)->tree);
    for (const std::uint32_t slot : {0U, 1U, 0xffff'ffffU}) {
      (void)set->at(slot, set->generation_of(id).value_or(1), id, views, 0, {});
      (void)set->tree_at(slot, set->generation_of(id).value_or(1), id);
    }
    const auto object = set->find(id, views, 0, {});
    if (!object.is_ok() || *object == nullptr) continue;
    touch((*object)->tree());
    for (const BufferView& buffer : (*object)->buffers()) {
      touch(std::span(buffer.data, buffer.length));
      if (buffer.length > 0) (void)set->locate(buffer.data, buffer.length);
    }
  }
  require(set->pins_in_use() == 0, "no pin is left");
}

void take_over(FuzzStore& world) {
  std::map<RegionKind, UniqueFd> fds;
  for (const RegionKind kind : kAllRegions)
    fds.emplace(kind, os::duplicate(world.memory.region(kind).fd()).take());
  world.store.reset();
  auto adopted = ControlMemory::adopt(std::move(fds));
  if (!adopted.is_ok()) return;
  world.memory = adopted.take();
  world.spill.daemon_died();
  world.begin();
  Store& store = *world.store;
  store.adopt_clients();
  if (!store.adopt_rest().is_ok()) return;
  std::vector<std::uint32_t> clients;
  for (const auto& [client, state] : store.clients().all())
    clients.push_back(client);
  (void)store.status_json({});
  (void)store.sessions_json();
  ListQuery query;
  query.all_sessions = true;
  (void)store.list_json(query);
  std::vector<IdBytes> ids;
  for (std::uint64_t number = 1; number <= kObjects + 1; ++number) {
    ids.push_back(numbered_id(number));
    (void)store.info_json(ids.back());
    store.lookup({0, 1}, {ids.back()}, 0, 10, [](const auto&) {});
  }
  (void)store.evict(ids);
  for (int turn = 0; turn < 8; ++turn) {
    world.spill.finish_all();
    store.take_spill_completions();
    store.run_pending();
  }
  const auto session = store.open_session(9, "scope", "run", nullptr);
  if (session.is_ok()) {
    (void)store.sets_json(*session);
    SealSpec spec;
    spec.id = ids[0];
    spec.session = *session;
    spec.replace = true;
    spec.payload = "new";
    spec.buffers = {{kInlineBlob, 0, 0, 3}};
    spec.name = "name-1";
    (void)store.seal(0, spec);
  }
  (void)store.consumed(ids, "another");
  (void)store.remove(ids);
  for (const std::uint32_t client : clients)
    store.client_died(client);
  world.clock.advance_ms(100'000);
  store.tick();
  store.run_pending();
}

void run(FuzzInput input) {
  FuzzStore world;
  fill(world);
  const bool as_client = (input.byte() & 1U) == 0;
  Segments rpc(*world.store);
  patch(world, input);
  if (as_client) {
    read_as_client(world, rpc);
  } else {
    take_over(world);
  }
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all = {{0}, {1}};  // no change
  for (std::uint8_t who = 0; who < 2; ++who) {
    for (std::uint8_t region = 0; region < kAllRegions.size(); ++region) {
      for (const unsigned place : {0U, 8U, 40U, 128U, 136U, 700U}) {
        Bytes input = {who};
        for (std::uint8_t i = 0; i < 3; ++i) {
          input.push_back(region);
          input.push_back(static_cast<std::uint8_t>(place + i * 8U));
          input.push_back(static_cast<std::uint8_t>(place >> 8));
          input.push_back(4);
          append(input, {static_cast<std::uint8_t>(i * 0xffU), 0xff, 0xff, static_cast<std::uint8_t>(place)});
        }
        all.push_back(input);
      }
    }
  }
  return all;
}

}  // namespace entrepot::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  entrepot::fuzz::run(entrepot::fuzz::FuzzInput(data, size));
  return 0;
}
