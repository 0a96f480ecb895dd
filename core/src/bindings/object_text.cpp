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
  if (PyFloat_CheckExact(value) && std::isnan(PyFloat_AS_DOUBLE(value))) return Missing::kNan;
  return std::nullopt;
}

constexpr std::size_t utf8_length(std::uint32_t character) {
  return character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
}
constexpr bool is_surrogate(std::uint32_t character) { return character >= 0xD800 && character < 0xE000; }

// Calls `visit(character)` for each character of a string that is not ASCII.
template <class Visit>
void for_each_character(PyObject* text, Visit&& visit) {
  const int kind = PyUnicode_KIND(text);
  const void* const data = PyUnicode_DATA(text);
  for (Py_ssize_t i = 0, count = PyUnicode_GET_LENGTH(text); i < count; ++i)
    visit(static_cast<std::uint32_t>(PyUnicode_READ(kind, data, i)));
}

// Bytes of a string as UTF-8; nullopt: it has a surrogate, which UTF-8 has not.
std::optional<std::size_t> encoded_length(PyObject* text) {
  if (PyUnicode_IS_COMPACT_ASCII(text)) return static_cast<std::size_t>(PyUnicode_GET_LENGTH(text));
  std::size_t bytes = 0;
  bool is_encodable = true;
  for_each_character(text, [&](std::uint32_t character) {
    bytes += utf8_length(character);
    is_encodable = is_encodable && !is_surrogate(character);
  });
  if (!is_encodable) return std::nullopt;
  return bytes;
}

char* encode(PyObject* text, char* to) {
  for_each_character(text, [&](std::uint32_t character) {
    if (character < 0x80) {
      *to++ = static_cast<char>(character);
      return;
    }
    const std::size_t length = utf8_length(character);
    for (std::size_t i = length - 1; i > 0; --i) {
      to[i] = static_cast<char>(0x80U | (character & 0x3FU));
      character >>= 6U;
    }
    // 0xC0, 0xE0 or 0xF0: as many ones as there are bytes.
    to[0] = static_cast<char>((0xF00U >> length & 0xF0U) | character);
    to += length;
  });
  return to;
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
      if (PyUnicode_IS_COMPACT_ASCII(value)) {
        const auto length = static_cast<std::size_t>(PyUnicode_GET_LENGTH(value));
        if (static_cast<std::size_t>(text.data() + text.size() - to) < length) changed();
        std::memcpy(to, PyUnicode_1BYTE_DATA(value), length);
        to += length;
      } else {
        const std::optional<std::size_t> length = encoded_length(value);
        if (!length || static_cast<std::size_t>(text.data() + text.size() - to) < *length) changed();
        to = encode(value, to);
      }
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
