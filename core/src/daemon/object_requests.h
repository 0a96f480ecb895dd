// ObjectRequests: the requests about memory and objects.
#pragma once

#include "daemon/request.h"
#include "daemon/segment_files.h"
#include "store/store.h"

namespace entrepot {

// Guarded by the daemon's thread. Each function answers its request, now or later.
class ObjectRequests {
 public:
  // Both must outlive it, and it must outlive the store's waiting requests.
  ObjectRequests(Store& store, SegmentFiles& segments) : store_(store), segments_(segments) {}
  ObjectRequests(const ObjectRequests&) = delete;
  ObjectRequests& operator=(const ObjectRequests&) = delete;

  void lease(Request& request);
  void unlease(Request& request);
  void reserve(Request& request);
  void reservation(Request& request);
  void segment(Request& request);
  void wait_provisioned(Request& request);
  void seal(Request& request);
  void lookup(Request& request);
  void remove(Request& request);
  void remove_generations(Request& request);
  void evict(Request& request);
  void hint(Request& request);
  void consumed(Request& request);
  void list(Request& request);
  void info(Request& request);

 private:
  Store& store_;
  SegmentFiles& segments_;
};

}  // namespace entrepot
