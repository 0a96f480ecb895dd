// For a gateway, which moves many objects at a time: they are pinned, described and sent with one call for all of them,
// and without the GIL. Records are those of the gateway protocol (docs/formats/gateway-protocol.md).
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/text.h"
#include "bindings/common.h"
#include "bindings/items.h"
#include "bindings/py_client.h"
#include "os/gathered_send.h"

namespace entrepot::bindings {
namespace {

using Attachment = ReconnectingClient::Attachment;
using ObjectPtr = std::shared_ptr<SealedObject>;

constexpr std::uint32_t kLastOutcome = 2;

// Numbers are little-endian, as on all machines that Entrepot runs on.
struct RecordHead {
  std::uint32_t position = 0;
  std::uint8_t outcome = 0;
  std::array<std::uint8_t, 3> zeros{};
  std::uint32_t generation_low = 0;
  std::uint32_t generation_high = 0;
  std::uint32_t tree_bytes = 0;
  std::uint32_t buffers = 0;
  std::uint32_t crc = 0;
};
static_assert(sizeof(RecordHead) == 28);

nb::list pin_present(PyClient& client, const std::vector<nb::bytes>& ids) {
  using Objects = std::vector<ObjectPtr>;
  const std::vector<IdBytes> object_ids = ids_from(ids);
  Objects objects = check(client.run([&](const Attachment& attachment) -> Result<Objects> {
    Objects present;
    present.reserve(object_ids.size());
    for (const IdBytes& id : object_ids) {
      auto object = attachment.client->find(id, os::Deadline::after_ms(kAnswerMs));
      if (!object.is_ok() && object.status().code() == Code::kStoreUnavailable) return object.status();
      present.push_back(object.is_ok() ? object.take() : nullptr);
    }
    return present;
  }));
  nb::list result;
  for (ObjectPtr& object : objects) {
    if (object) {
      result.append(nb::cast(std::move(object)));
    } else {
      result.append(nb::none());
    }
  }
  return result;
}

struct Described {
  std::uint32_t position = 0;
  ObjectPtr object;
  std::string_view tree;  // of a bytes object that the caller's list holds
};

nb::tuple pack_inline_records(const nb::list& objects, std::uint32_t seed) {
  std::vector<Described> described;
  described.reserve(objects.size());
  for (const nb::handle each : objects) {
    const auto fields = nb::cast<nb::tuple>(each);
    described.push_back({nb::cast<std::uint32_t>(fields[0]), nb::cast<ObjectPtr&>(fields[1]),
                         view_of(nb::borrow<nb::bytes>(fields[2]))});
  }
  std::string records;
  std::uint32_t crc = seed;
  without_gil([&] {
    for (const Described& each : described) {
      const std::vector<BufferView>& buffers = each.object->buffers();
      for (const BufferView& buffer : buffers)
        crc = crc32c(buffer.data, buffer.length, crc);
      RecordHead head;
      head.position = each.position;
      head.generation_low = each.object->generation();
      head.tree_bytes = static_cast<std::uint32_t>(each.tree.size());
      head.buffers = static_cast<std::uint32_t>(buffers.size());
      head.crc = crc;
      records.append(reinterpret_cast<const char*>(&head), sizeof(head));
      for (const BufferView& buffer : buffers)
        records.append(reinterpret_cast<const char*>(&buffer.length), sizeof(buffer.length));
      records.append(each.tree);
    }
  });
  return nb::make_tuple(to_bytes(records), crc);
}

nb::list split_records(nb::handle meta, std::uint32_t max_tree_bytes, std::uint32_t max_buffers) {
  Exports exports;
  const SourceBuffer all = exports.add(meta);
  const auto* at = static_cast<const char*>(all.data);
  std::uint64_t left = all.length;
  nb::list records;
  while (left > 0) {
    RecordHead head;
    if (left < sizeof(head)) raise(Status(Code::kCorruptData, "the record of an object is cut off"));
    std::memcpy(&head, at, sizeof(head));
    at += sizeof(head);
    left -= sizeof(head);
    if (head.buffers > max_buffers || head.tree_bytes > max_tree_bytes || head.outcome > kLastOutcome) {
      raise(
          Status(Code::kCorruptData, concat("the peer described an object by ", head.buffers, " buffers, ",
                                            head.tree_bytes, " bytes of tree and outcome ", std::uint32_t{head.outcome},
                                            "; at most ", max_buffers, ", ", max_tree_bytes, " and ", kLastOutcome)));
    }
    const std::uint64_t lengths_bytes = std::uint64_t{head.buffers} * sizeof(std::uint64_t);
    if (left < lengths_bytes + head.tree_bytes) raise(Status(Code::kCorruptData, "the record of an object is cut off"));
    const nb::object lengths = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(head.buffers)));
    if (!lengths.is_valid()) throw nb::python_error();
    for (std::uint32_t i = 0; i < head.buffers; ++i) {
      std::uint64_t length = 0;
      std::memcpy(&length, at + i * sizeof(length), sizeof(length));
      PyObject* const number = PyLong_FromUnsignedLongLong(length);
      if (number == nullptr) throw nb::python_error();
      if (PyTuple_SetItem(lengths.ptr(), static_cast<Py_ssize_t>(i), number) != 0) throw nb::python_error();
    }
    const std::uint64_t generation = (std::uint64_t{head.generation_high} << 32) | head.generation_low;
    records.append(nb::make_tuple(head.position, head.outcome, generation,
                                  nb::bytes(at + lengths_bytes, head.tree_bytes), lengths, head.crc));
    at += lengths_bytes + head.tree_bytes;
    left -= lengths_bytes + head.tree_bytes;
  }
  return records;
}

std::uint64_t send_objects(int fd, const nb::bytes& head, const nb::list& objects) {
  std::vector<ObjectPtr> pinned;
  std::vector<os::ByteRange> ranges;
  pinned.reserve(objects.size());
  ranges.reserve(objects.size() + 1);
  ranges.emplace_back(reinterpret_cast<const std::byte*>(head.c_str()), head.size());
  for (const nb::handle each : objects) {
    const ObjectPtr& object = pinned.emplace_back(nb::cast<ObjectPtr&>(each));
    for (const BufferView& buffer : object->buffers())
      ranges.emplace_back(buffer.data, buffer.length);
  }
  std::uint64_t bytes = 0;
  for (const os::ByteRange& range : ranges)
    bytes += range.size();
  const int error = without_gil([&] { return os::send_all(fd, ranges); });
  if (error != 0) {
    errno = error;
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }
  return bytes;
}

}  // namespace

void add_transfers(nb::module_& module, nb::class_<PyClient>& cls) {
  cls.def(
         "generations_of",
         [](PyClient& client, const std::vector<nb::bytes>& ids) {
           const std::vector<IdBytes> object_ids = ids_from(ids);
           return check(client.run([&](const Attachment& attachment) {
             return attachment.client->generations_of(object_ids, signal_interrupt());
           }));
         },
         nb::arg("ids"))
      .def("pin_present", &pin_present, nb::arg("ids"));
  module.def("pack_inline_records", &pack_inline_records, nb::arg("objects"), nb::arg("seed"));
  module.def("split_records", &split_records, nb::arg("meta"), nb::arg("max_tree_bytes"), nb::arg("max_buffers"));
  module.def("send_objects", &send_objects, nb::arg("fd"), nb::arg("head"), nb::arg("objects"));
}

}  // namespace entrepot::bindings
