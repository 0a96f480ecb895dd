#include "shm/region.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/align.h"
#include "base/crc32c.h"
#include "base/text.h"
#include "os/memfd.h"

namespace entrepot {

namespace {

BudgetItem item_of(RegionKind kind) {
  switch (kind) {
    case RegionKind::kSlots:
      return BudgetItem::kSlots;
    case RegionKind::kBlobs:
      return BudgetItem::kBlobs;
    case RegionKind::kIndex:
      return BudgetItem::kIndex;
    case RegionKind::kRecords:
      return BudgetItem::kRecords;
    case RegionKind::kNames:
      return BudgetItem::kNames;
    case RegionKind::kSets:
      return BudgetItem::kSets;
    case RegionKind::kConsumptions:
      return BudgetItem::kConsumptions;
    case RegionKind::kRoot:
    case RegionKind::kSegments:
    case RegionKind::kSessions:
    case RegionKind::kClients:
    case RegionKind::kOpenings:
      break;
  }
  return BudgetItem::kTables;
}

std::uint32_t header_crc(const RegionHeader& header) { return crc32c(&header, offsetof(RegionHeader, crc)); }

void write_header(std::byte* base, RegionKind kind, const InstanceId& instance, std::uint64_t capacity) {
  auto* header = new (base) RegionHeader{};
  header->magic = kRegionMagic;
  header->layout_version = kLayoutVersion;
  header->kind = kind;
  header->abi_stamp = kAbiStamp;
  header->instance = instance;
  header->capacity = capacity;
  header->crc = header_crc(*header);
}

Status corrupt(RegionKind kind, const std::string& what) {
  return Status(Code::kCorruptData,
                concat("region ", region_name(kind), ": ", what, "; the region is unusable, start a new store"));
}

Result<std::uint64_t> bytes_for(RegionKind kind, std::uint64_t capacity) {
  const std::uint64_t entry = region_entry_bytes(kind);
  if (capacity == 0 || capacity > region_default_capacity(kind)) {
    return Status(Code::kInvalidArgument, concat("region ", region_name(kind), " cannot have a capacity of ", capacity,
                                                 " entries: it must be 1 to ", region_default_capacity(kind)));
  }
  return capacity * entry;
}

std::uint64_t file_size(std::uint64_t entries_bytes) {
  const std::uint64_t page = os::page_bytes();
  return round_up(kRegionHeaderBytes + entries_bytes, page);
}

}  // namespace

std::uint64_t daemon_heap_bytes(RegionKind kind, std::uint64_t entries_bytes) {
  const auto estimate = [&](std::uint64_t entry_bytes, std::uint64_t heap) {
    return entries_bytes / entry_bytes * heap;
  };
  switch (kind) {
    case RegionKind::kSlots:  // lists of the sessions, state of the read-ahead, places among the victims
      return estimate(sizeof(Slot), 56);
    case RegionKind::kBlobs:  // who refers to it, and what the eviction knows about its object
      return estimate(sizeof(Blob), 64);
    case RegionKind::kNames:
      return estimate(sizeof(Name), 64);
    case RegionKind::kSets:  // most of it is the eviction's state
      return estimate(sizeof(LocalitySet), 400);
    case RegionKind::kConsumptions:
      return estimate(sizeof(Consumption), 32);
    case RegionKind::kSessions:
      return estimate(sizeof(Session), 96);
    case RegionKind::kOpenings:  // two lists
      return estimate(sizeof(Opening), 24);
    case RegionKind::kRoot:
    case RegionKind::kIndex:
    case RegionKind::kRecords:
    case RegionKind::kSegments:
    case RegionKind::kClients:
      break;
  }
  return 0;
}

std::string_view region_name(RegionKind kind) {
  switch (kind) {
    case RegionKind::kRoot:
      return "root";
    case RegionKind::kSlots:
      return "slots";
    case RegionKind::kBlobs:
      return "blobs";
    case RegionKind::kIndex:
      return "index";
    case RegionKind::kRecords:
      return "records";
    case RegionKind::kSegments:
      return "segments";
    case RegionKind::kSessions:
      return "sessions";
    case RegionKind::kNames:
      return "names";
    case RegionKind::kClients:
      return "clients";
    case RegionKind::kSets:
      return "locality sets";
    case RegionKind::kConsumptions:
      return "consumptions";
    case RegionKind::kOpenings:
      return "openings of sessions";
  }
  return "unknown";
}

std::uint64_t region_entry_bytes(RegionKind kind) {
  switch (kind) {
    case RegionKind::kRoot:
      return sizeof(Root);
    case RegionKind::kSlots:
      return sizeof(Slot);
    case RegionKind::kBlobs:
      return sizeof(Blob);
    case RegionKind::kIndex:
      return sizeof(std::uint64_t);
    case RegionKind::kRecords:
      return 1;
    case RegionKind::kSegments:
      return sizeof(Segment);
    case RegionKind::kSessions:
      return sizeof(Session);
    case RegionKind::kNames:
      return sizeof(Name);
    case RegionKind::kClients:
      return sizeof(ClientEntry);
    case RegionKind::kSets:
      return sizeof(LocalitySet);
    case RegionKind::kConsumptions:
      return sizeof(Consumption);
    case RegionKind::kOpenings:
      return sizeof(Opening);
  }
  return 1;
}

std::uint64_t region_default_capacity(RegionKind kind) {
  switch (kind) {
    case RegionKind::kRoot:
      return 1;
    case RegionKind::kSlots:
      return kMaxSlots;
    case RegionKind::kBlobs:
      return kMaxBlobs;
    case RegionKind::kIndex:
      return kIndexEntries;
    case RegionKind::kRecords:
      return kRecordArenaBytes;
    case RegionKind::kSegments:
      return kMaxSegments;
    case RegionKind::kSessions:
      return kMaxSessions;
    case RegionKind::kNames:
      return kMaxNames;
    case RegionKind::kClients:
      return kMaxClients;
    case RegionKind::kSets:
      return kMaxSets;
    case RegionKind::kConsumptions:
      return kMaxConsumptions;
    case RegionKind::kOpenings:
      return kMaxOpenings;
  }
  return 0;
}

Result<Region> Region::create(RegionKind kind, const InstanceId& instance, std::uint64_t capacity) {
  if (capacity == 0) capacity = region_default_capacity(kind);
  ASSIGN_OR_RETURN(const std::uint64_t bytes, bytes_for(kind, capacity));
  const std::uint64_t size = file_size(bytes);
  ASSIGN_OR_RETURN(UniqueFd fd, os::create_memfd(concat("entrepot-", region_name(kind)), size));
  RETURN_IF_ERROR(os::reserve(fd.get(), 0, kRegionHeaderBytes));
  Region region;
  ASSIGN_OR_RETURN(region.mapping_, os::Mapping::map(fd.get(), 0, size, os::Access::kReadWrite));
  region.fd_ = std::move(fd);
  region.base_ = region.mapping_.data();
  region.capacity_ = capacity;
  region.entries_bytes_ = bytes;
  write_header(region.base_, kind, instance, capacity);
  return region;
}

Result<Region> Region::create_private(RegionKind kind, const InstanceId& instance, std::uint64_t capacity) {
  ASSIGN_OR_RETURN(const std::uint64_t bytes, bytes_for(kind, capacity));
  Region region;
  ASSIGN_OR_RETURN(region.mapping_, os::Mapping::anonymous(file_size(bytes)));
  region.base_ = region.mapping_.data();
  region.capacity_ = capacity;
  region.entries_bytes_ = bytes;
  write_header(region.base_, kind, instance, capacity);
  return region;
}

Result<Region> Region::private_view() const {
  Region view;
  view.base_ = base_;
  RETURN_IF_ERROR(view.check(file_size(entries_bytes_), kind(), instance()));
  return view;
}

Result<Region> Region::adopt(UniqueFd fd, RegionKind kind, const std::optional<InstanceId>& instance) {
  return open(std::move(fd), kind, instance, os::Access::kReadWrite);
}

Result<Region> Region::attach_read_only(UniqueFd fd, RegionKind kind, const std::optional<InstanceId>& instance) {
  return open(std::move(fd), kind, instance, os::Access::kReadOnly);
}

Result<Region> Region::open(UniqueFd fd, RegionKind kind, const std::optional<InstanceId>& instance,
                            os::Access access) {
  // Without seals, the file could be truncated under the mapping, and a read would raise SIGBUS.
  RETURN_IF_ERROR(os::check_sealed(fd.get()).with_context(concat("region ", region_name(kind))));
  ASSIGN_OR_RETURN(const std::uint64_t size, os::file_bytes(fd.get()));
  if (size < kRegionHeaderBytes) {
    return corrupt(kind, concat("truncated: ", size, " bytes are too few for the header of ", kRegionHeaderBytes));
  }
  Region region;
  ASSIGN_OR_RETURN(region.mapping_, os::Mapping::map(fd.get(), 0, size, access));
  region.fd_ = std::move(fd);
  region.base_ = region.mapping_.data();
  RETURN_IF_ERROR(region.check(size, kind, instance));
  return region;
}

// Checks magic and versions first: in another layout, even the checksum may be somewhere else.
Status Region::check(std::uint64_t file_bytes, RegionKind kind, const std::optional<InstanceId>& instance) {
  const RegionHeader existing = *header();
  if (existing.magic != kRegionMagic) return corrupt(kind, "bad magic number");
  if (existing.layout_version != kLayoutVersion) {
    return Status(Code::kVersionMismatch,
                  concat("region ", region_name(kind), " has layout version ", existing.layout_version,
                         ", but this build supports version ", kLayoutVersion,
                         "; use the version of Entrepot that started the daemon, or restart the daemon"));
  }
  if (AbiStamp::layout(existing.abi_stamp) != AbiStamp::layout(kAbiStamp)) {
    return Status(
        Code::kVersionMismatch,
        concat("region ", region_name(kind), " was written by a build with layout stamp ",
               AbiStamp::layout(existing.abi_stamp), ", but the stamp of this build is ", AbiStamp::layout(kAbiStamp),
               ", although the layout version is the same; build both from the same sources"));
  }
  if (existing.crc != header_crc(existing)) return corrupt(kind, "header checksum mismatch");
  if (existing.kind != kind) return corrupt(kind, concat("its kind is ", existing.kind, ", not ", kind));
  const Result<std::uint64_t> bytes = bytes_for(kind, existing.capacity);
  if (!bytes.is_ok()) return corrupt(kind, bytes.status().message());
  if (file_bytes < kRegionHeaderBytes + *bytes) {
    return corrupt(kind, concat("truncated: its header declares ", *bytes, " bytes of entries, but the file has ",
                                file_bytes, " bytes in total"));
  }
  if (instance && existing.instance != *instance) {
    return Status(Code::kInvalidReference,
                  concat("region ", region_name(kind), " belongs to instance ", to_hex(existing.instance), ", not to ",
                         to_hex(*instance), "; the store was replaced, connect again"));
  }
  capacity_ = existing.capacity;
  entries_bytes_ = *bytes;
  return Status::ok();
}

Result<UniqueFd> Region::read_only_fd() const {
  if (!fd_.valid()) {
    return Status(Code::kInvalidArgument, concat("region ", region_name(kind()), " is in private memory"));
  }
  return os::reopen_read_only(fd_.get());
}

Status Region::ensure(std::uint64_t bytes) {
  const std::uint64_t ensured = marks().ensured_bytes.load(std::memory_order_relaxed);
  if (bytes <= ensured) return Status::ok();
  if (bytes > entries_bytes_) return ensure_range(ensured, bytes - ensured);  // reports the error
  const std::uint64_t target = std::min(round_up(bytes, kGrowBytes), entries_bytes_);
  const std::uint64_t heap = daemon_heap_bytes(kind(), target) - daemon_heap_bytes(kind(), ensured);
  if (budget_ != nullptr) {
    // A full store still opens a session for a client that wants to delete.
    if (kind() == RegionKind::kSessions) {
      budget_->charge(BudgetItem::kHeap, heap);
    } else {
      const Status reserved = budget_->reserve(BudgetItem::kHeap, heap);
      if (!reserved.is_ok()) budget_->refuse_too(target - ensured);
      RETURN_IF_ERROR(reserved);
    }
  }
  const Status ready = ensure_range(ensured, target - ensured);
  if (!ready.is_ok()) {
    if (budget_ != nullptr) {
      budget_->release(BudgetItem::kHeap, heap);
      budget_->refuse_too(heap);
    }
    return ready;
  }
  marks().ensured_bytes.store(target, std::memory_order_relaxed);
  return Status::ok();
}

void Region::charge_to(MemoryBudget& budget) {
  budget_ = &budget;
  budget.charge(item_of(kind()), resident_bytes());
  budget.charge(BudgetItem::kHeap, daemon_heap_bytes(kind(), marks().ensured_bytes.load(std::memory_order_relaxed)));
}

std::uint64_t Region::resident_bytes() const {
  if (!fd_.valid()) return private_bytes_;
  const Result<std::uint64_t> bytes = os::resident_bytes(fd_.get());
  return bytes.is_ok() ? *bytes : 0;
}

// Upper bound: the kernel does not tell which pages of a range exist, so in a memfd all may be missing.
std::uint64_t Region::missing_bytes(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t page = os::page_bytes();
  const std::uint64_t end = (offset + bytes + page - 1) / page;
  std::uint64_t missing = 0;
  for (std::uint64_t at = offset / page; at < end; ++at)
    missing += fd_.valid() || at >= pages_.size() || !pages_[at] ? page : 0;
  return missing;
}

void Region::mark_pages(std::uint64_t offset, std::uint64_t bytes, bool resident) {
  const std::uint64_t page = os::page_bytes();
  // A partly used page counts as used, and a partly discarded one stays.
  const std::uint64_t first = resident ? offset / page : (offset + page - 1) / page;
  const std::uint64_t end = resident ? (offset + bytes + page - 1) / page : (offset + bytes) / page;
  if (pages_.size() < end) pages_.resize(end);
  for (std::uint64_t at = first; at < end; ++at) {
    if (pages_[at] == resident) continue;
    pages_[at] = resident;
    private_bytes_ += resident ? page : -page;
  }
}

Status Region::ensure_range(std::uint64_t offset, std::uint64_t bytes) {
  if (offset > entries_bytes_ || bytes > entries_bytes_ - offset) {
    return Status(Code::kInvalidArgument,
                  concat("region ", region_name(kind()), " has ", entries_bytes_, " bytes of entries; ", bytes,
                         " bytes at ", offset, " are out of range"));
  }
  if (bytes == 0) return Status::ok();
  const BudgetItem item = item_of(kind());
  const std::uint64_t missing = missing_bytes(offset, bytes);
  if (budget_ != nullptr) RETURN_IF_ERROR(budget_->reserve(item, missing));
  const std::uint64_t before = resident_bytes();
  Status reserved;
  if (fd_.valid()) {
    reserved = os::reserve(fd_.get(), kRegionHeaderBytes + offset, bytes)
                   .with_context(concat("no memory for region ", region_name(kind())));
  } else {
    mark_pages(offset, bytes, true);
  }
  if (budget_ != nullptr) {  // replace the granted amount by the actual one
    const std::uint64_t after = resident_bytes();
    budget_->charge(item, after - std::min(after, before));
    budget_->release(item, missing);
  }
  return reserved;
}

Result<std::uint64_t> Region::shrink(std::uint64_t bytes) {
  const std::uint64_t ensured = marks().ensured_bytes.load(std::memory_order_relaxed);
  const std::uint64_t target = round_up(bytes, kGrowBytes);
  if (target >= ensured) return std::uint64_t{0};
  marks().ensured_bytes.store(target, std::memory_order_relaxed);  // first: a crash only forgets that pages exist
  if (budget_ != nullptr) {
    budget_->release(BudgetItem::kHeap, daemon_heap_bytes(kind(), ensured) - daemon_heap_bytes(kind(), target));
  }
  RETURN_IF_ERROR(discard_range(target, ensured - target));
  return ensured - target;
}

Status Region::discard_range(std::uint64_t offset, std::uint64_t bytes) {
  if (offset > entries_bytes_ || bytes > entries_bytes_ - offset) {
    return Status(Code::kInvalidArgument,
                  concat("region ", region_name(kind()), " has ", entries_bytes_, " bytes of entries; ", bytes,
                         " bytes at ", offset, " are out of range"));
  }
  const std::uint64_t before = resident_bytes();
  if (fd_.valid()) {
    const Status punched = os::punch(fd_.get(), kRegionHeaderBytes + offset, bytes);
    const std::uint64_t after = resident_bytes();
    if (budget_ != nullptr) budget_->release(item_of(kind()), before - std::min(before, after));
    return punched;
  }
  mark_pages(offset, bytes, false);
  if (budget_ != nullptr) budget_->release(item_of(kind()), before - resident_bytes());
  // Word by word and atomically, because readers may still read; equivalent to what the kernel does for a memfd.
  std::byte* at = entries() + offset;
  for (std::uint64_t i = 0; i + 8 <= bytes; i += 8) {
    std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at + i)).store(0, std::memory_order_release);
  }
  std::memset(at + bytes / 8 * 8, 0, bytes % 8);
  return Status::ok();
}

}  // namespace entrepot
