// The store's gateway to other stores, which the store remembers over a restart of its daemon.
#include <unordered_set>
#include <utility>

#include "store/store.h"

namespace entrepot {

Status Store::serve_gateway(std::uint64_t owner, std::string_view label) {
  RETURN_IF_ERROR(label.empty() ? gateway_.withdraw(owner) : gateway_.serve(owner, label));
  std::atomic<std::uint32_t>& flags = memory_->root().flags;
  if (label.empty()) {
    flags.fetch_and(~kRootHasGateway, std::memory_order_relaxed);
  } else {
    flags.fetch_or(kRootHasGateway, std::memory_order_relaxed);
  }
  return Status::ok();
}

void Store::expect_gateway() {
  if ((memory_->root().flags.load(std::memory_order_relaxed) & kRootHasGateway) != 0) gateway_.expect_back();
}

void Store::call_gateway(const RequestOrigin& origin, CallSpec call, std::uint64_t timeout_ms, CallDone done) {
  std::unordered_set<IdBytes, IdHash> missing;
  for (const IdBytes& id : call.ids) {
    if (objects_.lookup(id).code == Code::kObjectNotFound) missing.insert(id);
  }
  gateway_.call(origin.owner, std::move(call), std::move(missing), timeout_ms, std::move(done));
}

}  // namespace entrepot
