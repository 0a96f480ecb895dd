#include "plasma/arena.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "base/align.h"
#include "base/text.h"
#include "client/copy.h"
#include "os/clock.h"
#include "os/log.h"
#include "os/memfd.h"

namespace entrepot::plasma {
namespace {

constexpr std::uint32_t kLeaseWaitMs = 10'000;
constexpr std::uint32_t kShortLeaseWaitMs = 200;
constexpr std::uint64_t kBriefMs = 100;              // a daemon that works takes as long for a few requests only
constexpr std::uint32_t kLoadWaitMs = 10'000;        // then a get that still waits asks for it again
constexpr std::uint64_t kRefusalNs = 1'000'000'000;  // so long a segment that was refused is not asked for again
constexpr std::size_t kMaxNumbers = 1024;            // then those of segments that are gone are forgotten
constexpr std::string_view kScope = "default";

ConnectOptions connect_options(const Arena::Options& options, bool isolated) {
  ConnectOptions connect;
  connect.path = options.store_path;
  connect.label = "entrepot-plasma-store";
  connect.version = ENTREPOT_VERSION;
  connect.isolated_leases = isolated;
  connect.load_ms = kLoadWaitMs;
  return connect;
}

std::uint64_t align_for(std::uint64_t bytes) { return bytes >= kOwnPagesBytes ? os::page_bytes() : kBlobAlign; }

}  // namespace

// Bytes of the arena: given back to the store when the last owner is gone, unless the store has taken them over.
struct Arena::Memory {
  Memory(std::shared_ptr<Client> client, LeasedRange range, bool is_leased)
      : client(std::move(client)), range(std::move(range)), is_leased(is_leased) {}
  ~Memory() {
    if (is_leased) client->return_lease(range);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Memory(Memory&&) = delete;
  Memory& operator=(Memory&&) = delete;

  std::shared_ptr<Client> client;
  LeasedRange range;
  bool is_leased;
  // Of a publication that is open; used by whoever publishes.
  bool is_open = false;
  std::optional<std::uint32_t> open_pin;
};

Result<std::unique_ptr<Arena>> Arena::connect(const Options& options) {
  std::unique_ptr<Arena> arena(new Arena(options));
  ASSIGN_OR_RETURN(arena->client_, Client::connect(connect_options(options, true), {}));
  const std::uint64_t store_bytes = arena->client_->server().capacity_bytes;
  if (options.capacity_bytes > store_bytes) {
    return Status(Code::kInvalidArgument,
                  concat("Plasma clients are to have ", format_bytes(options.capacity_bytes), ", but the store at ",
                         options.store_path, " has ", format_bytes(store_bytes),
                         ": pass less with -m, or start the store with a larger --size"));
  }
  ASSIGN_OR_RETURN(arena->session_, arena->client_->open_session(std::string(kScope), "", std::nullopt, {}));
  if (options.isolate) {
    ASSIGN_OR_RETURN(arena->copies_, Client::connect(connect_options(options, false), {}));
    ASSIGN_OR_RETURN(arena->copies_session_, arena->copies_->open_session(std::string(kScope), "", std::nullopt, {}));
  }
  return arena;
}

Arena::~Arena() {
  if (copies_) copies_->close();
  if (client_) client_->close();
}

Interrupt Arena::interrupt_check() {
  return {[](void* context) { return static_cast<std::atomic<bool>*>(context)->load(); }, &interrupted_};
}

std::optional<Extent> Arena::lease_at_hand(std::uint64_t bytes) {
  auto range = client_->lease_at_hand(round_up(std::max<std::uint64_t>(bytes, 1), align_for(bytes)), align_for(bytes));
  if (!range) return std::nullopt;
  return extent_of(*std::move(range), true);
}

Result<Extent> Arena::lease_since(std::uint64_t began_ns, std::uint64_t bytes) {
  const std::uint64_t waited_ms = (os::monotonic_ns() - began_ns) / kNsPerMs;
  return lease(bytes, waited_ms < kLeaseWaitMs ? kLeaseWaitMs - static_cast<std::uint32_t>(waited_ms) : 0);
}

Result<Extent> Arena::lease(std::uint64_t bytes, std::uint32_t wait_ms) {
  const std::uint64_t align = align_for(bytes);
  ASSIGN_OR_RETURN(LeasedRange range, client_->lease(round_up(std::max<std::uint64_t>(bytes, 1), align), align, wait_ms,
                                                     interrupt_check()));
  return extent_of(std::move(range), true);
}

Extent Arena::extent_of(LeasedRange range, bool is_leased) {
  Extent extent;
  extent.segment_bytes = range.memory->mapping.bytes();
  extent.offset = range.offset;
  {
    const std::lock_guard lock(mutex_);
    Number& number = numbers_[{range.memory->segment, range.memory->generation}];
    if (number.number == 0) number.number = next_number_++;
    number.segment = range.memory;
    extent.segment = number.number;
    forget_old_numbers();
  }
  extent.memory = std::make_shared<Memory>(client_, std::move(range), is_leased);
  return extent;
}

std::byte* Arena::address(const Extent& extent) const {
  return static_cast<const Memory*>(extent.memory.get())->range.data();
}

std::shared_ptr<const UniqueFd> Arena::descriptor(const Extent& extent) const {
  const auto& segment = static_cast<const Memory*>(extent.memory.get())->range.memory;
  return {segment, &segment->fd};
}

Published Arena::publish(const IdBytes& id, const Extent& extent, std::uint64_t data_bytes,
                         std::uint64_t metadata_bytes, Patience patience) {
  if (!copies_) return publish_in_place(id, extent, data_bytes, metadata_bytes, patience);
  PutItem item;
  item.id = id;
  item.session = copies_session_;
  item.tree = kPlasmaTree;
  const std::byte* const data = address(extent);
  item.buffers = {{data, data_bytes}, {data + data_bytes, metadata_bytes}};
  std::vector<PutResult> results;
  do {
    // Again if the daemon has not answered: what it sealed nevertheless has the same content, so this is a success.
    results = copies_->put(std::span(&item, 1), kLeaseWaitMs, interrupt_check());
  } while (results[0].status.code() == Code::kTimeout && !interrupted_.load());
  return {results[0].status, results[0].generation, false, nullptr, false};
}

Published Arena::publish_in_place(const IdBytes& id, const Extent& extent, std::uint64_t data_bytes,
                                  std::uint64_t metadata_bytes, Patience patience) {
  auto* const memory = static_cast<Memory*>(extent.memory.get());
  ObjectSpec spec;
  spec.id = id;
  spec.session = session_;
  spec.tree = kPlasmaTree;
  const std::array<std::uint64_t, 2> lengths{data_bytes, metadata_bytes};
  InPlaceSeal sealed = client_->seal_in_place(memory->range, spec, lengths, interrupt_check(), deadline_of(patience));
  note_answer(sealed.status, patience);
  if (!sealed.is_leased) memory->is_leased = false;
  if (sealed.is_unanswered) {
    memory->is_open = true;
    if (!memory->open_pin) memory->open_pin = sealed.unanswered_pin;
    return {std::move(sealed.status), 0, false, nullptr, true};
  }
  const bool is_empty = data_bytes + metadata_bytes == 0;
  const bool was_open = std::exchange(memory->is_open, false);
  const bool may_be_sealed = sealed.status.is_ok() || sealed.status.code() == Code::kObjectExists;
  std::optional<Published> before;
  if (!sealed.pin && may_be_sealed && (was_open || !is_empty)) {
    // After a reconnect, or if this was open, it may be this very one, sealed by the request that was sent before.
    before = published_before(id, extent, is_empty);
  }
  // Only now, when what is there has another pin.
  if (const auto pin = std::exchange(memory->open_pin, std::nullopt)) client_->settle_seal(*pin);
  if (before) return *std::move(before);
  const bool is_in_place = sealed.pin != nullptr;
  if (is_in_place) memory->is_leased = false;
  return {std::move(sealed.status), sealed.generation, is_in_place, std::move(sealed.pin), false};
}

std::optional<Published> Arena::published_before(const IdBytes& id, const Extent& extent, bool is_empty) {
  const Result<StoredObject> stored = find(id);
  if (!stored.is_ok() || !stored->object) return std::nullopt;
  if (is_empty) {
    const Contents& contents = stored->contents;
    if (!contents.is_plasma || !contents.data.empty() || !contents.metadata.empty()) return std::nullopt;
    return Published{Status::ok(), stored->object->generation(), false, nullptr, false};
  }
  const std::optional<Extent> place = in_place(*stored);
  if (!place || place->segment != extent.segment || place->offset != extent.offset) return std::nullopt;
  auto* const memory = static_cast<Memory*>(extent.memory.get());
  client_->forget_lease(memory->range);
  memory->is_leased = false;
  return Published{Status::ok(), stored->object->generation(), true, stored->object, false};
}

Status Arena::reconnect() {
  Status answer = client_->status(interrupt_check()).status();
  note_answer(answer, Patience::kUntilAnswered);
  return answer;
}

os::Deadline Arena::deadline_of(Patience patience) const {
  if (patience == Patience::kUntilAnswered) return os::Deadline::never();
  return os::Deadline::after_ms(is_silent() ? 0 : kBriefMs);
}

void Arena::note_answer(const Status& answer, Patience patience) {
  const bool is_answered = answer.code() != Code::kTimeout && answer.code() != Code::kStoreUnavailable;
  if (is_answered) {
    is_silent_.store(false);
  } else if (patience == Patience::kBrief) {
    is_silent_.store(true);
  }
}

bool Arena::exists(const IdBytes& id) const { return client_->shown_generation(id).has_value(); }

Result<std::vector<bool>> Arena::exist(std::span<const IdBytes> ids, Patience patience) {
  auto existing = client_->exist(ids, interrupt_check(), deadline_of(patience));
  note_answer(existing.status(), patience);
  return existing;
}

std::optional<std::uint32_t> Arena::generation(const IdBytes& id) const { return client_->shown_generation(id); }

Result<StoredObject> Arena::find(const IdBytes& id) {
  StoredObject stored;
  auto object = client_->find(id, deadline_of(Patience::kBrief));
  if (!object.is_ok()) {
    note_answer(object.status(), Patience::kBrief);
    return object.status();
  }
  stored.object = object.take();
  if (!stored.object) return stored;
  const auto contents = contents_of(*stored.object);
  if (!contents) return StoredObject();
  stored.contents = *contents;
  return stored;
}

Result<StoredObject> Arena::load(const IdBytes& id) {
  ASSIGN_OR_RETURN(auto objects, client_->get(std::span(&id, 1), 0, interrupt_check()));
  StoredObject stored;
  const auto contents = contents_of(*objects[0]);
  if (!contents) return stored;
  stored.object = std::move(objects[0]);
  stored.contents = *contents;
  return stored;
}

std::optional<Extent> Arena::in_place(const StoredObject& stored) { return locate(stored, false); }

std::optional<Extent> Arena::locate(const StoredObject& stored, bool asks_again) {
  if (!stored.contents.is_plasma) return std::nullopt;
  const BufferView* first = nullptr;
  for (const BufferView& buffer : stored.object->buffers()) {
    if (buffer.length == 0) continue;
    if (buffer.view == nullptr) return std::nullopt;
    if (first == nullptr) {
      first = &buffer;
    } else if (buffer.view != first->view || buffer.data != first->data + first->length) {
      return std::nullopt;  // the metadata must follow the data
    }
  }
  if (first == nullptr) return std::nullopt;
  LeasedRange range;
  range.memory = segment_of(*first->view, asks_again);
  if (!range.memory) return std::nullopt;
  range.offset = static_cast<std::uint64_t>(first->data - first->view->mapping.data());
  Extent extent = extent_of(std::move(range), false);
  extent.pin = stored.object;
  return extent;
}

std::shared_ptr<WritableSegment> Arena::segment_of(const SegmentView& view, bool asks_again) {
  const std::pair key(view.segment, view.generation);
  {
    const std::lock_guard lock(mutex_);
    if (const auto match = numbers_.find(key); match != numbers_.end()) {
      if (auto segment = match->second.segment.lock()) return segment;
      const std::uint64_t refused_ns = match->second.refused_ns;
      if (!asks_again && refused_ns != 0 && os::monotonic_ns() - refused_ns < kRefusalNs) return nullptr;
    }
  }
  // What this front end is to keep from changing is not handed out, even if an earlier one has done so.
  if (copies_) return nullptr;
  const Patience patience = asks_again ? Patience::kUntilAnswered : Patience::kBrief;
  auto segment = client_->isolated_segment(view.segment, view.generation, interrupt_check(), deadline_of(patience));
  note_answer(segment.status(), patience);
  if (segment.is_ok()) return segment.take();
  if (segment.code() == Code::kTimeout) return nullptr;  // it was not refused
  const std::lock_guard lock(mutex_);
  numbers_[key].refused_ns = os::monotonic_ns();
  forget_old_numbers();
  return nullptr;
}

void Arena::forget_old_numbers() {
  if (numbers_.size() <= kMaxNumbers) return;
  std::erase_if(numbers_, [](const auto& entry) { return entry.second.segment.expired(); });
}

Result<Brought> Arena::bring(const StoredObject& stored) {
  const std::uint64_t bytes = stored.contents.data.size() + stored.contents.metadata.size();
  Result<Extent> leased = lease(bytes, kShortLeaseWaitMs);
  for (const bool is_last : {false, true}) {
    if (leased.is_ok()) {
      copy(stored, *leased);
      return Brought{leased.take(), false};
    }
    // The daemon may have refused to let it be passed on because it did not know yet that its writer is gone.
    if (auto extent = locate(stored, true)) return Brought{*std::move(extent), true};
    if (is_last || leased.code() != Code::kStoreFull) break;
    leased = lease(bytes, kLeaseWaitMs);
  }
  return leased.status();
}

void Arena::copy(const StoredObject& stored, const Extent& extent) const {
  std::byte* to = address(extent);
  for (const auto& part : {stored.contents.data, stored.contents.metadata}) {
    if (!part.empty()) copy_payload(to, part.data(), part.size());
    to += part.size();
  }
}

Result<std::vector<bool>> Arena::remove(std::span<const Doomed> objects, Patience patience, bool is_repeated) {
  std::vector<ObjectGeneration> shown;
  std::vector<IdBytes> unseen;
  for (const Doomed& object : objects) {
    if (object.generation) {
      shown.push_back({object.id, *object.generation});
    } else {
      unseen.push_back(object.id);
    }
  }
  if (patience == Patience::kBrief && !unseen.empty()) {
    ASSIGN_OR_RETURN(const std::vector<bool> existing, exist(unseen, patience));
    if (std::ranges::find(existing, true) != existing.end()) {
      return Status(Code::kTimeout, "an object that is not in the directory is deleted by the thread that waits", true);
    }
    unseen.clear();
  }
  const auto removed = remove_at_daemon(shown, unseen, deadline_of(patience));
  note_answer(removed.status(), patience);
  if (!removed.is_ok()) return removed.status();
  std::vector<bool> were_there;
  std::size_t next_shown = 0;
  std::size_t next_unseen = shown.size();
  for (const Doomed& object : objects) {
    if (object.generation) {
      were_there.push_back((*removed)[next_shown++] != 0 || is_repeated);  // it was when this was asked first
    } else {
      were_there.push_back(!unseen.empty() && (*removed)[next_unseen++] != 0);
    }
  }
  return were_there;
}

Result<std::vector<std::uint8_t>> Arena::remove_at_daemon(std::span<const ObjectGeneration> shown,
                                                          std::span<const IdBytes> unseen, os::Deadline deadline) {
  auto removed = client_->remove_generations(shown, interrupt_check(), deadline);
  if (removed.code() == Code::kVersionMismatch) {  // a daemon that an upgrade has not replaced yet
    std::vector<IdBytes> ids;
    for (const ObjectGeneration& object : shown)
      ids.push_back(object.id);
    removed = client_->remove(ids, interrupt_check(), deadline);
  }
  RETURN_IF_ERROR(removed.status());
  ASSIGN_OR_RETURN(const auto others, client_->remove(unseen, interrupt_check(), deadline));
  removed->insert(removed->end(), others.begin(), others.end());
  return removed;
}

std::vector<ObjectDescription> Arena::list(const std::vector<IdBytes>& listed) {
  const std::unordered_set<IdBytes, IdHash> skipped(listed.begin(), listed.end());
  std::vector<ObjectDescription> objects;
  for (const IdBytes& id : client_->ids()) {
    if (skipped.contains(id)) continue;
    Result<ObjectTree> tree = client_->tree(id, interrupt_check());
    while (tree.code() == Code::kTimeout && !interrupted_.load())
      tree = client_->tree(id, interrupt_check());
    // What was deleted meanwhile is not listed.
    if (!tree.is_ok() || tree->tree != kPlasmaTree || tree->lengths.size() != 2) continue;
    ObjectDescription& object = objects.emplace_back();
    object.id = id;
    object.data_bytes = tree->lengths[0];
    object.metadata_bytes = tree->lengths[1];
    object.construct_s = 0;
    object.digest.assign(sizeof(std::uint64_t), '\0');  // not empty: it is sealed
  }
  return objects;
}

}  // namespace entrepot::plasma
