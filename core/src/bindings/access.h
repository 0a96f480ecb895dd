// Access: the state behind a Python Client object, through which its calls reach the store.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <utility>

#include "bindings/common.h"
#include "client/reconnecting_client.h"

namespace entrepot::bindings {

class Access {
 public:
  Access(nb::object start, nb::object succeeded) : start_(std::move(start)), succeeded_(std::move(succeeded)) {}
  void connect(const ConnectOptions& options);  // call once, first; throws the Python error

  [[nodiscard]] ReconnectingClient& layer() const { return *layer_; }
  // For work done with the GIL held throughout, which this life therefore outlives.
  [[nodiscard]] const Client& here() const { return *life_->client; }
  [[nodiscard]] const ReconnectingClient::Life& life() const { return *life_; }

  // Runs `work`, which takes a Life, without the GIL; runs it again if the store turns out to be another one now.
  template <class Work>
  auto run(Work&& work) {
    return run(os::Deadline::never(), std::forward<Work>(work));
  }
  // Does not wait for a store beyond `limit`.
  template <class Work>
  auto run(os::Deadline limit, Work&& work) {
    ReconnectingClient::LifePtr used = life_;
    auto done = without_gil([&] { return layer_->run(used, limit, signals(), work); });
    if (used != life_) life_ = layer_->life();  // with the GIL: nobody is using the previous one
    return done;
  }

 private:
  nb::object start_;      // None, or starts the store
  nb::object succeeded_;  // None, or called for each new store
  std::shared_ptr<ReconnectingClient> layer_;
  ReconnectingClient::LifePtr life_;  // guarded by the GIL
};

}  // namespace entrepot::bindings
