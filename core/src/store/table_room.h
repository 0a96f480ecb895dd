// Table room: memory that the tables of what is stored no longer need.
#pragma once

#include <cstdint>

#include "store/object/consumer_table.h"
#include "store/object/object_parts.h"
#include "store/session/name_table.h"

namespace entrepot {

// Guarded by the daemon's thread.
class TableRoom {
 public:
  struct Deps {  // all must outlive it
    ObjectParts& parts;
    NameTable& names;
    ConsumerTable& consumers;
  };
  explicit TableRoom(const Deps& deps) : deps_(deps) {}

  // Returns pages that tables no longer need to the system; returns the number of bytes.
  std::uint64_t trim();

 private:
  Deps deps_;
};

}  // namespace entrepot
