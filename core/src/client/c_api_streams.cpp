// The part of the C API about streams: see client/streams.h.
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "client/c_api.h"
#include "client/streams.h"
#include "os/random.h"

using entrepot::ChunkPlace;
using entrepot::ChunkPut;
using entrepot::Code;
using entrepot::IdBytes;
using entrepot::Interrupt;
using entrepot::Status;
using entrepot::Wait;
using entrepot::c_api::Attachment;
using entrepot::c_api::convert;
using entrepot::c_api::guarded;
using entrepot::c_api::id_of;
using entrepot::c_api::missing;

namespace {

// What a stream, its writers and its readers need of their client.
struct StreamAccess {
  std::shared_ptr<entrepot::c_api::Access> access;
  int (*interrupt)(void*) = nullptr;
  void* interrupt_context = nullptr;

  [[nodiscard]] Interrupt interrupt_check() {
    if (interrupt == nullptr) return {};
    return {[](void* self) {
              auto* owner = static_cast<StreamAccess*>(self);
              return owner->interrupt(owner->interrupt_context) != 0;
            },
            this};
  }
  [[nodiscard]] entrepot::ReconnectingClient& client() const { return *access->reconnecting_client; }
  // Runs `work`, which takes an Attachment; does not wait for a store beyond `limit`.
  template <class Work>
  auto run(entrepot::os::Deadline limit, Work&& work) -> std::invoke_result_t<Work&, const Attachment&> {
    auto attachment = client().attachment();
    return client().run(attachment, limit, interrupt_check(), std::forward<Work>(work));
  }
  template <class Work>
  auto run(Work&& work) {
    return run(entrepot::os::Deadline::never(), std::forward<Work>(work));
  }
};

Status closed(const char* what) {
  return {Code::kInvalidArgument, entrepot::concat(what, " was closed: open another")};
}

}  // namespace

struct entrepot_stream : StreamAccess {
  std::uint64_t session = 0;  // a handle
  std::string name;
  std::uint64_t number = 0;
};

// open ──close──▶ closed: it has written everything       open ──abort, free──▶ closed: the stream fails
struct entrepot_stream_writer : StreamAccess {
  std::mutex mutex;
  std::optional<std::uint64_t> number;  // guarded by mutex; none: closed
  IdBytes next{};                       // guarded by mutex; of its next chunk, as the daemon knows it

  // With the mutex held. `put` seals the item and returns its PutResult.
  template <class Put>
  Status put_chunk(entrepot::PutItem& item, std::uint32_t wait_ms, Put&& put) {
    if (!number) return closed("this writer of a stream");
    ChunkPut chunk{*number, entrepot::os::random_id(), wait_ms};
    item.id = std::exchange(next, chunk.next);
    item.fresh_id = true;
    item.replace = 0;
    item.name.clear();
    item.chunk = &chunk;
    const Status sealed = run([&](const Attachment& attachment) -> Status {
      chunk.appended = false;
      return put(attachment).status;
    });
    if (sealed.is_ok()) return chunk.appended ? sealed : append(item.id, wait_ms);
    const ChunkPlace place = entrepot::give_up_chunk(*client().attachment()->client, chunk, item.id, sealed);
    return place == ChunkPlace::kInStream ? Status::ok() : entrepot::chunk_error(sealed, place);
  }
  // With the mutex held.
  Status append(const IdBytes& id, std::uint32_t wait_ms) {
    if (!number) return closed("this writer of a stream");
    const Wait wait(wait_ms);
    ChunkPlace place = ChunkPlace::kNotInStream;
    const Status appended = run(wait.limit, [&](const Attachment& attachment) {
      const auto outcome = entrepot::append_chunk(*attachment.client, *number, id, next, wait, interrupt_check());
      place = outcome.place;
      if (place == ChunkPlace::kNotInStream && outcome.status.code() == Code::kStreamLost) {
        static_cast<void>(attachment.client->remove(std::span(&id, 1), {}).is_ok());
      }
      return outcome.status;
    });
    return place == ChunkPlace::kInStream ? Status::ok() : entrepot::chunk_error(appended, place);
  }
  void give_up(const std::string& reason) {
    std::optional<std::uint64_t> was;
    {
      const std::lock_guard lock(mutex);
      was = std::exchange(number, std::nullopt);
    }
    if (was) entrepot::abort_stream_writer(*client().attachment()->client, *was, reason);
  }
};

// none ──next──▶ in hand ──the next next, ack──▶ consumed      in hand ──free──▶ back to the group
struct entrepot_stream_reader : StreamAccess {
  std::uint64_t stream = 0;
  std::uint64_t number = 0;
  std::mutex mutex;
  std::optional<std::uint64_t> in_hand;  // guarded by mutex; position of the chunk
};

