#include "bindings/py_client.h"

#include <nanobind/stl/string.h>

#include <string>

#include "base/text.h"
#include "client/connection.h"

namespace entrepot::bindings {

void PyClient::connect(const ConnectOptions& options) {
  ReconnectingClient::Hooks hooks;
  // Borrowed reference: this object outlives the layer.
  if (!start_.is_none()) {
    hooks.start = [callable = nb::handle(start_)]() -> Status {
      const GilHeld gil;
      try {
        callable();
      } catch (nb::python_error& error) {
        if (!error.matches(PyExc_Exception)) {
          error.restore();  // propagate KeyboardInterrupt and the like unchanged
          return interrupted_status();
        }
        return {Code::kStoreUnavailable, nb::cast<std::string>(nb::str(error.value()))};
      }
      return Status::ok();
    };
  }
  if (!replaced_.is_none()) {
    hooks.replaced = [callable = nb::handle(replaced_)](const ReconnectingClient::StoreReplacement& event) {
      const GilHeld gil;
      try {
        callable(to_hex(event.before), to_hex(event.after), event.objects);
      } catch (nb::python_error& error) {
        error.discard_as_unraisable("the callback for a new store");
      }
    };
  }
  reconnecting_client_ =
      check(without_gil([&] { return ReconnectingClient::connect(options, std::move(hooks), signal_interrupt()); }));
  use(reconnecting_client_->attachment());
}

}  // namespace entrepot::bindings
