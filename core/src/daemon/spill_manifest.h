// The manifest: a journal of the objects whose payload lies whole in spill files, so that they are there again when
// keeper and daemon are both gone. Format: docs/formats/spill-files.md.
//
//   no file ──first record──▶ attached (each batch is appended)
//   attached ──garbage is more than half──▶ rewritten beside it, synced, renamed over it ──▶ attached
//   attached ──its folder was removed and made again──▶ detached
//   attached ──a write fails──▶ detached ──a rewrite succeeds──▶ attached
//
// Detaching removes the file: better no manifest than one that tells of copies that are gone. What it said is kept.
//
// Records are appended in the daemon's thread into memory and written by flush() on a worker. It survives the death of
// every process; a power failure may cost the latest records. Copies released after a forget() are used again only when
// written() has reached its number.
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
#include "base/unique_fd.h"
#include "daemon/spill_extent.h"
#include "os/direct_io.h"

namespace entrepot {

inline constexpr std::uint64_t kManifestMagic = 0x3146'4d4c'5053'4e45ULL;  // "ENSPLMF1" in memory
inline constexpr std::uint32_t kManifestVersion = 2;
inline constexpr std::uint32_t kEncryptedManifestVersion = 3;

// As recorded: each blob with whom its copy's header names, which for a copy taken over is a blob of an earlier store,
// and what it takes on disk.
struct RememberedCopy {
  CopyIdentity identity;
  std::uint64_t packed_bytes = 0;  // of its extent; 0: as the length says
};
struct RememberedObject {
  ColdObject object;
  std::vector<RememberedCopy> copies;  // one for each of object.blobs
};

class SpillManifest {
 public:
  using Key = std::pair<IdBytes, std::uint32_t>;  // ID, generation

  // With a cipher all records are encrypted.
  SpillManifest(os::FileIo& io, std::string path, const InstanceId& instance,
                std::shared_ptr<SpillCipher> cipher = nullptr);

  struct Replay {
    bool found = false;
    InstanceId instance{};  // of the store that wrote it
    std::vector<RememberedObject> objects;
    std::uint64_t dropped_bytes = 0;  // after the last good record
    std::string damage;               // why they were dropped
  };
  // First, before any worker. kVersionMismatch names both versions; kAccessDenied: it was written with another key,
  // with one though there is none now, or without; other failures are of the disk. A file that does not even begin as a
  // manifest is an empty replay with everything dropped.
  [[nodiscard]] Result<Replay> open();

  // From now on records belong to a new manifest, which replaces the file only at the first flush after
  // finish_new(); until then nothing is written.
  void begin_new();
  void finish_new();

  // Its folder is new: the next flush() makes the file again, with all that counts. By whoever flushes.
  void write_anew() { attached_ = false; }

  // The daemon's thread; each returns the number of its record.
  std::uint64_t remember(const RememberedObject& object);
  std::uint64_t forget(const IdBytes& id, std::uint32_t generation);
  [[nodiscard]] std::uint64_t appended() const;

  // Any thread: all records up to here are in the file, or there is no file.
  [[nodiscard]] std::uint64_t written() const { return written_.load(std::memory_order_acquire); }

  // One worker at a time. False: it failed (logged, note() says why) and should be called again after a while.
  [[nodiscard]] bool flush();
  [[nodiscard]] std::string note() const;

 private:
  struct Record {
    Key key;
    std::string bytes;  // framed; empty: a forget of that key in `forget_bytes`
    bool is_forget = false;
  };
  struct Kept {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  [[nodiscard]] Status append(const std::vector<Record>& batch);
  [[nodiscard]] Status rewrite();
  [[nodiscard]] Status write_live(int fd, std::map<Key, Kept>& kept, std::uint64_t& size);
  void take_into_memory(std::vector<Record> batch);
  [[nodiscard]] Status check_key(const std::optional<SpillKeyId>& written_with) const;
  [[nodiscard]] std::uint64_t add(Record record);
  void drop_kept(const Key& key);  // a newer record counts
  void detach(const Status& why);
  [[nodiscard]] bool is_mostly_garbage() const;

  os::FileIo& io_;
  const std::string path_;
  const std::shared_ptr<SpillCipher> cipher_;  // null: not encrypted
  const InstanceId instance_;

  mutable std::mutex mutex_;  // guards these
  std::vector<Record> pending_;
  std::uint64_t appended_ = 0;
  bool held_ = false;     // begin_new() without finish_new()
  bool replace_ = false;  // the file is an earlier store's, or unusable
  std::string note_;

  std::atomic<std::uint64_t> written_{0};

  // Of whoever flushes:
  UniqueFd fd_;
  bool attached_ = false;
  std::uint64_t size_ = 0;              // of the file: good records
  std::uint64_t live_bytes_ = 0;        // of those, not forgotten
  std::map<Key, Kept> kept_;            // live records in the file behind fd_
  std::map<Key, std::string> unsaved_;  // live records that are in no file
};

}  // namespace entrepot
