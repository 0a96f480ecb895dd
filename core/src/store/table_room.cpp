#include "store/table_room.h"

namespace entrepot {

std::uint64_t TableRoom::trim() {
  if (deps_.parts.withheld.is_withholding()) return 0;  // what seems free may be in use
  return deps_.parts.catalog.trim() + deps_.names.trim() + deps_.consumers.trim();
}

}  // namespace entrepot
