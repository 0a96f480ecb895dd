#include "store/session/name_table.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/hash.h"
#include "store/sync_point.h"

namespace entrepot {
namespace {

std::uint32_t name_crc(const Name& name, std::uint32_t generation) {
  return Crc32c()
      .add(name.version)
      .add(name.session)
      .add_bytes(name.id.data(), name.id.size())
      .add(name.text_bytes)
      .add_bytes(name.text.data(), std::min<std::size_t>(name.text_bytes, kNameMaxBytes))
      .add(generation)
      .value();
}

}  // namespace

NameTable::NameTable(ControlMemory& memory)
    : table_(memory.region(RegionKind::kNames), memory.region(RegionKind::kNames).marks().high_water) {}

bool NameTable::is_sound(std::uint32_t index) const {
  const Name& name = table_.at(index);
  const std::uint64_t word = table_.word(index);
  return Word::state(word) == static_cast<std::uint8_t>(EntryState::kLive) && name.text_bytes <= kNameMaxBytes &&
         name.crc == name_crc(name, Word::generation(word));
}

std::string_view NameTable::text(std::uint32_t index) const {
  return {table_.at(index).text.data(), table_.at(index).text_bytes};
}

Status NameTable::check(std::string_view name) {
  if (name.empty()) return Status(Code::kInvalidArgument, "the name is empty: give it at least one character");
  if (name.size() > kNameMaxBytes) {
    return Status(Code::kInvalidArgument, concat("the name has ", name.size(), " bytes; the limit is ", kNameMaxBytes,
                                                 ": choose a shorter one"));
  }
  if (name.find('\0') != std::string_view::npos) {
    return Status(Code::kInvalidArgument, "the name contains a zero byte: remove it");
  }
  return Status::ok();
}

Status NameTable::check_binding(std::uint32_t session, std::string_view name, const IdBytes& id, bool replace) const {
  RETURN_IF_ERROR(check(name));
  const IdBytes* bound = resolve(session, name);
  if (bound != nullptr && *bound != id && !replace) {
    return Status(Code::kObjectExists, concat("the name '", name, "' is already bound to object ", to_hex(*bound),
                                              ": choose another name, unbind it with unset_name, or pass "
                                              "replace=True to rebind it"));
  }
  return Status::ok();
}

Status NameTable::bind(std::uint32_t session, std::string_view name, const IdBytes& id, std::uint32_t generation,
                       bool replace) {
  RETURN_IF_ERROR(check_binding(session, name, id, replace));
  const IdBytes* bound = resolve(session, name);
  if (bound != nullptr && *bound == id) return Status::ok();
  ASSIGN_OR_RETURN(const std::uint32_t index, table_.allocate());
  Name& entry = table_.at(index);
  entry.version = ++version_;
  entry.session = session;
  entry.slot_generation = generation;
  entry.id = id;
  entry.text = {};
  entry.text_bytes = static_cast<std::uint16_t>(name.size());
  std::memcpy(entry.text.data(), name.data(), name.size());
  entry.crc = name_crc(entry, table_.next_generation(index));
  ENTREPOT_SYNC_POINT("name.fields");
  table_.publish(index, static_cast<std::uint8_t>(EntryState::kLive));
  ENTREPOT_SYNC_POINT("name.published");
  link(index);
  if (const std::uint32_t* bound = find(session, name)) {
    const std::uint32_t before = *bound;
    by_name_.replace(name_hash(session, name), before, index);
    unlink(before);
    table_.free(before);
  } else {
    by_name_.insert(name_hash(session, name), index);
  }
  ENTREPOT_SYNC_POINT("name.rebound");
  return Status::ok();
}

std::uint64_t NameTable::name_hash(std::uint32_t session, std::string_view text) { return hash_text(text, session); }

const std::uint32_t* NameTable::find(std::uint32_t session, std::string_view name) const {
  return by_name_.find(name_hash(session, name),
                       [&](std::uint32_t index) { return table_.at(index).session == session && text(index) == name; });
}

const IdBytes* NameTable::resolve(std::uint32_t session, std::string_view name) const {
  const std::uint32_t* index = find(session, name);
  return index == nullptr ? nullptr : &table_.at(*index).id;
}

bool NameTable::unbind(std::uint32_t session, std::string_view name) {
  const std::uint32_t* index = find(session, name);
  if (index == nullptr) return false;
  drop(*index);
  return true;
}

std::uint32_t NameTable::first_of(const IdBytes& id) const {
  const std::uint32_t* first =
      by_id_.find(IdHash()(id), [&](std::uint32_t index) { return table_.at(index).id == id; });
  return first == nullptr ? kNoEntry : *first;
}

void NameTable::link(std::uint32_t index) {
  const Name& name = table_.at(index);
  std::uint32_t first = first_of(name.id);
  if (first == kNoEntry) {
    by_id_.insert(IdHash()(name.id), index);
  } else {
    by_id_.replace(IdHash()(name.id), first, index);
  }
  of_id_.push_front(first, index);
  of_session_.add(name.session, index);
}

void NameTable::unlink(std::uint32_t index) {
  const Name& name = table_.at(index);
  const std::uint32_t before = first_of(name.id);
  std::uint32_t first = before;
  of_id_.remove(first, index);
  if (first == kNoEntry) {
    by_id_.erase(IdHash()(name.id), before);
  } else if (first != before) {
    by_id_.replace(IdHash()(name.id), before, first);
  }
  of_session_.remove(name.session, index);
}

void NameTable::drop(std::uint32_t index) {
  unlink(index);
  by_name_.erase(name_hash(table_.at(index).session, text(index)), index);
  table_.free(index);
}

void NameTable::drop_id(const IdBytes& id) {
  for (std::uint32_t index = first_of(id); index != kNoEntry; index = first_of(id)) {
    drop(index);
    ENTREPOT_SYNC_POINT("name.dropped");
  }
}

void NameTable::drop_session(std::uint32_t session) {
  while (of_session_.first(session) != kNoEntry)
    drop(of_session_.first(session));
}

std::uint64_t NameTable::trim() {
  const std::uint64_t bytes = table_.trim();
  if (bytes == 0) return 0;
  by_name_.trim();
  by_id_.trim();
  of_id_.trim(table_.size());
  of_session_.trim(table_.size());
  return bytes;
}

std::vector<std::string> NameTable::names_of(const IdBytes& id) const {
  std::vector<std::string> result;
  for_each_of(id, [&](std::uint32_t, std::string_view name) { result.emplace_back(name); });
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<std::string> NameTable::names_of(const IdBytes& id, std::uint32_t session) const {
  std::vector<std::string> result;
  for_each_of(id, [&](std::uint32_t of, std::string_view name) {
    if (of == session) result.emplace_back(name);
  });
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace entrepot
