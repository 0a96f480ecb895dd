// Cold storage: where copies of payload lie that memory has no room for. The daemon's is files (daemon/spill_files.h);
// tests have one in memory.
//
// A copy:  none ──write──▶ being written ──written──▶ whole ──release──▶ none
//                                └──failed──▶ none
// Reads of a whole copy change nothing. A copy is written while its blob stays resident and readable, so the store
// changes a blob's state only after the I/O that it describes. All calls come from the daemon's thread and do no I/O
// that could block it; writes and reads end by a completion that take_completions() returns to that thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "shm/blobs.h"

namespace entrepot {

// bits 0-31 place in the file in units of kSpillPage | 32-47 file number | 48-63 check bits over the rest, the blob's
// number and its generation, so that a word that a crash left behind is not taken for a copy. 0: no copy.
using SpillLocation = std::uint64_t;
inline constexpr std::uint64_t kSpillPage = 4096;

struct SpillCompletion {
  std::uint64_t ticket = 0;
  bool is_read = false;
  Status status;               // of a write: kStoreFull (quota, reserve, disk full), of a read: kCorruptData; or I/O
  SpillLocation location = 0;  // of a write that is well
};

// An object all of whose blobs have whole copies, as the manifest remembers it: enough to have it again when both
// keeper and daemon are gone.
struct ColdBlob {
  BlobKey key;
  std::uint64_t length = 0;
  SpillLocation location = 0;
};
struct ColdObject {
  IdBytes id{};
  std::uint32_t generation = 0;
  std::string scope;
  std::string session;
  std::uint64_t ttl_seconds = 0;
  std::vector<std::string> names;
  std::uint64_t sealed_unix_ns = 0;
  std::string record;           // as in the record arena; its blob numbers are those of `blobs`
  std::vector<ColdBlob> blobs;  // in the order of the record's
};

struct ColdFigures {
  std::uint64_t used_bytes = 0;  // on disk, being written included
  std::uint64_t quota_bytes = 0;
  std::uint64_t written_bytes = 0;  // of payload, since this daemon started
  std::uint64_t stored_bytes = 0;   // what that takes on disk: less if some was packed
  std::uint64_t read_bytes = 0;
  std::uint32_t pending_writes = 0;
  std::uint32_t pending_reads = 0;
  std::uint64_t unrecorded = 0;  // changes that the manifest does not have yet
  std::vector<std::string> folders;
  std::string packing;  // of new copies, as --spill-compression takes it
  std::string key_id;   // of the key that copies are encrypted with; empty: they are not
  std::string note;     // why it takes nothing more at the moment, empty if it does
};

class ColdStorage {
 public:
  virtual ~ColdStorage() = default;

  // Begins to copy `from` (sealed, resident until the completion). Refused at once, without completion: kStoreFull with
  // quota, reserve or folder named.
  [[nodiscard]] virtual Status write(std::uint64_t ticket, const BlobKey& blob, const BlobPlace& from) = 0;
  // Begins to bring a whole copy back to `to`: memory that the store has taken for it and nobody else writes.
  [[nodiscard]] virtual Status read(std::uint64_t ticket, const BlobKey& blob, SpillLocation from,
                                    const BlobPlace& to) = 0;
  // The copy is needed no longer; no read of it is under way.
  virtual void release(const BlobKey& blob, SpillLocation copy, std::uint64_t length) = 0;
  [[nodiscard]] virtual std::vector<SpillCompletion> take_completions() = 0;

  // Adoption, once, before the first write: adopt() or rebind() for each copy that is kept, then the end; all other
  // space is free from then on. Also a fresh store that keeps nothing ends it.
  //
  // A daemon that follows a dead one (same control memory): each copy that the blob table knows. kObjectLost if there
  // is no such copy.
  [[nodiscard]] virtual Status adopt(const BlobKey& blob, SpillLocation copy, std::uint64_t length) = 0;
  // A fresh store: a copy of recover()'s now belongs to this store's blob `now`; the word for that blob's entry (the
  // old one is of another blob's number, so its check bits do not fit). kObjectLost if there is no such copy.
  [[nodiscard]] virtual Result<SpillLocation> rebind(const ColdBlob& old, const BlobKey& now) = 0;
  virtual void adopt_end() = 0;

  // The manifest. remember() after the last copy of an object is whole (again for the same object: the later one
  // counts), forget() before the copies of an object that ends are released. A fresh store asks recover() for what an
  // earlier one at this address left when keeper and daemon died, rebinds the copies that it wants and remembers their
  // objects anew; what it has not remembered by adopt_end() is forgotten, and until then the earlier manifest stays.
  // Objects that a daemon's own death hid from the manifest are remembered again by the daemon that follows.
  virtual void remember(const ColdObject& object) = 0;
  virtual void forget(const IdBytes& id, std::uint32_t generation) = 0;
  [[nodiscard]] virtual std::vector<ColdObject> recover() = 0;
  // Whether an earlier store at this address left a manifest, even an empty one: it had no clean end. Until
  // adopt_end().
  [[nodiscard]] virtual bool had_former() const = 0;

  // The store ends and its objects with it: nothing of it stays on disk.
  virtual void discard_all() = 0;

  [[nodiscard]] virtual ColdFigures figures() const = 0;
};

}  // namespace entrepot
