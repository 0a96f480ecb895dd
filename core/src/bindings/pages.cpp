// Pages of records: writing, reading, and dividing records between partitions. See client/page_writer.h.
#include "bindings/pages.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/text.h"
#include "bindings/py_client.h"
#include "client/page_writer.h"

namespace entrepot::bindings {
namespace {

using Attachment = ReconnectingClient::Attachment;

// An Appender with a lock, because nothing keeps Python code from passing one to another thread.
struct PyAppender {
  std::shared_ptr<PageWriter> writer;
  std::shared_ptr<Appender> appender;
  std::mutex mutex;
};
// A writer and the locks of its appenders, so that it does not finish while one appends.
struct PyPageWriter {
  std::shared_ptr<PageWriter> writer;
  std::mutex mutex;
  std::vector<std::shared_ptr<PyAppender>> appenders;  // guarded by mutex

  [[nodiscard]] std::vector<std::shared_ptr<PyAppender>> all_appenders() {
    const std::lock_guard lock(mutex);
    return appenders;
  }
};
using PyPageWriterPtr = std::shared_ptr<PyPageWriter>;

std::span<const std::uint32_t> partition_numbers_from(Exports& exports, nb::handle numbers) {
  const SourceBuffer buffer = exports.add(numbers);
  return {static_cast<const std::uint32_t*>(buffer.data), buffer.length / sizeof(std::uint32_t)};
}

Status check_numbers(std::span<const std::uint32_t> numbers, std::uint32_t partitions) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] >= partitions) {
      return {Code::kInvalidArgument, concat("record ", i, " is for partition ", numbers[i],
                                             ", which does not exist: the partitions are 0 to ", partitions - 1)};
    }
  }
  return Status::ok();
}

PyPageWriterPtr create_writer(PyClient& client, std::uint64_t session, const std::vector<std::uint64_t>& sets,
                              std::uint32_t partitions, std::uint64_t page_bytes, std::uint8_t framing,
                              std::uint32_t record_bytes, double timeout, const nb::bytes& prefix) {
  PageWriterOptions options;
  options.partitions = partitions;
  options.page_bytes = page_bytes;
  options.framing = static_cast<Framing>(framing);
  options.record_bytes = record_bytes;
  options.wait_ms = milliseconds(timeout);
  auto created = std::make_shared<PyPageWriter>();
  created->writer = open_page_writer(client, options, session, sets, prefix);
  return created;
}

std::shared_ptr<PyAppender> create_appender(const PyPageWriterPtr& writer) {
  auto appender = std::make_shared<PyAppender>();
  appender->writer = writer->writer;
  appender->appender = writer->writer->appender();
  const std::lock_guard lock(writer->mutex);
  writer->appenders.push_back(appender);
  return appender;
}

nb::bytes finish(const PyPageWriterPtr& writer) {
  const std::vector<std::shared_ptr<PyAppender>> appenders = writer->all_appenders();
  const std::vector<SealedPage> pages = check(without_gil([&] {
    std::vector<std::unique_lock<std::mutex>> locks;
    for (const auto& appender : appenders)
      locks.emplace_back(appender->mutex);
    return writer->writer->finish(signal_interrupt());
  }));
  return pack_pages(pages);
}

void abandon(const PyPageWriterPtr& writer) {
  const std::vector<std::shared_ptr<PyAppender>> appenders = writer->all_appenders();
  without_gil([&] {
    std::vector<std::unique_lock<std::mutex>> locks;
    for (const auto& appender : appenders)
      locks.emplace_back(appender->mutex);
    writer->writer->abandon();
  });
}

void append_one(PyAppender& appender, std::uint32_t partition, nb::handle record) {
  Exports exports;
  const SourceBuffer buffer = exports.add(record);
  check(without_gil([&] {
    const std::lock_guard lock(appender.mutex);
    return appender.appender->append(partition, buffer.data, buffer.length, signal_interrupt());
  }));
}

