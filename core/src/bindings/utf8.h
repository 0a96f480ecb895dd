// Strings of Python as UTF-8.
//
// The stable ABI, for which the wheels from Python 3.12 on are built, does not show how a string is stored. There Python
// itself encodes a string that is not ASCII, and keeps the result with it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <optional>

namespace entrepot::bindings {

#ifdef Py_LIMITED_API

// Bytes of a string as UTF-8; nullopt: it has a surrogate, which UTF-8 has not.
inline std::optional<std::size_t> encoded_length(PyObject* text) {
  Py_ssize_t bytes = 0;
  if (PyUnicode_AsUTF8AndSize(text, &bytes) != nullptr) return static_cast<std::size_t>(bytes);
  if (PyErr_ExceptionMatches(PyExc_UnicodeError) == 0) throw nanobind::python_error();
  PyErr_Clear();
  return std::nullopt;
}

// Writes a string as UTF-8 and returns where it ends; null if there is no room before `limit`, or it has a surrogate.
inline char* encode(PyObject* text, char* to, const char* limit) {
  const std::optional<std::size_t> bytes = encoded_length(text);
  if (!bytes || static_cast<std::size_t>(limit - to) < *bytes) return nullptr;
  std::memcpy(to, PyUnicode_AsUTF8AndSize(text, nullptr), *bytes);
  return to + *bytes;
}

#else

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
inline std::optional<std::size_t> encoded_length(PyObject* text) {
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

// Writes a string as UTF-8 and returns where it ends; null if there is no room before `limit`, or it has a surrogate.
inline char* encode(PyObject* text, char* to, const char* limit) {
  const auto room = static_cast<std::size_t>(limit - to);
  if (PyUnicode_IS_COMPACT_ASCII(text)) {
    const auto length = static_cast<std::size_t>(PyUnicode_GET_LENGTH(text));
    if (room < length) return nullptr;
    std::memcpy(to, PyUnicode_1BYTE_DATA(text), length);
    return to + length;
  }
  const std::optional<std::size_t> bytes = encoded_length(text);
  if (!bytes || room < *bytes) return nullptr;
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

#endif

}  // namespace entrepot::bindings
