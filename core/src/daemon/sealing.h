// Sealing as requests ask for it: with the waiting for room in the store's tables and for records on disk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/room_wait.h"

namespace entrepot {

[[nodiscard]] SealSpec spec_of(const SealObject& object);  // its strings stay in `object`

// Seals the objects, each by itself. `then(to, results)` answers to `to`, a Request or a HeldRequest, once all are sealed
// or refused, and what was recorded before under their names and IDs is recorded anew.
template <class Then>
void seal_objects(Store& store, Request& request, std::vector<SealObject> objects, Then then) {
  using Unrecorded = std::vector<std::pair<std::size_t, std::uint64_t>>;  // by index, with the record that is needed
  std::vector<SealResult> results;
  results.reserve(objects.size());
  const std::uint64_t cost = request.holding_cost();
  serve_when_room(
      store, request,
      [&store, client = request.client(), origin = request.origin(), objects = std::move(objects),
       results = std::move(results), unrecorded = Unrecorded(), makes_room = true, cost,
       then = std::move(then)](auto& to, bool last) mutable {
        while (results.size() < objects.size()) {
          const SealObject& object = objects[results.size()];
          if (const Status sound = Request::check_text("name", object.name); !sound.is_ok()) {
            results.push_back({sound.code(), sound.message(), 0, 0});
            continue;
          }
          const SealOutcome outcome = store.seal(client, spec_of(object), makes_room);
          const Code code = outcome.status.code();
          if (makes_room && awaits_room(store, code, last)) return false;
          makes_room = makes_room && code != Code::kStoreFull;  // once is enough for a batch
          if (!store.is_recorded(outcome.record)) unrecorded.emplace_back(results.size(), outcome.record);
          results.push_back({code, outcome.status.message(), outcome.slot, outcome.generation});
        }
        if (unrecorded.empty()) {
          then(to, std::move(results));
          return true;
        }
        const std::uint64_t record = std::ranges::max_element(unrecorded, {}, &Unrecorded::value_type::second)->second;
        answer_when_recorded(
            store, to, origin, record,
            [&store, then = std::move(then), results = std::move(results), unrecorded = std::move(unrecorded)](
                auto& answered, const Status& recorded) mutable {
              for (const auto& [index, needed] : unrecorded) {
                if (recorded.is_ok() || store.is_recorded(needed)) continue;
                results[index].code = recorded.code();
                results[index].message = recorded.message();
              }
              then(answered, std::move(results));
            },
            cost);
        return true;
      },
      cost);
}

}  // namespace entrepot
