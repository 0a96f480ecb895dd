// SpillFiles: the daemon's spill backend. Copies of payload in files in one or more directories, moved by worker
// threads past the page cache, each block verified when it is read back; plus a manifest of the objects that are
// complete on disk.
//
//   folder         directories: validation and ownership   space     which parts of the files are in use
//   extent_format  format of a copy                        transfer  transfer of one piece
//   workers        threads                                 manifest  journal
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "spill/backend.h"
#include "spill/manifest.h"
#include "spill/segment_mappings.h"
#include "spill/space.h"
#include "spill/workers.h"

namespace entrepot {

struct SpillOptions {
  std::vector<std::string> folders;  // at least one
  std::string socket_path;
  InstanceId instance{};  // of the control memory
  SpillLimits limits;
  std::uint32_t threads = 4;            // one or two compute checksums while the others keep the disk busy
  std::uint64_t lock_wait_ms = 5'000;   // how long to wait for a dying daemon's lock
  bool needs_room = true;               // false: the store runs already, and a disk may have become full since it began
  SpillPacking packing;                 // of new copies; existing ones are read whatever they use
  std::shared_ptr<SpillCipher> cipher;  // null: not encrypted
};

class SpillFiles final : public SpillBackend {
 public:
  // `event_fd` is signalled when take_completions() has results; it and `io` must outlive this. Errors as of
  // open_spill_folder, and kVersionMismatch for a manifest of a newer format.
  [[nodiscard]] static Result<std::unique_ptr<SpillFiles>> open(os::FileIo& io, const SpillOptions& options,
                                                                SegmentMappings::Open segments, int event_fd);
  ~SpillFiles() override;

  [[nodiscard]] std::uint64_t copy_bytes(std::uint64_t length) const override;
  [[nodiscard]] Status write(std::uint64_t ticket, const BlobKey& blob, const BlobLocation& from) override;
  [[nodiscard]] Status read(std::uint64_t ticket, const BlobKey& blob, SpillLocation from,
                            const BlobLocation& to) override;
  void release(const BlobKey& blob, SpillLocation copy, std::uint64_t length) override;
  [[nodiscard]] std::vector<SpillCompletion> take_completions() override;

  [[nodiscard]] Status adopt(const BlobKey& blob, SpillLocation copy, std::uint64_t length) override;
  [[nodiscard]] Result<SpillLocation> rebind(const SpilledBlob& old, const BlobKey& new_key) override;
  std::uint64_t adopt_end() override;

  std::uint64_t remember(const SpilledObject& object) override;
  std::uint64_t forget(const IdBytes& id, std::uint32_t generation) override;
  [[nodiscard]] std::uint64_t recorded() const override { return manifest_.written(); }
  [[nodiscard]] std::vector<SpilledObject> recover() override;
  [[nodiscard]] bool has_predecessor() const override {
    return replay_.exists && replay_.instance != options_.instance;
  }

  void discard_all() override;

  [[nodiscard]] SpillStats stats() const override;

  [[nodiscard]] const std::vector<SpillFolder>& folders() const { return space_.folders(); }
  // Failure if not all threads could be started in open(); missing ones are started later, if they can be.
  [[nodiscard]] const Status& threads_status() const { return threads_status_; }
  // Whether all records are written and all released space is freed and returned; for tests.
  [[nodiscard]] bool is_drained() const;

 private:
  struct Released {
    std::uint64_t record = 0;  // of the manifest: the copy is freed once it is written
    SpillPosition place;
    std::uint64_t bytes = 0;
  };

  SpillFiles(os::FileIo& io, const SpillOptions& options, std::vector<SpillFolder> folders,
             SegmentMappings::Open segments);
  [[nodiscard]] Status begin(int event_fd);
  [[nodiscard]] std::uint64_t run_maintenance();
  // Size on disk of the copy at this place, for a blob of that length.
  [[nodiscard]] std::uint64_t extent_of(const SpillPosition& place, std::uint64_t length) const;
  void detect_packed(const SpillPosition& place, std::uint64_t length);
  void free_released();
  void free_extent(const SpillPosition& place, std::uint64_t bytes);
  [[nodiscard]] std::unique_ptr<SpillTransfer> transfer_of(std::uint64_t ticket, const BlobKey& blob,
                                                           const BlobLocation& place, BlobBytes bytes) const;

  os::FileIo& io_;
  const SpillOptions options_;
  SegmentMappings segments_;
  SpillSpace space_;
  SpillManifest manifest_;

  SpillManifest::Replay replay_;  // until adopt_end()
  // Copies whose header names a blob of an earlier store, by place.
  std::map<SpillPosition, CopyIdentity> origins_;
  std::map<SpillPosition, std::uint64_t> packed_;  // extent size of each compressed copy
  std::set<SpillPosition> listed_;                 // until adopt_end(): places listed in the manifest
  std::deque<Released> released_;
  bool ended_ = false;  // discard_all() was called
  int event_fd_ = -1;
  Status threads_status_;

  SpillWorkers workers_;  // last member: its threads use those above
};

}  // namespace entrepot
