// Objects that are built part by part, against a real entrepotd.
#include "client/object_builder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "client/support.h"

namespace entrepot::testing {
namespace {

using Sealed = ObjectBuilder::Sealed;
constexpr std::uint32_t kWaitMs = 10'000;

class ObjectBuilderTest : public ::testing::Test {
 protected:
  PutItem item() const { return item_of(session, {}); }
  // Copies bytes into the builder and makes them the item's next buffer.
  void copy(ObjectBuilder& builder, PutItem& to, const std::vector<std::uint8_t>& bytes) const {
    const SourceBuffer source{bytes.data(), bytes.size()};
    auto stored = builder.store(std::span(&source, 1), Sealed::kCopy, kWaitMs, {});
    ASSERT_TRUE(stored.is_ok()) << stored.status().to_string();
    EXPECT_TRUE(bytes.empty() || stored->front().bytes.data != bytes.data());
    to.buffers.push_back(stored->front().bytes);
  }
  void expect_no_leases() const {
    EXPECT_TRUE(eventually([&] { return number(*client, "leased_bytes") == 0; })) << number(*client, "leased_bytes");
  }
  static void expect_holds(const SealedObject& object, const std::vector<std::vector<std::uint8_t>>& buffers) {
    ASSERT_EQ(object.buffers().size(), buffers.size());
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      ASSERT_EQ(object.buffers()[i].length, buffers[i].size());
      if (buffers[i].empty()) continue;
      EXPECT_EQ(std::memcmp(object.buffers()[i].data, buffers[i].data(), buffers[i].size()), 0) << "buffer " << i;
    }
  }

