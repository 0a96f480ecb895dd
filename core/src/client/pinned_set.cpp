#include "client/pinned_set.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/align.h"
#include "base/text.h"
#include "os/memfd.h"

namespace entrepot {
namespace {

constexpr int kFindTries = 16;                 // each lost to a delete or replace between probe and pin
constexpr std::size_t kMaxObjectsAhead = 256;  // whose segments are looked at; takes about as long as a request

}  // namespace

PinnedSet::PinnedSet(ControlView control, PinTable pins, UniqueFd liveness)
    : control_(std::move(control)),
      directory_(control_),
      blobs_(control_),
      pins_(std::move(pins)),
      liveness_(std::move(liveness)) {}

Result<std::shared_ptr<SealedObject>> PinnedSet::find(const IdBytes& id, SegmentViews& views, const Wait& wait,
                                                      const Interrupt& interrupt, std::span<const IdBytes> next) {
  for (int tries = 0; tries < kFindTries; ++tries) {
    const auto snapshot = directory_.find(id);
    if (!snapshot) return std::shared_ptr<SealedObject>();
    ASSIGN_OR_RETURN(auto object, pin(*snapshot, id, views, wait, interrupt, next));
    if (object) return object;
  }
  return std::shared_ptr<SealedObject>();
}

Status PinnedSet::map(std::span<const IdBytes> ids, SegmentViews& views, const Wait& wait, const Interrupt& interrupt) {
  std::vector<SegmentKey> keys;
  for (const IdBytes& id : ids.first(std::min(ids.size(), kMaxObjectsAhead))) {
    if (keys.size() >= SegmentViews::kMappedTogether) break;
    add_unmapped(id, views, keys);
  }
  return views.map_together(keys, wait, interrupt);
}

void PinnedSet::add_unmapped(const IdBytes& id, SegmentViews& views, std::vector<SegmentKey>& keys) {
  const auto snapshot = directory_.find(id);
  if (!snapshot) return;
  const std::uint32_t position = pins_.pin(snapshot->slot, snapshot->generation());
  if (position == PinTable::kNoPosition) return;
  const Pin pin(*this, position);
  if (!directory_.recheck(*snapshot)) return;
  const auto record = record_of(snapshot->slot);
  if (!record.is_ok()) return;
  for (const RecordBlob& blob : record->blobs()) {
    const auto place = blobs_.resolve(blob.blob, blob.generation);
    if (!place) continue;
    const SegmentKey key{place->segment, place->segment_generation};
    if (std::ranges::find(keys, key) == keys.end() && !views.find(key)) keys.push_back(key);
  }
}

Result<std::shared_ptr<SealedObject>> PinnedSet::at(std::uint32_t slot, std::uint32_t generation, const IdBytes& id,
                                                    SegmentViews& views, const Wait& wait, const Interrupt& interrupt) {
  const auto snapshot = directory_.at(slot, generation, id);
  if (!snapshot) return std::shared_ptr<SealedObject>();
  return pin(*snapshot, id, views, wait, interrupt, {});
}

std::optional<std::uint32_t> PinnedSet::generation_of(const IdBytes& id) const {
  const auto snapshot = directory_.find(id);
  if (!snapshot) return std::nullopt;
  return snapshot->generation();
}

std::optional<std::uint32_t> PinnedSet::shown_generation(const IdBytes& id) const {
  const auto snapshot = directory_.find_existing(id);
  if (!snapshot) return std::nullopt;
  return snapshot->generation();
}

std::uint64_t PinnedSet::fingerprint(const IdBytes& id) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(id.data()), id.size()});
}

std::vector<IdBytes> PinnedSet::ids() const {
  std::vector<IdBytes> ids;
  const std::uint32_t end = directory_.high_water();
  for (std::uint32_t slot = 0; slot < end; ++slot) {
    if (directory_.had_object(slot)) ids.push_back(directory_.slot(slot).id);
  }
  return ids;
}