void append_many(PyAppender& appender, nb::handle numbers, nb::handle data, std::uint64_t width, nb::handle offsets,
                 unsigned offset_bytes) {
  Exports exports;
  const std::span<const std::uint32_t> partitions = partition_numbers_from(exports, numbers);
  const RecordColumn records(exports, data, width, offsets, offset_bytes);
  if (records.size() != partitions.size()) {
    raise(Status(Code::kInvalidArgument,
                 concat("there are ", records.size(), " records, but ", partitions.size(), " partition numbers")));
  }
  check(without_gil([&]() -> Status {
    // First, so that a wrong number leaves nothing appended.
    RETURN_IF_ERROR(check_numbers(partitions, appender.writer->options().partitions));
    const std::lock_guard lock(appender.mutex);
    for (std::uint64_t i = 0; i < records.size(); ++i) {
      const std::span<const std::byte> record = records[i];
      RETURN_IF_ERROR(appender.appender->append(partitions[i], record.data(), record.size(), signal_interrupt()));
    }
    return Status::ok();
  }));
}

// The order that puts records of one partition together, as 64-bit indexes, and where each partition begins in it.
nb::tuple partition_order(nb::handle numbers, std::uint32_t partitions) {
  Exports exports;
  const std::span<const std::uint32_t> values = partition_numbers_from(exports, numbers);
  std::string order(values.size() * sizeof(std::int64_t), '\0');
  std::vector<std::int64_t> starts(std::size_t{partitions} + 1);
  check(without_gil([&]() -> Status {
    RETURN_IF_ERROR(check_numbers(values, partitions));
    for (const std::uint32_t value : values)
      ++starts[value + 1];
    for (std::uint32_t i = 0; i < partitions; ++i)
      starts[i + 1] += starts[i];
    std::vector<std::int64_t> next(starts.begin(), starts.end() - 1);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto index = static_cast<std::int64_t>(i);
      std::memcpy(order.data() + static_cast<std::size_t>(next[values[i]]++) * sizeof(index), &index, sizeof(index));
    }
    return Status::ok();
  }));
  nb::list bounds;
  for (const std::int64_t start : starts)
    bounds.append(start);
  return nb::make_tuple(to_bytes(order), bounds);
}

// For each key the number of its partition, 32 bits each.
nb::bytes hash_partitions(nb::handle data, std::uint64_t width, nb::handle offsets, unsigned offset_bytes,
                          std::uint32_t partitions) {
  Exports exports;
  const RecordColumn keys(exports, data, width, offsets, offset_bytes);
  if (partitions == 0) raise(Status(Code::kInvalidArgument, "there must be at least one partition"));
  std::string numbers(keys.size() * sizeof(std::uint32_t), '\0');
  without_gil([&] {
    for (std::uint64_t i = 0; i < keys.size(); ++i) {
      const std::span<const std::byte> key = keys[i];
      std::uint64_t hash = 0;
      if (offset_bytes == 0 && width <= sizeof(hash)) {
        std::memcpy(&hash, key.data(), width);
        hash = mix64(hash + 0x9e37'79b9'7f4a'7c15ULL);
      } else {
        hash = hash_bytes({reinterpret_cast<const std::uint8_t*>(key.data()), key.size()});
      }
      // Of the upper bits, because tables within a partition use the lower ones.
      const auto number = static_cast<std::uint32_t>(((hash >> 32) * partitions) >> 32);
      std::memcpy(numbers.data() + i * sizeof(number), &number, sizeof(number));
    }
    return 0;
  });
  return to_bytes(numbers);
}

nb::tuple read_page(nb::handle page) {
  Exports exports;
  const SourceBuffer buffer = exports.add(page);
  const auto* const data = static_cast<const std::byte*>(buffer.data);
  PageView view = check(open_page({data, buffer.length}));
  nb::list chunks;
  while (!view.chunks.empty()) {
    const ChunkView chunk = check(next_chunk(view.chunks));
    if (chunk.records == 0) continue;
    chunks.append(nb::make_tuple(chunk.bytes.data() - data, chunk.bytes.size(), chunk.records));
  }
  const PageHeader& header = view.header;
  return nb::make_tuple(header.partition, header.framing, header.record_bytes, header.records, chunks);
}

// Where the page's records are: offset and length of each, as 64-bit numbers.
nb::bytes page_records(nb::handle page) {
  Exports exports;
  const SourceBuffer buffer = exports.add(page);
  const auto* const data = static_cast<const std::byte*>(buffer.data);
  std::string places;
  check(without_gil([&] {
    return for_each_record({data, buffer.length}, [&](std::span<const std::byte> record) {
      const std::uint64_t place[] = {static_cast<std::uint64_t>(record.data() - data), record.size()};
      places.append(reinterpret_cast<const char*>(place), sizeof(place));
    });
  }));
  return to_bytes(places);
}

// The page's records as an Arrow binary view: short ones within the views, others as references to the page.
nb::bytes page_views(nb::handle page) {
  Exports exports;
  const SourceBuffer buffer = exports.add(page);
  const auto* const data = static_cast<const std::byte*>(buffer.data);
  std::string views;
  struct View {
    std::int32_t length;
    std::uint8_t prefix[4];
    std::int32_t index;
    std::int32_t offset;
  };
  static_assert(sizeof(View) == 16);
  constexpr std::size_t kInlined = 12;
  if (buffer.length > INT32_MAX) {
    raise(Status(Code::kInvalidArgument, "a page of more than 2 GiB cannot be a binary view"));
  }
  check(without_gil([&] {
    return for_each_record({data, buffer.length}, [&](std::span<const std::byte> record) {
      View view{static_cast<std::int32_t>(record.size()), {}, 0, 0};
      if (record.size() <= kInlined) {
        if (!record.empty()) std::memcpy(view.prefix, record.data(), record.size());
      } else {
        std::memcpy(view.prefix, record.data(), sizeof(view.prefix));
        view.offset = static_cast<std::int32_t>(record.data() - data);
      }
      views.append(reinterpret_cast<const char*>(&view), sizeof(view));
    });
  }));
  return to_bytes(views);
}

nb::bytes page_id_of(const nb::bytes& prefix, std::uint64_t number) {
  PagePrefix bytes{};
  if (prefix.size() != bytes.size()) raise(Status(Code::kInvalidArgument, "a prefix has 12 bytes"));
  std::memcpy(bytes.data(), prefix.c_str(), bytes.size());
  const IdBytes id = page_id(bytes, number);
  return nb::bytes(reinterpret_cast<const char*>(id.data()), id.size());
}

}  // namespace

