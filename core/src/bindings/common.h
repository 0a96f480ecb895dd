// Shared by the parts of the extension: conversion of Status to Python errors, and Python's signals during waits.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "bindings/gil.h"
#include "client/interrupt.h"

namespace entrepot::bindings {

namespace nb = nanobind;

class PyClient;

// Throws the Python error for the Status (entrepot.errors), or the exception raised by a signal handler during the
// wait.
[[noreturn]] void raise(const Status& status);
inline void check(const Status& status) {
  if (!status.is_ok()) raise(status);
}
template <class T>
T check(Result<T> result) {
  if (!result.is_ok()) raise(result.status());
  return result.take();
}

// Lets signal handlers run while the GIL is released; KeyboardInterrupt ends the wait.
[[nodiscard]] Interrupt signal_interrupt();

// Runs `work` without the GIL.
template <class Work>
auto without_gil(Work&& work) {
  const GilReleased released;
  return work();
}

[[nodiscard]] IdBytes id_from(const nb::bytes& bytes);
[[nodiscard]] inline std::vector<IdBytes> ids_from(const std::vector<nb::bytes>& ids) {
  std::vector<IdBytes> object_ids;
  object_ids.reserve(ids.size());
  for (const nb::bytes& id : ids)
    object_ids.push_back(id_from(id));
  return object_ids;
}
[[nodiscard]] std::uint32_t milliseconds(double seconds);

// Converts text sent by the store. Invalid UTF-8, from an older or damaged store, becomes `\xff`.
[[nodiscard]] nb::str to_text(std::string_view text);
[[nodiscard]] inline std::string_view view_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }
[[nodiscard]] inline nb::bytes to_bytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }

void add_buffers(nb::module_& module);
void add_client(nb::module_& module);
void add_frozen(nb::module_& module);
void add_allocating(nb::module_& module);
void add_locality(nb::class_<PyClient>& cls);
void add_reservations(nb::class_<PyClient>& cls);
void add_gateway(nb::class_<PyClient>& cls);
void add_streams(nb::class_<PyClient>& cls);
void add_request_deadline(nb::module_& module);
void add_transfers(nb::module_& module, nb::class_<PyClient>& cls);
void add_sessions_and_names(nb::class_<PyClient>& cls);
void add_inline_objects(nb::module_& module, nb::class_<PyClient>& cls);
void add_object_builders(nb::module_& module, nb::class_<PyClient>& cls);
void add_pages(nb::module_& module, nb::class_<PyClient>& cls);
void add_aggregates(nb::module_& module, nb::class_<PyClient>& cls);
void add_join_indexes(nb::module_& module);
void add_object_text(nb::module_& module);

}  // namespace entrepot::bindings
