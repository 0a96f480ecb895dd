// Access: what a Python object Client holds, and how calls reach the store through it.
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
  void connect(const ConnectOptions& options);  // once, first; throws the Python error

  [[nodiscard]] ReconnectingClient& layer() const { return *layer_; }
  // For what is done with the GIL held throughout, and so before this life can end.
  [[nodiscard]] const Client& here() const { return *life_->client; }
  [[nodiscard]] const ReconnectingClient::Life& life() const { return *life_; }

  // Runs `work`, which takes a Life, without the GIL; again where the store turned out to be another one by now.
  template <class Work>
  auto run(Work&& work) {
    return run(os::Deadline::never(), std::forward<Work>(work));
  }
  // No store is waited for beyond `limit`.
  template <class Work>
  auto run(os::Deadline limit, Work&& work) {
    ReconnectingClient::LifePtr used = life_;
    auto done = without_gil([&] { return layer_->run(used, limit, signals(), work); });
    if (used != life_) life_ = layer_->life();  // with the GIL: nobody is looking at the one before
    return done;
  }

 private:
  nb::object start_;      // None, or what starts the store
  nb::object succeeded_;  // told of each next store
  std::shared_ptr<ReconnectingClient> layer_;
  ReconnectingClient::LifePtr life_;  // guarded by the GIL
};

}  // namespace entrepot::bindings
