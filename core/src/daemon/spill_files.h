// SpillFiles: the daemon's cold storage. Copies of payload in files of one or more folders, moved by worker threads
// past the page cache, each block checked when it comes back; a manifest of the objects that are whole on disk.
//
//   spill_folder   what is asked of a folder, whose it is        spill_space     which parts of the files are in use
//   spill_extent   the format of a copy                          spill_io        one piece's way
//   spill_workers  the threads                                   spill_manifest  the journal
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
  std::uint32_t threads = 4;            // one or two check while the others keep the disk busy
  std::uint64_t patience_ms = 5'000;    // with a dying daemon's lock
  SpillPacking packing;                 // of new copies; others are read whatever they are
  std::shared_ptr<SpillCipher> cipher;  // null: not encrypted
};

class SpillFiles final : public ColdStorage {
 public:
  // `event_fd` is signalled when take_completions() has something; it and `io` outlive this. Errors as of
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
  // All records are written, all that was released is free and given back: for tests.
  [[nodiscard]] bool is_settled() const;

 private:
  struct Released {
    std::uint64_t record = 0;  // of the manifest: free once that is written
    SpillPlace place;
    std::uint64_t bytes = 0;
  };

  SpillFiles(os::FileIo& io, const SpillOptions& options, std::vector<SpillFolder> folders,
             SegmentMemory::Open segments);
  [[nodiscard]] Status begin(int event_fd);
  [[nodiscard]] std::uint64_t chore();
  // What the copy at this place takes on disk, of a blob of that length.
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
  std::map<SpillPlace, std::uint64_t> packed_;  // bytes of the extent of each packed copy
  std::set<SpillPlace> told_;                   // until adopt_end(): places that the manifest speaks of
  std::deque<Released> released_;
  bool ended_ = false;  // discard_all()
  int event_fd_ = -1;

  SpillWorkers workers_;  // last: its threads use what stands above
};

}  // namespace entrepot
