// Spill writer: writes copies of blobs to the spill backend.
//
//   a blob:     no copy ──write──▶ being written ──done──▶ clean
//                  ▲                     └──failed──┐
//                  └────────────────────────────────┘
//   the writer: ready ──a write is refused or fails──▶ paused ──a second later──▶ ready
//
//   an object:   stays ──write_to_evict──▶ leaving ──all its blobs clean──▶ reported to the reclaimer, which evicts it
//                                          │    ▲
//                                          └────┘ a write is refused or fails: tried again after the pause
//
// A blob stays resident while it is written.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "spill/backend.h"
#include "store/object/blob_table.h"
#include "store/object/object_catalog.h"
#include "store/object/object_manifest.h"
#include "store/object/object_residency.h"
#include "store/paging/transfer_rate.h"
#include "store/types.h"

namespace entrepot {

struct SpillWriterDeps {  // all must outlive the writer
  const ObjectCatalog& catalog;
  BlobTable& blobs;
  ObjectManifest& manifest;
  const ObjectResidency& residency;
  const Clock& clock;
  SpillBackend* spill = nullptr;  // null: nothing can be written
};

// Guarded by the daemon's thread.
class SpillWriter {
 public:
  explicit SpillWriter(const SpillWriterDeps& deps) : deps_(deps) {}
  SpillWriter(const SpillWriter&) = delete;
  SpillWriter& operator=(const SpillWriter&) = delete;
  ~SpillWriter();

  // Starts writing those of the object's blobs that have no copy.
  void write(std::uint32_t slot);
  // The same, and the object is to be evicted once it is clean, however many attempts that takes.
  void write_to_evict(std::uint32_t slot);
  // Tries again to write the objects that are leaving, after a pause. Returns those that are clean.
  [[nodiscard]] std::vector<std::uint32_t> retry_leaving();
  // When there is something to try again; UINT64_MAX: nothing, or a completion comes first.
  [[nodiscard]] std::uint64_t next_retry_ns() const;
  [[nodiscard]] bool is_leaving(std::uint32_t slot) const { return leaving_.contains(slot); }
  void object_ended(std::uint32_t slot) { leaving_.erase(slot); }

  // Slots of objects that now have complete copies; they are in the manifest already.
  struct Written {
    std::vector<std::uint32_t> clean;
    std::vector<std::uint32_t> leaving;  // of `clean`: to be evicted now
  };
  // The end of a write. Ignores tickets that it did not issue.
  Written complete(const SpillCompletion& done);

  [[nodiscard]] bool is_idle() const { return writes_.empty(); }
  [[nodiscard]] bool is_writing(std::uint32_t slot) const;  // any of its blobs
  [[nodiscard]] std::uint64_t bytes_in_flight() const { return bytes_in_flight_; }
  [[nodiscard]] bool is_paused(std::uint64_t now_ns) const { return now_ns < paused_until_ns_; }
  [[nodiscard]] bool can_write() const;
  [[nodiscard]] std::uint64_t room_bytes() const;  // that may be written on top; 0 while it cannot write
  // What is left of the quota, whether or not it can write now. While writes are in progress, some may count twice.
  [[nodiscard]] std::uint64_t quota_left() const;
  [[nodiscard]] std::uint64_t unwritten_bytes(std::uint32_t slot) const;  // that write() would take of the quota
  [[nodiscard]] double ns_per_byte() const { return rate_.ns_per_byte(); }
  [[nodiscard]] std::uint64_t failed_writes() const { return failed_writes_; }

 private:
  struct Write {
    BlobRef blob;  // stays while it is written, whatever happens to its objects
    std::uint64_t bytes = 0;
  };

  void pause();
  [[nodiscard]] bool needs_write(std::uint32_t blob) const;
  [[nodiscard]] Written on_written(const Write& write, SpillLocation copy);
  void on_failed(const Status& why);

  SpillWriterDeps deps_;
  std::uint64_t next_ticket_ = 1;
  std::unordered_map<std::uint64_t, Write> writes_;  // in progress, by ticket
  std::unordered_set<std::uint32_t> blobs_;          // of `writes_`
  std::uint64_t bytes_in_flight_ = 0;                // of `writes_`
  std::unordered_set<std::uint32_t> leaving_;        // slots to evict as soon as they are clean
  bool failing_ = false;                             // since the last successful write
  std::uint64_t paused_until_ns_ = 0;
  std::uint64_t failed_writes_ = 0;
  TransferRate rate_;
};

}  // namespace entrepot
