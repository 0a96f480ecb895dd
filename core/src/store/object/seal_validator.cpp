#include "store/object/seal_validator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"

namespace entrepot {
namespace {

constexpr std::size_t kMaxBlobsPerObject = 1U << 16;
constexpr std::size_t kMaxBuffersPerObject = 1U << 20;
constexpr std::size_t kMaxTreeBytes = 32U << 20;

Status too_many(std::string_view what, std::size_t count, std::size_t limit) {
  return Status(Code::kInvalidArgument,
                concat("the object has ", count, " ", what, "; the limit is ", limit, ": split it"));
}

}  // namespace

SealValidator::SealValidator(const SessionTable& sessions, const LocalitySetTable& sets, const NameTable& names,
                             const SegmentPool& pool, const ObjectCatalog& catalog, const BlobTable& blobs)
    : sessions_(&sessions), sets_(&sets), names_(&names), pool_(&pool), catalog_(&catalog), blobs_(&blobs) {}

Result<ValidatedSeal> SealValidator::check(std::uint32_t client, const SealSpec& spec,
                                           std::optional<std::uint32_t> replaced) const {
  ValidatedSeal validated;
  ASSIGN_OR_RETURN(validated.session, sessions_->index_of(spec.session));
  if (spec.locality_set != 0) {
    ASSIGN_OR_RETURN(const std::uint32_t set, sets_->index_of(spec.locality_set, validated.session));
    validated.locality_set = sets_->field_of(set);
  }
  validated.consumers = spec.consumers;
  if (const std::uint32_t* set = sets_->find_field(validated.session, validated.locality_set);
      set != nullptr && spec.consumers == 0) {
    const SetAttributes attributes = sets_->attributes(*set);
    if (attributes.lifetime == Lifetime::kConsumers) validated.consumers = attributes.consumers;
  }
  if (spec.blobs.size() > kMaxBlobsPerObject) return too_many("blobs", spec.blobs.size(), kMaxBlobsPerObject);
  if (spec.buffers.size() > kMaxBuffersPerObject) return too_many("buffers", spec.buffers.size(), kMaxBuffersPerObject);
  if (spec.tree.size() > kMaxTreeBytes) return too_many("bytes of metadata", spec.tree.size(), kMaxTreeBytes);
  if (spec.payload.size() > kInlineMaxBytes) {
    return Status(Code::kInvalidArgument, concat("an inline payload can have at most ", kInlineMaxBytes, " bytes, not ",
                                                 spec.payload.size(), ": lease memory for it"));
  }
  if (!spec.name.empty()) {
    RETURN_IF_ERROR(names_->check_binding(validated.session, spec.name, spec.id, spec.replace));
  }
  RETURN_IF_ERROR(check_blobs(client, spec));
  ASSIGN_OR_RETURN(validated.payload_bytes, check_buffers(spec));
  std::uint64_t freed_bytes = 0;
  std::uint64_t freed_objects = 0;
  if (replaced && catalog_->directory().at(*replaced).session == validated.session) {
    freed_bytes = catalog_->directory().at(*replaced).payload_bytes;
    freed_objects = 1;
  }
  RETURN_IF_ERROR(sessions_->check_limits(validated.session, validated.payload_bytes, freed_bytes, freed_objects));
  return validated;
}

Status SealValidator::check_blobs(std::uint32_t client, const SealSpec& spec) const {
  std::vector<std::pair<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>>> taken;  // segment, begin, end
  taken.reserve(spec.blobs.size());
  for (const BlobRange& range : spec.blobs) {
    if (range.length == 0 || range.offset % kBlobAlign != 0) {
      return Status(Code::kInvalidArgument,
                    concat("invalid blob of ", range.length, " bytes at ", range.offset, " of segment ", range.segment,
                           ": it must not be empty, and must start at a multiple of ", kBlobAlign));
    }
    // Before any rounding, so that nothing can overflow.
    RETURN_IF_ERROR(pool_->check_leased(client, range.segment, range.offset, range.length));
    const std::uint64_t extent = blob_extent_bytes(range.offset, range.length);
    RETURN_IF_ERROR(pool_->check_leased(client, range.segment, range.offset, extent));
    taken.push_back({range.segment, {range.offset, range.offset + extent}});
  }
  std::sort(taken.begin(), taken.end());
  for (std::size_t i = 1; i < taken.size(); ++i) {
    if (taken[i].first == taken[i - 1].first && taken[i].second.first < taken[i - 1].second.second) {
      return Status(Code::kInvalidArgument,
                    concat("two blobs of one object overlap at ", taken[i].second.first, " of segment ", taken[i].first,
                           "; a blob of 64 KiB or more on a page boundary owns whole pages"));
    }
  }
  return Status::ok();
}

Result<std::uint64_t> SealValidator::check_buffers(const SealSpec& spec) const {
  std::uint64_t payload_bytes = 0;
  const std::uint64_t generations_of_new = 0;
  for (std::size_t i = 0; i < spec.buffers.size(); ++i) {
    const BufferSpec& buffer = spec.buffers[i];
    std::uint64_t size = 0;
    if (buffer.blob == kInlineBlob) {
      size = spec.payload.size();
    } else if ((buffer.blob & kNewBlobBit) != 0) {
      const std::uint32_t index = buffer.blob & ~kNewBlobBit;
      if (index >= spec.blobs.size()) {
        return Status(Code::kInvalidArgument, concat("buffer ", i, " is in new blob ", index,
                                                     ", but the number of new blobs is ", spec.blobs.size()));
      }
      if (buffer.generation != generations_of_new) {
        return Status(Code::kInvalidArgument,
                      concat("buffer ", i, " specifies a generation for a new blob: it must be 0"));
      }
      size = spec.blobs[index].length;
    } else {
      if (!blobs_->is_sealed(buffer.blob, buffer.generation)) {
        return Status(
            Code::kInvalidArgument,
            concat("buffer ", i, " is in blob ", buffer.blob, " of generation ", buffer.generation,
                   ", which does not exist (any more): keep the object that holds it pinned while you share it"));
      }
      size = blobs_->place(buffer.blob).length;
    }
    if (buffer.offset > size || buffer.length > size - buffer.offset) {
      return Status(Code::kInvalidArgument, concat("buffer ", i, " of ", buffer.length, " bytes at ", buffer.offset,
                                                   " exceeds its blob of ", size, " bytes"));
    }
    if (buffer.length > UINT64_MAX - payload_bytes) {
      return Status(Code::kInvalidArgument, "the sum of the buffers' lengths exceeds 64 bits");
    }
    payload_bytes += buffer.length;
  }
  return payload_bytes;
}

bool SealValidator::is_same(std::uint32_t slot, const SealSpec& spec) const {
  const Result<RecordView> view = catalog_->record(slot);
  if (!view.is_ok()) return false;
  const std::string_view payload(reinterpret_cast<const char*>(view->payload().data()), view->payload().size());
  if (view->tree() != spec.tree || payload != spec.payload || view->buffers().size() != spec.buffers.size()) {
    return false;
  }
  if (view->blobs().size() < spec.blobs.size()) return false;
  for (std::size_t i = 0; i < spec.blobs.size(); ++i) {             // new blobs come first in a record
    if (!blobs_->is_resident(view->blobs()[i].blob)) return false;  // the ranges may belong to something else by now
    const BlobLocation place = blobs_->place(view->blobs()[i].blob);
    const BlobRange& range = spec.blobs[i];
    if (place.segment != range.segment || place.offset != range.offset || place.length != range.length) return false;
  }
  for (std::size_t i = 0; i < spec.buffers.size(); ++i) {
    const BufferRef& stored = view->buffers()[i];
    const BufferSpec& requested = spec.buffers[i];
    if (stored.offset != requested.offset || stored.length != requested.length) return false;
    if (requested.blob == kInlineBlob || (requested.blob & kNewBlobBit) == 0) {
      if (stored.blob != requested.blob) return false;
      if (requested.blob != kInlineBlob && stored.generation != requested.generation) return false;
      continue;
    }
    const std::uint32_t index = requested.blob & ~kNewBlobBit;
    if (index >= spec.blobs.size() || stored.blob != view->blobs()[index].blob) return false;
  }
  return true;
}

}  // namespace entrepot
