#include "bindings/items.h"

#include <nanobind/stl/string.h>

#include <string>

namespace entrepot::bindings {

Exports::~Exports() {
  for (Py_buffer& view : views_)
    PyBuffer_Release(&view);
}

SourceBuffer Exports::add(nb::handle object, int flags) {
  Py_buffer view{};
  if (PyObject_GetBuffer(object.ptr(), &view, flags) != 0) throw nb::python_error();
  views_.push_back(view);
  return {view.buf, static_cast<std::uint64_t>(view.len)};
}

PutItem item_from(const nb::tuple& fields, Exports& exports) {
  if (fields.size() != 7 && fields.size() != 9) raise(Status(Code::kInvalidArgument, "an item has 7 or 9 fields"));
  PutItem item;
  item.id = id_from(nb::cast<nb::bytes>(fields[0]));
  item.session_handle = nb::cast<std::uint64_t>(fields[1]);
  item.replace = nb::cast<bool>(fields[2]);
  item.fresh_id = nb::cast<bool>(fields[3]);
  item.name = nb::cast<std::string>(fields[4]);
  item.tree = std::string(view_of(nb::cast<nb::bytes>(fields[5])));
  for (const nb::handle buffer : nb::cast<nb::sequence>(fields[6]))
    item.buffers.push_back(exports.add(buffer));
  if (fields.size() == 9) {
    item.set_handle = nb::cast<std::uint64_t>(fields[7]);
    item.consumers = nb::cast<std::uint32_t>(fields[8]);
  }
  return item;
}

std::uint64_t payload_bytes(const PutItem& item) {
  std::uint64_t bytes = 0;
  for (const SourceBuffer& buffer : item.buffers)
    bytes += buffer.length;
  return bytes;
}

}  // namespace entrepot::bindings
