#include "bindings/access.h"

#include <nanobind/stl/string.h>

#include <string>

#include "base/text.h"
#include "client/connection.h"

namespace entrepot::bindings {

void Access::connect(const ConnectOptions& options) {
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
  if (!succeeded_.is_none()) {
    hooks.succeeded = [callable = nb::handle(succeeded_)](const ReconnectingClient::Succession& said) {
      const GilHeld gil;
      try {
        callable(to_hex(said.before), to_hex(said.after), said.objects);
      } catch (nb::python_error& error) {
        error.discard_as_unraisable("telling of the next store");
      }
    };
  }
  layer_ = check(without_gil([&] { return ReconnectingClient::connect(options, std::move(hooks), signals()); }));
  life_ = layer_->life();
}

}  // namespace entrepot::bindings
