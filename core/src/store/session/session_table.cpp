#include "store/session/session_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "base/hash.h"
#include "store/sync_point.h"

namespace entrepot {
namespace {

// Redo record: written into Session::reserved before limits change, and cleared after. crc is that of the whole entry
// after the change.
struct LimitsRedo {
  std::uint64_t ttl_seconds;
  std::uint64_t limit_bytes;
  std::uint64_t limit_objects;
  std::uint32_t crc;
  std::uint32_t valid;
};
static_assert(sizeof(LimitsRedo) <= sizeof(Session::reserved));

std::uint32_t crc_with(const Session& session, const SessionLimits& limits, std::uint32_t generation) {
  return Crc32c()
      .add(session.created_unix_ns)
      .add(limits.ttl_seconds)
      .add(limits.limit_bytes)
      .add(limits.limit_objects)
      .add(session.scope_bytes)
      .add(session.name_bytes)
      .add_bytes(session.scope.data(), std::min<std::size_t>(session.scope_bytes, kScopeMaxBytes))
      .add_bytes(session.name.data(), std::min<std::size_t>(session.name_bytes, kSessionMaxBytes))
      .add(generation)
      .value();
}

SessionLimits limits_of(const Session& session) {
  return {session.ttl_seconds, session.limit_bytes, session.limit_objects};
}

Status check_text(std::string_view what, std::string_view text, std::size_t most) {
  if (text.size() > most) {
    return Status(Code::kInvalidArgument,
                  concat("the ", what, " has ", text.size(), " bytes; the limit is ", most, ": choose a shorter one"));
  }
  if (text.find('\0') != std::string_view::npos) {
    return Status(Code::kInvalidArgument, concat("the ", what, " contains a zero byte: remove it"));
  }
  return Status::ok();
}

}  // namespace

SessionTable::SessionTable(ControlMemory& memory, const Clock& clock)
    : clock_(&clock),
      table_(memory.region(RegionKind::kSessions), memory.region(RegionKind::kSessions).marks().high_water) {}

bool SessionTable::repair(Session& session, std::uint32_t generation) {
  LimitsRedo redo{};
  std::memcpy(&redo, session.reserved.data(), sizeof(redo));
  bool good = session.crc == crc_with(session, limits_of(session), generation);
  if (!good && redo.valid == 1) {
    const SessionLimits redone{redo.ttl_seconds, redo.limit_bytes, redo.limit_objects};
    if (redo.crc == crc_with(session, redone, generation)) {
      session.ttl_seconds = redone.ttl_seconds;
      session.limit_bytes = redone.limit_bytes;
      session.limit_objects = redone.limit_objects;
      session.crc = redo.crc;
      good = true;
    }
  }
  session.reserved = {};
  return good && session.scope_bytes <= kScopeMaxBytes && session.name_bytes <= kSessionMaxBytes;
}

SessionTable::Adoption SessionTable::adopt() {
  Adoption result;
  table_.adopt([&](std::uint32_t index, Session& session) {
    const std::uint64_t word = table_.word(index);
    const auto state = static_cast<EntryState>(Word::state(word));
    if (!repair(session, Word::generation(word)) || (state != EntryState::kLive && state != EntryState::kDead)) {
      ++result.damaged;
      return false;
    }
    if (state == EntryState::kLive && find(scope(index), name(index)) != nullptr) {
      ++result.damaged;
      return false;
    }
    usage_of(index) = {.exists = true};
    if (state == EntryState::kDead) {
      result.dead.push_back(index);
    } else {
      by_name_.insert(name_hash(scope(index), name(index)), index);
    }
    return true;
  });
  return result;
}

std::uint32_t SessionTable::handle(std::uint32_t index) const { return index | (generation(index) << 16); }

Result<std::uint32_t> SessionTable::index_of(std::uint32_t handle) const {
  const std::uint32_t index = handle & 0xffffU;
  if (handle != 0 && is_live(index) && ((generation(index) & 0xffffU) == handle >> 16)) return index;
  const auto removed =
      std::find_if(removed_.rbegin(), removed_.rend(), [&](const auto& entry) { return entry.first == handle; });
  if (removed != removed_.rend()) {
    return Status(Code::kInvalidArgument,
                  concat(removed->second, " is not open: it was removed or has expired; open the session again"));
  }
  return Status(Code::kInvalidArgument, concat("session number ", handle,
                                               " is not open: it was removed or has expired; open the session again"));
}

Result<std::uint32_t> SessionTable::open(std::string_view scope, std::string_view name, const SessionLimits* limits,
                                         std::uint64_t default_ttl_seconds) {
  RETURN_IF_ERROR(check_text("scope", scope, kScopeMaxBytes));
  RETURN_IF_ERROR(check_text("session's name", name, kSessionMaxBytes));
  if (const std::uint32_t* existing = find(scope, name)) {
    const std::uint32_t index = *existing;
    if (limits != nullptr) set_limits(index, *limits);
    touch(index);
    return index;
  }
  ASSIGN_OR_RETURN(const std::uint32_t index, table_.allocate());
  Session& session = table_.at(index);
  const SessionLimits chosen =
      limits != nullptr ? *limits : SessionLimits{name.empty() ? 0 : default_ttl_seconds, 0, 0};
  session.created_unix_ns = clock_->unix_ns();
  session.last_used_unix_ns.store(session.created_unix_ns, std::memory_order_relaxed);
  session.ttl_seconds = chosen.ttl_seconds;
  session.limit_bytes = chosen.limit_bytes;
  session.limit_objects = chosen.limit_objects;
  session.scope = {};
  session.name = {};
  session.reserved = {};
  session.flags.store(0, std::memory_order_relaxed);
  session.scope_bytes = static_cast<std::uint16_t>(scope.size());
  session.name_bytes = static_cast<std::uint16_t>(name.size());
  std::memcpy(session.scope.data(), scope.data(), scope.size());
  std::memcpy(session.name.data(), name.data(), name.size());
  session.crc = crc_with(session, chosen, table_.next_generation(index));
  ENTREPOT_SYNC_POINT("session.fields");
  table_.publish(index, static_cast<std::uint8_t>(EntryState::kLive));
  ENTREPOT_SYNC_POINT("session.published");
  usage_of(index) = {.exists = true};
  by_name_.insert(name_hash(scope, name), index);
  return index;
}

void SessionTable::set_limits(std::uint32_t index, const SessionLimits& limits) {
  Session& session = table_.at(index);
  const std::uint32_t crc = crc_with(session, limits, generation(index));
  LimitsRedo redo{limits.ttl_seconds, limits.limit_bytes, limits.limit_objects, crc, 1};
  std::memcpy(session.reserved.data(), &redo, sizeof(redo));
  std::atomic_thread_fence(std::memory_order_release);
  ENTREPOT_SYNC_POINT("session.redo");
  session.ttl_seconds = limits.ttl_seconds;
  ENTREPOT_SYNC_POINT("session.limits");
  session.limit_bytes = limits.limit_bytes;
  session.limit_objects = limits.limit_objects;
  session.crc = crc;
  std::atomic_thread_fence(std::memory_order_release);
  ENTREPOT_SYNC_POINT("session.crc");
  session.reserved = {};
}

const std::uint32_t* SessionTable::find(std::string_view scope, std::string_view name) const {
  return by_name_.find(name_hash(scope, name),
                       [&](std::uint32_t index) { return this->name(index) == name && this->scope(index) == scope; });
}

std::uint64_t SessionTable::name_hash(std::string_view scope, std::string_view name) {
  return hash_text(name, hash_text(scope));
}

SessionUsage& SessionTable::usage_of(std::uint32_t index) {
  if (index >= usage_.size()) usage_.resize(index + std::size_t{1});
  usage_[index].exists = true;
  return usage_[index];
}

void SessionTable::touch(std::uint32_t index) {
  table_.at(index).last_used_unix_ns.store(clock_->unix_ns(), std::memory_order_relaxed);
}

void SessionTable::set_deletes_consumed(std::uint32_t index, bool on) {
  table_.at(index).flags.store(on ? kSessionDeletesConsumed : 0, std::memory_order_relaxed);
}

bool SessionTable::deletes_consumed(std::uint32_t index) const {
  return (at(index).flags.load(std::memory_order_relaxed) & kSessionDeletesConsumed) != 0;
}

void SessionTable::remove_opener(std::uint32_t index) {
  if (!is_known(index) || usage_[index].opened_by == 0) return;
  --usage_[index].opened_by;
  touch(index);
}

void SessionTable::add_object(std::uint32_t index, std::uint32_t slot, std::uint64_t bytes) {
  SessionUsage& use = usage_of(index);
  if (listed_slots_.contains(slot)) return;
  listed_slots_.push_front(use.first_slot, slot);
  use.objects += 1;
  use.bytes += bytes;
}

void SessionTable::drop_object(std::uint32_t index, std::uint32_t slot, std::uint64_t bytes) {
  if (!is_known(index) || !listed_slots_.contains(slot)) return;
  SessionUsage& use = usage_[index];
  listed_slots_.remove(use.first_slot, slot);
  use.objects -= 1;
  use.bytes -= bytes;
}

std::vector<std::uint32_t> SessionTable::slots_of(std::uint32_t index) const {
  std::vector<std::uint32_t> slots;
  slots.reserve(use(index).objects);
  for (std::uint32_t slot = use(index).first_slot; slot != kNoEntry; slot = listed_slots_.next(slot))
    slots.push_back(slot);
  return slots;
}

Status SessionTable::check_limits(std::uint32_t index, std::uint64_t bytes, std::uint64_t freed_bytes,
                                  std::uint64_t freed_objects) const {
  const Session& session = at(index);
  const SessionUsage& usage = use(index);
  const std::uint64_t bytes_after = usage.bytes - freed_bytes + bytes;
  const std::uint64_t objects_after = usage.objects - freed_objects + 1;
  if (session.limit_bytes != 0 && bytes_after > session.limit_bytes) {
    return Status(Code::kStoreFull,
                  concat(describe(index), " is limited to ", format_bytes(session.limit_bytes), " and holds ",
                         format_bytes(usage.bytes), "; an object of ", format_bytes(bytes),
                         " does not fit: delete objects of the session, or open it with a higher limit"));
  }
  if (session.limit_objects != 0 && objects_after > session.limit_objects) {
    return Status(Code::kStoreFull,
                  concat(describe(index), " is limited to ", count_of(session.limit_objects, "object"), " and holds ",
                         usage.objects, ": delete objects of the session, or open it with a higher limit"));
  }
  return Status::ok();
}

void SessionTable::mark_dead(std::uint32_t index) {
  by_name_.erase(name_hash(scope(index), name(index)), index);
  table_.set_state(index, static_cast<std::uint8_t>(EntryState::kDead));
}

void SessionTable::free(std::uint32_t index) {
  if (removed_.size() == kMaxRemoved) removed_.pop_front();
  removed_.emplace_back(handle(index), describe(index));
  if (index < usage_.size()) usage_[index] = {};
  table_.free(index);
}

bool SessionTable::is_live(std::uint32_t index) const {
  return index < table_.size() && Word::state(table_.word(index)) == static_cast<std::uint8_t>(EntryState::kLive);
}

bool SessionTable::is_known(std::uint32_t index) const { return index < usage_.size() && usage_[index].exists; }

std::vector<std::uint32_t> SessionTable::expired() const {
  std::vector<std::uint32_t> result;
  const std::uint64_t now = clock_->unix_ns();
  for (const std::uint32_t index : live()) {
    const Session& session = at(index);
    if (session.ttl_seconds == 0 || use(index).opened_by != 0) continue;
    const std::uint64_t used = session.last_used_unix_ns.load(std::memory_order_relaxed);
    // Divide rather than multiply: a TTL of 2^64 - 1 seconds must not overflow.
    if (now > used && (now - used) / 1'000'000'000 >= session.ttl_seconds) result.push_back(index);
  }
  return result;
}

std::uint64_t SessionTable::next_expiry_unix_ns() const {
  constexpr std::uint64_t kMaxSeconds = UINT64_MAX / 1'000'000'000 / 2;
  std::uint64_t next = UINT64_MAX;
  by_name_.for_each([&](std::uint32_t index) {
    const Session& session = at(index);
    if (session.ttl_seconds == 0 || session.ttl_seconds > kMaxSeconds || use(index).opened_by != 0) return;
    const std::uint64_t used = session.last_used_unix_ns.load(std::memory_order_relaxed);
    next = std::min(next, used + session.ttl_seconds * 1'000'000'000);
  });
  return next;
}

std::vector<std::uint32_t> SessionTable::live() const {
  std::vector<std::uint32_t> result;
  result.reserve(by_name_.size());
  by_name_.for_each([&](std::uint32_t index) { result.push_back(index); });
  std::ranges::sort(result, {}, [&](std::uint32_t index) { return std::pair(scope(index), name(index)); });
  return result;
}

std::string_view SessionTable::scope(std::uint32_t index) const {
  return {at(index).scope.data(), at(index).scope_bytes};
}

std::string_view SessionTable::name(std::uint32_t index) const { return {at(index).name.data(), at(index).name_bytes}; }

std::string SessionTable::describe(std::uint32_t index) const {
  if (name(index).empty()) return concat("the scope's own session of '", scope(index), "'");
  return concat("session '", name(index), "' of scope '", scope(index), "'");
}

const SessionUsage& SessionTable::use(std::uint32_t index) const {
  static const SessionUsage kNone;
  return is_known(index) ? usage_[index] : kNone;
}

}  // namespace entrepot
