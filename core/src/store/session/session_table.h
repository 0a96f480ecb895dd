// Session table: namespaces of objects and names, with limits and a time to live.
//
//   free --open--> live --remove or expiry--> dead --all its objects and names removed--> free (generation + 1)
//
// `dead` is written before the first object is removed, so that an adopting daemon completes a removal that was begun.
// Limits of a live session are changed through a redo record in its reserved bytes: a crash midway leaves the old or
// the new ones.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/entry_index.h"
#include "base/status.h"
#include "shm/control.h"
#include "shm/entry_table.h"
#include "store/types.h"

namespace entrepot {

struct SessionLimits {
  std::uint64_t ttl_seconds = 0;  // after the last use; 0: never expires
  std::uint64_t limit_bytes = 0;  // 0: none
  std::uint64_t limit_objects = 0;
};

// Derived state of a session; private to the daemon.
struct SessionUsage {
  std::uint64_t bytes = 0;              // payload
  std::uint32_t objects = 0;            // sealed ones
  std::uint32_t first_slot = kNoEntry;  // head of its list in SessionTable's listed_slots_
  std::uint32_t opened_by = 0;          // clients that have it open; it does not expire while there are any
  bool exists = false;                  // the session exists: live or dead
};

// Guarded by the daemon's thread.
class SessionTable {
 public:
  SessionTable(ControlMemory& memory, const Clock& clock);

  struct Adoption {
    std::vector<std::uint32_t> dead;  // removal was under way: complete it
    std::uint32_t damaged = 0;        // entries that were damaged, and freed
  };
  [[nodiscard]] Adoption adopt();

  // Handle by which clients refer to a session: its index, and 16 bits of its generation so that a removed session is
  // not mistaken for its successor in the same entry. Never 0.
  [[nodiscard]] std::uint32_t handle(std::uint32_t index) const;
  // kInvalidArgument if there is no such session (any more); the message names it if it was removed recently.
  [[nodiscard]] Result<std::uint32_t> index_of(std::uint32_t handle) const;

  // Finds or creates a session; `limits` null keeps the existing limits (or applies the defaults: a named session lives
  // for default_ttl_seconds).
  [[nodiscard]] Result<std::uint32_t> open(std::string_view scope, std::string_view name, const SessionLimits* limits,
                                           std::uint64_t default_ttl_seconds);
  [[nodiscard]] const std::uint32_t* find(std::string_view scope, std::string_view name) const;

  void touch(std::uint32_t index);  // records that it was used now
  // Whether an object is deleted as soon as its last consumer has consumed it.
  void set_deletes_consumed(std::uint32_t index, bool on);
  [[nodiscard]] bool deletes_consumed(std::uint32_t index) const;
  void add_opener(std::uint32_t index) { ++usage_of(index).opened_by; }
  void remove_opener(std::uint32_t index);

  void add_object(std::uint32_t index, std::uint32_t slot, std::uint64_t bytes);
  // No object has this slot or a higher one: returns what they needed.
  void trim_slots(std::uint32_t end) { listed_slots_.trim(end); }
  void drop_object(std::uint32_t index, std::uint32_t slot, std::uint64_t bytes);
  // kStoreFull if one more object of `bytes` exceeds the session's limits; `freed_*` leave with it (a replacement).
  [[nodiscard]] Status check_limits(std::uint32_t index, std::uint64_t bytes, std::uint64_t freed_bytes,
                                    std::uint64_t freed_objects) const;

  void mark_dead(std::uint32_t index);  // first; then remove its objects and names, then free()
  void free(std::uint32_t index);

  [[nodiscard]] bool is_live(std::uint32_t index) const;
  [[nodiscard]] bool is_known(std::uint32_t index) const;  // live or dead
  [[nodiscard]] std::vector<std::uint32_t> expired() const;
  // Of sessions that nobody has open; UINT64_MAX: none expires
  [[nodiscard]] std::uint64_t next_expiry_unix_ns() const;
  [[nodiscard]] std::vector<std::uint32_t> live() const;  // sorted by scope and name

  [[nodiscard]] std::string_view scope(std::uint32_t index) const;
  [[nodiscard]] std::string_view name(std::uint32_t index) const;
  [[nodiscard]] std::string describe(std::uint32_t index) const;  // `session 'run-1' of scope 'default'`
  [[nodiscard]] const SessionUsage& use(std::uint32_t index) const;
  [[nodiscard]] std::vector<std::uint32_t> slots_of(std::uint32_t index) const;
  [[nodiscard]] const Session& at(std::uint32_t index) const { return table_.at(index); }
  [[nodiscard]] std::uint32_t generation(std::uint32_t index) const { return Word::generation(table_.word(index)); }
  [[nodiscard]] std::size_t count() const { return by_name_.size(); }

 private:
  [[nodiscard]] static std::uint64_t name_hash(std::string_view scope, std::string_view name);
  [[nodiscard]] SessionUsage& usage_of(std::uint32_t index);  // known from now on
  void set_limits(std::uint32_t index, const SessionLimits& limits);
  bool repair(Session& session, std::uint32_t generation);

  const Clock* clock_;
  EntryTable<Session> table_;
  EntryIndex by_name_;               // live ones
  std::vector<SessionUsage> usage_;  // by session
  static constexpr std::size_t kMaxRemoved = 256;
  // Handles and descriptions of the most recently removed sessions
  std::deque<std::pair<std::uint32_t, std::string>> removed_;
  // The objects of a session form a list through their slots: eight bytes per object, no allocation on seal.
  EntryLists listed_slots_;
};

}  // namespace entrepot
