// Hash indexes over the keys of tables. See client/join_index.h.
#include <cstring>
#include <string_view>
#include <vector>

#include "bindings/pages.h"
#include "client/join_index.h"

namespace entrepot::bindings {
namespace {

nb::bytes numbers_to_bytes(const std::vector<std::int64_t>& numbers) {
  return nb::bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int64_t));
}

std::span<const std::byte> index_from(Exports& exports, nb::handle index) {
  const SourceBuffer buffer = exports.add(index);
  return {static_cast<const std::byte*>(buffer.data), buffer.length};
}

std::uint64_t bytes_of_index(const nb::list& columns) {
  Exports exports;
  RowKeys keys = row_keys_from(exports, columns);
  return check(without_gil([&] { return join_index_bytes(keys); }));
}

void build_index(nb::handle index, const nb::list& columns) {
  Exports exports;
  RowKeys keys = row_keys_from(exports, columns);
  const SourceBuffer buffer = exports.add(index, PyBUF_WRITABLE);
  // Writable, as asked for.
  auto* const data = static_cast<std::byte*>(const_cast<void*>(buffer.data));
  check(without_gil(
      [&] { return build_join_index({data, buffer.length}, keys, static_cast<std::uint16_t>(columns.size())); }));
}

nb::tuple matches_of(nb::handle index, const nb::list& columns) {
  Exports exports;
  RowKeys keys = row_keys_from(exports, columns);
  const std::span<const std::byte> bytes = index_from(exports, index);
  const JoinMatches matches = check(without_gil([&] { return join_matches(bytes, keys); }));
  return nb::make_tuple(numbers_to_bytes(matches.asked), numbers_to_bytes(matches.rows));
}

nb::bytes first_of(nb::handle index, const nb::list& columns) {
  Exports exports;
  RowKeys keys = row_keys_from(exports, columns);
  const std::span<const std::byte> bytes = index_from(exports, index);
  return numbers_to_bytes(check(without_gil([&] { return join_first(bytes, keys); })));
}

}  // namespace

void add_join_indexes(nb::module_& module) {
  module.def("join_index_bytes", &bytes_of_index, nb::arg("keys"));
  module.def("build_join_index", &build_index, nb::arg("index"), nb::arg("keys"));
  module.def("join_matches", &matches_of, nb::arg("index"), nb::arg("keys"));
  module.def("join_first", &first_of, nb::arg("index"), nb::arg("keys"));
}

}  // namespace entrepot::bindings
