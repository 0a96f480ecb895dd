// The client against a real entrepotd.
#include "client/client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <set>
#include <thread>

#include "client/support.h"

namespace entrepot::testing {
namespace {

using Buffers = std::vector<std::vector<std::uint8_t>>;

void expect_holds(const SealedObject& object, const Buffers& buffers) {
  ASSERT_EQ(object.buffers().size(), buffers.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    ASSERT_EQ(object.buffers()[i].length, buffers[i].size());
    if (buffers[i].empty()) continue;
    EXPECT_EQ(std::memcmp(object.buffers()[i].data, buffers[i].data(), buffers[i].size()), 0) << "buffer " << i;
  }
}

TEST(Client, WhatIsPutIsGotByAnother) {
  StoreProcess store;
  const auto writer = connect(store);
  const auto reader = connect(store);
  const auto session = writer->open_session("scope", "", std::nullopt, {}).take();
  const std::vector<Buffers> values = {
      {},
      {{}},
      {pattern(10, 1)},
      {pattern(kInlineMaxBytes, 2)},
      {pattern(kInlineMaxBytes + 1, 3)},
      {pattern(10, 4), {}, pattern(100'000, 5), pattern(40'000, 6), pattern(3'000'000, 7), pattern(1, 8)},
  };
  for (const Buffers& value : values) {
    const PutItem item = item_of(session, value);
    const PutResult put = put_one(*writer, item);
    ASSERT_TRUE(put.status.is_ok()) << put.status.to_string();
    for (const auto& client : {writer, reader}) {
      auto object = get_one(*client, item.id);
      ASSERT_TRUE(object.is_ok()) << object.status().to_string();
      EXPECT_EQ((*object)->tree(), "tree");
      EXPECT_EQ((*object)->generation(), put.generation);
      expect_holds(**object, value);
    }
  }
}

TEST(Client, BuffersStartAtCacheLinesAndLargeOnesAtPages) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  const PutItem item = item_of(session, {pattern(1001, 1), pattern(20'001, 2), pattern(70'001, 3), pattern(65'536, 4)});
  ASSERT_TRUE(put_one(*client, item).status.is_ok());
  const auto object = get_one(*client, item.id).take();
  for (const BufferView& place : object->buffers()) {
    const std::uint64_t align = place.length >= kOwnPagesBytes ? 4096 : 64;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(place.data) % align, 0U) << place.length;
  }
}

TEST(Client, WhatAnObjectIsWithoutItsPayload) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  for (const Buffers& value : {Buffers{}, Buffers{pattern(10, 1)}, Buffers{pattern(100'000, 1), pattern(7, 2)}}) {
    const PutItem item = item_of(session, value);
    const PutResult put = put_one(*client, item);
    ASSERT_TRUE(put.status.is_ok());
    const auto tree = client->tree(item.id, {});
    ASSERT_TRUE(tree.is_ok()) << tree.status().to_string();
    EXPECT_EQ(tree->tree, "tree");
    EXPECT_EQ(tree->generation, put.generation);
    std::uint64_t bytes = 0;
    for (const auto& buffer : value)
      bytes += buffer.size();
    EXPECT_EQ(tree->payload_bytes, bytes);
    EXPECT_EQ(client->pins_in_use(), 0U);
    ASSERT_TRUE(client->remove(std::span(&item.id, 1), {}).is_ok());
    EXPECT_EQ(client->tree(item.id, {}).status().code(), Code::kObjectNotFound);
  }
}

TEST(Client, OnePinForManyHoldersAndNoneAfterTheLast) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  const PutItem item = item_of(session, {pattern(100'000, 1)});
  ASSERT_TRUE(put_one(*client, item).status.is_ok());
  EXPECT_EQ(client->pins_in_use(), 0U);
  auto first = get_one(*client, item.id).take();
  auto second = get_one(*client, item.id).take();
  EXPECT_EQ(first, second);
  EXPECT_EQ(client->pins_in_use(), 1U);
  first.reset();
  EXPECT_EQ(client->pins_in_use(), 1U);
  second.reset();
  EXPECT_EQ(client->pins_in_use(), 0U);
}

TEST(Client, RefersToWhatItGotAndCopiesTheRest) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  const PutItem first = item_of(session, {pattern(500'000, 1), pattern(500'000, 2)});
  ASSERT_TRUE(put_one(*client, first).status.is_ok());
  const auto held = get_one(*client, first.id).take();
  const std::uint64_t before = number(*client, "blobs");
  const auto fresh = pattern(300'000, 3);
  PutItem second = item_of(session, {});
  second.buffers = {
      {held->buffers()[0].data, 500'000}, {fresh.data(), fresh.size()}, {held->buffers()[1].data + 64, 400'000}};
  ASSERT_TRUE(put_one(*client, second).status.is_ok());
  EXPECT_EQ(number(*client, "blobs"), before + 1);
  const auto made = get_one(*client, second.id).take();
  EXPECT_EQ(made->buffers()[0].data, held->buffers()[0].data);
  EXPECT_EQ(made->buffers()[2].data, held->buffers()[1].data + 64);
  EXPECT_EQ(std::memcmp(made->buffers()[1].data, fresh.data(), fresh.size()), 0);
}

TEST(Client, PeekPinsWhatLiesInItsRecord) {
  StoreProcess store;
  const auto writer = connect(store);
  const auto reader = connect(store);
  const auto session = writer->open_session("scope", "", std::nullopt, {}).take();
  const PutItem small = item_of(session, {pattern(1000, 1)}, "small tree");
  const PutItem large = item_of(session, {pattern(kInlineMaxBytes + 1, 2)});
  ASSERT_TRUE(put_one(*writer, small).status.is_ok());
  ASSERT_TRUE(put_one(*writer, large).status.is_ok());
  {
    InlineObject object;
    EXPECT_FALSE(reader->peek(os::random_id(), object));
    EXPECT_FALSE(reader->peek(large.id, object));
    EXPECT_EQ(reader->pins_in_use(), 0U);
    ASSERT_TRUE(reader->peek(small.id, object));
    EXPECT_EQ(object.record().tree(), "small tree");
    ASSERT_EQ(writer->remove(std::span(&small.id, 1), {}).take().front(), 1);
    EXPECT_EQ(number(*writer, "deferred_frees"), 1U);
    InlineObject again;
    EXPECT_FALSE(reader->peek(small.id, again));
    const auto payload = object.record().payload();
    ASSERT_EQ(payload.size(), 1000U);
    EXPECT_EQ(std::memcmp(payload.data(), pattern(1000, 1).data(), 1000), 0);
  }
  EXPECT_EQ(reader->pins_in_use(), 0U);
  EXPECT_TRUE(eventually([&] { return number(*writer, "deferred_frees") == 0; }));  // the daemon saw the unpin
  reader->close();
  InlineObject object;
  EXPECT_FALSE(reader->peek(large.id, object));
}

TEST(Client, TheSameBufferTwiceIsStoredOnce) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  const auto bytes = pattern(200'000, 1);
  PutItem item = item_of(session, {});
  item.buffers = {{bytes.data(), bytes.size()}, {bytes.data(), bytes.size()}};
  ASSERT_TRUE(put_one(*client, item).status.is_ok());
  EXPECT_EQ(number(*client, "blobs"), 1U);
  const auto object = get_one(*client, item.id).take();
  EXPECT_EQ(object->buffers()[0].data, object->buffers()[1].data);
  // A part of it that starts at the same address is another buffer.
  PutItem part = item_of(session, {});
  part.buffers = {{bytes.data(), bytes.size()}, {bytes.data(), 100'000}};
  ASSERT_TRUE(put_one(*client, part).status.is_ok());
  expect_holds(*get_one(*client, part.id).take(), {bytes, {bytes.begin(), bytes.begin() + 100'000}});
}

TEST(Client, SealedTwice) {
  StoreProcess store;
  const auto first_client = connect(store);
  const auto second_client = connect(store);
  const auto session = first_client->open_session("scope", "", std::nullopt, {}).take();
  for (const std::size_t bytes : {100U, 100'000U}) {
    const Buffers value = {pattern(bytes, 1)};
    const Buffers changed = {pattern(bytes, 2)};
    const PutItem item = item_of(session, value);
    const PutResult first = put_one(*first_client, item);
    ASSERT_TRUE(first.status.is_ok());
    for (const auto& client : {first_client, second_client}) {
      const PutResult again = put_one(*client, item);
      EXPECT_TRUE(again.status.is_ok()) << again.status.to_string();
      EXPECT_TRUE(again.existed);
      EXPECT_EQ(again.generation, first.generation);
      PutItem other = item_of(session, changed);
      other.id = item.id;
      EXPECT_EQ(put_one(*client, other).status.code(), Code::kObjectExists);
      // The same if the daemon detects the conflict.
      other.fresh_id = true;
      EXPECT_EQ(put_one(*client, other).status.code(), Code::kObjectExists);
    }
    PutItem other = item_of(session, changed);
    other.id = item.id;
    other.replace = true;
    const PutResult replaced = put_one(*second_client, other);
    ASSERT_TRUE(replaced.status.is_ok()) << replaced.status.to_string();
    EXPECT_NE(replaced.generation, first.generation);
    expect_holds(**get_one(*first_client, item.id), changed);
  }
}

TEST(Client, ABatchFailsObjectByObject) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  const Buffers good = {pattern(100'000, 1)};
  const Buffers bad = {pattern(100'000, 2)};
  std::vector<PutItem> items = {item_of(session, good), item_of(session, good), item_of(session, good)};
  PutItem taken = item_of(session, bad);
  taken.id = items[1].id;
  ASSERT_TRUE(put_one(*client, taken).status.is_ok());
  const auto results = client->put(items, 10'000, {});
  EXPECT_TRUE(results[0].status.is_ok());
  EXPECT_EQ(results[1].status.code(), Code::kObjectExists);
  EXPECT_TRUE(results[2].status.is_ok());
}

TEST(Client, ABlobIsPrivateUntilItIsSealedAndReadOnlyAfterwards) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  for (const std::uint64_t bytes : {0U, 100U, 20'000U, 2'000'000U}) {
    const auto blob = client->create(bytes, 10'000, {}).take();
    const auto content = pattern(bytes, 9);
    if (bytes > 0) std::memcpy(blob->data(), content.data(), bytes);
    const PutItem item = item_of(session, {});
    EXPECT_EQ(get_one(*client, item.id).code(), Code::kObjectNotFound);
    const PutResult sealed = client->seal(*blob, item, {});
    ASSERT_TRUE(sealed.status.is_ok()) << sealed.status.to_string();
    expect_holds(**get_one(*client, item.id), {content});
    EXPECT_EQ(client->seal(*blob, item, {}).status.code(), Code::kInvalidArgument);
    if (bytes > 0) {
      EXPECT_DEATH(blob->data()[0] = std::byte{1}, "");
    }
  }
}

TEST(Client, ARefusedBlobsMemoryCanBeWrittenAgain) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  const PutItem taken = item_of(session, {pattern(200'000, 1)});
  ASSERT_TRUE(put_one(*client, taken).status.is_ok());
  const auto blob = client->create(4'000'000, 10'000, {}).take();
  EXPECT_EQ(client->seal(*blob, taken, {}).status.code(), Code::kObjectExists);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(put_one(*client, item_of(session, {pattern(4'000'000, 2)})).status.is_ok());
}

TEST(Client, ABlobLargerThanAnyStoreIsRefused) {
  StoreProcess store;
  const auto client = connect(store);
  for (const std::uint64_t bytes : {(std::uint64_t{1} << 56) + 1, UINT64_MAX - 4096, UINT64_MAX}) {
    const auto blob = client->create(bytes, 0, {});
    EXPECT_EQ(blob.code(), Code::kInvalidArgument) << bytes;
    EXPECT_NE(blob.status().message().find("larger than any store"), std::string::npos) << blob.status().to_string();
  }
}

TEST(Client, ABufferBeyondItsBlobIsRefusedBeforeTheBlobIsSealed) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  const auto blob = client->create(100'000, 10'000, {}).take();
  PutItem item = item_of(session, {});
  item.buffers = {{blob->data() + 50'000, 50'001}};
  const PutResult refused = client->seal_parts(std::span(&blob, 1), item, {});
  EXPECT_EQ(refused.status.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.status.message().find("exceeds its blob of 100000 bytes"), std::string::npos)
      << refused.status.to_string();
  item.buffers = {{blob->data() + 50'000, 50'000}};
  EXPECT_TRUE(client->seal_parts(std::span(&blob, 1), item, {}).status.is_ok()) << "it is still open";
}

TEST(Client, ReadersCannotWrite) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  const PutItem item = item_of(session, {pattern(100'000, 1)});
  ASSERT_TRUE(put_one(*client, item).status.is_ok());
  const auto object = get_one(*client, item.id).take();
  auto* const bytes = const_cast<std::byte*>(object->buffers()[0].data);
  EXPECT_DEATH(bytes[5] = std::byte{0}, "");
  auto mine = object->map_private(0).take();
  mine.data[5] = ~object->buffers()[0].data[5];
  EXPECT_NE(mine.data[5], object->buffers()[0].data[5]);
}

TEST(Client, IdleLeasesAreReturned) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  ASSERT_TRUE(put_one(*client, item_of(session, {pattern(100'000, 1)})).status.is_ok());
  EXPECT_GT(number(*client, "leased_bytes"), 0U);
  EXPECT_TRUE(eventually([&] { return number(*client, "leased_bytes") == 0; }));
  ASSERT_TRUE(put_one(*client, item_of(session, {pattern(100'000, 2)})).status.is_ok());
}

TEST(Client, AWaitingGetDoesNotHoldUpOthers) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  const PutItem item = item_of(session, {pattern(1000, 1)});
  std::atomic<bool> got = false;
  std::thread reader([&] {
    auto object = get_one(*client, item.id, 20'000);
    got = object.is_ok();
  });
  EXPECT_TRUE(eventually([&] { return number(*client, "waiting") == 1; }));
  ASSERT_TRUE(put_one(*client, item).status.is_ok());
  reader.join();
  EXPECT_TRUE(got);
}

TEST(Client, TimesOut) {
  StoreProcess store;
  const auto client = connect(store);
  EXPECT_EQ(get_one(*client, os::random_id(), 50).code(), Code::kTimeout);
  EXPECT_EQ(get_one(*client, os::random_id(), 0).code(), Code::kObjectNotFound);
}

TEST(Client, ReconnectsAfterTheDaemonDied) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "run", std::nullopt, {}).take();
  const Buffers value = {pattern(300'000, 1)};
  const PutItem item = item_of(session, value);
  ASSERT_TRUE(put_one(*client, item).status.is_ok());
  const auto held = get_one(*client, item.id).take();
  const auto blob = client->create(200'000, 10'000, {}).take();
  std::memset(blob->data(), 3, 100'000);
  for (int turn = 0; turn < 3; ++turn) {
    store.kill(store.daemon_pid());
    const PutItem next = item_of(session, {pattern(400'000, static_cast<std::uint32_t>(turn))});
    const PutResult put = put_one(*client, next);
    ASSERT_TRUE(put.status.is_ok()) << put.status.to_string();
    expect_holds(*held, value);
    expect_holds(**get_one(*client, next.id), {pattern(400'000, static_cast<std::uint32_t>(turn))});
  }
  std::memset(blob->data() + 100'000, 4, 100'000);
  const PutItem last = item_of(session, {});
  ASSERT_TRUE(client->seal(*blob, last, {}).status.is_ok());
  const auto sealed = get_one(*client, last.id).take();
  EXPECT_EQ(sealed->buffers()[0].data[99'999], std::byte{3});
  EXPECT_EQ(sealed->buffers()[0].data[100'000], std::byte{4});
}

// Objects of several clients, each in a segment of its own, as tasks leave them.
class ManySegments : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kWriters = 12;

  ManySegments() {
    for (std::uint32_t i = 0; i < kWriters; ++i) {
      const auto& writer = writers.emplace_back(connect(store));
      const auto session = writer->open_session("scope", "", std::nullopt, {}).take();
      const PutItem item = item_of(session, {value(i)});
      EXPECT_TRUE(put_one(*writer, item).status.is_ok());
      ids.push_back(item.id);
    }
  }
  static std::vector<std::uint8_t> value(std::uint32_t writer) { return pattern(100'000, writer + 1); }
  void expect_all(const Result<std::vector<std::shared_ptr<SealedObject>>>& objects) {
    ASSERT_TRUE(objects.is_ok()) << objects.status().to_string();
    std::set<const void*> segments;
    for (std::uint32_t i = 0; i < kWriters; ++i) {
      expect_holds(*(*objects)[i], {value(i)});
      segments.insert((*objects)[i]->buffers()[0].view);
    }
    EXPECT_EQ(segments.size(), kWriters);
  }

  StoreProcess store{{"--size=256MiB", "--warm-bytes=8MiB"}};
  std::vector<std::shared_ptr<Client>> writers;
  std::vector<IdBytes> ids;
};

TEST_F(ManySegments, AreMappedByOneGet) {
  const auto reader = connect(store);
  expect_all(reader->get(ids, 0, {}));
}

TEST_F(ManySegments, OnceTheyAreLoadedAGetNeedsNoDaemon) {
  const auto reader = connect(store);
  ASSERT_TRUE(reader->load(ids, {}).is_ok());
  EXPECT_EQ(reader->pins_in_use(), 0U);
  const auto daemon = static_cast<pid_t>(store.daemon_pid());
  ASSERT_EQ(::kill(daemon, SIGSTOP), 0);
  expect_all(reader->get(ids, 5'000, {}));
  ASSERT_EQ(::kill(daemon, SIGCONT), 0);
}

TEST_F(ManySegments, AreMappedByTheNextDaemonIfTheirsDiesMeanwhile) {
  for (int turn = 0; turn < 3; ++turn) {
    const auto reader = connect(store);
    const std::uint32_t daemon = store.daemon_pid();
    ASSERT_EQ(::kill(static_cast<pid_t>(daemon), SIGSTOP), 0);  // requests are sent, and not answered
    std::thread thread([&] { expect_all(reader->get(ids, 0, {})); });
    EXPECT_TRUE(eventually([&] { return reader->pins_in_use() > 0; }));
    store.kill(daemon);
    thread.join();
  }
}

TEST_F(ManySegments, WhatIsDeletedMeanwhileIsSaidToBeMissing) {
  const auto reader = connect(store);
  ASSERT_EQ(reader->remove(std::span(ids).subspan(5, 1), {}).take().front(), 1);
  EXPECT_EQ(reader->get(ids, 0, {}).code(), Code::kObjectNotFound);
  ASSERT_TRUE(reader->load(ids, {}).is_ok());
  for (std::size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(get_one(*reader, ids[i]).code(), i == 5 ? Code::kObjectNotFound : Code::kOk);
}

TEST(Client, ANewStoreAtTheAddressIsNotTheOldOne) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  const PutItem item = item_of(session, {pattern(100'000, 1)});
  ASSERT_TRUE(put_one(*client, item).status.is_ok());
  const auto held = get_one(*client, item.id).take();
  ASSERT_TRUE(client->shutdown({}).is_ok());
  ASSERT_TRUE(store.wait_exit().is_ok());
  store.start_again();
  EXPECT_EQ(client->status({}).code(), Code::kStoreUnavailable);
  EXPECT_TRUE(client->closed());
  EXPECT_EQ(std::memcmp(held->buffers()[0].data, pattern(100'000, 1).data(), 100'000), 0);
  EXPECT_TRUE(connect(store)->status({}).is_ok());
}

TEST(Client, NobodyListens) {
  ConnectOptions options;
  options.path = "/nonexistent/store.sock";
  EXPECT_EQ(Client::connect(options, {}).code(), Code::kStoreUnavailable);
}

TEST(Client, OnlyTheGenerationThatIsNamedIsDeleted) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  PutItem item = item_of(session, {pattern(100, 1)});
  const PutResult first = put_one(*client, item);
  ASSERT_TRUE(first.status.is_ok());
  PutItem replacement = item_of(session, {pattern(100, 2)});
  replacement.id = item.id;
  replacement.replace = true;
  const PutResult second = put_one(*client, replacement);
  ASSERT_TRUE(second.status.is_ok());
  ASSERT_NE(second.generation, first.generation);
  const ObjectGeneration replaced{item.id, first.generation};
  const ObjectGeneration present{item.id, second.generation};
  EXPECT_EQ(client->remove_generations(std::vector{replaced}, {}).take(), std::vector<std::uint8_t>{0});
  EXPECT_TRUE(get_one(*client, item.id).is_ok());
  EXPECT_EQ(client->remove_generations(std::vector{present, present, replaced}, {}).take(),
            (std::vector<std::uint8_t>{1, 0, 0}));
  EXPECT_EQ(get_one(*client, item.id).code(), Code::kObjectNotFound);
  EXPECT_TRUE(client->remove_generations({}, {}).take().empty());
}

TEST(Client, ValuesSurviveClose) {
  StoreProcess store;
  auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  const PutItem item = item_of(session, {pattern(100'000, 1)});
  ASSERT_TRUE(put_one(*client, item).status.is_ok());
  auto held = get_one(*client, item.id).take();
  client->close();
  EXPECT_EQ(client->status({}).code(), Code::kStoreUnavailable);
  client.reset();
  const auto other = connect(store);
  ASSERT_EQ(other->remove(std::span(&item.id, 1), {}).take().front(), 1);
  EXPECT_EQ(number(*other, "deferred_frees"), 1U);
  EXPECT_EQ(std::memcmp(held->buffers()[0].data, pattern(100'000, 1).data(), 100'000), 0);
  held.reset();
  EXPECT_TRUE(eventually([&] { return number(*other, "deferred_frees") == 0; }));
}

// Puts, reads back and deletes from `threads` threads, a fixed number of times or until `stop`. Returns the errors.
std::vector<std::string> churn(const std::vector<std::shared_ptr<Client>>& clients, std::uint32_t threads,
                               std::uint32_t turns) {
  std::mutex mutex;
  std::vector<std::string> wrong;  // guarded by mutex
  const auto report = [&](const std::string& what) {
    const std::lock_guard lock(mutex);
    wrong.push_back(what);
  };
  std::vector<std::thread> running;
  for (std::uint32_t number = 0; number < threads; ++number) {
    running.emplace_back([&, number] {
      Client& client = *clients[number % clients.size()];
      const auto session = client.open_session("scope", "", std::nullopt, {}).take();
      for (std::uint32_t turn = 0; turn < turns; ++turn) {
        const Buffers value = {pattern((turn * 7919 + number) % 150'000, turn), pattern(turn, number)};
        PutItem item;  // zero-copy: buffers outlive the put
        item.id = os::random_id();
        item.session = session;
        item.tree = "tree";
        for (const auto& buffer : value)
          item.buffers.push_back({buffer.data(), buffer.size()});
        const PutResult put = put_one(client, item);
        if (!put.status.is_ok()) {
          report(put.status.to_string());
          continue;
        }
        const auto object = get_one(client, item.id);
        if (!object.is_ok()) {
          report(object.status().to_string());
          continue;
        }
        for (std::size_t i = 0; i < 2; ++i) {
          const BufferView& place = (*object)->buffers()[i];
          if (place.length != value[i].size() ||
              (place.length != 0 && std::memcmp(place.data, value[i].data(), place.length) != 0)) {
            report(concat("thread ", number, " turn ", turn, ": buffer ", i, " differs"));
          }
        }
        if (turn % 3 == 0 && turns < 100) continue;
        const auto removed = client.remove(std::span(&item.id, 1), {});
        if (!removed.is_ok()) report(removed.status().to_string());
      }
    });
  }
  for (auto& thread : running)
    thread.join();
  return wrong;
}

TEST(Client, ThreadsPutGetAndDelete) {
  StoreProcess store({"--size=256MiB", "--warm-bytes=64MiB"});
  const auto client = connect(store);
  EXPECT_EQ(churn({client}, 6, 60), std::vector<std::string>{});
  EXPECT_EQ(client->pins_in_use(), 0U);
}

// Two clients together want more memory than there is, so idle leases are returned while others are requested.
TEST(Client, ThreadsOfTwoClientsInAStoreThatIsTooSmallForTheirLeases) {
  StoreProcess store({"--size=12MiB", "--warm-bytes=4MiB"});
  const auto first = connect(store);
  const auto second = connect(store);
  EXPECT_EQ(churn({first, second}, 6, 200), std::vector<std::string>{});
  EXPECT_EQ(first->pins_in_use() + second->pins_in_use(), 0U);
  EXPECT_TRUE(eventually([&] { return number(*first, "used_bytes") == 0; }));
}

// Values of a few pages and a bit, which are stored one behind the other: each leaves a hole of just its size.
TEST(Client, AFullStoreTakesValuesOfTheSizeOfThoseThatWereDeleted) {
  for (const std::size_t size : {5'000U, 17'408U, 70'000U, 100'000U}) {
    StoreProcess store({"--size=12MiB", "--warm-bytes=4MiB"});
    const auto client = connect(store);
    const auto session = client->open_session("scope", "", std::nullopt, {}).take();
    std::vector<IdBytes> stored;
    const auto fill = [&] {
      std::size_t count = 0;
      while (true) {
        const PutItem item = item_of(session, {pattern(size, static_cast<std::uint32_t>(stored.size()))});
        const PutResult put = client->put(std::span(&item, 1), 500, {}).front();
        if (!put.status.is_ok()) {
          EXPECT_EQ(put.status.code(), Code::kStoreFull) << put.status.to_string();
          return count;
        }
        stored.push_back(item.id);
        ++count;
      }
    };
    fill();
    std::vector<IdBytes> every_second;
    for (std::size_t i = 0; i < stored.size(); i += 2)
      every_second.push_back(stored[i]);
    ASSERT_GT(every_second.size(), 10U);
    ASSERT_TRUE(client->remove(every_second, {}).is_ok());
    EXPECT_GE(fill(), every_second.size()) << "of " << size << " bytes";
  }
}

// A return of a range that was sent before a daemon died must not take away what the next daemon leased.
TEST(Client, ThreadsGoOnWhileDaemonsDie) {
  StoreProcess store({"--size=32MiB", "--warm-bytes=8MiB"});
  const auto first = connect(store);
  const auto second = connect(store);
  std::atomic<bool> done = false;
  std::thread killer([&] {
    const auto client = connect(store);
    for (int deaths = 0; deaths < 6 && !done; ++deaths) {
      const auto until = os::Deadline::after_ms(60);
      while (!until.passed() && !done)
        std::this_thread::yield();
      store.kill(store.daemon_pid());
      EXPECT_TRUE(client->status({}).is_ok());  // answered by the next daemon
    }
  });
  EXPECT_EQ(churn({first, second}, 4, 400), std::vector<std::string>{});
  done = true;
  killer.join();
  EXPECT_EQ(first->pins_in_use() + second->pins_in_use(), 0U);
  EXPECT_TRUE(eventually([&] { return number(*first, "used_bytes") == 0; }));
}

}  // namespace
}  // namespace entrepot::testing
