#include "store/object/deferred_frees.h"

#include <utility>

#include "os/log.h"
#include "store/sync_point.h"

namespace entrepot {

DeferredFrees::DeferredFrees(ObjectCatalog& catalog, BlobTable& blobs, const PinScanner& pins)
    : catalog_(&catalog), blobs_(&blobs), pins_(&pins) {}

void DeferredFrees::free_or_defer(std::vector<PinTarget> victims) {
  if (victims.empty()) return;
  const std::vector<std::uint8_t> pinned = pins_->scan(victims);
  for (std::size_t i = 0; i < victims.size(); ++i) {
    if (pinned[i] != 0) {
      deferred_.push_back(victims[i]);
    } else {
      free_object(victims[i].slot);
    }
  }
}

bool DeferredFrees::rescan() {
  if (deferred_.empty()) return false;
  const std::size_t before = deferred_.size();
  free_or_defer(std::exchange(deferred_, {}));
  return deferred_.size() != before;
}

void DeferredFrees::free_object(std::uint32_t slot) {
  DirectoryWriter& directory = catalog_->directory();
  const std::uint64_t record_offset = directory.at(slot).record_offset;
  const std::uint32_t record_size = directory.at(slot).record_bytes;
  const bool has_record = directory.state(slot) != ObjectState::kLost;
  std::vector<RecordBlob> refs;
  if (has_record) {
    const Result<RecordView> view = catalog_->record(slot);
    if (view.is_ok()) {
      refs.assign(view->blobs().begin(), view->blobs().end());
    } else {
      log_error("slot ", slot, ": ", view.status().to_string());
    }
  }
  directory.free(slot);
  ENTREPOT_SYNC_POINT("free.slot");
  for (const RecordBlob& ref : refs)
    blobs_->drop_reference(ref.blob, slot);
  if (has_record) catalog_->free_record(slot, record_offset, record_size);
}

std::uint64_t DeferredFrees::payload_bytes() const {
  std::uint64_t bytes = 0;
  for (const PinTarget& target : deferred_)
    bytes += catalog_->directory().at(target.slot).payload_bytes;
  return bytes;
}

}  // namespace entrepot
