#include "store/stream/stream_table.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "os/random.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kHeapBytesPerChunk = 256;
constexpr std::uint64_t kLongestWaitMs = 7 * 24 * 3600 * 1000ULL;

// Hardly ever read: its caller has given up.
Status late_error() {
  return {Code::kTimeout, "the request came after its own deadline, because the daemon was stopped or overloaded",
          true};
}

}  // namespace

// The upper bits are random, and the lowest 32 are free for counting.
StreamTable::StreamTable(Parts parts) : parts_(std::move(parts)), last_number_(os::random_u64() & ~0xffff'ffffULL) {}

// ---- streams ----

Result<StreamGrant> StreamTable::open(std::uint32_t session, std::string_view place, std::string_view name,
                                      StreamOpening how, const StreamSpec& spec) {
  auto it = by_name_.find({session, std::string(name)});
  const bool exists = it != by_name_.end();
  if (!exists && how == StreamOpening::kExisting) {
    return Status(Code::kObjectNotFound,
                  concat("there is no stream '", name, "' in ", place,
                         ": create it first, or pass create=True; a restart of the daemon ends all streams"));
  }
  const std::string full_name = concat("stream '", name, "' of ", place);
  if (!exists || how == StreamOpening::kNew) {
    auto entry = std::make_shared<Entry>(++last_number_, full_name);
    RETURN_IF_ERROR(entry->stream.specify(spec));
    if (exists) remove_entry(it, "it was replaced by a new stream of the same name");
    RETURN_IF_ERROR(make_place());
    it = by_name_.emplace(Name{session, std::string(name)}, entry).first;
    by_number_.emplace(entry->number, entry);
  } else {
    RETURN_IF_ERROR(it->second->stream.specify(spec));
  }
  const EntryPtr entry = it->second;
  entry->nexts.resize(entry->stream.groups().size());
  entry->readers_open.resize(entry->stream.groups().size());
  run_answers();
  return StreamGrant{entry->number,           entry->stream.capacity(), entry->stream.capacity_bytes(),
                     entry->stream.writers(), entry->stream.keeps(),    !exists || how == StreamOpening::kNew};
}

// Streams that are over are kept, so that those who come later learn how they ended, until their places are needed.
Status StreamTable::make_place() {
  if (by_name_.size() < kMaxStreams) return Status::ok();
  auto oldest = by_name_.end();
  for (auto it = by_name_.begin(); it != by_name_.end(); ++it) {
    const Entry& entry = *it->second;
    const bool is_used = entry.writers_open != 0 || std::any_of(entry.readers_open.begin(), entry.readers_open.end(),
                                                                [](std::size_t readers) { return readers != 0; });
    if (!entry.stream.is_over() || is_used) continue;
    if (oldest == by_name_.end() || entry.number < oldest->second->number) oldest = it;
  }
  if (oldest == by_name_.end()) {
    return {Code::kStoreFull, concat("there are ", kMaxStreams, " streams, and none of them is over: remove some")};
  }
  remove_entry(oldest, "it was over, and its place was needed for another stream");
  return Status::ok();
}

Status StreamTable::remove(std::uint32_t session, std::string_view name) {
  const auto it = by_name_.find({session, std::string(name)});
  if (it == by_name_.end()) return {Code::kObjectNotFound, concat("there is no stream '", name, "' in this session")};
  remove_entry(it, "it was removed");
  run_answers();
  return Status::ok();
}

void StreamTable::remove_entry(std::map<Name, EntryPtr>::iterator it, std::string_view reason) {
  const EntryPtr entry = it->second;
  by_number_.erase(entry->number);
  by_name_.erase(it);
  fail(*entry, reason);
}

void StreamTable::session_ended(std::uint32_t session) {
  for (auto it = by_name_.lower_bound({session, std::string()}); it != by_name_.end() && it->first.first == session;) {
    const auto next = std::next(it);
    remove_entry(it, "its session was removed");
    it = next;
  }
  run_answers();
}

Result<StreamTable::EntryPtr> StreamTable::entry_of(std::uint64_t stream) const {
  const auto it = by_number_.find(stream);
  if (it != by_number_.end()) return it->second;
  return Status(
      Code::kStreamLost,
      "this stream is gone: it was removed, replaced, or the daemon that had it was restarted; its writers and "
      "readers have to start anew with a new stream");
}

Result<const Stream*> StreamTable::find(std::uint64_t stream) const {
  ASSIGN_OR_RETURN(const EntryPtr entry, entry_of(stream));
  return &entry->stream;
}

void StreamTable::fail(Entry& entry, std::string_view reason) {
  for (const StreamChunk& chunk : entry.stream.fail(reason))
    finish_chunk(entry.stream, chunk);
  advance(entry);
}

// An object of this ID that is another one by now is not the stream's.
void StreamTable::finish_chunk(const Stream& stream, const StreamChunk& chunk) {
  chunks_.erase(chunk.id);
  parts_.budget.release(BudgetItem::kHeap, kHeapBytesPerChunk);
  if (stream.keeps()) return;
  const auto object = parts_.objects.find(chunk.id);
  if (object && object->generation == chunk.generation) parts_.objects.remove(chunk.id);
}

// ---- ends ----

Result<std::uint64_t> StreamTable::add_end(const RequestOrigin& origin, const EntryPtr& entry,
                                           std::optional<Stream::Group> group) {
  const auto of_connection = std::count_if(ends_.begin(), ends_.end(),
                                           [&](const auto& end) { return end.second.origin.owner == origin.owner; });
  if (static_cast<std::size_t>(of_connection) >= kMaxEndsOfConnection) {
    return Status(Code::kStoreFull, concat("client ", origin.client, " has ", kMaxEndsOfConnection,
                                           " writers and readers of streams open, and cannot have more: close some"));
  }
  const std::uint64_t number = ++last_number_;
  End& end = ends_[number];
  end.origin = origin;
  end.entry = entry;
  end.group = group;
  end.deadline = deadlines_.add(number);
  return number;
}

void StreamTable::erase_end(std::uint64_t number) {
  const auto it = ends_.find(number);
  deadlines_.remove(it->second.deadline);
  ends_.erase(it);
}

Result<StreamTable::End*> StreamTable::end_of(const RequestOrigin& origin, std::uint64_t number, bool is_writer) {
  const auto it = ends_.find(number);
  if (it != ends_.end() && it->second.origin.owner == origin.owner && it->second.group.has_value() != is_writer) {
    return &it->second;
  }
  return Status(
      Code::kStreamLost,
      concat("this ", is_writer ? "writer" : "reader",
             " of a stream is gone: it was closed, or the daemon was restarted or lost the connection to this "
             "process; the stream's writers and readers have to start anew with a new stream"));
}

void StreamTable::stop_waiting(std::uint64_t number, End& end) {
  deadlines_.disarm(end.deadline);
  if (end.group) {
    std::erase(end.entry->nexts[*end.group], number);
  } else {
    std::erase(end.entry->appends, number);
  }
}

// ---- writers ----

void StreamTable::delete_unless_chunk(const IdBytes& id) {
  if (id != IdBytes{} && !chunks_.contains(id) && parts_.objects.find(id)) parts_.objects.remove(id);
}

void StreamTable::refuse_append(End& end, Status why) {
  answer(std::move(end.append_done), std::move(why));
  end.append_done = nullptr;
  delete_unless_chunk(end.id);
}

Result<std::uint64_t> StreamTable::open_writer(const RequestOrigin& origin, std::uint64_t stream, const IdBytes& next) {
  ASSIGN_OR_RETURN(const EntryPtr entry, entry_of(stream));
  RETURN_IF_ERROR(entry->stream.check());
  ASSIGN_OR_RETURN(const std::uint64_t number, add_end(origin, entry, std::nullopt));
  if (const Status added = entry->stream.add_writer(); !added.is_ok()) {
    erase_end(number);
    return added;
  }
  ++entry->writers_open;
  ends_.at(number).next = next;
  return number;
}

Status StreamTable::close_writer(const RequestOrigin& origin, std::uint64_t writer, bool aborts,
                                 std::string_view reason) {
  ASSIGN_OR_RETURN(End* const end, end_of(origin, writer, true));
  const EntryPtr entry = end->entry;
  const bool waits = static_cast<bool>(end->append_done);
  if (waits) {
    refuse_append(*end, Status(Code::kTimeout, "its writer was closed while it waited for room", true));
    stop_waiting(writer, *end);
  }
  delete_unless_chunk(end->next);
  erase_end(writer);
  --entry->writers_open;
  if (aborts || waits) {
    fail(*entry, concat("a writer (", parts_.describe_client(origin.client),
                        ") gave up: ", waits && !aborts ? "it was closed while it was writing" : reason));
  } else {
    const Status state = entry->stream.check();
    if (state.is_ok()) entry->stream.close_writer();
    advance(*entry);
    run_answers();
    return state;  // so that no writer believes that a stream that has failed was written in full
  }
  run_answers();
  return Status::ok();
}

void StreamTable::append(const RequestOrigin& origin, std::uint64_t writer, const IdBytes& id, const IdBytes& next,
                         std::uint64_t timeout_ms, AppendDone done, std::uint64_t deadline_ns) {
  const Result<End*> looked_up = end_of(origin, writer, true);
  if (!looked_up.is_ok()) return done(looked_up.status());
  End& end = **looked_up;
  if (end.append_done) {
    return done(Status(Code::kInvalidArgument, "another chunk of this writer waits for room: withdraw it first"));
  }
  if (!parts_.objects.find(id)) {
    return done(Status(Code::kObjectNotFound, concat("object ", to_hex(id),
                                                     " is not in the store: put it before it is "
                                                     "appended to a stream")));
  }
  if (chunks_.contains(id)) {
    return done(Status(Code::kInvalidArgument, concat("object ", to_hex(id),
                                                      " is a chunk of a stream already, which deletes it once it is "
                                                      "consumed: put another object")));
  }
  end.id = id;
  end.next = next;
  end.appended = false;
  end.append_done = std::move(done);
  end.append_deadline_ns = deadline_ns;
  end.timeout_ms = timeout_ms;
  end.entry->appends.push_back(writer);
  const std::uint64_t now = parts_.clock.monotonic_ns();
  deadlines_.arm(end.deadline, now + std::min(timeout_ms, kLongestWaitMs) * 1'000'000);
  advance(*end.entry);
  run_answers();
  if (timeout_ms == 0) answer_overdue(now);  // a request that does not wait is answered now
}

std::optional<std::uint64_t> StreamTable::append_at_once(const RequestOrigin& origin, std::uint64_t writer,
                                                         const IdBytes& id, const IdBytes& next) {
  const Result<End*> looked_up = end_of(origin, writer, true);
  if (!looked_up.is_ok()) return std::nullopt;
  End& end = **looked_up;
  const EntryPtr entry = end.entry;
  if (id == end.withdrawn && id != IdBytes{}) {
    delete_unless_chunk(id);
    return std::nullopt;
  }
  if (end.append_done || !entry->appends.empty()) return std::nullopt;
  const std::optional<ChunkObjects::Sealed> object = parts_.objects.find(id);
  if (!object || !entry->stream.has_room(object->bytes) || !chunks_.insert(id).second) return std::nullopt;
  end.id = id;
  end.next = next;
  const std::uint64_t position = add_chunk(end, *object);
  advance(*entry);
  run_answers();
  return position;
}

Status StreamTable::check_in_time(const RequestOrigin& origin, std::uint64_t writer, const IdBytes& id,
                                  std::uint64_t deadline_ns) {
  if (parts_.clock.monotonic_ns() < deadline_ns) return Status::ok();
  if (end_of(origin, writer, true).is_ok()) delete_unless_chunk(id);
  return late_error();
}

Result<bool> StreamTable::withdraw(const RequestOrigin& origin, std::uint64_t writer, const IdBytes& id) {
  ASSIGN_OR_RETURN(End* const end, end_of(origin, writer, true));
  if (end->id != id) {
    end->withdrawn = id;
    delete_unless_chunk(id);
    return false;
  }
  if (end->append_done) {
    refuse_append(*end, Status(Code::kTimeout, "it was withdrawn while it waited for room", true));
    stop_waiting(writer, *end);
    advance(*end->entry);  // a smaller chunk that waited behind it may have room
  }
  const bool appended = end->appended;
  run_answers();
  return appended;
}

// ---- readers ----

Result<ReaderGrant> StreamTable::open_reader(const RequestOrigin& origin, std::uint64_t stream, std::string_view group,
                                             bool late) {
  ASSIGN_OR_RETURN(const EntryPtr entry, entry_of(stream));
  ASSIGN_OR_RETURN(const Stream::Group index, entry->stream.add_group(group, late));
  entry->nexts.resize(entry->stream.groups().size());
  entry->readers_open.resize(entry->stream.groups().size());
  ASSIGN_OR_RETURN(const std::uint64_t number, add_end(origin, entry, index));
  ++entry->readers_open[index];
  return ReaderGrant{number, entry->stream.groups()[index].missed};
}

Status StreamTable::close_reader(const RequestOrigin& origin, std::uint64_t reader) {
  ASSIGN_OR_RETURN(End* const end, end_of(origin, reader, false));
  const EntryPtr entry = end->entry;
  if (end->next_done) {
    answer(std::move(end->next_done),
           Status(Code::kTimeout, "its reader was closed while it waited for a chunk", true));
    stop_waiting(reader, *end);
  }
  entry->stream.take_back(*end->group, reader);
  --entry->readers_open[*end->group];
  erase_end(reader);
  advance(*entry);
  run_answers();
  return Status::ok();
}

void StreamTable::next(const RequestOrigin& origin, std::uint64_t reader, std::optional<std::uint64_t> done,
                       std::uint64_t timeout_ms, NextDone answer_next) {
  const Result<End*> looked_up = end_of(origin, reader, false);
  if (!looked_up.is_ok()) return answer_next(looked_up.status());
  End& end = **looked_up;
  if (const Status state = end.entry->stream.check(); !state.is_ok()) return answer_next(state);
  if (end.next_done) {  // its caller stopped waiting, or two threads use one reader
    answer(std::move(end.next_done), Status(Code::kTimeout, "another request of this reader took its place", true));
    stop_waiting(reader, end);
  }
  if (done) {
    if (const auto chunk = end.entry->stream.done(*end.group, reader, *done)) finish_chunk(end.entry->stream, *chunk);
  }
  end.next_done = std::move(answer_next);
  end.timeout_ms = timeout_ms;
  end.entry->nexts[*end.group].push_back(reader);
  const std::uint64_t now = parts_.clock.monotonic_ns();
  deadlines_.arm(end.deadline, now + std::min(timeout_ms, kLongestWaitMs) * 1'000'000);
  advance(*end.entry);
  run_answers();
  if (timeout_ms == 0) answer_overdue(now);
}

Status StreamTable::chunk_done(const RequestOrigin& origin, std::uint64_t reader, std::uint64_t position) {
  ASSIGN_OR_RETURN(End* const end, end_of(origin, reader, false));
  RETURN_IF_ERROR(end->entry->stream.check());
  const EntryPtr entry = end->entry;
  if (const auto chunk = entry->stream.done(*end->group, reader, position)) finish_chunk(entry->stream, *chunk);
  advance(*entry);
  run_answers();
  return Status::ok();
}

// ---- what waits ----

std::uint64_t StreamTable::add_chunk(End& writer, const ChunkObjects::Sealed& object) {
  parts_.budget.charge(BudgetItem::kHeap, kHeapBytesPerChunk);
  writer.appended = true;
  return writer.entry->stream.append(writer.id, object.generation, object.bytes);
}

void StreamTable::advance(Entry& entry) {
  Stream& stream = entry.stream;
  const Status state = stream.check();
  const std::uint64_t now = entry.appends.empty() ? 0 : parts_.clock.monotonic_ns();
  while (!entry.appends.empty()) {
    const std::uint64_t number = entry.appends.front();
    End& end = ends_.at(number);
    const std::optional<ChunkObjects::Sealed> object = parts_.objects.find(end.id);
    const bool is_late = now >= end.append_deadline_ns;
    if (state.is_ok() && !is_late && !stream.has_room(object ? object->bytes : 0)) break;
    if (!state.is_ok()) {
      refuse_append(end, state);
    } else if (is_late) {
      refuse_append(end, late_error());
    } else if (!object || !chunks_.insert(end.id).second) {
      answer(std::move(end.append_done),
             Status(Code::kObjectNotFound, concat("object ", to_hex(end.id),
                                                  " was deleted, or appended by another writer, while it waited for ",
                                                  "room in ", stream.name())));
      end.append_done = nullptr;
    } else {
      answer(std::move(end.append_done), add_chunk(end, *object));
      end.append_done = nullptr;
    }
    stop_waiting(number, end);
  }
  for (Stream::Group group = 0; group < entry.nexts.size(); ++group) {
    while (!entry.nexts[group].empty()) {
      const std::uint64_t number = entry.nexts[group].front();
      Result<NextChunk> result = state;
      if (state.is_ok()) {
        if (const auto chunk = stream.hand_out(group, number)) {
          result = NextChunk{false, chunk->position, chunk->id, chunk->again};
        } else if (stream.has_all(group)) {
          result = NextChunk{true};
        } else {
          break;
        }
      }
      End& end = ends_.at(number);
      answer(std::move(end.next_done), std::move(result));
      end.next_done = nullptr;
      stop_waiting(number, end);
    }
  }
}

void StreamTable::answer(AppendDone done, Result<std::uint64_t> result) {
  answers_.emplace_back([done = std::move(done), result = std::move(result)] { done(result); });
}

void StreamTable::answer(NextDone done, Result<NextChunk> result) {
  answers_.emplace_back([done = std::move(done), result = std::move(result)] { done(result); });
}

void StreamTable::run_answers() {
  while (!answers_.empty()) {
    const std::function<void()> give = std::move(answers_.front());
    answers_.pop_front();
    give();
  }
}

void StreamTable::answer_overdue(std::uint64_t now_ns) {
  while (const auto due = deadlines_.first_due(now_ns)) {
    const std::uint64_t number = deadlines_.owner(*due);
    End& end = ends_.at(number);
    const Stream& stream = end.entry->stream;
    if (end.group) {
      answer(std::move(end.next_done),
             Status(Code::kTimeout,
                    concat("no chunk came for group '", stream.groups()[*end.group].name, "' of ", stream.name(),
                           " within ", end.timeout_ms, " ms; ", stream.writers_closed(), " of ",
                           count_of(stream.writers(), "writer"), " closed so far"),
                    true));
      end.next_done = nullptr;
    } else {
      refuse_append(end, Status(Code::kTimeout,
                                concat("there was no room in ", stream.name(), " within ", end.timeout_ms,
                                       " ms: ", stream.describe_full(), "; read it faster, or wait longer"),
                                true));
    }
    const EntryPtr entry = end.entry;
    stop_waiting(number, end);
    advance(*entry);  // a smaller chunk that waited behind it may have room
  }
  run_answers();
}

void StreamTable::connection_ended(std::uint64_t owner) {
  std::vector<std::pair<EntryPtr, std::optional<std::uint32_t>>>
      left;  // streams, and the client of a writer that was lost
  for (auto it = ends_.begin(); it != ends_.end();) {
    auto& [number, end] = *it++;
    if (end.origin.owner != owner) continue;
    stop_waiting(number, end);
    const EntryPtr entry = end.entry;
    if (end.group) {
      entry->stream.take_back(*end.group, number);
      --entry->readers_open[*end.group];
      left.emplace_back(entry, std::nullopt);
    } else {
      if (end.append_done) delete_unless_chunk(end.id);
      delete_unless_chunk(end.next);
      --entry->writers_open;
      left.emplace_back(entry, end.origin.client);
    }
    erase_end(number);
  }
  for (const auto& [entry, client] : left) {  // after all, so that no chunk is handed to an end that is going, too
    if (client) {
      fail(*entry, concat("a writer (", parts_.describe_client(*client), ") ended without closing it"));
    } else {
      advance(*entry);
    }
  }
  run_answers();
}

std::vector<StreamTable::Listed> StreamTable::list() const {
  std::vector<Listed> listed;
  listed.reserve(by_name_.size());
  for (const auto& [name, entry] : by_name_) {
    listed.push_back(
        {name.first, name.second, &entry->stream, entry->writers_open, entry->appends.size(), entry->readers_open});
  }
  return listed;
}

}  // namespace entrepot
