// Streams through the C API, and through its owners for C++.
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "client/support.h"
#include "entrepot/streams.hpp"

namespace entrepot::testing {
namespace {

using streams::Chunk;
using streams::Reader;
using streams::Writer;

// A connection of its own, as that of another process.
class Peer {
 public:
  explicit Peer(const StoreProcess& store) {
    const std::string path = store.path();
    entrepot_connect_options options{};
    options.struct_size = sizeof(options);
    options.path = path.c_str();
    streams::detail::call(entrepot_connect, &options, &client);
    streams::detail::call(entrepot_open_session, client, "scope", "", &session);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() { entrepot_client_free(client); }
  streams::Stream stream(streams::Options options = {}) const {
    options.session = session;
    return {client, "frames", options};
  }

  entrepot_client* client = nullptr;
  std::uint32_t session = 0;
};

class CApiStreams : public ::testing::Test {
 protected:
  entrepot_item item(const entrepot_buffer& buffer) const {
    entrepot_item made{};
    made.struct_size = sizeof(made);
    made.session = peer.session;
    made.tree = "tree";
    made.tree_length = 4;
    made.buffers = &buffer;
    made.buffer_count = 1;
    return made;
  }
  void put(Writer& writer, unsigned seed, std::size_t bytes = 100'000, std::uint32_t wait_ms = 10'000) const {
    const auto data = pattern(bytes, seed);
    const entrepot_buffer buffer{data.data(), data.size()};
    writer.put(item(buffer), 10'000, wait_ms);
  }
  static void expect_pattern(const Chunk& chunk, unsigned seed, std::size_t bytes = 100'000) {
    const auto data = pattern(bytes, seed);
    ASSERT_EQ(chunk.buffer_count(), 1U);
    ASSERT_EQ(chunk.buffer(0).length, bytes);
    EXPECT_EQ(std::memcmp(chunk.buffer(0).data, data.data(), bytes), 0);
  }
  [[nodiscard]] std::uint64_t objects() const {
    char* json = nullptr;
    streams::detail::call(entrepot_status, peer.client, &json);
    const std::uint64_t count = json_number(json, "objects");
    entrepot_string_free(json);
    return count;
  }
  template <class Work>
  static Code failure_of(Work&& work) {
    try {
      work();
    } catch (const streams::Error& error) {
      EXPECT_STRNE(error.what(), "");
      return error.code();
    }
    return Code::kOk;
  }

  StoreProcess store;
  Peer peer{store};
};

TEST_F(CApiStreams, ChunksArriveInOrderAndLeaveNothing) {
  std::thread producer([&] {
    const Peer other(store);
    Writer writer = other.stream({.capacity = 2}).writer();
    for (unsigned number = 0; number < 20; ++number)
      put(writer, number);
    writer.close();
    writer.close();
  });
  Reader reader = peer.stream().reader("model");
  for (unsigned number = 0; number < 20; ++number) {
    const auto chunk = reader.next(30'000);
    ASSERT_TRUE(chunk);
    EXPECT_EQ(chunk->position(), number);
    EXPECT_FALSE(chunk->redelivered());
    EXPECT_EQ(chunk->tree().length, 4U);
    expect_pattern(*chunk, number);
  }
  producer.join();
  EXPECT_FALSE(reader.next(30'000)) << "the end";
  EXPECT_FALSE(reader.next(0));
  EXPECT_TRUE(peer.stream().ended());
  EXPECT_EQ(objects(), 0U);
}

TEST_F(CApiStreams, BuildersAndSealedObjectsBecomeChunks) {
  auto stream = peer.stream();
  Writer writer = stream.writer();
  const auto data = pattern(200'000, 1);
  entrepot_builder* builder = nullptr;
  streams::detail::call(entrepot_builder_create, peer.client, &builder);
  streams::detail::call(entrepot_builder_copy, builder, data.data(), data.size(), 10'000U);
  void* memory = nullptr;
  streams::detail::call(entrepot_builder_allocate, builder, std::uint64_t{50'000}, 10'000U, &memory);
  std::memset(memory, 7, 50'000);
  writer.put(builder, item({}));
  entrepot_builder_free(builder);

  const entrepot_buffer buffer{data.data(), data.size()};
  entrepot_item sealed = item(buffer);
  const IdBytes id = os::random_id();
  std::copy(id.begin(), id.end(), sealed.id);
  streams::detail::call(entrepot_put, peer.client, &sealed, 10'000U, nullptr);
  writer.append(id.data(), 1'000);
  EXPECT_EQ(failure_of([&] { writer.append(id.data(), 1'000); }), Code::kInvalidArgument) << "it is a chunk already";
  EXPECT_EQ(failure_of([&] { writer.append(os::random_id().data(), 1'000); }), Code::kObjectNotFound);
  put(writer, 3);
  writer.close();
  EXPECT_EQ(failure_of([&] { put(writer, 4); }), Code::kInvalidArgument) << "closed";

  Reader reader = stream.reader();
  const auto built = reader.next(0);
  ASSERT_TRUE(built);
  ASSERT_EQ(built->buffer_count(), 2U);
  EXPECT_EQ(std::memcmp(built->buffer(0).data, data.data(), data.size()), 0);
  EXPECT_EQ(static_cast<const unsigned char*>(built->buffer(1).data)[49'999], 7);
  const auto appended = reader.next(0);
  ASSERT_TRUE(appended);
  expect_pattern(*appended, 1, 200'000);
  expect_pattern(reader.next(0).value(), 3);
  EXPECT_FALSE(reader.next(0));
  EXPECT_EQ(objects(), 0U);
  EXPECT_EQ(static_cast<const unsigned char*>(built->buffer(1).data)[0], 7) << "valid although it was deleted";
}

TEST_F(CApiStreams, WaitsEndWithTimeoutAndNothingIsAppended) {
  auto stream = peer.stream({.capacity = 8, .capacity_bytes = 150'000});
  Writer writer = stream.writer();
  Reader reader = stream.reader();
  EXPECT_EQ(failure_of([&] { static_cast<void>(reader.next(20)); }), Code::kTimeout);
  put(writer, 1, 400'000);
  EXPECT_EQ(failure_of([&] { put(writer, 2, 100'000, 0); }), Code::kTimeout) << "no room in bytes";
  EXPECT_EQ(failure_of([&] { put(writer, 2, 100'000, 20); }), Code::kTimeout);
  EXPECT_EQ(objects(), 1U) << "what was refused is deleted";
  expect_pattern(reader.next(0).value(), 1, 400'000);
  reader.ack();
  reader.ack();
  put(writer, 3);
  writer.close();
  expect_pattern(reader.next(0).value(), 3);
}

TEST_F(CApiStreams, ADaemonThatWasStoppedAppendsNothingAfterItsWriterGaveUp) {
  auto stream = peer.stream();
  Writer writer = stream.writer();
  put(writer, 1, 100);
  const auto daemon = static_cast<pid_t>(store.daemon_pid());
  ASSERT_TRUE(os::send_signal(daemon, SIGSTOP).is_ok());
  std::string message;
  const std::uint64_t began_ns = os::monotonic_ns();
  try {
    put(writer, 2, 100, 500);  // there is room
  } catch (const streams::Error& error) {
    EXPECT_EQ(error.code(), Code::kTimeout);
    message = error.what();
  }
  const std::uint64_t waited_ms = (os::monotonic_ns() - began_ns) / 1'000'000;
  ASSERT_TRUE(os::send_signal(daemon, SIGCONT).is_ok());
  EXPECT_NE(message.find("whether the chunk was appended is not known"), std::string::npos) << message;
  EXPECT_GE(waited_ms, 500U);
  EXPECT_LT(waited_ms, 15'000U) << "half of what a daemon is given that no timeout was set for";
  put(writer, 3, 100);
  writer.close();
  Reader reader = stream.reader();
  expect_pattern(reader.next(30'000).value(), 1, 100);
  expect_pattern(reader.next(30'000).value(), 3, 100);
  EXPECT_FALSE(reader.next(30'000)) << "the end";
  EXPECT_EQ(objects(), 0U) << "what was given up is deleted";
}

TEST_F(CApiStreams, ADroppedWriterIsAnErrorAndADroppedReaderReturnsItsChunk) {
  auto stream = peer.stream({.writers = 2, .groups = {"readers"}});
  Writer good = stream.writer();
  put(good, 1);
  {
    Reader dropped = stream.reader();
    expect_pattern(dropped.next(0).value(), 1);
  }
  Reader reader = stream.reader();
  {
    const auto again = reader.next(0);
    ASSERT_TRUE(again);
    EXPECT_TRUE(again->redelivered());
  }
  {
    const Writer dropped = stream.writer();
  }
  EXPECT_EQ(failure_of([&] { static_cast<void>(reader.next(1'000)); }), Code::kStreamFailed);
  EXPECT_EQ(failure_of([&] { put(good, 2); }), Code::kStreamFailed);
  EXPECT_EQ(failure_of([&] { good.close(); }), Code::kStreamFailed);
  EXPECT_EQ(objects(), 0U);
  stream.remove();
  EXPECT_EQ(failure_of([&] { stream.remove(); }), Code::kObjectNotFound);
  EXPECT_EQ(failure_of([&] { static_cast<void>(peer.stream({.how = ENTREPOT_STREAM_EXISTING})); }),
            Code::kObjectNotFound);
}

TEST_F(CApiStreams, ARestartOfTheDaemonLosesThem) {
  auto stream = peer.stream();
  Writer writer = stream.writer();
  Reader reader = stream.reader();
  put(writer, 1);
  store.kill(store.daemon_pid());
  EXPECT_EQ(failure_of([&] { static_cast<void>(reader.next(30'000)); }), Code::kStreamLost);
  EXPECT_EQ(failure_of([&] { put(writer, 2); }), Code::kStreamLost);
  EXPECT_EQ(failure_of([&] { writer.close(); }), Code::kStreamLost);
  EXPECT_EQ(objects(), 1U) << "the chunk of the lost stream; not what could not be appended";
}

TEST_F(CApiStreams, ArgumentsAreChecked) {
  entrepot_error error{};
  error.struct_size = sizeof(error);
  const auto invalid = static_cast<std::int32_t>(Code::kInvalidArgument);
  entrepot_stream* stream = nullptr;
  entrepot_stream_options options{};
  EXPECT_EQ(entrepot_stream_open(peer.client, &options, &stream, &error), invalid);
  options.struct_size = sizeof(options);
  EXPECT_EQ(entrepot_stream_open(peer.client, &options, &stream, &error), invalid) << "no name";
  options.name = "x";
  options.session = peer.session;
  options.how = 3;
  EXPECT_EQ(entrepot_stream_open(peer.client, &options, &stream, &error), invalid);
  options.how = 0;
  options.capacity = 1U << 17;
  EXPECT_EQ(entrepot_stream_open(peer.client, &options, &stream, &error), invalid);
  EXPECT_NE(std::strstr(error.message, "capacity of a stream"), nullptr) << error.message;
  entrepot_chunk chunk{};
  EXPECT_EQ(entrepot_stream_reader_next(nullptr, 0, &chunk, &error), invalid);
  EXPECT_EQ(entrepot_stream_writer_put(nullptr, nullptr, 0, 0, &error), invalid);
  entrepot_stream_writer_free(nullptr);
  entrepot_stream_reader_free(nullptr);
  entrepot_stream_free(nullptr);
}

}  // namespace
}  // namespace entrepot::testing
