// The store's gateway: calls to it, and its own side.
#include "client/gateway.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/common.h"
#include "bindings/py_client.h"

namespace entrepot::bindings {
namespace {

using Attachment = ReconnectingClient::Attachment;

nb::bytes call(PyClient& client, const std::string& operation, const std::vector<nb::bytes>& ids,
               const nb::bytes& payload, double timeout) {
  const std::vector<IdBytes> object_ids = ids_from(ids);
  const std::string text(view_of(payload));
  const Wait wait = milliseconds(timeout);
  return to_bytes(check(client.run(wait.limit, [&](const Attachment& attachment) {
    return call_gateway(*attachment.client, operation, object_ids, text, wait, signal_interrupt());
  })));
}

nb::list next(PyClient& client, std::uint32_t max_calls, double timeout) {
  const std::uint32_t timeout_ms = milliseconds(timeout);
  const auto calls = check(client.run([&](const Attachment& attachment) {
    return next_calls(*attachment.client, max_calls, timeout_ms, signal_interrupt());
  }));
  nb::list result;
  for (const GatewayCall& call : calls) {
    nb::list ids;
    for (const IdBytes& id : call.ids)
      ids.append(nb::bytes(reinterpret_cast<const char*>(id.data()), id.size()));
    result.append(nb::make_tuple(call.number, to_text(call.operation), ids, to_bytes(call.payload),
                                 static_cast<double>(call.timeout_ms) / 1000));
  }
  return result;
}

// The code of a Python error, by the name of its class.
Code code_of(std::string_view error) {
  for (std::uint16_t number = 0; number <= static_cast<std::uint16_t>(Code::kDirectoryUnavailable); ++number) {
    if (code_name(static_cast<Code>(number)) == error) return static_cast<Code>(number);
  }
  return Code::kInternal;
}

void answer(PyClient& client, std::uint64_t number, const std::string& error, const std::string& message,
            const nb::bytes& payload) {
  const Result<std::string> result = error.empty() ? Result<std::string>(std::string(view_of(payload)))
                                                   : Result<std::string>(Status(code_of(error), message));
  check(client.run([&](const Attachment& attachment) {
    return answer_call(*attachment.client, number, result, signal_interrupt());
  }));
}

}  // namespace

void add_gateway(nb::class_<PyClient>& cls) {
  cls.def("call_gateway", &call, nb::arg("operation"), nb::arg("ids"), nb::arg("payload"), nb::arg("timeout"))
      .def(
          "serve_gateway",
          [](PyClient& client, const std::string& label) {
            check(client.run([&](const Attachment& attachment) {
              return serve_gateway(*attachment.client, label, signal_interrupt());
            }));
          },
          nb::arg("label"))
      .def("next_calls", &next, nb::arg("max_calls"), nb::arg("timeout"))
      .def("answer_call", &answer, nb::arg("number"), nb::arg("error"), nb::arg("message"), nb::arg("payload"));
}

}  // namespace entrepot::bindings
