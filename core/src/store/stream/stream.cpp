#include "store/stream/stream.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace entrepot {

Status Stream::check_change(std::string_view what, std::uint64_t now, std::uint64_t asked, bool is_specified) const {
  if (now == asked || (!is_specified && writers_opened_ == 0)) return Status::ok();
  return {Code::kInvalidArgument,
          concat(name_, " exists with ", what, " ", now, ", but ", asked, " is given",
                 is_specified ? "" : " after its first writer was opened",
                 ": give the same everywhere, or only where it is created, or pass replace=True for a new stream")};
}

Status Stream::specify(const StreamSpec& spec) {
  if (spec.capacity > kMaxCapacity) {
    return {Code::kInvalidArgument,
            concat("the capacity of a stream is 1 to ", kMaxCapacity, " chunks, but ", spec.capacity, " is given")};
  }
  if (spec.writers > kMaxWriters) {
    return {Code::kInvalidArgument,
            concat("a stream has 1 to ", kMaxWriters, " writers, but ", spec.writers, " is given")};
  }
  if (spec.capacity != 0) {
    RETURN_IF_ERROR(check_change("capacity", capacity_, spec.capacity, capacity_specified_));
  }
  if (spec.capacity_bytes != 0) {
    RETURN_IF_ERROR(check_change("capacity_bytes", capacity_bytes_, spec.capacity_bytes, capacity_bytes_specified_));
  }
  if (spec.writers != 0) RETURN_IF_ERROR(check_change("writers", writers_, spec.writers, writers_specified_));
  if (spec.keeps) {
    RETURN_IF_ERROR(check_change("keep", keeps_ ? 1 : 0, *spec.keeps ? 1 : 0, keeps_specified_));
  }
  if (state_ != State::kFailed) {
    for (const std::string& group : spec.groups)
      RETURN_IF_ERROR(add_group(group, false));
  }
  if (spec.capacity != 0) capacity_ = spec.capacity;
  if (spec.capacity_bytes != 0) capacity_bytes_ = spec.capacity_bytes;
  if (spec.writers != 0) writers_ = spec.writers;
  if (spec.keeps) keeps_ = *spec.keeps;
  capacity_specified_ = capacity_specified_ || spec.capacity != 0;
  capacity_bytes_specified_ = capacity_bytes_specified_ || spec.capacity_bytes != 0;
  writers_specified_ = writers_specified_ || spec.writers != 0;
  keeps_specified_ = keeps_specified_ || spec.keeps.has_value();
  return Status::ok();
}

Status Stream::check() const {
  if (state_ != State::kFailed) return Status::ok();
  return {Code::kStreamFailed, concat(name_, " failed: ", failure_)};
}

Status Stream::add_writer() {
  RETURN_IF_ERROR(check());
  if (writers_opened_ >= writers_) {
    return {Code::kInvalidArgument,
            concat(name_, " expects ", count_of(writers_, "writer"), ", and ", writers_opened_,
                   writers_opened_ == 1 ? " was" : " were",
                   " opened already: pass the right number of writers= when it is created, or replace=True for a new "
                   "stream")};
  }
  ++writers_opened_;
  return Status::ok();
}

void Stream::close_writer() {
  ++writers_closed_;
  if (state_ == State::kOpen && writers_closed_ == writers_) state_ = State::kEnded;
}

std::uint64_t Stream::append(const IdBytes& id, std::uint32_t generation, std::uint64_t bytes) {
  for (GroupState& group : groups_)
    ++group.left;
  chunks_.emplace(next_position_, StreamChunk{id, generation, static_cast<std::uint32_t>(groups_.size()), bytes});
  bytes_ += bytes;
  return next_position_++;
}

