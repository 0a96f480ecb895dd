// SpillBackend: holds copies of payload that does not fit in memory. The daemon uses files (spill/spill_files.h), tests
// an in-memory implementation.
//
// A copy:  none ──write──▶ being written ──written──▶ complete ──release──▶ none
//                                └──failed──▶ none
//
// Reading a complete copy changes nothing. A copy is written while its blob stays resident and readable, so the store
// changes a blob's state only after the I/O is done. All calls come from the daemon's thread and never block on I/O;
// writes and reads end with a completion that take_completions() returns to that thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "shm/blobs.h"

namespace entrepot {

// Bits 0-31: position in the file in units of kSpillPage | 32-47: file number | 48-63: check bits over the rest, the
// blob's number and its generation, so that a stale word left by a crash is not taken for a copy. 0: no copy.
using SpillLocation = std::uint64_t;
inline constexpr std::uint64_t kSpillPage = 4096;

struct SpillCompletion {
  std::uint64_t ticket = 0;
  bool is_read = false;
  Status status;  // of a write: kStoreFull (quota, reserve, disk full), of a read: kCorruptData; or an I/O error
  SpillLocation location = 0;  // of a successful write
};

// An object whose blobs all have complete copies, as recorded in the manifest: enough to recover it when both keeper
// and daemon are gone.
struct SpilledBlob {
  BlobKey key;
  std::uint64_t length = 0;
  SpillLocation location = 0;
};
struct SpilledObject {
  IdBytes id{};
  std::uint32_t generation = 0;
  std::string scope;
  std::string session;
  std::uint64_t ttl_seconds = 0;
  std::vector<std::string> names;
  std::uint64_t sealed_unix_ns = 0;
  std::string record;              // as in the record arena; its blob numbers are those of `blobs`
  std::vector<SpilledBlob> blobs;  // in the order of the record's
};

struct SpillStats {
  std::uint64_t used_bytes = 0;  // on disk, including writes in progress
  std::uint64_t quota_bytes = 0;
  std::uint64_t written_bytes = 0;  // of payload, since this daemon started
  std::uint64_t stored_bytes = 0;   // on disk: less than written_bytes if some was compressed
  std::uint64_t read_bytes = 0;
  std::uint32_t pending_writes = 0;
  std::uint32_t pending_reads = 0;
  std::uint64_t unrecorded = 0;  // changes not yet in the manifest
  std::vector<std::string> folders;
  std::string packing;  // of new copies, in the syntax of --spill-compression
  std::string key_id;   // of the key that encrypts the copies; empty: not encrypted
  std::string note;     // why no writes are accepted at the moment; empty if they are
};

class SpillBackend {
 public:
  virtual ~SpillBackend() = default;

  // Starts copying `from` (sealed, resident until the completion). May be refused at once, without a completion:
  // kStoreFull, naming quota, reserve or directory.
  [[nodiscard]] virtual Status write(std::uint64_t ticket, const BlobKey& blob, const BlobLocation& from) = 0;
  // The most that a copy of a blob of this length takes of the quota.
  [[nodiscard]] virtual std::uint64_t copy_bytes(std::uint64_t length) const = 0;
  // Starts reading a complete copy into `to`: memory the store has reserved for it and nobody else writes.
  [[nodiscard]] virtual Status read(std::uint64_t ticket, const BlobKey& blob, SpillLocation from,
                                    const BlobLocation& to) = 0;
  // Frees a copy that is no longer needed; no read of it may be in progress.
  virtual void release(const BlobKey& blob, SpillLocation copy, std::uint64_t length) = 0;
  [[nodiscard]] virtual std::vector<SpillCompletion> take_completions() = 0;

  // Adoption, once, before the first write: adopt() or rebind() each copy to keep, then adopt_end(), which frees all
  // other space. A fresh store that keeps nothing calls adopt_end() too. adopt_end() returns the number of the record with
  // which the manifest is this store's.
  //
  // After a daemon's death (same control memory): call for each copy in the blob table. kObjectLost if the copy does
  // not exist.
  [[nodiscard]] virtual Status adopt(const BlobKey& blob, SpillLocation copy, std::uint64_t length) = 0;
  // In a fresh store: transfers a copy listed by recover() to this store's blob `now`; returns the word for that blob's
  // entry (the old word's check bits belong to the old blob). kObjectLost if the copy does not exist.
  [[nodiscard]] virtual Result<SpillLocation> rebind(const SpilledBlob& old, const BlobKey& new_key) = 0;
  virtual std::uint64_t adopt_end() = 0;

  // The manifest. Call remember() once the last copy of an object is complete (a repeated call replaces the earlier
  // one), forget() before the copies of an ended object are released. A fresh store calls recover() for what an earlier
  // one at this address left when keeper and daemon died, rebinds the copies it wants and remembers their objects anew;
  // what it has not remembered by adopt_end() is forgotten, and until then the earlier manifest stays. Objects that a
  // daemon's death kept out of the manifest are remembered by its successor.
  //
  // Both return the number of their record. It is written in the background: once recorded() has reached the number, the
  // kernel has the record, or there is no manifest, so that no later store can find what the record takes back.
  virtual std::uint64_t remember(const SpilledObject& object) = 0;
  virtual std::uint64_t forget(const IdBytes& id, std::uint32_t generation) = 0;
  [[nodiscard]] virtual std::uint64_t recorded() const = 0;
  [[nodiscard]] virtual std::vector<SpilledObject> recover() = 0;
  // Whether an earlier store at this address left a manifest, even an empty one, i.e. was not shut down cleanly. Valid
  // until adopt_end().
  [[nodiscard]] virtual bool has_predecessor() const = 0;

  // Deletes all files: the store ends, and its objects with it.
  virtual void discard_all() = 0;

  [[nodiscard]] virtual SpillStats stats() const = 0;
};

}  // namespace entrepot
