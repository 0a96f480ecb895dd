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
  // For work done within one expression. With the GIL, which such work keeps, no other thread replaces the attachment
  // meanwhile; without one, the work needs a reference of its own.
#ifdef Py_GIL_DISABLED
  using CurrentAttachment = ReconnectingClient::AttachmentPtr;
#else
  using CurrentAttachment = const ReconnectingClient::Attachment*;
#endif
  [[nodiscard]] CurrentAttachment attachment() const {
#ifdef Py_GIL_DISABLED
    return shared_attachment();
#else
    return attachment_.get();
#endif
  }

  // Runs `work`, which takes an Attachment, without the GIL; runs it again if the store turns out to be another one
  // now.
  template <class Work>
  auto run(Work&& work) {
    return run(os::Deadline::never(), std::forward<Work>(work));
  }
  // Does not wait for a store beyond `limit`.
  template <class Work>
  auto run(os::Deadline limit, Work&& work) {
    ReconnectingClient::AttachmentPtr used = shared_attachment();
    auto done = without_gil([&] { return reconnecting_client_->run(used, limit, signal_interrupt(), work); });
    if (used != shared_attachment()) use(reconnecting_client_->attachment());
    return done;
  }

 private:
  [[nodiscard]] ReconnectingClient::AttachmentPtr shared_attachment() const {
    const nb::ft_lock_guard lock(mutex_);
    return attachment_;
  }
  // With the GIL, nobody is using the previous attachment. It is released outside the lock, which its Client's end
  // would hold for long.
  void use(ReconnectingClient::AttachmentPtr next) {
    const nb::ft_lock_guard lock(mutex_);
    attachment_.swap(next);
  }

  nb::object start_;     // None, or starts the store
  nb::object replaced_;  // None, or called for each new store
  std::shared_ptr<ReconnectingClient> reconnecting_client_;
  mutable nb::ft_mutex mutex_;                    // nothing where there is a GIL
  ReconnectingClient::AttachmentPtr attachment_;  // guarded by the GIL, or by mutex_
};

}  // namespace entrepot::bindings