std::vector<StreamChunk> Stream::fail(std::string_view reason) {
  std::vector<StreamChunk> dropped;
  if (state_ == State::kFailed) return dropped;
  state_ = State::kFailed;
  failure_ = reason;
  dropped.reserve(chunks_.size());
  for (const auto& [position, chunk] : chunks_)
    dropped.push_back(chunk);
  chunks_.clear();
  bytes_ = 0;
  for (GroupState& group : groups_) {
    group.returned.clear();
    group.in_hand.clear();
    group.left = 0;
  }
  return dropped;
}

Result<Stream::Group> Stream::add_group(std::string_view name, bool late) {
  RETURN_IF_ERROR(check());
  const auto existing =
      std::find_if(groups_.begin(), groups_.end(), [&](const GroupState& g) { return g.name == name; });
  if (existing != groups_.end()) return static_cast<Group>(existing - groups_.begin());
  if (groups_.size() >= kMaxGroups) {
    return Status(Code::kInvalidArgument, concat(name_, " has ", kMaxGroups, " groups, and cannot have more"));
  }
  const std::uint64_t missed = next_position_ - chunks_.size();
  if (missed != 0 && !late) {
    return Status(Code::kInvalidArgument,
                  concat("group '", name, "' comes too late for ", name_, ": ", count_of(missed, "chunk"),
                         " had been consumed and deleted before; name all groups (groups=) when it is created, or pass "
                         "late=True to read the rest"));
  }
  GroupState group;
  group.name = name;
  group.next = chunks_.empty() ? next_position_ : chunks_.begin()->first;
  group.left = chunks_.size();
  group.missed = missed;
  for (auto& [position, chunk] : chunks_)
    ++chunk.groups_left;
  groups_.push_back(std::move(group));
  return static_cast<Group>(groups_.size() - 1);
}

std::optional<Stream::HandedOut> Stream::hand_out(Group index, std::uint64_t reader) {
  GroupState& group = groups_[index];
  if (const auto in_hand = group.in_hand.find(reader); in_hand != group.in_hand.end()) {
    return HandedOut{in_hand->second, chunks_.at(in_hand->second).id, true};
  }
  if (!group.returned.empty()) {
    const std::uint64_t position = *group.returned.begin();
    group.returned.erase(group.returned.begin());
    group.in_hand.emplace(reader, position);
    return HandedOut{position, chunks_.at(position).id, true};
  }
  const auto chunk = chunks_.lower_bound(group.next);
  if (chunk == chunks_.end()) return std::nullopt;
  group.next = chunk->first + 1;
  group.in_hand.emplace(reader, chunk->first);
  return HandedOut{chunk->first, chunk->second.id, false};
}

std::optional<StreamChunk> Stream::done(Group index, std::uint64_t reader, std::uint64_t position) {
  GroupState& group = groups_[index];
  const auto in_hand = group.in_hand.find(reader);
  if (in_hand == group.in_hand.end() || in_hand->second != position) return std::nullopt;
  group.in_hand.erase(in_hand);
  --group.left;
  const auto chunk = chunks_.find(position);
  if (--chunk->second.groups_left != 0) return std::nullopt;
  const StreamChunk left = chunk->second;
  chunks_.erase(chunk);
  bytes_ -= left.bytes;
  return left;
}

void Stream::take_back(Group index, std::uint64_t reader) {
  GroupState& group = groups_[index];
  const auto in_hand = group.in_hand.find(reader);
  if (in_hand == group.in_hand.end()) return;
  group.returned.insert(in_hand->second);
  group.in_hand.erase(in_hand);
}

std::string Stream::describe_full() const {
  std::string text = concat(count_of(chunks_.size(), "chunk"), " of ", capacity_, " in it");
  if (capacity_bytes_ != 0) text += concat(", ", format_bytes(bytes_), " of ", format_bytes(capacity_bytes_));
  if (groups_.empty()) return text + ", and no group reads it";
  for (const GroupState& group : groups_)
    text += concat("; group '", group.name, "' has not consumed ", group.left);
  return text;
}

}  // namespace entrepot
