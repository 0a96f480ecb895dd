// Stream: chunks on their way from writers to the groups of readers. Knows no requests and no time; see StreamTable.
//
//   open ──as many writers as it expects have closed──▶ ended
//     └──▶ failed ◀─────────────────────────────────────┘
//
// It fails if a writer dies or gives up, if it is removed or replaced, or if its session ends; only the last three also
// happen once it has ended. A failed stream has no chunks.
//
// A chunk is an object that the stream keeps until every group has consumed it. For each group:
//
//   pending ──handed out──▶ in a reader's hand ──done──▶ consumed
//      ▲                      └──its reader ended──▶ returned ──handed out──▶ in another reader's hand
//      └── of a group that was added later: what is still in the stream
//
// Chunks without any group wait for the first one. They are handed out in the order in which they were appended, and
// what was returned before the others. So each writer's chunks reach a group in the order of that writer, except that a
// returned one reaches its next reader later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/status.h"

namespace entrepot {

struct StreamSpec {
  std::uint32_t capacity = 0;  // chunks; 0: unspecified, as below
  std::uint32_t writers = 0;
  std::optional<bool> keeps{};  // whether consumed chunks stay in the store
  std::vector<std::string> groups{};
  std::uint64_t capacity_bytes = 0;  // of all chunks in it; 0: unspecified, which means unlimited
};

struct StreamChunk {
  IdBytes id{};
  std::uint32_t generation = 0;
  std::uint32_t groups_left = 0;  // that have not consumed it
  std::uint64_t bytes = 0;        // that count for the capacity
};

// Guarded by the daemon's thread.
class Stream {
 public:
  static constexpr std::uint32_t kDefaultCapacity = 16;
  static constexpr std::uint32_t kMaxCapacity = 1U << 16;
  static constexpr std::uint32_t kMaxWriters = 1U << 16;
  static constexpr std::size_t kMaxGroups = 64;

  enum class State : std::uint8_t { kOpen, kEnded, kFailed };
  using Group = std::uint32_t;  // index into groups()
  struct GroupState {
    std::string name;
    std::uint64_t next = 0;                          // lowest position that was never handed out to this group
    std::set<std::uint64_t> returned;                // positions, handed out before and to be handed out again
    std::map<std::uint64_t, std::uint64_t> in_hand;  // reader -> position
    std::uint64_t left = 0;                          // chunks in the stream that it has not consumed
    std::uint64_t missed = 0;                        // chunks that had left the stream when it was added
  };
  struct HandedOut {
    std::uint64_t position = 0;
    IdBytes id{};
    bool again = false;  // it was handed out before
  };

  explicit Stream(std::string name) : name_(std::move(name)) {}  // "stream 'frames' of session 'run-1'"
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Adopts what is specified. kInvalidArgument: out of range, or it contradicts what was specified before or is in use.
  [[nodiscard]] Status specify(const StreamSpec& spec);
  // kStreamFailed with the reason, if it has failed.
  [[nodiscard]] Status check() const;

  // --- writers
  [[nodiscard]] Status add_writer();  // kInvalidArgument: all that it expects were there; kStreamFailed
  void close_writer();                // the last one ends the stream
  // For a chunk of this size. Any chunk has room in an empty stream.
  [[nodiscard]] bool has_room(std::uint64_t bytes) const {
    if (state_ != State::kOpen || chunks_.size() >= capacity_) return false;
    return capacity_bytes_ == 0 || chunks_.empty() || (bytes_ <= capacity_bytes_ && bytes <= capacity_bytes_ - bytes_);
  }
  std::uint64_t append(const IdBytes& id, std::uint32_t generation,
                       std::uint64_t bytes);  // returns its position; must have room
  // Returns the chunks that were in it. No effect on one that has failed.
  [[nodiscard]] std::vector<StreamChunk> fail(std::string_view reason);

  // --- groups
  // kInvalidArgument: it would miss chunks, and `late` does not allow that; or there are too many.
  [[nodiscard]] Result<Group> add_group(std::string_view name, bool late);  // or finds it
  // The chunk in the reader's hand, or the next one of the group; none if none is there.
  [[nodiscard]] std::optional<HandedOut> hand_out(Group group, std::uint64_t reader);
  // The reader has consumed it. Returns the chunk if it was the last group's, and it therefore left the stream. No effect
  // if that is not in the reader's hand.
  [[nodiscard]] std::optional<StreamChunk> done(Group group, std::uint64_t reader, std::uint64_t position);
  void take_back(Group group, std::uint64_t reader);  // what the reader has in hand is returned to its group
  // Whether nothing will ever be handed out to it any more.
  [[nodiscard]] bool has_all(Group group) const { return state_ == State::kEnded && groups_[group].left == 0; }

  // --- figures
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  [[nodiscard]] bool is_over() const {
    return state_ == State::kFailed || (state_ == State::kEnded && chunks_.empty());
  }
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] std::uint64_t capacity_bytes() const { return capacity_bytes_; }  // 0: unlimited
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }                    // of the chunks in it
  [[nodiscard]] std::uint32_t writers() const { return writers_; }
  [[nodiscard]] std::uint32_t writers_opened() const { return writers_opened_; }
  [[nodiscard]] std::uint32_t writers_closed() const { return writers_closed_; }
  [[nodiscard]] bool keeps() const { return keeps_; }
  [[nodiscard]] std::uint64_t appended() const { return next_position_; }
  [[nodiscard]] std::size_t size() const { return chunks_.size(); }
  [[nodiscard]] const std::vector<GroupState>& groups() const { return groups_; }
  [[nodiscard]] std::string describe_full() const;  // who has not consumed what, for an error

 private:
  [[nodiscard]] Status check_change(std::string_view what, std::uint64_t now, std::uint64_t asked,
                                    bool is_specified) const;

  std::string name_;
  State state_ = State::kOpen;
  std::string failure_;
  std::uint32_t capacity_ = kDefaultCapacity;
  std::uint64_t capacity_bytes_ = 0;
  std::uint64_t bytes_ = 0;  // of chunks_
  std::uint32_t writers_ = 1;
  bool keeps_ = false;
  bool capacity_specified_ = false;
  bool capacity_bytes_specified_ = false;
  bool writers_specified_ = false;
  bool keeps_specified_ = false;
  std::uint32_t writers_opened_ = 0;
  std::uint32_t writers_closed_ = 0;
  std::uint64_t next_position_ = 0;
  std::map<std::uint64_t, StreamChunk> chunks_;  // by position; at most capacity_
  std::vector<GroupState> groups_;
};

}  // namespace entrepot
