// SealedChunks: the store's objects, as the streams see them.
#pragma once

#include <optional>
#include <span>

#include "store/object/object_table.h"
#include "store/stream/stream_table.h"

namespace entrepot {

// Guarded by the daemon's thread.
class SealedChunks : public ChunkObjects {
 public:
  explicit SealedChunks(ObjectTable& objects) : objects_(&objects) {}  // must outlive it

  [[nodiscard]] std::optional<Sealed> find(const IdBytes& id) const override {
    const LookupOutcome outcome = objects_->lookup(id);
    if (outcome.code != Code::kOk) return std::nullopt;
    return Sealed{outcome.generation, objects_->bytes(outcome.slot)};
  }
  void remove(const IdBytes& id) override { static_cast<void>(objects_->remove(std::span(&id, 1))); }

 private:
  ObjectTable* objects_;
};

}  // namespace entrepot
