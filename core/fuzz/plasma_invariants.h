// What holds between any two turns of the front end's loop.
#pragma once

#include "fuzz/plasma_peer.h"
#include "plasma/front_end.h"

namespace entrepot::fuzz {

// Table and connections agree on who holds what, and every byte is accounted for.
void check_front_end(const plasma::FrontEnd& front_end);

// Whether all these objects are in the arena: then no get of them waits.
[[nodiscard]] bool are_in_arena(const plasma::FrontEnd& front_end, const Ids& ids);

}  // namespace entrepot::fuzz