RecordColumn::RecordColumn(Exports& exports, nb::handle data, std::uint64_t width, nb::handle offsets,
                           unsigned offset_bytes)
    : width_(width), offset_bytes_(offset_bytes) {
  const SourceBuffer bytes = exports.add(data);
  data_ = {static_cast<const std::byte*>(bytes.data), bytes.length};
  if (offset_bytes == 0) {
    if (width == 0 || bytes.length % width != 0) {
      raise(Status(Code::kInvalidArgument, concat(bytes.length, " bytes are no values of ", width, " bytes")));
    }
    size_ = bytes.length / width;
    return;
  }
  const SourceBuffer places = exports.add(offsets);
  if ((offset_bytes != 4 && offset_bytes != 8) || places.length < offset_bytes) {
    raise(Status(Code::kInvalidArgument, "offsets have 4 or 8 bytes each, and there is one more than values"));
  }
  offsets_ = places.data;
  size_ = places.length / offset_bytes - 1;
  const auto check_offsets = [&](const auto* of) {
    std::int64_t before = 0;
    for (std::uint64_t i = 0; i <= size_; ++i) {
      if (of[i] < before || static_cast<std::uint64_t>(of[i]) > bytes.length) return false;
      before = of[i];
    }
    return true;
  };
  const bool fits = offset_bytes == 4 ? check_offsets(static_cast<const std::int32_t*>(offsets_))
                                      : check_offsets(static_cast<const std::int64_t*>(offsets_));
  if (!fits) raise(Status(Code::kInvalidArgument, "the offsets are not ascending, or exceed the data"));
}

