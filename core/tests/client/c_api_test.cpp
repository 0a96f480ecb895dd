// The C API: a round trip, and its errors for bad arguments.
#include <gtest/gtest.h>

#include <cstring>

#include "client/support.h"
#include "entrepot/entrepot.h"

namespace entrepot::testing {
namespace {

class CApiTest : public ::testing::Test {
 protected:
  CApiTest() {
    error.struct_size = sizeof(error);
    const std::string path = store.path();
    entrepot_connect_options options{};
    options.struct_size = sizeof(options);
    options.path = path.c_str();
    EXPECT_EQ(entrepot_connect(&options, &client, &error), 0) << error.message;
    EXPECT_EQ(entrepot_open_session(client, "scope", "", &session, &error), 0) << error.message;
  }
  ~CApiTest() override { entrepot_client_free(client); }

  entrepot_item item(const IdBytes& id, const entrepot_buffer* buffer, std::uint64_t buffers) const {
    entrepot_item made{};
    made.struct_size = sizeof(made);
    std::copy(id.begin(), id.end(), made.id);
    made.session = session;
    made.tree = "tree";
    made.tree_length = 4;
    made.buffers = buffer;
    made.buffer_count = buffers;
    return made;
  }

  StoreProcess store;
  entrepot_client* client = nullptr;
  std::uint32_t session = 0;
  entrepot_error error{};
};

TEST_F(CApiTest, RoundTrip) {
  const IdBytes id = os::random_id();
  const auto bytes = pattern(100'000, 1);
  const entrepot_buffer buffer{bytes.data(), bytes.size()};
  const entrepot_item wanted = item(id, &buffer, 1);
  std::uint32_t generation = 0;
  ASSERT_EQ(entrepot_put(client, &wanted, 10'000, &generation, &error), 0) << error.message;
  entrepot_object* object = nullptr;
  ASSERT_EQ(entrepot_get(client, id.data(), 0, &object, &error), 0) << error.message;
  EXPECT_EQ(entrepot_object_generation(object), generation);
  EXPECT_EQ(entrepot_object_tree(object).length, 4U);
  ASSERT_EQ(entrepot_object_buffer_count(object), 1U);
  EXPECT_EQ(std::memcmp(entrepot_object_buffer(object, 0).data, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(entrepot_object_buffer(object, 1).data, nullptr);
  char* json = nullptr;
  ASSERT_EQ(entrepot_status(client, &json, &error), 0);
  EXPECT_EQ(json_number(json, "objects"), 1U);
  entrepot_string_free(json);
  std::int32_t deleted = 1;
  ASSERT_EQ(entrepot_delete_generation(client, id.data(), generation + 1, &deleted, &error), 0) << error.message;
  EXPECT_EQ(deleted, 0);
  EXPECT_NE(entrepot_delete_generation(client, nullptr, generation, &deleted, &error), 0);
  ASSERT_EQ(entrepot_delete(client, id.data(), &deleted, &error), 0);
  EXPECT_EQ(deleted, 1);
  entrepot_object_free(object);
}

TEST_F(CApiTest, Blob) {
  entrepot_blob* blob = nullptr;
  ASSERT_EQ(entrepot_create(client, 50'000, 10'000, &blob, &error), 0) << error.message;
  std::memset(entrepot_blob_data(blob), 7, 50'000);
  const IdBytes id = os::random_id();
  const entrepot_item wanted = item(id, nullptr, 0);
  ASSERT_EQ(entrepot_blob_seal(blob, &wanted, nullptr, &error), 0) << error.message;
  entrepot_blob_free(blob);
  entrepot_object* object = nullptr;
  ASSERT_EQ(entrepot_get(client, id.data(), 0, &object, &error), 0);
  EXPECT_EQ(entrepot_object_buffer(object, 0).length, 50'000U);
  entrepot_object_free(object);
}

TEST_F(CApiTest, Builder) {
  const auto parents_bytes = pattern(200'000, 1);
  const entrepot_buffer parents_buffer{parents_bytes.data(), parents_bytes.size()};
  const IdBytes parent_id = os::random_id();
  const entrepot_item parent = item(parent_id, &parents_buffer, 1);
  ASSERT_EQ(entrepot_put(client, &parent, 10'000, nullptr, &error), 0) << error.message;
  entrepot_object* shared = nullptr;
  ASSERT_EQ(entrepot_get(client, parent_id.data(), 0, &shared, &error), 0) << error.message;

  entrepot_builder* builder = nullptr;
  ASSERT_EQ(entrepot_builder_create(client, &builder, &error), 0) << error.message;
  void* data = nullptr;
  ASSERT_EQ(entrepot_builder_allocate(builder, 50'000, 10'000, &data, &error), 0) << error.message;
  std::memset(data, 7, 50'000);
  {
    const auto freed = pattern(70'000, 2);
    ASSERT_EQ(entrepot_builder_copy(builder, freed.data(), freed.size(), 10'000, &error), 0) << error.message;
  }
  const auto* const in_object = static_cast<const char*>(entrepot_object_buffer(shared, 0).data);
  ASSERT_EQ(entrepot_builder_copy(builder, in_object, 100'000, 10'000, &error), 0) << error.message;
  ASSERT_EQ(entrepot_builder_copy(builder, nullptr, 0, 10'000, &error), 0) << error.message;
  EXPECT_EQ(entrepot_builder_reference(builder, shared, 1, 0, 1, &error),
            static_cast<std::int32_t>(Code::kInvalidArgument));
  EXPECT_EQ(entrepot_builder_reference(builder, shared, 0, 150'000, 50'001, &error),
            static_cast<std::int32_t>(Code::kInvalidArgument));
  EXPECT_NE(std::strstr(error.message, "50001 bytes at 150000"), nullptr) << error.message;
  ASSERT_EQ(entrepot_builder_reference(builder, shared, 0, 1'000, 199'000, &error), 0) << error.message;
  entrepot_object_free(shared);
  ASSERT_EQ(entrepot_delete(client, parent_id.data(), nullptr, &error), 0) << error.message;

  const IdBytes id = os::random_id();
  const entrepot_item made = item(id, nullptr, 0);
  std::uint32_t generation = 0;
  ASSERT_EQ(entrepot_builder_seal(builder, &made, 10'000, &generation, &error), 0) << error.message;
  EXPECT_EQ(entrepot_builder_seal(builder, &made, 10'000, nullptr, &error),
            static_cast<std::int32_t>(Code::kInvalidArgument));
  EXPECT_EQ(entrepot_builder_copy(builder, "x", 1, 10'000, &error), static_cast<std::int32_t>(Code::kInvalidArgument));
  EXPECT_NE(std::strstr(error.message, "already sealed"), nullptr) << error.message;
  entrepot_builder_free(builder);

  entrepot_object* object = nullptr;
  ASSERT_EQ(entrepot_get(client, id.data(), 0, &object, &error), 0) << error.message;
  EXPECT_EQ(entrepot_object_generation(object), generation);
  ASSERT_EQ(entrepot_object_buffer_count(object), 5U);
  const auto expect_buffer = [&](std::uint64_t index, const void* bytes, std::uint64_t length) {
    const entrepot_buffer buffer = entrepot_object_buffer(object, index);
    ASSERT_EQ(buffer.length, length) << index;
    if (length == 0) return;
    EXPECT_EQ(std::memcmp(buffer.data, bytes, length), 0) << index;
  };
  expect_buffer(0, std::vector<std::uint8_t>(50'000, 7).data(), 50'000);
  expect_buffer(1, pattern(70'000, 2).data(), 70'000);
  expect_buffer(2, parents_bytes.data(), 100'000);
  expect_buffer(3, nullptr, 0);
  expect_buffer(4, parents_bytes.data() + 1'000, 199'000);
  entrepot_object_free(object);
}

TEST_F(CApiTest, AFreedBuilderLeavesNothing) {
  entrepot_builder* builder = nullptr;
  ASSERT_EQ(entrepot_builder_create(client, &builder, &error), 0) << error.message;
  void* data = nullptr;
  ASSERT_EQ(entrepot_builder_allocate(builder, 5'000'000, 10'000, &data, &error), 0) << error.message;
  entrepot_builder_free(builder);
  const auto leased_bytes = [&] {
    char* json = nullptr;
    EXPECT_EQ(entrepot_status(client, &json, &error), 0) << error.message;
    const std::uint64_t bytes = json_number(json, "leased_bytes");
    entrepot_string_free(json);
    return bytes;
  };
  EXPECT_TRUE(eventually([&] { return leased_bytes() == 0; }));
  EXPECT_EQ(entrepot_builder_create(nullptr, &builder, &error), static_cast<std::int32_t>(Code::kInvalidArgument));
  EXPECT_EQ(entrepot_builder_allocate(nullptr, 1, 0, &data, &error), static_cast<std::int32_t>(Code::kInvalidArgument));
  EXPECT_EQ(entrepot_builder_copy(nullptr, "x", 1, 0, &error), static_cast<std::int32_t>(Code::kInvalidArgument));
  EXPECT_EQ(entrepot_builder_reference(nullptr, nullptr, 0, 0, 0, &error),
            static_cast<std::int32_t>(Code::kInvalidArgument));
  EXPECT_EQ(entrepot_builder_seal(nullptr, nullptr, 0, nullptr, &error),
            static_cast<std::int32_t>(Code::kInvalidArgument));
  entrepot_builder_free(nullptr);
}

TEST_F(CApiTest, ErrorsHaveCodeAndMessage) {
  entrepot_object* object = nullptr;
  const IdBytes id = os::random_id();
  EXPECT_EQ(entrepot_get(client, id.data(), 0, &object, &error), static_cast<std::int32_t>(Code::kObjectNotFound));
  EXPECT_NE(std::strstr(error.message, to_hex(id).c_str()), nullptr);
  EXPECT_EQ(entrepot_get(client, nullptr, 0, &object, nullptr), static_cast<std::int32_t>(Code::kInvalidArgument));
  EXPECT_EQ(entrepot_get(nullptr, id.data(), 0, &object, &error), static_cast<std::int32_t>(Code::kInvalidArgument));
  entrepot_item small{};
  small.struct_size = 4;
  EXPECT_EQ(entrepot_put(client, &small, 0, nullptr, &error), static_cast<std::int32_t>(Code::kInvalidArgument));
  entrepot_connect_options options{};
  options.struct_size = sizeof(options);
  options.path = "/nonexistent/store.sock";
  entrepot_client* other = nullptr;
  EXPECT_EQ(entrepot_connect(&options, &other, &error), static_cast<std::int32_t>(Code::kStoreUnavailable));
}

}  // namespace
}  // namespace entrepot::testing
