// Hash aggregation in pages of the store, and merging of partial results. See client/page_aggregator.h.
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "bindings/pages.h"
#include "bindings/py_client.h"
#include "client/aggregate_merger.h"
#include "client/page_aggregator.h"

namespace entrepot::bindings {
namespace {

AggregateLayout layout_from(const std::vector<std::uint8_t>& kinds) { return check(AggregateLayout::create(kinds)); }

std::shared_ptr<PageAggregator> create_aggregator(PyClient& client, std::uint64_t session,
                                                  const std::vector<std::uint64_t>& sets, std::uint32_t partitions,
                                                  std::uint64_t page_bytes, double timeout, const nb::bytes& prefix,
                                                  const std::vector<std::uint8_t>& kinds, std::uint64_t budget_bytes) {
  AggregateLayout layout = layout_from(kinds);
  PageWriterOptions options;
  options.partitions = partitions;
  options.page_bytes = page_bytes;
  options.framing = Framing::kAligned;
  options.wait_ms = milliseconds(timeout);
  return std::make_shared<PageAggregator>(open_page_writer(client, options, session, sets, prefix), std::move(layout),
                                          budget_bytes);
}

void append_rows(PageAggregator& aggregator, const nb::list& key_columns, const nb::list& value_columns) {
  Exports exports;
  RowKeys keys = row_keys_from(exports, key_columns);
  std::vector<ValueColumn> values;
  for (const nb::handle each : value_columns) {
    const auto fields = nb::cast<nb::tuple>(each);
    if (fields.size() != 2) raise(Status(Code::kInvalidArgument, "a column of values has two fields"));
    ValueColumn& column = values.emplace_back();
    if (!fields[0].is_none()) {
      const SourceBuffer data = exports.add(fields[0]);
      if (data.length != keys.rows() * 8) raise(Status(Code::kInvalidArgument, "each row has a value of 8 bytes"));
      column.data = static_cast<const std::byte*>(data.data);
    }
    if (!fields[1].is_none()) {
      const SourceBuffer valid = exports.add(fields[1]);
      if (valid.length != keys.rows()) raise(Status(Code::kInvalidArgument, "each row has a byte of validity"));
      column.valid = static_cast<const std::uint8_t*>(valid.data);
    }
  }
  check(without_gil([&] { return aggregator.append(keys, values, signal_interrupt()); }));
}

// A merger with a lock, because nothing keeps Python code from using one in several threads.
struct PyAggregateMerger {
  AggregateMerger merger;
  std::mutex mutex;

  // Without the GIL, which a thread that waits for the lock must not keep from the one that has it.
  template <class Work>
  auto run(Work&& work) {
    return without_gil([&] {
      const std::lock_guard lock(mutex);
      return work(merger);
    });
  }
};

nb::list merged_keys(PyAggregateMerger& merger) {
  const std::vector<DecodedColumn> columns =
      check(merger.run([](const AggregateMerger& merged) { return merged.keys(); }));
  nb::list made;
  for (const DecodedColumn& column : columns) {
    const auto* const offsets = reinterpret_cast<const char*>(column.offsets.data());
    made.append(nb::make_tuple(column.width, to_bytes(column.data),
                               to_bytes({offsets, column.offsets.size() * sizeof(std::int64_t)}),
                               to_bytes(column.valid), column.nulls));
  }
  return made;
}

nb::tuple merged_results(PyAggregateMerger& merger, std::size_t aggregate) {
  const AggregateResults results =
      check(merger.run([&](const AggregateMerger& merged) { return merged.results(aggregate); }));
  return nb::make_tuple(to_bytes(results.data), to_bytes(results.valid), results.nulls);
}

}  // namespace

void add_aggregates(nb::module_& module, nb::class_<PyClient>& cls) {
  nb::class_<std::shared_ptr<PageAggregator>>(module, "PageAggregator", "Aggregates in pages of the store.")
      .def_prop_ro("spilled_pages",
                   [](const std::shared_ptr<PageAggregator>& aggregator) { return aggregator->spilled_pages(); })
      .def(
          "append",
          [](const std::shared_ptr<PageAggregator>& aggregator, const nb::list& keys, const nb::list& values) {
            append_rows(*aggregator, keys, values);
          },
          nb::arg("keys"), nb::arg("values"))
      .def("finish",
           [](const std::shared_ptr<PageAggregator>& aggregator) {
             return pack_pages(check(without_gil([&] { return aggregator->finish(signal_interrupt()); })));
           })
      .def("abandon",
           [](const std::shared_ptr<PageAggregator>& aggregator) { without_gil([&] { aggregator->abandon(); }); });
  nb::class_<PyAggregateMerger>(module, "AggregateMerger", "Merges the partial results of one partition.")
      .def(
          "__init__",
          [](PyAggregateMerger* merger, std::vector<std::uint32_t> widths, const std::vector<std::uint8_t>& kinds) {
            new (merger) PyAggregateMerger{AggregateMerger(std::move(widths), layout_from(kinds)), {}};
          },
          nb::arg("widths"), nb::arg("kinds"))
      .def_prop_ro("rows",
                   [](PyAggregateMerger& merger) {
                     return merger.run([](const AggregateMerger& merged) { return merged.rows(); });
                   })
      .def(
          "add",
          [](PyAggregateMerger& merger, nb::handle page) {
            Exports exports;
            const SourceBuffer buffer = exports.add(page);
            const std::span page_bytes(static_cast<const std::byte*>(buffer.data), buffer.length);
            check(merger.run([&](AggregateMerger& merged) { return merged.add(page_bytes); }));
          },
          nb::arg("page"))
      .def("keys", &merged_keys)
      .def("results", &merged_results, nb::arg("aggregate"));
  cls.def("page_aggregator", &create_aggregator, nb::arg("session"), nb::arg("sets"), nb::arg("partitions"),
          nb::arg("page_bytes"), nb::arg("timeout"), nb::arg("prefix"), nb::arg("kinds"), nb::arg("budget_bytes"));
}

}  // namespace entrepot::bindings
