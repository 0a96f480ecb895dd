#include "store/session/name_table.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
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
  by_id_[id].push_back(index);
  const auto [it, fresh] = by_name_.try_emplace(Key(session, name), index);
  if (!fresh) forget(std::exchange(it->second, index));
  ENTREPOT_SYNC_POINT("name.rebound");
  return Status::ok();
}

const IdBytes* NameTable::resolve(std::uint32_t session, std::string_view name) const {
  const auto it = by_name_.find(Key(session, name));
  return it == by_name_.end() ? nullptr : &table_.at(it->second).id;
}

bool NameTable::unbind(std::uint32_t session, std::string_view name) {
  const auto it = by_name_.find(Key(session, name));
  if (it == by_name_.end()) return false;
  forget(it->second);
  by_name_.erase(it);
  return true;
}

void NameTable::forget(std::uint32_t index) {
  const auto it = by_id_.find(table_.at(index).id);
  if (it != by_id_.end()) {
    std::erase(it->second, index);
    if (it->second.empty()) by_id_.erase(it);
  }
  table_.free(index);
}

void NameTable::drop_id(const IdBytes& id) {
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return;
  const std::vector<std::uint32_t> indices = std::move(it->second);
  by_id_.erase(it);
  for (const std::uint32_t index : indices) {
    by_name_.erase(Key(table_.at(index).session, text(index)));
    table_.free(index);
    ENTREPOT_SYNC_POINT("name.dropped");
  }
}

void NameTable::drop_session(std::uint32_t session) {
  auto it = by_name_.lower_bound(Key(session, ""));
  while (it != by_name_.end() && it->first.first == session) {
    forget(it->second);
    it = by_name_.erase(it);
  }
}

std::vector<std::string> NameTable::names_of(const IdBytes& id) const {
  std::vector<std::string> result;
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return result;
  for (const std::uint32_t index : it->second)
    result.emplace_back(text(index));
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace entrepot
