// A store dies (daemon and keeper) and another one starts at its address: through the C API, and from several threads
// at once.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "client/reconnecting_client.h"
#include "client/support.h"
#include "entrepot/entrepot.h"

namespace entrepot::testing {
namespace {

using Attachment = ReconnectingClient::Attachment;

void replace(StoreProcess& store) {
  const auto ender = connect(store);
  ASSERT_TRUE(ender->shutdown({}).is_ok());
  ASSERT_TRUE(store.wait_exit().is_ok());
  store.start_again();
}

TEST(DeadStore, ThreadsThatNoticeAtOnceBeginOneLife) {
  StoreProcess store;
  std::atomic<int> calls = 0;
  ReconnectingClient::Hooks hooks;
  hooks.replaced = [&](const ReconnectingClient::StoreReplacement& replacement) {
    EXPECT_NE(replacement.before, replacement.after);
    calls += 1;
  };
  ConnectOptions options;
  options.path = store.path();
  const auto reconnecting_client = ReconnectingClient::connect(options, hooks, {}).take();
  const auto session = reconnecting_client->run({}, [&](const Attachment& attachment) {
    return reconnecting_client->open_session(attachment, "scope", "", std::nullopt, std::nullopt, {});
  });
  ASSERT_TRUE(session.is_ok());
  const std::weak_ptr<Client> first = reconnecting_client->attachment()->client;
  replace(store);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      PutItem item = item_of(0, {pattern(100'000, i)});
      item.session_handle = *session;
      const PutResult result = reconnecting_client->run({}, [&](const Attachment& attachment) {
        return reconnecting_client->put(attachment, std::span(&item, 1), 30'000, {}).front();
      });
      EXPECT_TRUE(result.status.is_ok()) << result.status.to_string();
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(reconnecting_client->attachment()->number, 1U);
  EXPECT_TRUE(first.expired());
  const auto probe = connect(store);
  EXPECT_EQ(number(*probe, "objects"), 8U);
}

TEST(DeadStore, TheCInterfaceGoesOn) {
  StoreProcess store;
  entrepot_error error{};
  error.struct_size = sizeof(error);
  entrepot_connect_options options{};
  options.struct_size = sizeof(options);
  const std::string path = store.path();
  options.path = path.c_str();
  entrepot_client* client = nullptr;
  ASSERT_EQ(entrepot_connect(&options, &client, &error), 0) << error.message;
  std::uint32_t session = 0;
  ASSERT_EQ(entrepot_open_session(client, "scope", "first", &session, &error), 0);
  std::uint32_t set = 0;
  ASSERT_EQ(entrepot_locality_set(client, session, "set", nullptr, &set, &error), 0) << error.message;
  const auto bytes = pattern(100'000, 1);
  const entrepot_buffer buffer{bytes.data(), bytes.size()};
  const auto item_with = [&](const IdBytes& id, std::uint32_t in_set) {
    entrepot_item item{};
    item.struct_size = sizeof(item);
    std::copy(id.begin(), id.end(), item.id);
    item.session = session;
    item.locality_set = in_set;
    item.tree = "tree";
    item.tree_length = 4;
    item.buffers = &buffer;
    item.buffer_count = 1;
    return item;
  };
  const IdBytes id = os::random_id();
  entrepot_item item = item_with(id, set);
  ASSERT_EQ(entrepot_put(client, &item, 10'000, nullptr, &error), 0) << error.message;
  entrepot_object* held = nullptr;
  ASSERT_EQ(entrepot_get(client, id.data(), 0, &held, &error), 0) << error.message;
  entrepot_blob* blob = nullptr;
  ASSERT_EQ(entrepot_create(client, 50'000, 10'000, &blob, &error), 0) << error.message;
  entrepot_builder* builder = nullptr;
  ASSERT_EQ(entrepot_builder_create(client, &builder, &error), 0) << error.message;
  ASSERT_EQ(entrepot_builder_copy(builder, bytes.data(), bytes.size(), 10'000, &error), 0) << error.message;

  replace(store);
  const IdBytes next = os::random_id();
  item = item_with(next, 0);
  ASSERT_EQ(entrepot_put(client, &item, 10'000, nullptr, &error), 0) << error.message;
  EXPECT_EQ(std::memcmp(entrepot_object_buffer(held, 0).data, bytes.data(), bytes.size()), 0);
  entrepot_object_free(held);
  entrepot_object* object = nullptr;
  EXPECT_EQ(entrepot_get(client, id.data(), 0, &object, &error), static_cast<std::int32_t>(Code::kObjectLost));
  ASSERT_EQ(entrepot_get(client, next.data(), 0, &object, &error), 0) << error.message;
  entrepot_object_free(object);
  item = item_with(os::random_id(), set);  // handle from the dead store
  EXPECT_EQ(entrepot_put(client, &item, 10'000, nullptr, &error), static_cast<std::int32_t>(Code::kInstanceLost));
  item = item_with(os::random_id(), 0);
  EXPECT_EQ(entrepot_blob_seal(blob, &item, nullptr, &error), static_cast<std::int32_t>(Code::kInstanceLost));
  entrepot_blob_free(blob);
  EXPECT_EQ(entrepot_builder_copy(builder, bytes.data(), 1, 10'000, &error),
            static_cast<std::int32_t>(Code::kInstanceLost));
  EXPECT_EQ(entrepot_builder_seal(builder, &item, 10'000, nullptr, &error),
            static_cast<std::int32_t>(Code::kInstanceLost));
  entrepot_builder_free(builder);
  // Session handles of this instance differ from those of the previous one, which keep their meaning.
  std::uint32_t other = 0;
  ASSERT_EQ(entrepot_open_session(client, "scope", "second", &other, &error), 0);
  EXPECT_NE(other, session);
  entrepot_client_free(client);
}

}  // namespace
}  // namespace entrepot::testing
