// StreamRequests: the requests about streams.
#pragma once

#include "daemon/request.h"
#include "store/store.h"

namespace entrepot {

// Guarded by the daemon's thread. Each function answers its request, now or later.
class StreamRequests {
 public:
  explicit StreamRequests(Store& store) : store_(store) {}  // must outlive it
  StreamRequests(const StreamRequests&) = delete;
  StreamRequests& operator=(const StreamRequests&) = delete;

  void open_stream(Request& request);
  void remove_stream(Request& request);
  void stream_state(Request& request);
  void open_writer(Request& request);
  void close_writer(Request& request);
  void append(Request& request);
  void put_chunk(Request& request);
  void withdraw(Request& request);
  void open_reader(Request& request);
  void close_reader(Request& request);
  void next(Request& request);
  void chunk_done(Request& request);

 private:
  Store& store_;
};

}  // namespace entrepot
