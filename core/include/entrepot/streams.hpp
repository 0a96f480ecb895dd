// Streams for C++: entrepot.h's handles with owners, and its errors as exceptions. See docs/streams.md.
//
// Nothing here is compiled into the library, so no exception crosses the C API.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "entrepot/codes.h"
#include "entrepot/entrepot.h"

namespace entrepot::streams {

// What a call failed with, such as Code::kTimeout, Code::kStreamFailed or Code::kStreamLost.
class Error : public std::runtime_error {
 public:
  explicit Error(const entrepot_error& error)
      : std::runtime_error(error.message), code_(static_cast<Code>(error.code)), is_retryable_(error.retryable != 0) {}
  [[nodiscard]] Code code() const noexcept { return code_; }
  [[nodiscard]] bool is_retryable() const noexcept { return is_retryable_; }

 private:
  Code code_;
  bool is_retryable_;
};

namespace detail {

// Calls `function(arguments..., error)`; throws Error.
template <class Function, class... Arguments>
void call(Function function, Arguments... arguments) {
  entrepot_error error{};
  error.struct_size = sizeof(error);
  if (function(arguments..., &error) != 0) throw Error(error);
}

template <class Handle, void (*kFree)(Handle*)>
struct Free {
  void operator()(Handle* handle) const { kFree(handle); }
};
template <class Handle, void (*kFree)(Handle*)>
using Owner = std::unique_ptr<Handle, Free<Handle, kFree>>;

}  // namespace detail

// Waits without an end, for practical purposes (49 days).
inline constexpr std::uint32_t kForever = UINT32_MAX;

struct Options {
  std::uint32_t session = 0;  // from entrepot_open_session
  int how = ENTREPOT_STREAM_ANY;
  std::uint32_t capacity = 0;        // chunks; 0: as the stream has it
  std::uint64_t capacity_bytes = 0;  // 0: as the stream has it
  std::uint32_t writers = 0;         // 0: as the stream has it
  std::vector<std::string> groups{};
};

// A chunk in a reader's hand. Its bytes stay valid as long as this lives, also when the stream has deleted it.
class Chunk {
 public:
  explicit Chunk(const entrepot_chunk& chunk)
      : object_(chunk.object), position_(chunk.position), redelivered_(chunk.redelivered != 0) {}
  [[nodiscard]] std::uint64_t position() const { return position_; }
  [[nodiscard]] bool redelivered() const { return redelivered_; }
  [[nodiscard]] entrepot_buffer tree() const { return entrepot_object_tree(object_.get()); }
  [[nodiscard]] std::uint64_t buffer_count() const { return entrepot_object_buffer_count(object_.get()); }
  [[nodiscard]] entrepot_buffer buffer(std::uint64_t index) const {
    return entrepot_object_buffer(object_.get(), index);
  }
  [[nodiscard]] const entrepot_object* object() const { return object_.get(); }  // for entrepot_builder_reference

 private:
  detail::Owner<entrepot_object, entrepot_object_free> object_;
  std::uint64_t position_;
  bool redelivered_;
};

//   open ──close()──▶ closed: it has written everything
//     └──abort(), destroyed──▶ closed: the stream fails, so that no reader takes what is there for everything
class Writer {
 public:
  explicit Writer(entrepot_stream_writer* writer) : writer_(writer) {}
  // The item's ID, name and replace are ignored.
  void put(const entrepot_item& item, std::uint32_t memory_wait_ms = 30'000, std::uint32_t wait_ms = kForever) {
    detail::call(entrepot_stream_writer_put, writer_.get(), &item, memory_wait_ms, wait_ms);
  }
  void put(entrepot_builder* builder, const entrepot_item& item, std::uint32_t memory_wait_ms = 30'000,
           std::uint32_t wait_ms = kForever) {
    detail::call(entrepot_stream_writer_put_builder, writer_.get(), builder, &item, memory_wait_ms, wait_ms);
  }
  void append(const std::uint8_t* id, std::uint32_t wait_ms = kForever) {
    detail::call(entrepot_stream_writer_append, writer_.get(), id, wait_ms);
  }
  void close() { detail::call(entrepot_stream_writer_close, writer_.get()); }
  void abort(const std::string& reason) { entrepot_stream_writer_abort(writer_.get(), reason.c_str()); }

 private:
  detail::Owner<entrepot_stream_writer, entrepot_stream_writer_free> writer_;
};

// Destroyed, it returns what it has in hand to its group, unless that was reported by next() or ack().
class Reader {
 public:
  Reader(entrepot_stream_reader* reader, std::uint64_t missed) : reader_(reader), missed_(missed) {}
  // The next chunk; reports the one before as consumed. None: the stream has ended, and everything was consumed.
  [[nodiscard]] std::optional<Chunk> next(std::uint32_t wait_ms = kForever) {
    entrepot_chunk chunk{};
    chunk.struct_size = sizeof(chunk);
    detail::call(entrepot_stream_reader_next, reader_.get(), wait_ms, &chunk);
    return chunk.object == nullptr ? std::nullopt : std::make_optional<Chunk>(chunk);
  }
  void ack() { detail::call(entrepot_stream_reader_ack, reader_.get()); }
  [[nodiscard]] std::uint64_t missed() const { return missed_; }

 private:
  detail::Owner<entrepot_stream_reader, entrepot_stream_reader_free> reader_;
  std::uint64_t missed_;
};

class Stream {
 public:
  Stream(entrepot_client* client, const std::string& name, const Options& options) {
    std::vector<const char*> groups;
    for (const std::string& group : options.groups)
      groups.push_back(group.c_str());
    entrepot_stream_options raw{};
    raw.struct_size = sizeof(raw);
    raw.session = options.session;
    raw.how = options.how;
    raw.name = name.c_str();
    raw.capacity = options.capacity;
    raw.capacity_bytes = options.capacity_bytes;
    raw.writers = options.writers;
    raw.groups = groups.data();
    raw.group_count = groups.size();
    entrepot_stream* opened = nullptr;
    detail::call(entrepot_stream_open, client, &raw, &opened);
    stream_.reset(opened);
  }
  [[nodiscard]] Writer writer() {
    entrepot_stream_writer* opened = nullptr;
    detail::call(entrepot_stream_writer_open, stream_.get(), &opened);
    return Writer(opened);
  }
  [[nodiscard]] Reader reader(const std::string& group = "readers", bool late = false) {
    entrepot_stream_reader* opened = nullptr;
    std::uint64_t missed = 0;
    detail::call(entrepot_stream_reader_open, stream_.get(), group.c_str(), late ? 1 : 0, &opened, &missed);
    return {opened, missed};
  }
  [[nodiscard]] bool ended() {  // all its writers have closed
    std::int32_t ended = 0;
    detail::call(entrepot_stream_state, stream_.get(), &ended, nullptr, nullptr);
    return ended != 0;
  }
  void remove() { detail::call(entrepot_stream_remove, stream_.get()); }

 private:
  detail::Owner<entrepot_stream, entrepot_stream_free> stream_;
};

}  // namespace entrepot::streams
