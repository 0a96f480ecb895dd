// Streams. Streams, writers and readers are the daemon's numbers: one of another store or daemon is refused as lost.
#include "client/streams.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/common.h"
#include "bindings/items.h"
#include "bindings/py_client.h"
#include "client/call_deadline.h"

namespace entrepot::bindings {
namespace {

using Attachment = ReconnectingClient::Attachment;

nb::tuple open(PyClient& client, std::uint64_t session, const std::string& name, std::uint8_t how,
               std::uint32_t capacity, std::uint32_t writers, std::optional<bool> keeps,
               const std::vector<std::string>& groups, std::uint64_t capacity_bytes) {
  OpenStreamRequest request{0, name, how, capacity, writers, 0, groups, capacity_bytes};
  if (keeps) request.keeps = *keeps ? 1 : 2;
  const OpenStreamReply opened = check(client.run([&](const Attachment& attachment) -> Result<OpenStreamReply> {
    ASSIGN_OR_RETURN(request.session,
                     client.reconnecting_client().session_number(attachment, session, signal_interrupt()));
    return open_stream(*attachment.client, request, signal_interrupt());
  }));
  return nb::make_tuple(opened.stream, opened.capacity, opened.writers, opened.keeps != 0, opened.created != 0,
                        opened.capacity_bytes);
}

// Deletes the object if the stream does not take it.
void append(PyClient& client, std::uint64_t writer, const nb::bytes& id, const nb::bytes& next, double timeout) {
  const IdBytes object_id = id_from(id);
  const IdBytes next_id = id_from(next);
  const Wait wait = milliseconds(timeout);
  ChunkPlace place = ChunkPlace::kNotInStream;
  const Status appended = client.run(wait.limit, [&](const Attachment& attachment) {
    const AppendOutcome outcome =
        append_chunk(*attachment.client, writer, object_id, next_id, wait, signal_interrupt());
    place = outcome.place;
    if (place == ChunkPlace::kNotInStream && outcome.status.code() != Code::kInvalidArgument) {
      static_cast<void>(attachment.client->remove(std::span(&object_id, 1), {}).is_ok());
    }
    return outcome.status;
  });
  const bool interrupted = PyErr_Occurred() != nullptr;
  if (appended.is_ok() || (place == ChunkPlace::kInStream && !interrupted)) return;
  raise(chunk_error(appended, place));
}

// Puts a new object and appends it: with one request if there is room. Unless that succeeds, nothing of it is left.
void put_chunk(PyClient& client, std::uint64_t writer, const nb::bytes& next, const nb::tuple& fields,
               double memory_timeout, double timeout) {
  const auto id = nb::cast<nb::bytes>(fields[0]);
  ChunkPut chunk{writer, id_from(next), milliseconds(timeout)};
  PutResult result;
  {
    Exports exports;  // until it is stored, not while it waits for room
    PutItem item = item_from(fields, exports);
    item.chunk = &chunk;
    const std::uint32_t wait_ms = milliseconds(memory_timeout);
    result = client.run([&](const Attachment& attachment) {
      chunk.appended = false;
      return client.reconnecting_client().put(attachment, std::span(&item, 1), wait_ms, signal_interrupt()).front();
    });
  }
  if (result.status.is_ok()) {
    if (!chunk.appended) append(client, writer, id, next, timeout);
    return;
  }
  const auto attachment = client.reconnecting_client().attachment();
  const ChunkPlace place =
      without_gil([&] { return give_up_chunk(*attachment->client, chunk, id_from(id), result.status); });
  if (place != ChunkPlace::kInStream || PyErr_Occurred() != nullptr) raise(chunk_error(result.status, place));
}

nb::object next(PyClient& client, std::uint64_t reader, std::optional<std::uint64_t> done, double timeout) {
  const Wait wait = milliseconds(timeout);
  std::shared_ptr<SealedObject> object;
  const NextChunkReply chunk =
      check(client.run(wait.limit, [&](const Attachment& attachment) -> Result<NextChunkReply> {
        ASSIGN_OR_RETURN(NextChunkReply given, next_chunk(*attachment.client, reader, done, wait, signal_interrupt()));
        // Here, with what is at hand. Why it is not in memory is left to a get, which waits for it.
        if (given.ended == 0) {
          if (auto pinned = attachment.client->find(given.id, os::Deadline::after_ms(kAnswerMs)); pinned.is_ok())
            object = pinned.take();
        }
        return given;
      }));
  if (chunk.ended != 0) return nb::none();
  return nb::make_tuple(chunk.position, nb::bytes(reinterpret_cast<const char*>(chunk.id.data()), chunk.id.size()),
                        chunk.redelivered != 0, object ? nb::cast(std::move(object)) : nb::none());
}

// A caller's timeout as a context manager: within it, all requests of this thread end in time. 0: no timeout.
class RequestDeadline {
 public:
  explicit RequestDeadline(double timeout) : wait_(milliseconds(timeout)) {}
  void enter() { entered_.emplace(wait_); }
  void exit() { entered_.reset(); }

