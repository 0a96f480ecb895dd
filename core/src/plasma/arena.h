// Arena: the front end's access to the store. Leases memory that Plasma clients write, seals what they wrote where it
// is, and brings objects of the store back in front of them.
//
// Its leases are isolated: a Plasma client maps whole segments writable, so nothing but what Plasma clients are given is
// ever in one. An object that lies in such a segment is handed out where it is, also after this process has unmapped
// the segment, or if another front end, which has ended, has leased it. All others are copied.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "client/client.h"
#include "plasma/contents.h"
#include "plasma/object_table.h"

namespace entrepot::plasma {

inline constexpr std::uint64_t kNsPerMs = 1'000'000;

// An object of the store, pinned.
struct StoredObject {
  std::shared_ptr<SealedObject> object;  // null: it is not there
  Contents contents;
};

// What became of an object that was to be published.
struct Published {
  Status status;
  std::uint32_t generation = 0;
  bool is_in_place = false;   // its bytes in the arena are those of the store
  std::shared_ptr<void> pin;  // of these
  bool is_open = false;       // the store has not answered yet: to be published again, kUntilAnswered
};

// How long a request waits for the store's daemon. The loop's thread waits briefly, and not at all while the daemon is
// silent; what was not answered (kTimeout) goes on in another thread, until it is.
enum class Patience : std::uint8_t { kBrief, kUntilAnswered };

// An object that is to be deleted. Without a generation, whatever has its ID: the directory did not show it.
struct Doomed {
  IdBytes id{};
  std::optional<std::uint32_t> generation;
};

// An object of the store, brought in front of Plasma clients.
struct Brought {
  Extent extent;
  bool is_in_place = false;  // otherwise a copy
};

// Thread-safe.
class Arena {
 public:
  struct Options {
    std::string store_path;
    std::uint64_t capacity_bytes = 0;
    bool isolate = false;  // the store gets copies of what is sealed
  };
  // kStoreUnavailable; kInvalidArgument: the store is smaller than the arena.
  [[nodiscard]] static Result<std::unique_ptr<Arena>> connect(const Options& options);
  ~Arena();

  // --- room for an object
  [[nodiscard]] std::optional<Extent> lease_at_hand(std::uint64_t bytes);  // without asking the daemon
  // Waits for memory for up to ten seconds from `began_ns`, when the client asked for it: requests that wait for each
  // other fail at the same time, not one after the other.
  [[nodiscard]] Result<Extent> lease_since(std::uint64_t began_ns, std::uint64_t bytes);
  [[nodiscard]] std::byte* address(const Extent& extent) const;
  // The descriptor of an extent's segment, writable. The result keeps it open.
  [[nodiscard]] std::shared_ptr<const UniqueFd> descriptor(const Extent& extent) const;

  // --- the store
  // Publishes what is in the extent, data and then metadata; once it is in place, it is the store's. What is open has to
  // be published again, with the same extent.
  [[nodiscard]] Published publish(const IdBytes& id, const Extent& extent, std::uint64_t data_bytes,
                                  std::uint64_t metadata_bytes, Patience patience);
  // Whether publish() waits for memory: it takes a copy.
  [[nodiscard]] bool publishes_copies() const { return copies_ != nullptr; }
  [[nodiscard]] bool exists(const IdBytes& id) const;  // according to the directory, without asking the daemon
  // Asks the daemon for those that the directory does not show.
  [[nodiscard]] Result<std::vector<bool>> exist(std::span<const IdBytes> ids, Patience patience);
  [[nodiscard]] std::optional<std::uint32_t> generation(const IdBytes& id) const;  // according to the directory
  [[nodiscard]] Result<StoredObject> find(const IdBytes& id);  // in memory only; asks the daemon only for its segment
  [[nodiscard]] Result<StoredObject> load(const IdBytes& id);  // from wherever it is, which may take long
  // Where the object is if it lies in an isolated segment of Plasma clients. Asks the daemon about a segment that is
  // not mapped here, but not again soon after it has refused it.
  [[nodiscard]] std::optional<Extent> in_place(const StoredObject& stored);
  void copy(const StoredObject& stored, const Extent& extent) const;
  // A copy, for which it waits; or the object where it is, if there is no memory for one and the daemon lets it.
  [[nodiscard]] Result<Brought> bring(const StoredObject& stored);
  // Deletes them; false: it was not there. What was not answered may be done nevertheless, and is to be repeated, which
  // deletes nothing that was put meanwhile: `is_repeated`. Only kUntilAnswered deletes what has no generation; kBrief
  // says kTimeout if the store has such an object.
  [[nodiscard]] Result<std::vector<bool>> remove(std::span<const Doomed> objects, Patience patience, bool is_repeated);
  // Plasma objects of the store that are not in `listed`.
  [[nodiscard]] std::vector<ObjectDescription> list(const std::vector<IdBytes>& listed);

  [[nodiscard]] bool is_connected() const { return client_->is_connected(); }
  // The daemon has left a brief request without an answer, and has given none since.
  [[nodiscard]] bool is_silent() const { return is_silent_.load(); }
  // Waits until the store answers again. kStoreUnavailable: it has ended, or another one is at its address.
  [[nodiscard]] Status reconnect();
  void interrupt() { interrupted_.store(true); }  // ends what waits in other threads

 private:
  struct Memory;
  struct Number {
    std::int32_t number = 0;  // 0: none yet
    std::weak_ptr<WritableSegment> segment;
    std::uint64_t refused_ns = 0;  // when the daemon said last that this front end must not pass it on; 0: never
  };

  explicit Arena(const Options& options) : options_(options) {}
  [[nodiscard]] Extent extent_of(LeasedRange range, bool is_leased);
  [[nodiscard]] Published publish_in_place(const IdBytes& id, const Extent& extent, std::uint64_t data_bytes,
                                           std::uint64_t metadata_bytes, Patience patience);
  // What the store has under the ID if it is what the extent holds, sealed by a request whose answer was lost or late.
  [[nodiscard]] std::optional<Published> published_before(const IdBytes& id, const Extent& extent, bool is_empty);
  // The same as in_place(). `asks_again`: also about a segment that was refused.
  [[nodiscard]] std::optional<Extent> locate(const StoredObject& stored, bool asks_again);
  [[nodiscard]] std::shared_ptr<WritableSegment> segment_of(const SegmentView& view, bool asks_again);
  void forget_old_numbers();  // requires mutex_
  [[nodiscard]] Result<Extent> lease(std::uint64_t bytes, std::uint32_t wait_ms);
  [[nodiscard]] Interrupt interrupt_check();
  [[nodiscard]] os::Deadline deadline_of(Patience patience) const;
  void note_answer(const Status& answer, Patience patience);  // of a request with deadline_of()
  // Whether each was there, first the shown ones.
  [[nodiscard]] Result<std::vector<std::uint8_t>> remove_at_daemon(std::span<const ObjectGeneration> shown,
                                                                   std::span<const IdBytes> unseen,
                                                                   os::Deadline deadline);

  const Options options_;
  std::shared_ptr<Client> client_;
  std::shared_ptr<Client> copies_;  // with `isolate`: puts the copies
  std::uint32_t session_ = 0;
  std::uint32_t copies_session_ = 0;
  std::atomic<bool> interrupted_ = false;
  std::atomic<bool> is_silent_ = false;
  mutable std::mutex mutex_;
  // By segment and generation; guarded by mutex_. What a client calls the descriptor of a segment.
  std::map<std::pair<std::uint32_t, std::uint32_t>, Number> numbers_;
  std::int32_t next_number_ = 1;  // guarded by mutex_
};

}  // namespace entrepot::plasma
