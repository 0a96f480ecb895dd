// PyClient: the state behind a Python Client object, through which its calls reach the store.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <utility>

#include "bindings/common.h"
#include "client/reconnecting_client.h"

namespace entrepot::bindings {

class PyClient {
 public:
  PyClient(nb::object start, nb::object replaced) : start_(std::move(start)), replaced_(std::move(replaced)) {}
  void connect(const ConnectOptions& options);  // call once, first; throws the Python error

  [[nodiscard]] ReconnectingClient& reconnecting_client() const { return *reconnecting_client_; }
  [[nodiscard]] const std::shared_ptr<ReconnectingClient>& shared_reconnecting_client() const {
    return reconnecting_client_;
  }
  // For work done with the GIL held throughout, which this attachment therefore outlives.
  [[nodiscard]] const Client& current_client() const { return *attachment_->client; }
  [[nodiscard]] const ReconnectingClient::Attachment& attachment() const { return *attachment_; }

  // Runs `work`, which takes an Attachment, without the GIL; runs it again if the store turns out to be another one
  // now.
  template <class Work>
  auto run(Work&& work) {
    return run(os::Deadline::never(), std::forward<Work>(work));
  }
  // Does not wait for a store beyond `limit`.
  template <class Work>
  auto run(os::Deadline limit, Work&& work) {
    ReconnectingClient::AttachmentPtr used = attachment_;
    auto done = without_gil([&] { return reconnecting_client_->run(used, limit, signal_interrupt(), work); });
    // With the GIL: nobody is using the previous one.
    if (used != attachment_) attachment_ = reconnecting_client_->attachment();
    return done;
  }

 private:
  nb::object start_;     // None, or starts the store
  nb::object replaced_;  // None, or called for each new store
  std::shared_ptr<ReconnectingClient> reconnecting_client_;
  ReconnectingClient::AttachmentPtr attachment_;  // guarded by the GIL
};

}  // namespace entrepot::bindings