  StoreProcess store;
  std::shared_ptr<Client> client = connect(store);
  std::uint32_t session = client->open_session("scope", "", std::nullopt, {}).take();
};

TEST_F(ObjectBuilderTest, AllKindsOfBuffersAreSealedTogether) {
  const PutItem parent = item_of(session, {pattern(300'000, 1)});
  ASSERT_TRUE(put_one(*client, parent).status.is_ok());
  auto referenced = get_one(*client, parent.id).take();
  ObjectBuilder builder(client);
  PutItem made = item();
  const auto written = builder.allocate(200'000, kWaitMs, {}).take();
  const auto small = builder.allocate(100, kWaitMs, {}).take();
  made.buffers = {{written->data(), 200'000}, {small->data(), 100}};
  copy(builder, made, pattern(150'000, 3));
  copy(builder, made, pattern(10, 4));
  copy(builder, made, pattern(60'000, 5));
  copy(builder, made, {});
  ASSERT_TRUE(builder.keep(referenced).is_ok());
  made.buffers.push_back({referenced->buffers()[0].data + 100, 299'900});
  const auto foreign = pattern(80'000, 6);
  made.buffers.push_back({foreign.data(), foreign.size()});
  const auto parents_bytes = pattern(300'000, 1);
  const std::vector<std::vector<std::uint8_t>> content = {pattern(200'000, 2),
                                                          pattern(100, 7),
                                                          pattern(150'000, 3),
                                                          pattern(10, 4),
                                                          pattern(60'000, 5),
                                                          {},
                                                          {parents_bytes.begin() + 100, parents_bytes.end()},
                                                          foreign};
  std::memcpy(written->data(), content[0].data(), content[0].size());
  std::memcpy(small->data(), content[1].data(), content[1].size());
  EXPECT_EQ(get_one(*client, made.id).code(), Code::kObjectNotFound) << "nothing is visible before the seal";
  const std::uint64_t before = number(*client, "used_bytes");

  const PutResult sealed = client->seal(builder, made, kWaitMs, {});
  ASSERT_TRUE(sealed.status.is_ok()) << sealed.status.to_string();
  const auto object = get_one(*connect(store), made.id).take();
  expect_holds(*object, content);
  const auto here = get_one(*client, made.id).take();
  EXPECT_EQ(here->buffers()[6].data, referenced->buffers()[0].data + 100) << "not copied";
  EXPECT_LT(number(*client, "used_bytes") - before, 200'000U + 150'000U + 80'000U + 256U * 1024U);
  EXPECT_FALSE(builder.is_open());
  expect_no_leases();
}

TEST_F(ObjectBuilderTest, WhatTheUserWroteIsReadOnlyAfterTheSeal) {
  for (const std::uint64_t bytes : {std::uint64_t{100}, std::uint64_t{30'000}, std::uint64_t{1'000'000}}) {
    ObjectBuilder builder(client);
    const auto part = builder.allocate(bytes, kWaitMs, {}).take();
    const auto other = builder.allocate(100'000, kWaitMs, {}).take();
    std::memset(part->data(), 1, bytes);
    std::memset(other->data(), 1, 100'000);
    PutItem made = item();
    made.buffers = {{part->data(), bytes}, {other->data(), 100'000}};
    ASSERT_TRUE(client->seal(builder, made, kWaitMs, {}).status.is_ok());
    EXPECT_DEATH(part->data()[0] = std::byte{2}, "") << bytes;
    EXPECT_EQ(get_one(*client, made.id).take()->buffers()[0].data[0], std::byte{1});
  }
}

TEST_F(ObjectBuilderTest, ASmallObjectIsStoredInItsRecord) {
  ObjectBuilder builder(client);
  PutItem made = item();
  const auto part = builder.allocate(kInlineMaxBytes + 1, kWaitMs, {}).take();
  std::memset(part->data(), 3, 1000);
  made.buffers = {{part->data(), 1000}};
  copy(builder, made, pattern(10, 1));
  ASSERT_TRUE(client->seal(builder, made, kWaitMs, {}).status.is_ok());
  const auto object = get_one(*client, made.id).take();
  EXPECT_EQ(object->buffers()[0].view, nullptr) << "inline";
  EXPECT_EQ(object->buffers()[0].data[999], std::byte{3});
  expect_no_leases();
}

TEST_F(ObjectBuilderTest, GivenUpOrDestroyedItLeavesNothing) {
  const PutItem parent = item_of(session, {pattern(300'000, 1)});
  ASSERT_TRUE(put_one(*client, parent).status.is_ok());
  for (const bool gives_up : {true, false}) {
    auto builder = std::make_unique<ObjectBuilder>(client);
    PutItem made = item();
    copy(*builder, made, pattern(1'000'000, 1));
    copy(*builder, made, pattern(100, 1));
    ASSERT_TRUE(builder->allocate(500'000, kWaitMs, {}).is_ok());
    ASSERT_TRUE(builder->keep(get_one(*client, parent.id).take()).is_ok());
    EXPECT_EQ(client->pins_in_use(), 1U);
    EXPECT_GT(number(*client, "leased_bytes"), 1'500'000U);
    if (gives_up) {
      builder->give_up();
      builder->give_up();
      EXPECT_EQ(client->seal(*builder, made, kWaitMs, {}).status.code(), Code::kInvalidArgument);
      EXPECT_EQ(builder->allocate(1, kWaitMs, {}).code(), Code::kInvalidArgument);
    }
    builder.reset();
    EXPECT_EQ(client->pins_in_use(), 0U);
    expect_no_leases();
    EXPECT_EQ(number(*client, "objects"), 1U);
  }
}

TEST_F(ObjectBuilderTest, ItIsSealedOnce) {
  ObjectBuilder builder(client);
  PutItem made = item();
  copy(builder, made, pattern(100'000, 1));
  ASSERT_TRUE(client->seal(builder, made, kWaitMs, {}).status.is_ok());
  const PutResult again = client->seal(builder, made, kWaitMs, {});
  EXPECT_EQ(again.status.code(), Code::kInvalidArgument);
  EXPECT_NE(again.status.message().find("already sealed"), std::string::npos) << again.status.to_string();
  EXPECT_EQ(builder.store({}, Sealed::kCopy, kWaitMs, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(builder.keep(get_one(*client, made.id).take()).code(), Code::kInvalidArgument);
  builder.give_up();
  EXPECT_TRUE(get_one(*client, made.id).is_ok());
}

TEST_F(ObjectBuilderTest, ABufferBeyondItsPartIsRefusedAndTheBuilderStaysOpen) {
  ObjectBuilder builder(client);
  const auto part = builder.allocate(100'000, kWaitMs, {}).take();
  PutItem made = item();
  made.buffers = {{part->data() + 50'000, 50'001}};
  const PutResult refused = client->seal(builder, made, kWaitMs, {});
  EXPECT_EQ(refused.status.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.status.message().find("exceeds its part of 100000 bytes"), std::string::npos)
      << refused.status.to_string();
  part->data()[99'999] = std::byte{9};
  made.buffers = {{part->data() + 50'000, 50'000}};
  ASSERT_TRUE(client->seal(builder, made, kWaitMs, {}).status.is_ok());
  EXPECT_EQ(get_one(*client, made.id).take()->buffers()[0].data[49'999], std::byte{9});
}

TEST_F(ObjectBuilderTest, IdenticalContentIsSuccessAndOtherContentIsRefused) {
  PutItem made = item();
  for (const std::uint32_t seed : {1U, 1U, 2U}) {
    ObjectBuilder builder(client);
    made.buffers.clear();
    const auto part = builder.allocate(200'000, kWaitMs, {}).take();
    std::memcpy(part->data(), pattern(200'000, seed).data(), 200'000);
    made.buffers = {{part->data(), 200'000}};
    copy(builder, made, pattern(100'000, seed));
    const PutResult sealed = client->seal(builder, made, kWaitMs, {});
    EXPECT_EQ(sealed.status.code(), seed == 1 ? Code::kOk : Code::kObjectExists) << sealed.status.to_string();
    EXPECT_FALSE(builder.is_open());
  }
  // What was refused is written again by others: its pages, which were read-only, must be writable.
  for (std::uint32_t seed = 3; seed < 40; ++seed) {
    const PutItem other = item_of(session, {pattern(200'000, seed)});
    ASSERT_TRUE(put_one(*client, other).status.is_ok());
    ASSERT_EQ(client->remove(std::span(&other.id, 1), {}).take().front(), 1);
  }
  expect_no_leases();
}

TEST_F(ObjectBuilderTest, AFullStoreIsReportedAndWhatWasBuiltStays) {
  ObjectBuilder builder(client);
  PutItem made = item();
  copy(builder, made, pattern(1'000'000, 1));
  const auto refused = builder.allocate(1ULL << 40, 0, {});
  EXPECT_EQ(refused.code(), Code::kStoreFull) << refused.status().to_string();
  copy(builder, made, pattern(100'000, 2));
  ASSERT_TRUE(client->seal(builder, made, kWaitMs, {}).status.is_ok());
  expect_holds(*get_one(*client, made.id).take(), {pattern(1'000'000, 1), pattern(100'000, 2)});
}

TEST_F(ObjectBuilderTest, TooManyPartsAreRefused) {
  ObjectBuilder builder(client);
  for (std::size_t i = 0; i < kMaxParts; ++i)
    ASSERT_TRUE(builder.allocate(1, 0, {}).is_ok());
  const auto refused = builder.allocate(1, 0, {});
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("32768 parts"), std::string::npos) << refused.status().to_string();
  const auto byte = pattern(1, 1);
  const SourceBuffer source{byte.data(), 1};
  EXPECT_EQ(builder.store(std::span(&source, 1), Sealed::kCopy, kWaitMs, {}).code(), Code::kInvalidArgument);
}

TEST_F(ObjectBuilderTest, ManySmallCopiesShareParts) {
  ObjectBuilder builder(client);
  PutItem made = item();
  std::vector<std::vector<std::uint8_t>> content;
  for (std::uint32_t i = 0; i < 5'000; ++i) {
    content.push_back(pattern(1 + i % 300, i));
    copy(builder, made, content.back());
  }
  ASSERT_TRUE(client->seal(builder, made, kWaitMs, {}).status.is_ok());
  expect_holds(*get_one(*client, made.id).take(), content);
}

TEST_F(ObjectBuilderTest, ThreadsBuildOneObject) {
  ObjectBuilder builder(client);
  PutItem made = item();
  std::mutex mutex;
  std::vector<std::vector<std::uint8_t>> content;
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint32_t i = 0; i < 50; ++i) {
        auto bytes = pattern(i % 2 == 0 ? 100'000 : 100, thread * 1000 + i);
        const SourceBuffer source{bytes.data(), bytes.size()};
        auto stored = builder.store(std::span(&source, 1), Sealed::kCopy, kWaitMs, {});
        const std::lock_guard lock(mutex);
        ASSERT_TRUE(stored.is_ok()) << stored.status().to_string();
        made.buffers.push_back(stored->front().bytes);
        content.push_back(std::move(bytes));
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  ASSERT_TRUE(client->seal(builder, made, kWaitMs, {}).status.is_ok());
  expect_holds(*get_one(*client, made.id).take(), content);
}

TEST_F(ObjectBuilderTest, AForkedChildCannotUseItAndTheParentCanGoOn) {
  ObjectBuilder builder(client);
  PutItem made = item();
  const auto part = builder.allocate(300'000, kWaitMs, {}).take();
  std::memset(part->data(), 1, 300'000);
  made.buffers = {{part->data(), 300'000}};
  copy(builder, made, pattern(100'000, 1));
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 0;
    if (part->data()[299'999] != std::byte{1}) code = 1;
    std::memset(part->data(), 2, 300'000);
    if (client->seal(builder, made, kWaitMs, {}).status.code() != Code::kNotSealed) code = 2;
    if (builder.allocate(1, 0, {}).code() != Code::kNotSealed) code = 3;
    if (builder.is_open()) code = 4;
    builder.give_up();
    ObjectBuilder own(client);
    PutItem childs = item_of(session, {pattern(50'000, 5)});
    if (!client->seal(own, childs, kWaitMs, {}).status.is_ok()) code = 5;
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  copy(builder, made, pattern(100, 2));
  ASSERT_TRUE(client->seal(builder, made, kWaitMs, {}).status.is_ok());
  expect_holds(*get_one(*client, made.id).take(),
               {std::vector<std::uint8_t>(300'000, 1), pattern(100'000, 1), pattern(100, 2)});
}

}  // namespace
}  // namespace entrepot::testing
