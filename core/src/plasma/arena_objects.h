// ArenaObjects: what happens to objects in the arena, of which the table, the store, the clients that hold them and the
// subscribers all take note.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "plasma/arena.h"
#include "plasma/client_channel.h"
#include "plasma/notifications.h"
#include "plasma/object_table.h"
#include "plasma/store_worker.h"

namespace entrepot::plasma {

inline constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
inline constexpr std::uint64_t kCopiedHereBytes = 1U << 20;  // more is copied by another thread than the loop's

// Guarded by the front end's thread.
class ArenaObjects {
 public:
  // `strict`: what is evicted from the arena is deleted, as by Plasma; otherwise it is left to the store.
  ArenaObjects(ObjectTable& table, Arena& arena, Notifications& notifications, StoreWorker& worker, bool strict)
      : table_(&table), arena_(&arena), notifications_(&notifications), worker_(&worker), strict_(strict) {}

  [[nodiscard]] ObjectTable& table() { return *table_; }
  [[nodiscard]] Arena& arena() { return *arena_; }

  // Whether there is room for as many bytes, once what may go has gone.
  [[nodiscard]] bool make_room(std::uint64_t bytes, ClientKey client, bool may_evict);
  std::uint64_t evict(std::span<const IdBytes> ids);  // unheld ones; returns their bytes

  // The object, if it is sealed and still what the store has under this ID, with its bytes pinned. Null otherwise.
  [[nodiscard]] Object* usable(const IdBytes& id);
  [[nodiscard]] bool is_present(const IdBytes& id);  // here or, according to the directory, in the store
  void hold(ClientChannel& client, const IdBytes& id, Object& object);
  [[nodiscard]] bool release(ClientChannel& client, const IdBytes& id);  // false: it holds no such sealed object
  // A reply that names these objects is being sent: adds the descriptors that the client lacks.
  void send_segment(ClientChannel& client, const Object& object);

  // An object that is complete was published: it is sealed here, too, unless that failed.
  [[nodiscard]] Status seal(const IdBytes& id, Object& object, Published published, std::string digest);
  // What is to be deleted from the store; the object has left the arena. An error if it cannot be now: the deletion of
  // what is held or being written is deferred.
  struct Removal {
    Error error = Error::kOk;
    Doomed doomed;
  };
  [[nodiscard]] Removal remove(const IdBytes& id);
  void client_gone(ClientChannel& client);   // releases what it held, drops what it did not seal
  void drop_if_unneeded(const IdBytes& id);  // a copy that nobody holds

  [[nodiscard]] std::vector<ObjectDescription> describe_all() const;
  [[nodiscard]] std::string debug_text() const;

 private:
  void unheld(const IdBytes& id, Object& object);       // may erase it
  void delete_from_store(std::vector<Doomed> objects);  // nobody waits for that

  ObjectTable* table_;
  Arena* arena_;
  Notifications* notifications_;
  StoreWorker* worker_;
  const bool strict_;
};

}  // namespace entrepot::plasma
