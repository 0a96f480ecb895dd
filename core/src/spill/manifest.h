// Spill manifest: a journal of the objects whose payload is complete in spill files, so that they can be recovered when
// keeper and daemon are both gone. Format: docs/formats/spill-files.md.
//
//   no file  ──first record──▶ attached (each batch is appended)
//   attached ─┬─more than half is garbage──▶ rewritten beside it, synced, renamed over it ──▶ attached
//             ├─its directory was removed and recreated──▶ detached
//             └─a write fails──▶ detached
//   detached ──a rewrite succeeds──▶ attached
//
// Detaching removes the file: no manifest is better than one that lists copies that are gone. Its contents are kept in
// memory or in the open file. While it cannot even be removed, nothing counts as written.
//
// Records are appended in memory by the daemon's thread and written by flush() on a worker. The manifest survives the
// death of every process; a power failure may lose the latest records. Copies released after a forget() are reused only
// once written() has reached its number.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "os/direct_io.h"
#include "os/unique_fd.h"
#include "spill/extent_format.h"

namespace entrepot {

inline constexpr std::uint64_t kManifestMagic = 0x3146'4d4c'5053'4e45ULL;  // "ENSPLMF1" in memory
inline constexpr std::uint32_t kManifestVersion = 2;
inline constexpr std::uint32_t kEncryptedManifestVersion = 3;

// Copy as recorded: the identity in its header, which for an adopted copy is a blob of an earlier store, and its size
// on disk.
struct RememberedCopy {
  CopyIdentity identity;
  std::uint64_t packed_bytes = 0;  // of its extent; 0: follows from the length
};
struct RememberedObject {
  SpilledObject object;
  std::vector<RememberedCopy> copies;  // one for each of object.blobs
};

class SpillManifest {
 public:
  using Key = std::pair<IdBytes, std::uint32_t>;  // ID, generation

  // With a cipher, all records are encrypted.
  SpillManifest(os::FileIo& io, std::string path, const InstanceId& instance,
                std::shared_ptr<SpillCipher> cipher = nullptr);

  struct Replay {
    bool exists = false;
    InstanceId instance{};  // of the store that wrote it
    std::vector<RememberedObject> objects;
    std::uint64_t dropped_bytes = 0;  // after the last valid record
    std::string damage;               // why they were dropped
  };
  // Call first, before any worker starts. kVersionMismatch names both versions; kAccessDenied: the manifest was written
  // with another key, or only one of manifest and store has one; other errors are of the disk. A file that does not
  // even begin as a manifest yields an empty replay with everything dropped.
  [[nodiscard]] Result<Replay> open();

  // Records from now on belong to a new manifest, which replaces the file at the first flush after finish_new(); until
  // then nothing is written. finish_new() returns the number that written() reaches once the file is this store's.
  void begin_new();
  std::uint64_t finish_new();

  // Its directory is new: the next flush() writes the file again with all live records. Called by the flushing worker.
  void rewrite_on_flush() { attached_ = false; }

  // For the daemon's thread; each returns the number of its record.
  std::uint64_t remember(const RememberedObject& object);
  std::uint64_t forget(const IdBytes& id, std::uint32_t generation);
  [[nodiscard]] std::uint64_t appended() const;

  // Any thread: all records up to this number are in the file, or there is no file.
  [[nodiscard]] std::uint64_t written() const { return written_.load(std::memory_order_acquire); }

  // One worker at a time. False: it failed (logged; note() says why) and should be called again after a while.
  [[nodiscard]] bool flush();
  [[nodiscard]] std::string note() const;

 private:
  struct Record {
    Key key;
    std::string bytes;  // framed; empty if it could not be encrypted
    bool is_forget = false;
  };
  struct LiveRecord {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  [[nodiscard]] Status append(const std::vector<Record>& batch);
  [[nodiscard]] Status rewrite();
  [[nodiscard]] Status write_live(int fd, std::map<Key, LiveRecord>& live_records, std::uint64_t& size);
  void keep_in_memory(std::vector<Record> batch);
  [[nodiscard]] Status check_key(const std::optional<SpillKeyId>& written_with) const;
  [[nodiscard]] std::uint64_t add(Record record);
  void drop_live_record(const Key& key);         // superseded by a newer record
  [[nodiscard]] bool detach(const Status& why);  // false: the file could not be removed
  [[nodiscard]] bool is_mostly_garbage() const;

  os::FileIo& io_;
  const std::string path_;
  const std::shared_ptr<SpillCipher> cipher_;  // null: not encrypted
  const InstanceId instance_;

  mutable std::mutex mutex_;  // guards the members up to written_
  std::vector<Record> pending_;
  std::uint64_t appended_ = 0;
  bool replacing_ = false;  // begin_new() without finish_new()
  bool replace_ = false;    // the file is an earlier store's, or unusable
  std::string note_;

  std::atomic<std::uint64_t> written_{0};

  // Used only by the flushing worker:
  UniqueFd fd_;
  bool attached_ = false;
  std::uint64_t size_ = 0;                  // of the file: valid records
  std::uint64_t live_bytes_ = 0;            // of these, not forgotten
  std::map<Key, LiveRecord> live_records_;  // live records in the file behind fd_
  std::map<Key, std::string> unsaved_;      // live records that are in no file
};

}  // namespace entrepot
