// Client's fast paths for short byte strings, which bypass the general codecs.
#include <nanobind/nanobind.h>

#include <cstring>
#include <memory>
#include <string>

#include "bindings/common.h"
#include "bindings/inline_bytes.h"
#include "bindings/py_client.h"

namespace entrepot::bindings {
namespace {

// Returns the bytes; None if it is another kind of object or not in the directory. Keeps the GIL: nothing here waits.
nb::object get_small(const Client& client, nb::handle id) {
  char* data = nullptr;
  Py_ssize_t length = 0;
  if (PyBytes_AsStringAndSize(id.ptr(), &data, &length) != 0) throw nb::python_error();
  IdBytes object_id{};
  if (static_cast<std::size_t>(length) != object_id.size()) return nb::none();
  std::memcpy(object_id.data(), data, object_id.size());
  InlineObject object;
  if (!client.peek(object_id, object)) return nb::none();
  const auto value = inline_bytes().value_of(object.record().tree());
  if (!value) return nb::none();
  return nb::steal(PyBytes_FromStringAndSize(value->data(), static_cast<Py_ssize_t>(value->size())));
}

}  // namespace

InlineBytes& inline_bytes() {
  static InlineBytes small_bytes;  // set once, while the package is imported
  return small_bytes;
}

void add_inline_objects(nb::module_& module, nb::class_<PyClient>& cls) {
  module.def(
      "set_small_bytes",
      [](const nb::bytes& prefix, const nb::bytes& suffix) {
        inline_bytes() = InlineBytes(std::string(view_of(prefix)), std::string(view_of(suffix)));
      },
      nb::arg("prefix"), nb::arg("suffix"));
  module.def(
      "small_tree", [](const nb::bytes& value) { return to_bytes(inline_bytes().tree_of(view_of(value))); },
      nb::arg("value"));
  cls.def(
         "get_small", [](const PyClient& client, nb::handle id) { return get_small(*client.attachment()->client, id); },
         nb::arg("id"))
      .def(
          "get_small_many",
          [](const PyClient& client, const nb::list& ids) {
            nb::list values;
            for (const nb::handle id : ids)
              values.append(get_small(*client.attachment()->client, id));
            return values;
          },
          nb::arg("ids"));
}

}  // namespace entrepot::bindings
