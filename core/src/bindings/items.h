// Items, as Python code describes objects to be put: (id, session, replace, whether the id is new, name, tree, buffers),
// optionally followed by locality set and consumers.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <deque>
#include <tuple>

#include "bindings/common.h"
#include "client/client.h"

namespace entrepot::bindings {

// Holds the buffer exports of a put.
class Exports {
 public:
  Exports() = default;
  ~Exports();
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;
  Exports(Exports&&) = delete;
  Exports& operator=(Exports&&) = delete;

  // `flags` of PyObject_GetBuffer: PyBUF_WRITABLE for memory that is to be written.
  SourceBuffer add(nb::handle object, int flags = PyBUF_SIMPLE);

 private:
  std::deque<Py_buffer> views_;
};

[[nodiscard]] PutItem item_from(const nb::tuple& fields, Exports& exports);

// Slot, generation, whether the same content existed before, bytes of payload.
using Sealed = std::tuple<std::uint32_t, std::uint32_t, bool, std::uint64_t>;

[[nodiscard]] inline Sealed sealed(const PutResult& result, std::uint64_t bytes) {
  return {result.slot, result.generation, result.existed, bytes};
}
[[nodiscard]] std::uint64_t payload_bytes(const PutItem& item);

}  // namespace entrepot::bindings
