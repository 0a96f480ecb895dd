// GatewayRequests: the requests about the store's gateway, of the gateway and of its clients.
#pragma once

#include "daemon/request.h"
#include "store/store.h"

namespace entrepot {

// Guarded by the daemon's thread. Each function answers its request, now or later.
class GatewayRequests {
 public:
  explicit GatewayRequests(Store& store) : store_(store) {}  // must outlive it
  GatewayRequests(const GatewayRequests&) = delete;
  GatewayRequests& operator=(const GatewayRequests&) = delete;

  void serve(Request& request);
  void call(Request& request);
  void next(Request& request);
  void answer(Request& request);

 private:
  [[nodiscard]] static bool is_within_limit(Request& request, std::string_view payload);

  Store& store_;
};

}  // namespace entrepot