 private:
  Wait wait_;
  std::optional<CallDeadline> entered_;
};

}  // namespace

void add_request_deadline(nb::module_& module) {
  nb::class_<RequestDeadline>(module, "RequestDeadline", "Bounds what requests of this thread wait for, in a block.")
      .def(nb::init<double>(), nb::arg("timeout"))
      .def("__enter__", &RequestDeadline::enter)
      .def("__exit__", [](RequestDeadline& deadline, const nb::args&) { deadline.exit(); });
}

void add_streams(nb::class_<PyClient>& cls) {
  cls.def("open_stream", &open, nb::arg("session"), nb::arg("name"), nb::arg("how"), nb::arg("capacity"),
          nb::arg("writers"), nb::arg("keeps").none(), nb::arg("groups"), nb::arg("capacity_bytes"))
      .def(
          "remove_stream",
          [](PyClient& client, std::uint64_t session, const std::string& name) {
            check(client.run([&](const Attachment& attachment) -> Status {
              ASSIGN_OR_RETURN(const auto number,
                               client.reconnecting_client().session_number(attachment, session, signal_interrupt()));
              return remove_stream(*attachment.client, number, name, signal_interrupt());
            }));
          },
          nb::arg("session"), nb::arg("name"))
      .def(
          "stream_state",
          [](PyClient& client, std::uint64_t stream) {
            const StreamStateReply state = check(client.run([&](const Attachment& attachment) {
              return stream_state(*attachment.client, stream, signal_interrupt());
            }));
            return nb::make_tuple(state.ended != 0, state.appended, state.in_stream);
          },
          nb::arg("stream"))
      .def(
          "open_stream_writer",
          [](PyClient& client, std::uint64_t stream, const nb::bytes& next) {
            const IdBytes next_id = id_from(next);
            return check(client.run([&](const Attachment& attachment) {
              return open_stream_writer(*attachment.client, stream, next_id, signal_interrupt());
            }));
          },
          nb::arg("stream"), nb::arg("next"))
      .def("put_chunk", &put_chunk, nb::arg("writer"), nb::arg("next"), nb::arg("item"), nb::arg("memory_timeout"),
           nb::arg("timeout"))
      .def("append_chunk", &append, nb::arg("writer"), nb::arg("id"), nb::arg("next"), nb::arg("timeout"))
      .def(
          "close_stream_writer",
          [](PyClient& client, std::uint64_t writer) {
            check(client.run([&](const Attachment& attachment) {
              return close_stream_writer(*attachment.client, writer, signal_interrupt());
            }));
          },
          nb::arg("writer"))
      .def(
          "abort_stream_writer",
          [](PyClient& client, std::uint64_t writer, const std::string& reason) {
            const auto attachment = client.reconnecting_client().attachment();
            without_gil([&] { abort_stream_writer(*attachment->client, writer, reason); });
          },
          nb::arg("writer"), nb::arg("reason"))
      .def(
          "open_stream_reader",
          [](PyClient& client, std::uint64_t stream, const std::string& group, bool late) {
            const OpenStreamReaderReply opened = check(client.run([&](const Attachment& attachment) {
              return open_stream_reader(*attachment.client, stream, group, late, signal_interrupt());
            }));
            return nb::make_tuple(opened.reader, opened.missed);
          },
          nb::arg("stream"), nb::arg("group"), nb::arg("late"))
      .def("next_chunk", &next, nb::arg("reader"), nb::arg("done").none(), nb::arg("timeout"))
      .def(
          "chunk_done",
          [](PyClient& client, std::uint64_t reader, std::uint64_t position) {
            check(client.run([&](const Attachment& attachment) {
              return chunk_done(*attachment.client, reader, position, signal_interrupt());
            }));
          },
          nb::arg("reader"), nb::arg("position"))
      .def(
          "close_stream_reader",
          [](PyClient& client, std::uint64_t reader) {
            const auto attachment = client.reconnecting_client().attachment();
            without_gil([&] { close_stream_reader(*attachment->client, reader); });
          },
          nb::arg("reader"));
}

}  // namespace entrepot::bindings
