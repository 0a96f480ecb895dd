// Sessions: namespaces of objects and names, with limits and a time to live.
//
//   free --open--> live --remove or expiry--> dead (its objects and names are going) --all gone--> free (generation +
//   1)
//
// `dead` is written before the first object goes, so that a daemon that adopts the memory ends what was begun. Limits
// of a live session change by a redo note in its reserved bytes: a crash in the middle leaves the old or the new ones.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "shm/control.h"
#include "shm/entry_table.h"
#include "store/types.h"

namespace entrepot {

struct SessionLimits {
  std::uint64_t ttl_seconds = 0;  // after the last use; 0: for ever
  std::uint64_t limit_bytes = 0;  // 0: none
  std::uint64_t limit_objects = 0;
};

// What is derived about a session; private to the daemon.
struct SessionUse {
  std::uint64_t bytes = 0;             // payload
  std::uint32_t objects = 0;           // sealed ones
  std::uint32_t first_slot = kNoSlot;  // of them; the others follow by SessionTable's links
  std::uint32_t opened_by = 0;         // connections that have it open: while there is one it does not expire
  static constexpr std::uint32_t kNoSlot = 0xffff'ffffU;
};

// Guarded by the daemon's thread.
class SessionTable {
 public:
  SessionTable(ControlMemory& memory, const Clock& clock);

  struct Adoption {
    std::vector<std::uint32_t> dead;  // removal was under way: end it
    std::uint32_t damaged = 0;        // freed
  };
  [[nodiscard]] Adoption adopt();

  // The number by which clients speak of a session: its index, and 16 bits of its generation so that a session that is
  // gone is not taken for the next one in its place. Never 0.
  [[nodiscard]] std::uint32_t handle(std::uint32_t index) const;
  // kInvalidArgument if there is no such session (any more); it names one of the last that went.
  [[nodiscard]] Result<std::uint32_t> index_of(std::uint32_t handle) const;

  // Finds or makes; `limits` null keeps what is there (or the defaults: a named session lives for default_ttl).
  [[nodiscard]] Result<std::uint32_t> open(std::string_view scope, std::string_view name, const SessionLimits* limits,
                                           std::uint64_t default_ttl_seconds);
  [[nodiscard]] const std::uint32_t* find(std::string_view scope, std::string_view name) const;

  void touch(std::uint32_t index);  // used now
  // Whether an object whose last consumer had it is deleted at once.
  void set_deletes_consumed(std::uint32_t index, bool on);
  [[nodiscard]] bool deletes_consumed(std::uint32_t index) const;
  void opened(std::uint32_t index) { ++use_[index].opened_by; }
  void closed(std::uint32_t index);

  void add_object(std::uint32_t index, std::uint32_t slot, std::uint64_t bytes);
  void drop_object(std::uint32_t index, std::uint32_t slot, std::uint64_t bytes);
  // kStoreFull if one more object of `bytes` breaks the session's limits; `freed_*` leave with it (a replacement).
  [[nodiscard]] Status check_limits(std::uint32_t index, std::uint64_t bytes, std::uint64_t freed_bytes,
                                    std::uint64_t freed_objects) const;

  void mark_dead(std::uint32_t index);  // then its objects and names go, then free
  void free(std::uint32_t index);

  [[nodiscard]] bool is_live(std::uint32_t index) const;
  [[nodiscard]] bool is_known(std::uint32_t index) const;  // live or dead
  [[nodiscard]] std::vector<std::uint32_t> expired() const;
  [[nodiscard]] std::uint64_t next_expiry_unix_ns() const;  // of those that nobody has open; UINT64_MAX: none expires
  [[nodiscard]] std::vector<std::uint32_t> live() const;    // by scope and name

  [[nodiscard]] std::string_view scope(std::uint32_t index) const;
  [[nodiscard]] std::string_view name(std::uint32_t index) const;
  [[nodiscard]] std::string describe(std::uint32_t index) const;  // `session 'run-1' of scope 'default'`
  [[nodiscard]] const SessionUse& use(std::uint32_t index) const;
  [[nodiscard]] std::vector<std::uint32_t> slots_of(std::uint32_t index) const;
  [[nodiscard]] const Session& at(std::uint32_t index) const { return table_.at(index); }
  [[nodiscard]] std::uint32_t generation(std::uint32_t index) const { return Word::generation(table_.word(index)); }
  [[nodiscard]] std::size_t count() const { return by_name_.size(); }

 private:
  using Key = std::pair<std::string, std::string>;

  void set_limits(std::uint32_t index, const SessionLimits& limits);
  bool repair(Session& session, std::uint32_t generation);

  const Clock* clock_;
  EntryTable<Session> table_;
  std::map<Key, std::uint32_t, std::less<>> by_name_;  // live ones
  std::unordered_map<std::uint32_t, SessionUse> use_;
  static constexpr std::size_t kMostGone = 256;
  std::deque<std::pair<std::uint32_t, std::string>> gone_;  // handles and descriptions of the last that went
  // The objects of a session are a list through their slots: eight bytes an object, and no allocation at a seal.
  struct Links {
    std::uint32_t next = SessionUse::kNoSlot;
    std::uint32_t before = kUnlisted;
  };
  static constexpr std::uint32_t kUnlisted = 0xffff'fffeU;
  std::vector<Links> links_;  // by slot
};

}  // namespace entrepot