namespace {

std::unique_ptr<entrepot_stream_writer> writer_of(const entrepot_stream& stream) {
  auto writer = std::make_unique<entrepot_stream_writer>();
  static_cast<StreamAccess&>(*writer) = stream;
  return writer;
}

Status open(StreamAccess& access, entrepot_stream& stream, entrepot::OpenStreamRequest& request) {
  ASSIGN_OR_RETURN(const entrepot::OpenStreamReply opened,
                   access.run([&](const Attachment& attachment) -> entrepot::Result<entrepot::OpenStreamReply> {
                     ASSIGN_OR_RETURN(request.session, access.client().session_number(attachment, stream.session,
                                                                                      access.interrupt_check()));
                     return entrepot::open_stream(*attachment.client, request, access.interrupt_check());
                   }));
  stream.number = opened.stream;
  return Status::ok();
}

}  // namespace

extern "C" {

int32_t entrepot_stream_open(entrepot_client* client, const entrepot_stream_options* options, entrepot_stream** out,
                             entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (client == nullptr || options == nullptr || options->struct_size < sizeof(*options) ||
        options->name == nullptr || (options->groups == nullptr && options->group_count != 0) || out == nullptr) {
      return missing("an argument");
    }
    static constexpr std::uint8_t kHow[] = {entrepot::kAnyStream, entrepot::kExistingStream, entrepot::kNewStream};
    if (options->how < 0 || options->how > ENTREPOT_STREAM_NEW) {
      return {Code::kInvalidArgument, entrepot::concat("unknown way ", options->how, " to open a stream")};
    }
    auto stream = std::make_unique<entrepot_stream>();
    stream->access = client->access;
    stream->interrupt = client->interrupt;
    stream->interrupt_context = client->interrupt_context;
    stream->session = client->access->sessions.handle(options->session);
    stream->name = options->name;
    entrepot::OpenStreamRequest request{0, stream->name, kHow[options->how],     options->capacity, options->writers,
                                        0, {},           options->capacity_bytes};
    for (uint64_t i = 0; i < options->group_count; ++i) {
      if (options->groups[i] == nullptr) return missing("a group");
      request.groups.emplace_back(options->groups[i]);
    }
    RETURN_IF_ERROR(open(*stream, *stream, request));
    *out = stream.release();
    return Status::ok();
  });
}

int32_t entrepot_stream_state(entrepot_stream* stream, int32_t* ended, uint64_t* appended, uint64_t* in_stream,
                              entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (stream == nullptr) return missing("the stream");
    ASSIGN_OR_RETURN(const entrepot::StreamStateReply state, stream->run([&](const Attachment& attachment) {
      return entrepot::stream_state(*attachment.client, stream->number, stream->interrupt_check());
    }));
    if (ended != nullptr) *ended = state.ended;
    if (appended != nullptr) *appended = state.appended;
    if (in_stream != nullptr) *in_stream = state.in_stream;
    return Status::ok();
  });
}

int32_t entrepot_stream_remove(entrepot_stream* stream, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (stream == nullptr) return missing("the stream");
    return stream->run([&](const Attachment& attachment) -> Status {
      ASSIGN_OR_RETURN(const std::uint32_t session,
                       stream->client().session_number(attachment, stream->session, stream->interrupt_check()));
      return entrepot::remove_stream(*attachment.client, session, stream->name, stream->interrupt_check());
    });
  });
}

void entrepot_stream_free(entrepot_stream* stream) { delete stream; }

int32_t entrepot_stream_writer_open(entrepot_stream* stream, entrepot_stream_writer** out, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (stream == nullptr || out == nullptr) return missing("an argument");
    auto writer = writer_of(*stream);
    writer->next = entrepot::os::random_id();
    ASSIGN_OR_RETURN(writer->number, stream->run([&](const Attachment& attachment) {
      return entrepot::open_stream_writer(*attachment.client, stream->number, writer->next, stream->interrupt_check());
    }));
    *out = writer.release();
    return Status::ok();
  });
}

int32_t entrepot_stream_writer_put(entrepot_stream_writer* writer, const entrepot_item* item, uint32_t memory_wait_ms,
                                   uint32_t wait_ms, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (writer == nullptr) return missing("the writer");
    entrepot::PutItem put_item;
    RETURN_IF_ERROR(convert(*writer->access, item, put_item));
    const std::lock_guard lock(writer->mutex);
    return writer->put_chunk(put_item, wait_ms, [&](const Attachment& attachment) {
      return writer->client()
          .put(attachment, std::span(&put_item, 1), memory_wait_ms, writer->interrupt_check())
          .front();
    });
  });
}

