#include "store/session/locality_set_table.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/hash.h"
#include "base/text.h"
#include "store/sync_point.h"

namespace entrepot {
namespace {

constexpr std::uint32_t kNamed = 0x8000'0000U;  // flag in the policy number of named sets

std::uint32_t set_crc(const LocalitySet& set, std::uint32_t generation) {
  return Crc32c()
      .add(set.session)
      .add(set.session_generation)
      .add(set.name_bytes)
      .add_bytes(set.name.data(), std::min<std::size_t>(set.name_bytes, kNameMaxBytes))
      .add(generation)
      .value();
}

Status check_attributes(const SetAttributes& requested) {
  if (requested.priority < kMinPriority || requested.priority > kMaxPriority) {
    return Status(Code::kInvalidArgument, concat("invalid priority ", static_cast<int>(requested.priority),
                                                 ": choose one from ", kMinPriority, " to ", kMaxPriority));
  }
  if (SetAttributes::unpack(requested.pack()) != requested) {
    return Status(
        Code::kInvalidArgument,
        "an attribute of the locality set has a value that this version does not support: use the same version "
        "of Entrepot as the daemon");
  }
  if (requested.lifetime == Lifetime::kConsumers && requested.consumers == 0) {
    return Status(Code::kInvalidArgument, "the lifetime 'consumers' requires a number of consumers: 1 or more");
  }
  return Status::ok();
}

}  // namespace

LocalitySetTable::LocalitySetTable(ControlMemory& memory, const SessionTable& sessions)
    : sessions_(&sessions),
      table_(memory.region(RegionKind::kSets), memory.region(RegionKind::kSets).marks().high_water) {}

std::uint32_t LocalitySetTable::adopt() {
  std::uint32_t damaged = 0;
  table_.adopt([&](std::uint32_t index, const LocalitySet& set) {
    const std::uint64_t word = table_.word(index);
    if (Word::state(word) != static_cast<std::uint8_t>(EntryState::kLive) || set.name_bytes > kNameMaxBytes ||
        set.crc != set_crc(set, Word::generation(word))) {
      ++damaged;
      return false;
    }
    // Its session was removed, and the daemon died before it removed the set.
    if (!sessions_->is_known(set.session) || sessions_->generation(set.session) != set.session_generation) return false;
    if (find(set.session, name(index)) != nullptr) {
      ++damaged;
      return false;
    }
    link(index);
    return true;
  });
  return damaged;
}

std::uint32_t LocalitySetTable::handle(std::uint32_t index) const {
  return index | (Word::generation(table_.word(index)) << 16);
}

Result<std::uint32_t> LocalitySetTable::index_of(std::uint32_t handle, std::uint32_t session) const {
  const std::uint32_t index = handle & 0xffffU;
  if (handle == 0 || index >= table_.size() || Word::state(table_.word(index)) == 0 || this->handle(index) != handle) {
    return Status(Code::kInvalidArgument,
                  concat("locality set number ", handle, " does not exist: its session ended; define it again"));
  }
  if (this->session(index) == session) return index;
  return Status(Code::kInvalidArgument,
                concat("the locality set '", name(index), "' belongs to ", sessions_->describe(this->session(index)),
                       ", but the object belongs to ", sessions_->describe(session), ": define a set in that session"));
}

Result<std::uint32_t> LocalitySetTable::define(std::uint32_t session, std::string_view name, const SetChange& change) {
  if (const std::uint32_t* existing = find(session, name)) {
    const std::uint32_t index = *existing;
    const SetAttributes requested = change.apply(attributes(index));
    RETURN_IF_ERROR(check_attributes(requested));
    table_.at(index).attributes.store(requested.pack(), std::memory_order_release);
    ENTREPOT_SYNC_POINT("set.changed");
    return index;
  }
  if (name.size() > kNameMaxBytes || name.find(char{0}) != std::string_view::npos) {
    return Status(Code::kInvalidArgument, concat("the name of a locality set can have at most ", kNameMaxBytes,
                                                 " bytes and no zero bytes; this one has ", name.size()));
  }
  const SetAttributes requested = change.apply({});
  RETURN_IF_ERROR(check_attributes(requested));
  ASSIGN_OR_RETURN(const std::uint32_t index, table_.allocate());
  LocalitySet& set = table_.at(index);
  set.attributes.store(requested.pack(), std::memory_order_relaxed);
  set.session = session;
  set.session_generation = sessions_->generation(session);
  set.name = {};
  set.reserved = {};
  set.name_bytes = static_cast<std::uint16_t>(name.size());
  std::memcpy(set.name.data(), name.data(), name.size());
  set.crc = set_crc(set, table_.next_generation(index));
  ENTREPOT_SYNC_POINT("set.fields");
  table_.publish(index, static_cast<std::uint8_t>(EntryState::kLive));
  ENTREPOT_SYNC_POINT("set.published");
  link(index);
  return index;
}

void LocalitySetTable::drop_session(std::uint32_t session) {
  for (const std::uint32_t index : of_session(session)) {
    by_name_.erase(name_hash(session, name(index)), index);
    of_session_.remove(session, index);
    table_.free(index);
    ENTREPOT_SYNC_POINT("set.freed");
  }
}

const std::uint32_t* LocalitySetTable::find(std::uint32_t session, std::string_view name) const {
  return by_name_.find(name_hash(session, name), [&](std::uint32_t index) {
    return this->session(index) == session && this->name(index) == name;
  });
}

std::uint64_t LocalitySetTable::name_hash(std::uint32_t session, std::string_view name) {
  return hash_text(name, session);
}

void LocalitySetTable::link(std::uint32_t index) {
  const std::uint32_t session = this->session(index);
  by_name_.insert(name_hash(session, name(index)), index);
  of_session_.add(session, index);
}

std::vector<std::uint32_t> LocalitySetTable::of_session(std::uint32_t session) const {
  std::vector<std::uint32_t> result;
  for (std::uint32_t index = of_session_.first(session); index != kNoEntry; index = of_session_.next(index))
    result.push_back(index);
  std::ranges::sort(result, {}, [&](std::uint32_t index) { return name(index); });
  return result;
}

SetAttributes LocalitySetTable::attributes(std::uint32_t index) const {
  return SetAttributes::unpack(table_.at(index).attributes.load(std::memory_order_relaxed));
}

std::string_view LocalitySetTable::name(std::uint32_t index) const {
  const LocalitySet& set = table_.at(index);
  return {set.name.data(), std::min<std::size_t>(set.name_bytes, kNameMaxBytes)};
}

const std::uint32_t* LocalitySetTable::find_field(std::uint32_t session, std::uint32_t field) const {
  if (field == 0) return find(session, "");
  const std::uint32_t index = field - 1;
  if (index >= table_.size() || Word::state(table_.word(index)) == 0 || this->session(index) != session) {
    return find(session, "");  // the set is gone, so the object belongs to the default one
  }
  return find(session, name(index));
}

std::uint32_t LocalitySetTable::policy_number(std::uint32_t session, std::uint32_t field) const {
  const std::uint32_t* index = find_field(session, field);
  return index == nullptr || name(*index).empty() ? session + 1 : kNamed | *index;
}

}  // namespace entrepot
