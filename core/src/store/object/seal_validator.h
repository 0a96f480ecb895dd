// Validation of a seal request before anything is written. Nothing a client sends is trusted.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "store/memory/segment_pool.h"
#include "store/object/blob_table.h"
#include "store/object/object_catalog.h"
#include "store/session/locality_set_table.h"
#include "store/session/name_table.h"
#include "store/session/session_table.h"
#include "store/types.h"

namespace entrepot {

// What a valid request resolves to.
struct ValidatedSeal {
  std::uint32_t session = 0;       // index
  std::uint32_t locality_set = 0;  // as in Slot
  std::uint32_t consumers = 0;
  std::uint64_t payload_bytes = 0;
};

// Changes nothing, and has no state of its own. Guarded by the daemon's thread, like all that it reads.
class SealValidator {
 public:
  // All must outlive the validator.
  SealValidator(const SessionTable& sessions, const LocalitySetTable& sets, const NameTable& names,
                const SegmentPool& pool, const ObjectCatalog& catalog, const BlobTable& blobs);

  // `replaced`: slot of the object that now has this ID, if there is one.
  [[nodiscard]] Result<ValidatedSeal> check(std::uint32_t client, const SealSpec& spec,
                                            std::optional<std::uint32_t> replaced) const;
  // Whether the sealed object in `slot` is the result of exactly this request.
  [[nodiscard]] bool is_same(std::uint32_t slot, const SealSpec& spec) const;

 private:
  [[nodiscard]] Status check_blobs(std::uint32_t client, const SealSpec& spec) const;
  [[nodiscard]] Result<std::uint64_t> check_buffers(const SealSpec& spec) const;  // the sum of their lengths

  const SessionTable* sessions_;
  const LocalitySetTable* sets_;
  const NameTable* names_;
  const SegmentPool* pool_;
  const ObjectCatalog* catalog_;
  const BlobTable* blobs_;
};

}  // namespace entrepot
