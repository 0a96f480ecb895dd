// SessionRequests: the requests about sessions and what belongs to them, locality sets and names.
#pragma once

#include "daemon/request.h"
#include "store/store.h"

namespace entrepot {

// Guarded by the daemon's thread. Each function answers its request, now or later.
class SessionRequests {
 public:
  explicit SessionRequests(Store& store) : store_(store) {}  // must outlive it
  SessionRequests(const SessionRequests&) = delete;
  SessionRequests& operator=(const SessionRequests&) = delete;

  void open_session(Request& request);
  void close_session(Request& request);
  void remove_session(Request& request);
  void remove_unused(Request& request);
  void define_set(Request& request);
  void list_sets(Request& request);
  void bind_name(Request& request);
  void resolve_name(Request& request);
  void unbind_name(Request& request);

 private:
  Store& store_;
};

}  // namespace entrepot