std::vector<std::uint64_t> PinnedSet::fingerprints() const {
  std::vector<std::uint64_t> hashes;
  const std::uint32_t end = directory_.high_water();
  for (std::uint32_t slot = 0; slot < end; ++slot) {
    if (directory_.had_object(slot)) hashes.push_back(fingerprint(directory_.slot(slot).id));
  }
  std::ranges::sort(hashes);
  return hashes;
}

Result<std::shared_ptr<SealedObject>> PinnedSet::pin(const SlotSnapshot& snapshot, const IdBytes& id,
                                                     SegmentViews& views, const Wait& wait, const Interrupt& interrupt,
                                                     std::span<const IdBytes> next) {
  const std::uint64_t key = PinWord::make(snapshot.slot, snapshot.generation());
  {
    const std::lock_guard lock(mutex_);
    if (const auto existing = objects_.find(key); existing != objects_.end()) {
      if (auto object = existing->second.reference.lock()) return object;
    }
  }
  ASSIGN_OR_RETURN(Pin taken, take_pin(snapshot));
  if (!directory_.recheck(snapshot)) return std::shared_ptr<SealedObject>();
  std::shared_ptr<SealedObject> object(new SealedObject);
  object->id_ = id;
  object->slot_ = snapshot.slot;
  object->generation_ = snapshot.generation();
  object->owner_ = shared_from_this();
  object->pin_ = std::move(taken);
  RETURN_IF_ERROR(resolve(*object, views, wait, interrupt, next));
  // Small ones never leave memory.
  if (!object->record_.blobs().empty()) pins_.record_access(snapshot.slot, snapshot.generation());

  std::shared_ptr<SealedObject> faster;  // released outside the lock
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = objects_[key];
    faster = entry.reference.lock();
    if (!faster) {
      entry = Entry{object.get(), object};
      for (const RecordBlob& blob : object->record_.blobs()) {
        const auto place = blobs_.resolve(blob.blob, blob.generation);
        if (!place) continue;
        for (const auto& view : object->views_) {
          if (view->segment != place->segment) continue;
          BlobAtAddress& at = by_address_[view->at(place->offset)];
          at = BlobAtAddress{place->length, blob.blob, blob.generation, at.objects + 1};
          object->blob_addresses_.push_back(view->at(place->offset));
        }
      }
    }
  }
  return faster ? faster : object;
}

bool PinnedSet::peek(const IdBytes& id, InlineObject& object) {
  const auto snapshot = directory_.find(id);
  if (!snapshot) return false;
  const std::uint32_t position = pins_.pin(snapshot->slot, snapshot->generation());
  if (position == PinTable::kNoPosition) return false;
  Pin pin(*this, position);
  if (!directory_.recheck(*snapshot)) return false;
  auto record = record_of(snapshot->slot);
  if (!record.is_ok() || !record->blobs().empty()) return false;
  object.pin_ = std::move(pin);
  object.generation_ = snapshot->generation();
  object.record_ = *record;
  return true;
}

Result<std::optional<ObjectTree>> PinnedSet::tree(const IdBytes& id) {
  const auto snapshot = directory_.find_existing(id);
  if (!snapshot) return std::optional<ObjectTree>();
  return tree_of(*snapshot, id);
}

Result<std::optional<ObjectTree>> PinnedSet::tree_at(std::uint32_t slot, std::uint32_t generation, const IdBytes& id) {
  const auto snapshot = directory_.existing_at(slot, generation, id);
  if (!snapshot) return std::optional<ObjectTree>();
  return tree_of(*snapshot, id);
}

Result<std::optional<ObjectTree>> PinnedSet::tree_of(const SlotSnapshot& snapshot, const IdBytes& id) {
  ASSIGN_OR_RETURN(const Pin pin, take_pin(snapshot));
  if (!directory_.still_exists(snapshot)) return std::optional<ObjectTree>();
  const auto record = record_of(snapshot.slot);
  if (!record.is_ok()) return record.status().with_context(concat("object ", to_hex(id)));
  ObjectTree tree{std::string(record->tree()), 0, snapshot.generation(), {}};
  tree.lengths.reserve(record->buffers().size());
  for (const BufferRef& buffer : record->buffers()) {
    tree.payload_bytes += buffer.length;
    tree.lengths.push_back(buffer.length);
  }
  return std::optional<ObjectTree>(std::move(tree));
}

