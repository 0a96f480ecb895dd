#include "plasma/arena.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "base/align.h"
#include "base/text.h"
#include "client/copy.h"
#include "os/log.h"
#include "os/memfd.h"

namespace entrepot::plasma {
namespace {

constexpr std::uint32_t kLeaseWaitMs = 10'000;
constexpr std::size_t kMaxNumbers = 1024;  // then those of segments that are gone are forgotten
constexpr std::string_view kScope = "default";

// Packed trees; see docs/plasma.md and docs/formats/metadata.md.
constexpr std::string_view kPlasmaTree(
    "\x92\x01\x95\xad"
    "plasma.Object\x01\x81\xa6"
    "source\xa6"
    "plasma\x92\x00\x01\x90",
    37);
constexpr std::string_view kBytesNode("\x95\xacpython.bytes\x01", 15);
constexpr std::string_view kByteArrayNode("\x95\xb0python.bytearray\x01", 19);
constexpr std::string_view kBlobNode(
    "\x95\xad"
    "entrepot.blob\x01",
    16);
constexpr std::string_view kOneBuffer("\x91\x00\x90", 3);  // and no children
constexpr std::string_view kNoBuffers("\x90\x90", 2);

std::span<const std::byte> span_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::span<const std::byte> span_of(const BufferView& buffer) { return {buffer.data, buffer.length}; }

// Takes a msgpack byte string from the front; nothing if there is none.
std::optional<std::string_view> take_bytes(std::string_view& packed) {
  if (packed.empty()) return std::nullopt;
  const auto first = static_cast<std::uint8_t>(packed[0]);
  if (first < 0xc4 || first > 0xc6) return std::nullopt;
  const std::size_t width = std::size_t{1} << (first - 0xc4);
  if (packed.size() < 1 + width) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = 0; i < width; ++i)
    length = length << 8U | static_cast<std::uint8_t>(packed[1 + i]);
  packed.remove_prefix(1 + width);
  if (packed.size() < length) return std::nullopt;
  const std::string_view bytes = packed.substr(0, length);
  packed.remove_prefix(length);
  return bytes;
}

// Skips the number of inline bytes that trees of format 2 begin with.
bool skip_inlined(std::string_view& packed) {
  const auto first = static_cast<std::uint8_t>(packed.empty() ? 0xff : packed[0]);
  std::size_t bytes = 0;
  if (first < 0x80) bytes = 1;
  if (first >= 0xcc && first <= 0xcf) bytes = 1 + (std::size_t{1} << (first - 0xcc));
  if (bytes == 0 || packed.size() < bytes) return false;
  packed.remove_prefix(bytes);
  return true;
}

ConnectOptions connect_options(const Arena::Options& options, bool isolated) {
  ConnectOptions connect;
  connect.path = options.store_path;
  connect.label = "entrepot-plasma-store";
  connect.version = ENTREPOT_VERSION;
  connect.isolated_leases = isolated;
  return connect;
}

std::uint64_t align_for(std::uint64_t bytes) { return bytes >= kOwnPagesBytes ? os::page_bytes() : kBlobAlign; }

}  // namespace

std::optional<Contents> contents_of(const SealedObject& object) {
  std::string_view tree = object.tree();
  const auto& buffers = object.buffers();
  if (tree == kPlasmaTree) {
    if (buffers.size() != 2) return std::nullopt;
    return Contents{span_of(buffers[0]), span_of(buffers[1]), true};
  }
  // [1, node] or [2, inlined, node]; a node is [codec, version, params, buffers, children].
  if (tree.starts_with("\x93\x02")) {
    tree.remove_prefix(2);
    if (!skip_inlined(tree)) return std::nullopt;
  } else if (tree.starts_with("\x92\x01")) {
    tree.remove_prefix(2);
  } else {
    return std::nullopt;
  }
  const auto is_of = [&](std::string_view codec) {
    if (!tree.starts_with(codec)) return false;
    tree.remove_prefix(codec.size());
    return true;
  };
  const bool is_blob = is_of(kBlobNode);
  if (!is_blob && !is_of(kBytesNode) && !is_of(kByteArrayNode)) return std::nullopt;
  const auto inlined = take_bytes(tree);
  if (is_blob) {
    if (!inlined || tree != kOneBuffer || buffers.size() != 1) return std::nullopt;
    return Contents{span_of(buffers[0]), span_of(*inlined), false};
  }
  if (inlined) {
    if (tree != kNoBuffers) return std::nullopt;
    return Contents{span_of(*inlined), {}, false};
  }
  if (!tree.starts_with('\xc0') || tree.substr(1) != kOneBuffer || buffers.size() != 1) return std::nullopt;
  return Contents{span_of(buffers[0]), {}, false};
}

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

