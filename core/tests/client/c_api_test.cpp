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
  std::int32_t deleted = 0;
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
