// Objects that are built part by part: see client/object_builder.h.
#include "client/object_builder.h"

#include <nanobind/stl/tuple.h>

#include <memory>
#include <span>
#include <vector>

#include "bindings/buffer.h"
#include "bindings/common.h"
#include "bindings/items.h"
#include "bindings/py_client.h"

namespace entrepot::bindings {
namespace {

using Attachment = ReconnectingClient::Attachment;
using BuilderPtr = std::shared_ptr<ObjectBuilder>;

nb::list store(PyClient& client, const BuilderPtr& builder, const nb::sequence& buffers, double timeout) {
  using Stored = std::vector<ObjectBuilder::Stored>;
  Exports exports;
  std::vector<SourceBuffer> sources;
  for (const nb::handle buffer : buffers)
    sources.push_back(exports.add(buffer));
  const std::uint32_t wait = milliseconds(timeout);
  const Stored stored = check(client.run([&](const Attachment& attachment) -> Result<Stored> {
    RETURN_IF_ERROR(ReconnectingClient::check_builder(attachment, *builder));
    return builder->store(sources, ObjectBuilder::Sealed::kReference, wait, signal_interrupt());
  }));
  nb::list result;
  for (const ObjectBuilder::Stored& part : stored) {
    if (!part.memory) {
      result.append(nb::none());
      continue;
    }
    Buffer buffer;
    buffer.memory = part.memory;
    buffer.data = static_cast<const std::byte*>(part.bytes.data);
    buffer.bytes = part.bytes.length;
    result.append(nb::cast(std::move(buffer)));
  }
  return result;
}

}  // namespace

void add_object_builders(nb::module_& module, nb::class_<PyClient>& cls) {
  nb::class_<BuilderPtr>(module, "ObjectBuilder", "Parts of an object that are sealed together.")
      .def_prop_ro("open", [](const BuilderPtr& builder) { return builder->is_open(); })
      .def("give_up", [](const BuilderPtr& builder) {
        const GilReleased released;
        builder->give_up();
      });
  cls.def("builder",
          [](const PyClient& client) { return std::make_shared<ObjectBuilder>(client.attachment()->client); })
      .def(
          "allocate",
          [](PyClient& client, const BuilderPtr& builder, std::uint64_t nbytes, double timeout) {
            using Blob = std::shared_ptr<WritableBlob>;
            const std::uint32_t wait = milliseconds(timeout);
            return check(client.run([&](const Attachment& attachment) -> Result<Blob> {
              RETURN_IF_ERROR(ReconnectingClient::check_builder(attachment, *builder));
              return builder->allocate(nbytes, wait, signal_interrupt());
            }));
          },
          nb::arg("builder"), nb::arg("nbytes"), nb::arg("timeout"))
      .def("store", &store, nb::arg("builder"), nb::arg("buffers"), nb::arg("timeout"))
      .def(
          "seal_built",
          [](PyClient& client, const BuilderPtr& builder, const nb::tuple& fields, double timeout) {
            Exports exports;
            PutItem item = item_from(fields, exports);
            const std::uint32_t wait = milliseconds(timeout);
            const PutResult result = client.run([&](const Attachment& attachment) {
              return client.reconnecting_client().seal(attachment, *builder, item, wait, signal_interrupt());
            });
            check(result.status);
            return sealed(result, payload_bytes(item));
          },
          nb::arg("builder"), nb::arg("item"), nb::arg("timeout"));
}

}  // namespace entrepot::bindings