RowKeys row_keys_from(Exports& exports, const nb::list& columns) {
  std::vector<KeyColumn> read;
  for (const nb::handle each : columns) {
    const auto fields = nb::cast<nb::tuple>(each);
    if (fields.size() != 5) raise(Status(Code::kInvalidArgument, "a key column has five fields"));
    const RecordColumn values(exports, fields[0], nb::cast<std::uint64_t>(fields[1]), fields[2],
                              nb::cast<unsigned>(fields[3]));
    KeyColumn& column = read.emplace_back(values.key_column());
    if (fields[4].is_none()) continue;
    const SourceBuffer valid = exports.add(fields[4]);
    if (valid.length != column.rows) {
      raise(Status(Code::kInvalidArgument,
                   concat(column.rows, " rows need as many bytes of validity, but got ", valid.length)));
    }
    column.valid = static_cast<const std::uint8_t*>(valid.data);
  }
  return check(RowKeys::create(std::move(read)));
}

std::shared_ptr<PageWriter> open_page_writer(PyClient& client, PageWriterOptions options, std::uint64_t session,
                                             const std::vector<std::uint64_t>& sets, const nb::bytes& prefix) {
  if (prefix.size() != options.prefix.size()) raise(Status(Code::kInvalidArgument, "a prefix has 12 bytes"));
  std::memcpy(options.prefix.data(), prefix.c_str(), options.prefix.size());
  return check(client.run([&](const Attachment& attachment) -> Result<std::shared_ptr<PageWriter>> {
    ASSIGN_OR_RETURN(options.session,
                     client.reconnecting_client().session_number(attachment, session, signal_interrupt()));
    options.sets.clear();
    for (const std::uint64_t set : sets) {
      ASSIGN_OR_RETURN(const std::uint32_t number, ReconnectingClient::set_number(attachment, set));
      options.sets.push_back(number);
    }
    return PageWriter::create(attachment.client, options);
  }));
}

nb::bytes pack_pages(const std::vector<SealedPage>& pages) {
  struct PackedPage {
    IdBytes id;
    std::uint32_t partition;
    std::uint64_t records;
    std::uint64_t bytes;
    std::uint64_t sealed_ns;
  };
  static_assert(sizeof(PackedPage) == 48);
  std::string packed;
  packed.reserve(pages.size() * sizeof(PackedPage));
  for (const SealedPage& page : pages) {
    const PackedPage entry{page.id, page.partition, page.records, page.bytes, page.sealed_ns};
    packed.append(reinterpret_cast<const char*>(&entry), sizeof(entry));
  }
  return to_bytes(packed);
}

void add_pages(nb::module_& module, nb::class_<PyClient>& cls) {
  nb::class_<std::shared_ptr<PyAppender>>(module, "Appender", "Appends records for one thread.")
      .def(
          "append",
          [](const std::shared_ptr<PyAppender>& appender, std::uint32_t partition, nb::handle record) {
            append_one(*appender, partition, record);
          },
          nb::arg("partition"), nb::arg("record"))
      .def(
          "append_many",
          [](const std::shared_ptr<PyAppender>& appender, nb::handle numbers, nb::handle data, std::uint64_t width,
             nb::handle offsets,
             unsigned offset_bytes) { append_many(*appender, numbers, data, width, offsets, offset_bytes); },
          nb::arg("numbers"), nb::arg("data"), nb::arg("width"), nb::arg("offsets").none(), nb::arg("offset_bytes"));
  nb::class_<PyPageWriterPtr>(module, "PageWriter", "Pages that this process fills; see client/page_writer.h.")
      .def("appender", &create_appender)
      .def("finish", &finish)
      .def("abandon", &abandon);
  cls.def("page_writer", &create_writer, nb::arg("session"), nb::arg("sets"), nb::arg("partitions"),
          nb::arg("page_bytes"), nb::arg("framing"), nb::arg("record_bytes"), nb::arg("timeout"), nb::arg("prefix"));
  module.def("partition_order", &partition_order, nb::arg("numbers"), nb::arg("partitions"));
  module.def("hash_partitions", &hash_partitions, nb::arg("data"), nb::arg("width"), nb::arg("offsets").none(),
             nb::arg("offset_bytes"), nb::arg("partitions"));
  module.def("read_page", &read_page, nb::arg("page"));
  module.def("page_records", &page_records, nb::arg("page"));
  module.def("page_views", &page_views, nb::arg("page"));
  module.def("page_id", &page_id_of, nb::arg("prefix"), nb::arg("number"));
}

}  // namespace entrepot::bindings