template <class Take>
Result<std::uint32_t> PinnedSet::take_position(const Take& take) {
  while (true) {
    const std::uint32_t reserved_pins = pins_.reserved_pins();
    const std::uint32_t position = take();
    if (position != PinTable::kNoPosition) return position;
    if (reserved_pins >= pins_.capacity() || !grow_) return pins_.full_error();
    const Result<std::uint32_t> grown = grow_(reserved_pins + 1);
    if (!grown.is_ok()) return grown.status().with_context("no room for another pin");
    if (*grown <= reserved_pins) return pins_.full_error();
    pins_.grow_to(*grown);
  }
}

Result<Pin> PinnedSet::take_pin(const SlotSnapshot& snapshot) {
  ASSIGN_OR_RETURN(const std::uint32_t position,
                   take_position([&] { return pins_.pin(snapshot.slot, snapshot.generation()); }));
  return Pin(*this, position);
}

Result<std::uint32_t> PinnedSet::reserve_pin() {
  return take_position([&] { return pins_.reserve(); });
}

std::shared_ptr<HeldPin> PinnedSet::hold(std::uint32_t position) {
  auto pin = std::make_shared<HeldPin>(shared_from_this(), position);
  const std::lock_guard lock(mutex_);
  held_[position] = Held{pin, false};
  return pin;
}

void PinnedSet::release_held(std::uint32_t position) {
  {
    const std::lock_guard lock(mutex_);
    const auto held = held_.find(position);
    const bool shared = held != held_.end() && held->second.shared;
    if (held != held_.end()) held_.erase(held);
    if (!shared) pins_.unpin(position);  // under the lock: a fork finds both, or neither
  }
  notify_released();
}

HeldPin::~HeldPin() { set_->release_held(position_); }

void PinnedSet::unpin(std::uint32_t position) {
  pins_.unpin(position);
  notify_released();
}

void PinnedSet::notify_released() {
  if (!control_.releases_wanted()) return;
  std::function<void()> hint;
  {
    const std::lock_guard lock(mutex_);
    hint = released_;
  }
  if (hint) hint();
}

void Pin::remove() {
  if (set_ != nullptr) std::exchange(set_, nullptr)->unpin(position_);
}

Status PinnedSet::resolve(SealedObject& object, SegmentViews& views, const Wait& wait, const Interrupt& interrupt,
                          std::span<const IdBytes> next) {
  const auto read = record_of(object.slot_);
  if (!read.is_ok()) return read.status().with_context(concat("object ", to_hex(object.id_)));
  const RecordView& record = *read;
  object.record_ = record;
  object.buffers_.reserve(record.buffers().size());
  for (const BufferRef& buffer : record.buffers()) {
    if (buffer.blob == kInlineBlob) {
      const auto bytes = record.inline_buffer(buffer);
      object.buffers_.push_back({bytes.data(), bytes.size(), nullptr});
      continue;
    }
    const auto place = blobs_.resolve(buffer.blob, buffer.generation);
    if (!place || buffer.offset > place->length || buffer.length > place->length - buffer.offset) {
      return {Code::kCorruptData, concat("object ", to_hex(object.id_), " refers to blob ", buffer.blob,
                                         ", which is missing or too short")};
    }
    const SegmentView* view = nullptr;
    for (const auto& view_ref : object.views_) {
      if (view_ref->segment == place->segment && view_ref->generation == place->segment_generation)
        view = view_ref.get();
    }
    if (view == nullptr) {
      const SegmentKey key{place->segment, place->segment_generation};
      std::shared_ptr<const SegmentView> mapped = views.find(key);
      if (!mapped) {
        RETURN_IF_ERROR(map(next, views, wait, interrupt));
        ASSIGN_OR_RETURN(mapped, views.get(key, wait, interrupt));
      }
      view = mapped.get();
      object.views_.push_back(std::move(mapped));
    }
    const std::uint64_t bytes = view->mapping.bytes();
    if (place->offset > bytes || place->length > bytes - place->offset) {
      return {Code::kCorruptData, concat("blob ", buffer.blob, " is outside of its segment")};
    }
    object.buffers_.push_back({view->at(place->offset) + buffer.offset, buffer.length, view});
  }
  return Status::ok();
}

