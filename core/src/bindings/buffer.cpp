#include "bindings/buffer.h"

#include <new>

#include "base/text.h"
#include "bindings/items.h"
#include "client/copy.h"

namespace entrepot::bindings {
namespace {

constexpr std::uint64_t kReleaseGilBytes = 256U << 10;

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto* buffer = nb::inst_ptr<Buffer>(nb::handle(self));
  if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE && !buffer->writable) {
    PyErr_SetString(PyExc_BufferError,
                    "this buffer is in shared memory and read-only: get(..., copy=\"on_write\") returns one whose "
                    "pages are copied when written, copy=\"always\" a copy");
    return -1;
  }
  return PyBuffer_FillInfo(view, self, const_cast<std::byte*>(buffer->data), static_cast<Py_ssize_t>(buffer->bytes),
                           buffer->writable ? 0 : 1, flags);
}

int get_blob_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto& blob = *nb::inst_ptr<std::shared_ptr<WritableBlob>>(nb::handle(self));
  if (!blob->is_open()) {
    PyErr_SetString(PyExc_BufferError, "this blob is sealed or dropped: it can no longer be written");
    return -1;
  }
  return PyBuffer_FillInfo(view, self, blob->data(), static_cast<Py_ssize_t>(blob->bytes()), 0, flags);
}

// Releases the GIL for large copies.
void copy_bytes(nb::handle target, nb::handle source) {
  Exports exports;
  const SourceBuffer from = exports.add(source);
  const SourceBuffer into = exports.add(target, PyBUF_WRITABLE);
  if (from.length != into.length) {
    raise(Status(Code::kInvalidArgument, concat(from.length, " bytes do not fit a range of ", into.length, " bytes")));
  }
  auto* const start = static_cast<std::byte*>(const_cast<void*>(into.data));
  if (from.length >= kReleaseGilBytes) {
    const GilReleased released;
    copy_payload(start, from.data, from.length);
  } else {
    copy_payload(start, from.data, from.length);
  }
}

PyType_Slot buffer_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};
PyType_Slot blob_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_blob_buffer)}, {0, nullptr}};

}  // namespace

Buffer make_buffer(const std::shared_ptr<SealedObject>& object, std::size_t index, CopyMode mode) {
  if (index >= object->buffers().size()) {
    raise(Status(Code::kCorruptData,
                 concat("the object has ", object->buffers().size(), " buffers, but none at index ", index)));
  }
  const BufferView& place = object->buffers()[index];
  Buffer result;
  result.bytes = place.length;
  if (mode == CopyMode::kNever) {
    result.object = object;
    result.data = place.data;
    return result;
  }
  result.writable = true;
  if (mode == CopyMode::kOnWrite && place.view != nullptr && place.length >= kOwnPagesBytes) {
    auto image = check(object->map_private(index));
    result.object = object;
    result.data = image.data;
    result.private_image = std::move(image.mapping);
    return result;
  }
  const std::uint64_t room = (place.length + 63U) & ~63ULL;
  result.own.reset(static_cast<std::byte*>(std::aligned_alloc(64, room == 0 ? 64 : room)));
  if (!result.own) throw std::bad_alloc();
  result.data = result.own.get();
  if (place.length >= kReleaseGilBytes) {
    const GilReleased released;
    copy_payload(result.own.get(), place.data, place.length);
  } else {
    copy_payload(result.own.get(), place.data, place.length);
  }
  return result;
}

void add_buffers(nb::module_& module) {
  nb::class_<Buffer>(module, "Buffer", nb::type_slots(buffer_slots),
                     "Bytes of an object, by the buffer protocol. Keeps the object pinned while it lives.")
      .def("__len__", [](const Buffer& buffer) { return buffer.bytes; })
      .def_prop_ro("nbytes", [](const Buffer& buffer) { return buffer.bytes; })
      .def_prop_ro("readonly", [](const Buffer& buffer) { return !buffer.writable; })
      .def_prop_ro("address", [](const Buffer& buffer) { return reinterpret_cast<std::uintptr_t>(buffer.data); });

  nb::class_<std::shared_ptr<WritableBlob>>(module, "WritableBlob", nb::type_slots(blob_slots),
                                            "A range that this process writes and then seals.")
      .def_prop_ro("nbytes", [](const std::shared_ptr<WritableBlob>& blob) { return blob->bytes(); })
      .def_prop_ro("open", [](const std::shared_ptr<WritableBlob>& blob) { return blob->is_open(); })
      .def("drop",
           [](const std::shared_ptr<WritableBlob>& blob) {
             const GilReleased released;
             blob->drop();
           })
      .def(
          "keep",
          [](const std::shared_ptr<WritableBlob>& blob, const std::shared_ptr<SealedObject>& object) {
            blob->keep(object);
          },
          nb::arg("object"));
  module.def("copy_bytes", &copy_bytes, nb::arg("target"), nb::arg("source"));
}

}  // namespace entrepot::bindings
