// StreamTable: the store's streams, who writes and reads them, and the requests that wait for room or for a chunk.
//
// An end of a stream, a writer or a reader, belongs to one connection:
//
//   open ──closed by its client──▶ gone: the writer has written everything; what the reader has in hand is returned
//     └──its connection ended──▶ gone: a writer's stream fails; what a reader has in hand is returned
//
// A request of an end; it has at most one at a time:
//
//   asked ──there is room, there is a chunk, the stream is over──▶ answered
//     └──▶ waiting ──the same──▶ answered
//             ├──timeout──▶ answered: kTimeout
//             ├──there is room, but its caller's deadline has passed──▶ answered: kTimeout
//             ├──withdrawn, or another request of this end──▶ answered: kTimeout
//             └──its connection ends──▶ dropped, unanswered
//
// Nothing of this is in control memory: the next daemon knows no streams, and answers kStreamLost. Their chunks are
// objects like others and stay. Numbers of streams and ends start at a random one, so that it never takes one of its own
// for one of an earlier daemon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/deadline_heap.h"
#include "base/id.h"
#include "base/status.h"
#include "shm/memory_budget.h"
#include "store/stream/stream.h"
#include "store/types.h"

namespace entrepot {

// The objects that are chunks, as the store has them.
class ChunkObjects {
 public:
  virtual ~ChunkObjects() = default;
  struct Sealed {
    std::uint32_t generation = 0;
    std::uint64_t bytes = 0;  // that count for the capacity
  };
  [[nodiscard]] virtual std::optional<Sealed> find(const IdBytes& id) const = 0;  // none: not in the store
  virtual void remove(const IdBytes& id) = 0;
};

enum class StreamOpening : std::uint8_t { kExisting = 0, kAny = 1, kNew = 2 };

struct StreamGrant {
  std::uint64_t number = 0;
  std::uint32_t capacity = 0;
  std::uint64_t capacity_bytes = 0;
  std::uint32_t writers = 0;
  bool keeps = false;
  bool created = false;
};
struct ReaderGrant {
  std::uint64_t number = 0;
  std::uint64_t missed = 0;
};
struct NextChunk {
  bool ended = false;  // then the rest is empty
  std::uint64_t position = 0;
  IdBytes id{};
  bool again = false;
};
using AppendDone = std::function<void(const Result<std::uint64_t>&)>;  // its position
using NextDone = std::function<void(const Result<NextChunk>&)>;

// Guarded by the daemon's thread. Callbacks run when the table is done with a request, so they may issue others.
class StreamTable {
 public:
  static constexpr std::size_t kMaxStreams = 1024;
  static constexpr std::size_t kMaxEndsOfConnection = 1024;
  static constexpr std::uint64_t kNever = UINT64_MAX;  // no deadline

  struct Parts {  // all must outlive it
    const Clock& clock;
    MemoryBudget& budget;
    ChunkObjects& objects;
    std::function<std::string(std::uint32_t client)> describe_client;
  };
  explicit StreamTable(Parts parts);
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;

  // --- streams. `session`: its index; `place`: "session 'run-1' of scope 'default'", for messages
  // kObjectNotFound: there is none, and it is not to be created. kStoreFull: there are too many.
  [[nodiscard]] Result<StreamGrant> open(std::uint32_t session, std::string_view place, std::string_view name,
                                         StreamOpening how, const StreamSpec& spec);
  [[nodiscard]] Status remove(std::uint32_t session, std::string_view name);  // kObjectNotFound
  [[nodiscard]] Result<const Stream*> find(std::uint64_t stream) const;       // kStreamLost
  void session_ended(std::uint32_t session);

  // --- writers
  //
  // `next`: the ID under which the writer is going to seal its next chunk, or none. From there on the object is the
  // stream's: it is deleted if the writer ends before it appends it, or if it does not become a chunk.
  [[nodiscard]] Result<std::uint64_t> open_writer(const RequestOrigin& origin, std::uint64_t stream,
                                                  const IdBytes& next = {});
  [[nodiscard]] Status close_writer(const RequestOrigin& origin, std::uint64_t writer, bool aborts,
                                    std::string_view reason);
  // `deadline_ns`: from then on its caller believes that it was not appended. That is later than its timeout, and matters if
  // this process did not run in between: then a timeout that has passed is not the first thing that it gets to know.
  void append(const RequestOrigin& origin, std::uint64_t writer, const IdBytes& id, const IdBytes& next,
              std::uint64_t timeout_ms, AppendDone done, std::uint64_t deadline_ns = kNever);
  // The same if it need not wait and is not refused; returns its position, or none and changes nothing.
  [[nodiscard]] std::optional<std::uint64_t> append_at_once(const RequestOrigin& origin, std::uint64_t writer,
                                                            const IdBytes& id, const IdBytes& next);
  // Before append_at_once(). kTimeout: the caller's deadline has passed; the object was deleted.
  [[nodiscard]] Status check_in_time(const RequestOrigin& origin, std::uint64_t writer, const IdBytes& id,
                                     std::uint64_t deadline_ns);
  // Whether the writer's latest append was of this object and has succeeded; if it waits, it is ended. An object that is
  // not appended is deleted, also if it comes later, by append_at_once().
  [[nodiscard]] Result<bool> withdraw(const RequestOrigin& origin, std::uint64_t writer, const IdBytes& id);

