// SpillFiles: the daemon's cold storage. Copies of payload in files in one or more directories, moved by worker threads
// past the page cache, each block verified when it is read back; plus a manifest of the objects that are complete on
// disk.
//
//   spill_folder   directories: validation and ownership   spill_space     which parts of the files are in use
//   spill_extent   format of a copy                        spill_io        transfer of one piece
//   spill_workers  threads                                 spill_manifest  journal
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/segment_memory.h"
#include "daemon/spill_manifest.h"
#include "daemon/spill_space.h"
#include "daemon/spill_workers.h"
#include "store/cold_storage.h"

namespace entrepot {

struct SpillOptions {
  std::vector<std::string> folders;  // at least one
  std::string socket_path;
  InstanceId instance{};  // of the control memory
  SpillLimits limits;
  std::uint32_t threads = 4;            // one or two compute checksums while the others keep the disk busy
  std::uint64_t patience_ms = 5'000;    // how long to wait for a dying daemon's lock
  SpillPacking packing;                 // of new copies; existing ones are read whatever they use
  std::shared_ptr<SpillCipher> cipher;  // null: not encrypted
};

class SpillFiles final : public ColdStorage {
 public:
  // `event_fd` is signalled when take_completions() has results; it and `io` must outlive this. Errors as of
  // open_spill_folder, and kVersionMismatch for a manifest of a newer format.
  [[nodiscard]] static Result<std::unique_ptr<SpillFiles>> open(os::FileIo& io, const SpillOptions& options,
                                                                SegmentMemory::Open segments, int event_fd);
  ~SpillFiles() override;

  [[nodiscard]] Status write(std::uint64_t ticket, const BlobKey& blob, const BlobPlace& from) override;
  [[nodiscard]] Status read(std::uint64_t ticket, const BlobKey& blob, SpillLocation from,
                            const BlobPlace& to) override;
  void release(const BlobKey& blob, SpillLocation copy, std::uint64_t length) override;
  [[nodiscard]] std::vector<SpillCompletion> take_completions() override;

  [[nodiscard]] Status adopt(const BlobKey& blob, SpillLocation copy, std::uint64_t length) override;
  [[nodiscard]] Result<SpillLocation> rebind(const ColdBlob& old, const BlobKey& now) override;
  void adopt_end() override;

  void remember(const ColdObject& object) override;
  void forget(const IdBytes& id, std::uint32_t generation) override;
  [[nodiscard]] std::vector<ColdObject> recover() override;
  [[nodiscard]] bool had_former() const override { return replay_.found && replay_.instance != options_.instance; }

  void discard_all() override;

  [[nodiscard]] ColdFigures figures() const override;

  [[nodiscard]] const std::vector<SpillFolder>& folders() const { return space_.folders(); }
  // Whether all records are written and all released space is freed and returned; for tests.
  [[nodiscard]] bool is_settled() const;

 private:
  struct Released {
    std::uint64_t record = 0;  // of the manifest: the copy is freed once it is written
    SpillPlace place;
    std::uint64_t bytes = 0;
  };

  SpillFiles(os::FileIo& io, const SpillOptions& options, std::vector<SpillFolder> folders,
             SegmentMemory::Open segments);
  [[nodiscard]] Status begin(int event_fd);
  [[nodiscard]] std::uint64_t chore();
  // Size on disk of the copy at this place, for a blob of that length.
  [[nodiscard]] std::uint64_t extent_of(const SpillPlace& place, std::uint64_t length) const;
  void find_out_if_packed(const SpillPlace& place, std::uint64_t length);
  void free_released();
  void free_extent(const SpillPlace& place, std::uint64_t bytes);
  [[nodiscard]] std::unique_ptr<SpillTransfer> transfer_of(std::uint64_t ticket, const BlobKey& blob,
                                                           const BlobPlace& place, BlobBytes bytes) const;

  os::FileIo& io_;
  const SpillOptions options_;
  SegmentMemory segments_;
  SpillSpace space_;
  SpillManifest manifest_;

  SpillManifest::Replay replay_;  // until adopt_end()
  // Copies whose header names a blob of an earlier store, by place.
  std::map<SpillPlace, CopyIdentity> origins_;
  std::map<SpillPlace, std::uint64_t> packed_;  // extent size of each compressed copy
  std::set<SpillPlace> told_;                   // until adopt_end(): places listed in the manifest
  std::deque<Released> released_;
  bool ended_ = false;  // discard_all() was called
  int event_fd_ = -1;

  SpillWorkers workers_;  // last member: its threads use those above
};

}  // namespace entrepot
