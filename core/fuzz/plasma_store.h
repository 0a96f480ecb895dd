// The store behind a fuzz target's front end: a real one, in processes of its own, and a client of it that is no Plasma
// client.
#pragma once

#include <memory>
#include <vector>

#include "client/client.h"
#include "daemon/store_process.h"
#include "fuzz/plasma_wire.h"

namespace entrepot::fuzz {

// The store of all inputs; each leaves it empty.
[[nodiscard]] testing::StoreProcess& store_process();

// Memory and pins of front ends that ended have returned to the store.
void check_no_leak();

class StoreClient {
 public:
  StoreClient();
  ~StoreClient() { client_->close(); }
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;
  StoreClient(StoreClient&&) = delete;
  StoreClient& operator=(StoreClient&&) = delete;

  // A Plasma object or `bytes`, with what content_of() demands. False: it cannot be put.
  [[nodiscard]] bool put(const IdBytes& id, std::uint64_t bytes, bool is_plasma);
  void remove(const Ids& ids);
  void evict(const IdBytes& id);  // to the disk
  void pin(const IdBytes& id);    // if it is there
  void unpin_all() { pinned_.clear(); }
  void check_content(const IdBytes& id);  // it must be there
  void check_empty();

 private:
  std::shared_ptr<Client> client_;
  std::uint32_t session_ = 0;
  std::vector<std::shared_ptr<SealedObject>> pinned_;
};

}  // namespace entrepot::fuzz