  // --- readers
  [[nodiscard]] Result<ReaderGrant> open_reader(const RequestOrigin& origin, std::uint64_t stream,
                                                std::string_view group, bool late);
  [[nodiscard]] Status close_reader(const RequestOrigin& origin, std::uint64_t reader);
  // `done`: the position of the chunk that the reader has consumed.
  void next(const RequestOrigin& origin, std::uint64_t reader, std::optional<std::uint64_t> done,
            std::uint64_t timeout_ms, NextDone answer);
  [[nodiscard]] Status chunk_done(const RequestOrigin& origin, std::uint64_t reader, std::uint64_t position);

  // --- events
  void connection_ended(std::uint64_t owner);
  void answer_overdue(std::uint64_t now_ns);
  [[nodiscard]] std::uint64_t next_deadline_ns() const { return deadlines_.next_ns(); }

  // --- figures
  [[nodiscard]] bool empty() const { return by_name_.empty(); }
  [[nodiscard]] std::size_t waiting() const { return deadlines_.armed(); }
  struct Listed {
    std::uint32_t session = 0;
    std::string_view name;
    const Stream* stream = nullptr;
    std::size_t writers_open = 0;
    std::size_t writers_waiting = 0;
    std::vector<std::size_t> readers;  // open ones, by group
  };
  [[nodiscard]] std::vector<Listed> list() const;  // by session and name; valid until the next request

 private:
  struct Entry {
    Entry(std::uint64_t number, std::string name) : number(number), stream(std::move(name)) {}
    std::uint64_t number;
    Stream stream;
    std::deque<std::uint64_t> appends;             // writers that wait for room, first come first
    std::vector<std::deque<std::uint64_t>> nexts;  // readers that wait for a chunk, by group, first come first
    std::size_t writers_open = 0;
    std::vector<std::size_t> readers_open;  // by group
  };
  using EntryPtr = std::shared_ptr<Entry>;  // shared with its ends, which outlive its removal
  using Name = std::pair<std::uint32_t, std::string>;
  struct End {
    RequestOrigin origin;
    EntryPtr entry;
    std::optional<Stream::Group> group;  // of a reader; none: a writer
    DeadlineHeap<std::uint64_t>::Handle deadline = 0;
    std::uint64_t timeout_ms = 0;  // of the request that waits
    // Writer
    IdBytes next{};                             // under which it is going to seal; all zero: unknown
    IdBytes id{};                               // of its latest append
    bool appended = false;                      // it has succeeded
    IdBytes withdrawn{};                        // must not be appended at once any more: its put was given up
    AppendDone append_done{};                   // while it waits
    std::uint64_t append_deadline_ns = kNever;  // of its latest append
    // Reader
    NextDone next_done{};  // while it waits
  };
  using Ends = std::map<std::uint64_t, End>;

  [[nodiscard]] Result<End*> end_of(const RequestOrigin& origin, std::uint64_t number, bool is_writer);
  [[nodiscard]] Result<EntryPtr> entry_of(std::uint64_t stream) const;
  [[nodiscard]] Result<std::uint64_t> add_end(const RequestOrigin& origin, const EntryPtr& entry,
                                              std::optional<Stream::Group> group);
  void erase_end(std::uint64_t number);
  [[nodiscard]] Status make_place();  // for one more stream
  void fail(Entry& entry, std::string_view reason);
  void remove_entry(std::map<Name, EntryPtr>::iterator it, std::string_view reason);
  void finish_chunk(const Stream& stream, const StreamChunk& chunk);
  // The object becomes the next chunk of the writer's stream, which has room.
  [[nodiscard]] std::uint64_t add_chunk(End& writer, const ChunkObjects::Sealed& object);
  void advance(Entry& entry);                         // answers what can be answered
  void stop_waiting(std::uint64_t number, End& end);  // it is answered, withdrawn or dropped
  void delete_unless_chunk(const IdBytes& id);
  void refuse_append(End& end, Status why);  // it waits
  void answer(AppendDone done, Result<std::uint64_t> result);
  void answer(NextDone done, Result<NextChunk> result);
  void run_answers();

  Parts parts_;
  std::uint64_t last_number_;
  std::map<Name, EntryPtr> by_name_;
  std::map<std::uint64_t, EntryPtr> by_number_;  // the same
  Ends ends_;
  std::unordered_set<IdBytes, IdHash> chunks_;  // of all streams
  DeadlineHeap<std::uint64_t> deadlines_;       // of the requests that wait; owners are the ends' numbers
  std::deque<std::function<void()>> answers_;   // to be given once the table is consistent
};

}  // namespace entrepot