Result<Extent> Arena::lease(std::uint64_t bytes) {
  const std::uint64_t align = align_for(bytes);
  ASSIGN_OR_RETURN(LeasedRange range, client_->lease(round_up(std::max<std::uint64_t>(bytes, 1), align), align,
                                                     kLeaseWaitMs, interrupt_check()));
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
    if (numbers_.size() > kMaxNumbers) {
      std::erase_if(numbers_, [](const auto& entry) { return entry.second.segment.expired(); });
    }
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

Status Arena::seal(const IdBytes& id, Object& object) {
  auto* const memory = static_cast<Memory*>(object.extent.memory.get());
  if (copies_) {
    PutItem item;
    item.id = id;
    item.session = copies_session_;
    item.tree = kPlasmaTree;
    const std::byte* const data = address(object.extent);
    item.buffers = {{data, object.data_bytes}, {data + object.data_bytes, object.metadata_bytes}};
    const std::vector<PutResult> results = copies_->put(std::span(&item, 1), kLeaseWaitMs, interrupt_check());
    object.generation = results[0].generation;
    return results[0].status;
  }
  ObjectSpec spec;
  spec.id = id;
  spec.session = session_;
  spec.tree = kPlasmaTree;
  const std::array<std::uint64_t, 2> lengths{object.data_bytes, object.metadata_bytes};
  InPlaceSeal sealed = client_->seal_in_place(memory->range, spec, lengths, interrupt_check());
  object.generation = sealed.generation;
  if (!sealed.is_leased) memory->is_leased = false;
  if (!sealed.pin && object.bytes() > 0 && (sealed.status.is_ok() || sealed.status.code() == Code::kObjectExists)) {
    // After a reconnect, it may be this very one, sealed by the request that was sent before.
    const Result<StoredObject> stored = find(id);
    std::optional<Extent> extent;
    if (stored.is_ok() && stored->object) extent = in_place(*stored);
    if (extent && extent->segment == object.extent.segment && extent->offset == object.extent.offset) {
      sealed.status = Status::ok();
      client_->forget_lease(memory->range);
      memory->is_leased = false;
      object.generation = stored->object->generation();
      object.is_in_place = true;
      object.extent.pin = stored->object;
    }
  }
  if (sealed.pin) {
    memory->is_leased = false;
    object.is_in_place = true;
    object.extent.pin = std::move(sealed.pin);
  }
  return sealed.status;
}

Status Arena::reconnect() { return client_->status(interrupt_check()).status(); }

bool Arena::exists(const IdBytes& id) const { return client_->shown_generation(id).has_value(); }

Result<std::vector<bool>> Arena::exist(std::span<const IdBytes> ids) { return client_->exist(ids, interrupt_check()); }

std::optional<std::uint32_t> Arena::generation(const IdBytes& id) const { return client_->shown_generation(id); }

Result<StoredObject> Arena::find(const IdBytes& id) {
  StoredObject stored;
  ASSIGN_OR_RETURN(stored.object, client_->find(id));
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

std::optional<Extent> Arena::in_place(const StoredObject& stored) {
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
  {
    const std::lock_guard lock(mutex_);
    const auto match = numbers_.find({first->view->segment, first->view->generation});
    if (match == numbers_.end()) return std::nullopt;
    range.memory = match->second.segment.lock();
  }
  if (!range.memory) return std::nullopt;
  range.offset = static_cast<std::uint64_t>(first->data - first->view->mapping.data());
  Extent extent = extent_of(std::move(range), false);
  extent.pin = stored.object;
  return extent;
}

void Arena::copy(const StoredObject& stored, const Extent& extent) const {
  std::byte* to = address(extent);
  for (const auto& part : {stored.contents.data, stored.contents.metadata}) {
    if (!part.empty()) copy_payload(to, part.data(), part.size());
    to += part.size();
  }
}

Result<std::vector<bool>> Arena::remove(std::span<const IdBytes> ids) {
  ASSIGN_OR_RETURN(const std::vector<std::uint8_t> removed, client_->remove(ids, interrupt_check()));
  return std::vector<bool>(removed.begin(), removed.end());
}

std::vector<ObjectDescription> Arena::list(const std::vector<IdBytes>& listed) {
  const std::unordered_set<IdBytes, IdHash> skipped(listed.begin(), listed.end());
  std::vector<ObjectDescription> objects;
  for (const IdBytes& id : client_->ids()) {
    if (skipped.contains(id)) continue;
    const Result<ObjectTree> tree = client_->tree(id, interrupt_check());
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
