// Text of NumPy arrays of Python objects, written as Arrow has it: offsets, UTF-8, validity.
//
// pandas keeps text in such arrays where it has no dtype for text. The objects lie all over the heap, so what such a
// column costs is the number of times that each of them is looked at: here, once to measure and once to write.
#include <Python.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "base/text.h"
#include "bindings/common.h"
#include "bindings/items.h"
#include "bindings/utf8.h"

namespace entrepot::bindings {
namespace {

// Other threads may run after so many elements.
constexpr std::size_t kRowsAtATime = 1U << 18;

void let_others_run() { const GilReleased released; }

// A one-dimensional array of references to objects, with any distance between them.
class ObjectArray {
 public:
  explicit ObjectArray(nb::handle array) {
    if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) throw nb::python_error();
    if (view_.ndim != 1 || view_.format == nullptr || std::string_view(view_.format) != "O") {
      PyBuffer_Release(&view_);
      raise(Status(Code::kInvalidArgument, "text is taken from one-dimensional arrays of objects"));
    }
  }
  ~ObjectArray() { PyBuffer_Release(&view_); }
  ObjectArray(const ObjectArray&) = delete;
  ObjectArray& operator=(const ObjectArray&) = delete;

  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(view_.shape[0]); }
  [[nodiscard]] PyObject* operator[](std::size_t i) const {
    return *reinterpret_cast<PyObject**>(static_cast<std::byte*>(view_.buf) +
                                         static_cast<Py_ssize_t>(i) * view_.strides[0]);
  }

 private:
  Py_buffer view_{};
};

// What stands for a missing value; None where no value is missing, or all are.
enum class Missing : std::uint8_t { kNone, kNan, kNa };

std::optional<Missing> missing_kind(PyObject* value, PyObject* na) {
  if (value == nullptr || value == Py_None) return Missing::kNone;
  if (value == na) return Missing::kNa;
  if (PyFloat_CheckExact(value) && std::isnan(PyFloat_AsDouble(value))) return Missing::kNan;
  return std::nullopt;
}

bool is_text(PyObject* value) {
  if (value == nullptr || !PyUnicode_CheckExact(value)) return false;
#if PY_VERSION_HEX < 0x030C0000
  return PyUnicode_IS_READY(value) != 0;  // what C code made by functions that are gone since 3.12 may not be
#else
  return true;
#endif
}

// Returns None unless all values are strings or missing values of one kind; else what stands for those (0: None, 1:
// NaN, 2: NA), how many there are, and the bytes of the strings; -1: one has a surrogate.
nb::object measure_text(nb::handle values, nb::handle na) {
  const ObjectArray array(values);
  std::optional<Missing> missing;
  std::size_t nulls = 0;
  std::size_t bytes = 0;
  bool is_encodable = true;
  for (std::size_t i = 0; i < array.size(); ++i) {
    if (i % kRowsAtATime == kRowsAtATime - 1) let_others_run();
    PyObject* const value = array[i];
    if (is_text(value)) {
      const std::optional<std::size_t> length = encoded_length(value);
      is_encodable = is_encodable && length;
      bytes += length.value_or(0);
      continue;
    }
    const std::optional<Missing> kind = missing_kind(value, na.ptr());
    if (!kind || (missing && *missing != *kind)) return nb::none();
    missing = kind;
    ++nulls;
  }
  return nb::make_tuple(static_cast<int>(missing.value_or(Missing::kNone)), nulls,
                        is_encodable ? static_cast<std::int64_t>(bytes) : -1);
}

template <class T>
std::span<T> span_of(Exports& exports, nb::handle buffer) {
  const SourceBuffer source = exports.add(buffer, PyBUF_WRITABLE);
  return {static_cast<T*>(const_cast<void*>(source.data)), source.length / sizeof(T)};
}

// Writes what was measured; `validity` is None if nothing is missing.
void write_text(nb::handle values, nb::handle offsets, nb::handle data, nb::handle validity) {
  const ObjectArray array(values);
  Exports exports;
  const std::span<std::int64_t> positions = span_of<std::int64_t>(exports, offsets);
  const std::span<char> text = span_of<char>(exports, data);
  const std::span<std::uint8_t> valid =
      validity.is_none() ? std::span<std::uint8_t>{} : span_of<std::uint8_t>(exports, validity);
  const auto changed = [] {
    raise(Status(Code::kInvalidArgument, "an array of objects was changed by another thread while it was stored"));
  };
  if (positions.size() != array.size() + 1 || (!validity.is_none() && valid.size() != (array.size() + 7) / 8))
    changed();
  std::memset(valid.data(), 0, valid.size());
  char* to = text.data();
  positions[0] = 0;
  for (std::size_t i = 0; i < array.size(); ++i) {
    if (i % kRowsAtATime == kRowsAtATime - 1) let_others_run();
    PyObject* const value = array[i];
    if (is_text(value)) {
      char* const end = encode(value, to, text.data() + text.size());
      if (end == nullptr) changed();
      to = end;
      if (!valid.empty()) valid[i / 8] = static_cast<std::uint8_t>(valid[i / 8] | 1U << i % 8);
    } else if (valid.empty()) {
      changed();
    }
    positions[i + 1] = to - text.data();
  }
  if (to != text.data() + text.size()) changed();
}

}  // namespace

void add_object_text(nb::module_& module) {
  module.def("measure_text", &measure_text, nb::arg("values"), nb::arg("na"));
  module.def("write_text", &write_text, nb::arg("values"), nb::arg("offsets"), nb::arg("data"),
             nb::arg("validity").none());
}

}  // namespace entrepot::bindings
