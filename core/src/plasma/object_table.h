// ObjectTable: the objects in the arena, who holds them, and which of them go when others need their room.
//
//   (none) ──add──▶ created ──seal──▶ sealed, held ──last release──▶ sealed, unheld ──evicted, deleted──▶ (none)
//             │        │                  ▲ └──last release, deletion was asked for──▶ (none) ▲
//             │        └─abort, creator gone─▶ (none)     └──hold─────────────────────────────┘
//             └─a copy, of an object that is in the store─▶ sealed, held ──last release──▶ (none)
//
// The creator holds what it created. Only what is sealed and unheld is in the order of last use, from which room is
// made. Counts and orders; owns no memory but through Extent.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/id.h"
#include "plasma/replies.h"

namespace entrepot::plasma {

using ClientKey = std::uint64_t;  // of a connection; never reused

// Bytes of an object in the arena.
struct Extent {
  std::int32_t segment = -1;  // negative: none yet
  std::uint64_t segment_bytes = 0;
  std::uint64_t offset = 0;
  std::shared_ptr<void> memory;  // keeps the bytes leased, or once they are sealed, mapped
  std::shared_ptr<void> pin;     // of the sealed object whose bytes they are, while somebody holds it
};

struct Object {
  std::uint64_t data_bytes = 0;
  std::uint64_t metadata_bytes = 0;
  bool is_sealed = false;
  bool is_in_place = false;         // its bytes here are those of the store
  bool is_plasma = true;            // false: a copy of some other value of the store
  bool is_deletion_wanted = false;  // once it is sealed and unheld
  ClientKey creator = 0;            // which may be gone; 0: the front end
  std::uint32_t generation = 0;     // in the store, once sealed
  std::uint64_t created_unix_s = 0;
  std::int64_t construct_s = -1;
  std::string digest;
  Extent extent;
  std::unordered_set<ClientKey> holders;

  [[nodiscard]] std::uint64_t bytes() const { return data_bytes + metadata_bytes; }
  [[nodiscard]] ObjectPlace place() const;

 private:
  friend class ObjectTable;
  std::optional<std::list<IdBytes>::iterator> position;  // among the unheld ones
};

// Guarded by the front end's thread.
class ObjectTable {
 public:
  using Objects = std::unordered_map<IdBytes, Object, IdHash>;

  explicit ObjectTable(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  [[nodiscard]] Object* find(const IdBytes& id);
  [[nodiscard]] const Objects& all() const { return objects_; }
  [[nodiscard]] std::uint64_t capacity_bytes() const { return capacity_bytes_; }
  [[nodiscard]] std::uint64_t used_bytes() const { return used_bytes_; }

  Object& add(const IdBytes& id, Object object);  // not in the table yet
  void seal(const IdBytes& id, Object& object);
  void hold(Object& object, ClientKey client);
  // False: the client does not hold it.
  [[nodiscard]] bool release(const IdBytes& id, Object& object, ClientKey client);
  void erase(const IdBytes& id);
  void refresh(const IdBytes& id);  // as if it had been used now

  // What has to go so that `bytes` more fit, by the rules of Plasma: at least a fifth of the arena at a time, the least
  // recently used first; `fits`: whether they do then. If `client` has a quota, only its own objects go for it.
  struct Room {
    bool fits = false;
    std::vector<IdBytes> victims;
  };
  [[nodiscard]] Room make_room(std::uint64_t bytes, ClientKey client, bool may_evict) const;
  // The least recently used, until they have this many bytes, or there are no more.
  [[nodiscard]] std::vector<IdBytes> oldest(std::uint64_t bytes) const;

  // Limits what the objects of a client may occupy. False: it has a limit already, or too little would be left for
  // the others.
  [[nodiscard]] bool set_quota(ClientKey client, std::uint64_t bytes);
  void forget_client(ClientKey client);  // ends its quota

 private:
  struct Quota {
    std::uint64_t limit_bytes = 0;
    std::uint64_t used_bytes = 0;
  };
  void enter_order(const IdBytes& id, Object& object);
  void leave_order(Object& object);
  [[nodiscard]] Quota* quota_of(ClientKey client);

  const std::uint64_t capacity_bytes_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t quota_bytes_ = 0;  // of all clients
  Objects objects_;
  std::list<IdBytes> order_;  // unheld, least recently used first
  std::unordered_map<ClientKey, Quota> quotas_;
};

}  // namespace entrepot::plasma