std::optional<SharedRange> PinnedSet::locate(const void* data, std::uint64_t length) {
  const auto* address = static_cast<const std::byte*>(data);
  const std::lock_guard lock(mutex_);
  auto after = by_address_.upper_bound(address);
  if (after == by_address_.begin()) return std::nullopt;
  const auto& [start, blob] = *std::prev(after);
  const auto offset = static_cast<std::uint64_t>(address - start);
  if (offset > blob.length || length > blob.length - offset) return std::nullopt;
  return SharedRange{blob.blob, blob.generation, offset, blob.length};
}

void PinnedSet::on_released(std::function<void()> hint) {
  const std::lock_guard lock(mutex_);
  released_ = std::move(hint);
}

void PinnedSet::release(SealedObject& object) {
  {
    const std::lock_guard lock(mutex_);
    bool shared = false;
    const auto existing = objects_.find(PinWord::make(object.slot_, object.generation_));
    if (existing != objects_.end() && existing->second.object == &object) {
      shared = existing->second.shared;
      objects_.erase(existing);
    }
    for (const std::byte* address : object.blob_addresses_) {
      const auto at = by_address_.find(address);
      if (at != by_address_.end() && --at->second.objects == 0) by_address_.erase(at);
    }
    const std::uint32_t position = object.pin_.detach();
    if (!shared) pins_.unpin(position);  // under the lock: a fork finds both, or neither
  }
  notify_released();
}

// Omits objects whose last reference is gone: the thread that destroys them does not exist in the child.
Status PinnedSet::copy_pins_to(PinTable& table) const {
  std::vector<std::uint32_t> positions;
  positions.reserve(objects_.size());
  for (const auto& [key, entry] : objects_) {
    if (!entry.reference.expired()) positions.push_back(entry.object->pin_.position());
  }
  for (const auto& [position, held] : held_) {
    if (!held.pin.expired()) positions.push_back(position);
  }
  return table.copy_from(pins_, positions);
}

void PinnedSet::share_pins_with_child() {
  for (auto& [key, entry] : objects_)
    entry.shared = entry.shared || !entry.reference.expired();
  for (auto& [position, held] : held_)
    held.shared = held.shared || !held.pin.expired();
}

void PinnedSet::switch_in_child(PinTable pins, UniqueFd liveness) {
  pins_ = std::move(pins);
  liveness_ = std::move(liveness);
}

SealedObject::~SealedObject() {
  if (owner_) owner_->release(*this);
}

std::uint64_t SealedObject::payload_bytes() const {
  std::uint64_t sum = 0;
  for (const BufferView& buffer : buffers_)
    sum += buffer.length;
  return sum;
}

Result<SealedObject::PrivateMapping> SealedObject::map_private(std::size_t index) const {
  const BufferView& buffer = buffers_.at(index);
  if (buffer.view == nullptr || buffer.length == 0) {
    return Status(Code::kInvalidArgument, "an inline or empty buffer has no pages of its own to map");
  }
  const auto offset = static_cast<std::uint64_t>(buffer.data - buffer.view->mapping.data());
  const std::uint64_t page = os::page_bytes();
  const std::uint64_t first = offset & ~(page - 1);
  const std::uint64_t last = round_up(offset + buffer.length, page);
  ASSIGN_OR_RETURN(os::Mapping mapping,
                   os::Mapping::map(buffer.view->fd.get(), first, last - first, os::Access::kCopyOnWrite));
  PrivateMapping result;
  result.data = mapping.data() + (offset - first);
  result.mapping = std::move(mapping);
  return result;
}

}  // namespace entrepot
