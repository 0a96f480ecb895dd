#include "fuzz/plasma_invariants.h"

#include <algorithm>
#include <limits>
#include <set>

namespace entrepot::fuzz {

void check_front_end(const plasma::FrontEnd& front_end) {
  const plasma::ObjectTable& table = front_end.table();
  const auto& clients = front_end.clients();
  std::uint64_t bytes = 0;
  std::size_t unheld = 0;
  for (const auto& [id, object] : table.all()) {
    bytes += object.bytes();
    for (const plasma::ClientKey holder : object.holders) {
      const auto client = clients.find(holder);
      require(client != clients.end(), "nothing is held by a client that is gone");
      require(client->second->held.contains(id), "who holds an object knows it");
    }
    if (!object.is_sealed) {
      require(object.creator == 0 || object.holders.contains(object.creator), "a creator holds what it creates");
      continue;
    }
    require(object.extent.memory != nullptr || (object.bytes() == 0 && object.holders.empty()),
            "what is sealed has memory");
    if (!object.holders.empty()) {
      require(!object.is_in_place || object.bytes() == 0 || object.extent.pin != nullptr, "what is held is pinned");
      continue;
    }
    ++unheld;
    require(object.extent.pin == nullptr, "what nobody holds is not pinned");
    require((object.extent.memory == nullptr) == (object.bytes() == 0), "what has no bytes leases none");
    require(object.is_in_place || object.bytes() == 0, "a copy that nobody holds is gone");
    require(!object.is_deletion_wanted, "what is to be deleted goes with its last holder");
  }
  require(bytes == table.used_bytes() && bytes <= table.capacity_bytes(), "every byte of the arena is accounted for");
  const auto order = table.oldest(std::numeric_limits<std::uint64_t>::max());
  require(order.size() == unheld && std::set<IdBytes>(order.begin(), order.end()).size() == unheld,
          "what nobody holds, and nothing else, can be evicted");
  for (const auto& [key, client] : clients) {
    for (const IdBytes& id : client->held) {
      const auto object = table.all().find(id);
      require(object != table.all().end() && object->second.holders.contains(key), "what a client holds is there");
    }
  }
}

bool are_in_arena(const plasma::FrontEnd& front_end, const Ids& ids) {
  const auto& objects = front_end.table().all();
  return std::ranges::all_of(ids, [&](const IdBytes& id) {
    const auto object = objects.find(id);
    return object != objects.end() && object->second.is_sealed;
  });
}

}  // namespace entrepot::fuzz
