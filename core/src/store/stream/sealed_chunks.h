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

  [[nodiscard]] std::optional<std::uint32_t> generation(const IdBytes& id) const override {
    const LookupOutcome outcome = objects_->lookup(id);
    return outcome.code == Code::kOk ? std::optional(outcome.generation) : std::nullopt;
  }
  void remove(const IdBytes& id) override { static_cast<void>(objects_->remove(std::span(&id, 1))); }

 private:
  ObjectTable* objects_;
};

}  // namespace entrepot