int32_t entrepot_stream_writer_put_builder(entrepot_stream_writer* writer, entrepot_builder* builder,
                                           const entrepot_item* item, uint32_t memory_wait_ms, uint32_t wait_ms,
                                           entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (writer == nullptr || builder == nullptr) return missing("an argument");
    entrepot::PutItem put_item;
    RETURN_IF_ERROR(convert(*writer->access, item, put_item));
    {
      const std::lock_guard lock(builder->mutex);
      put_item.buffers = builder->buffers;
    }
    const std::lock_guard lock(writer->mutex);
    return writer->put_chunk(put_item, wait_ms, [&](const Attachment& attachment) {
      return writer->client().seal(attachment, *builder->builder, put_item, memory_wait_ms, writer->interrupt_check());
    });
  });
}

int32_t entrepot_stream_writer_append(entrepot_stream_writer* writer, const uint8_t id[ENTREPOT_ID_BYTES],
                                      uint32_t wait_ms, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (writer == nullptr || id == nullptr) return missing("an argument");
    const std::lock_guard lock(writer->mutex);
    return writer->append(id_of(id), wait_ms);
  });
}

int32_t entrepot_stream_writer_close(entrepot_stream_writer* writer, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (writer == nullptr) return missing("the writer");
    const std::lock_guard lock(writer->mutex);
    const auto number = std::exchange(writer->number, std::nullopt);
    if (!number) return Status::ok();
    return writer->run([&](const Attachment& attachment) {
      return entrepot::close_stream_writer(*attachment.client, *number, writer->interrupt_check());
    });
  });
}

void entrepot_stream_writer_abort(entrepot_stream_writer* writer, const char* reason) {
  guarded(nullptr, [&]() -> Status {
    if (writer != nullptr) writer->give_up(reason != nullptr ? reason : "it was aborted");
    return Status::ok();
  });
}

void entrepot_stream_writer_free(entrepot_stream_writer* writer) {
  entrepot_stream_writer_abort(writer, "it was dropped without close()");
  delete writer;
}

int32_t entrepot_stream_reader_open(entrepot_stream* stream, const char* group, int32_t late,
                                    entrepot_stream_reader** out, uint64_t* missed, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (stream == nullptr || group == nullptr || out == nullptr) return missing("an argument");
    auto reader = std::make_unique<entrepot_stream_reader>();
    static_cast<StreamAccess&>(*reader) = *stream;
    reader->stream = stream->number;
    ASSIGN_OR_RETURN(const entrepot::OpenStreamReaderReply opened, stream->run([&](const Attachment& attachment) {
      return entrepot::open_stream_reader(*attachment.client, stream->number, group, late != 0,
                                          stream->interrupt_check());
    }));
    reader->number = opened.reader;
    if (missed != nullptr) *missed = opened.missed;
    *out = reader.release();
    return Status::ok();
  });
}

int32_t entrepot_stream_reader_next(entrepot_stream_reader* reader, uint32_t wait_ms, entrepot_chunk* out,
                                    entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (reader == nullptr || out == nullptr || out->struct_size < sizeof(*out)) return missing("an argument");
    const Wait wait(wait_ms);
    const std::lock_guard lock(reader->mutex);
    ASSIGN_OR_RETURN(const entrepot::NextChunkReply next, reader->run(wait.limit, [&](const Attachment& attachment) {
      return entrepot::next_chunk(*attachment.client, reader->number, reader->in_hand, wait, reader->interrupt_check());
    }));
    out->object = nullptr;
    reader->in_hand.reset();
    if (next.ended != 0) return Status::ok();
    auto objects = reader->run([&](const Attachment& attachment) {
      return reader->client().get(attachment, std::span(&next.id, 1), Wait(0), reader->interrupt_check());
    });
    if (objects.code() == Code::kObjectNotFound) {  // if the stream failed just now, it deleted the chunk
      RETURN_IF_ERROR(reader->run([&](const Attachment& attachment) {
        return entrepot::stream_state(*attachment.client, reader->stream, reader->interrupt_check());
      }));
    }
    if (!objects.is_ok()) return objects.status();  // the next call is given it again
    out->object = new entrepot_object{std::move((*objects)[0])};
    out->position = next.position;
    out->redelivered = next.redelivered;
    reader->in_hand = next.position;
    return Status::ok();
  });
}

int32_t entrepot_stream_reader_ack(entrepot_stream_reader* reader, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (reader == nullptr) return missing("the reader");
    const std::lock_guard lock(reader->mutex);
    if (!reader->in_hand) return Status::ok();
    RETURN_IF_ERROR(reader->run([&](const Attachment& attachment) {
      return entrepot::chunk_done(*attachment.client, reader->number, *reader->in_hand, reader->interrupt_check());
    }));
    reader->in_hand.reset();
    return Status::ok();
  });
}

void entrepot_stream_reader_free(entrepot_stream_reader* reader) {
  guarded(nullptr, [&]() -> Status {
    if (reader != nullptr) entrepot::close_stream_reader(*reader->client().attachment()->client, reader->number);
    return Status::ok();
  });
  delete reader;
}

}  // extern "C"
