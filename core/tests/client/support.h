// Helpers shared by the client tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/client.h"
#include "daemon/store_process.h"
#include "os/random.h"

namespace entrepot::testing {

inline std::shared_ptr<Client> connect(const StoreProcess& store) {
  ConnectOptions options;
  options.path = store.path();
  options.label = "test";
  options.version = "test";
  auto client = Client::connect(options, {});
  EXPECT_TRUE(client.is_ok()) << client.status().to_string();
  return client.is_ok() ? *client : nullptr;
}

// Not instrumented: the bytes are not what is tested, and there are a billion of them.
__attribute__((no_sanitize("thread", "address"))) inline void fill(std::uint8_t* to, std::size_t bytes,
                                                                   std::uint32_t seed) {
  std::uint64_t state = seed;
  while (bytes != 0) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t word = state ^ (state >> 32U);
    const std::size_t part = bytes < sizeof(word) ? bytes : sizeof(word);
    if (part == sizeof(word)) {
      __builtin_memcpy(to, &word, sizeof(word));
    } else {
      for (std::size_t i = 0; i < part; ++i)
        to[i] = static_cast<std::uint8_t>(word >> (8 * i));
    }
    to += part;
    bytes -= part;
  }
}

inline std::vector<std::uint8_t> pattern(std::size_t bytes, std::uint32_t seed) {
  std::vector<std::uint8_t> made(bytes);
  fill(made.data(), bytes, seed);
  return made;
}

// Returns an item over copies of `buffers` that live until the program ends.
inline PutItem item_of(std::uint32_t session, const std::vector<std::vector<std::uint8_t>>& buffers,
                       const std::string& tree = "tree") {
  static std::mutex mutex;
  static std::deque<std::vector<std::uint8_t>> kept;  // guarded by mutex
  PutItem item;
  item.id = os::random_id();
  item.session = session;
  item.tree = tree;
  const std::lock_guard lock(mutex);
  for (const auto& buffer : buffers) {
    kept.push_back(buffer);
    item.buffers.push_back({kept.back().data(), buffer.size()});
  }
  return item;
}

inline PutResult put_one(Client& client, const PutItem& item) {
  return client.put(std::span(&item, 1), 10'000, {}).front();
}

inline Result<std::shared_ptr<SealedObject>> get_one(Client& client, const IdBytes& id, std::uint32_t wait_ms = 0) {
  auto objects = client.get(std::span(&id, 1), wait_ms, {});
  if (!objects.is_ok()) return objects.status();
  return objects->front();
}

inline std::uint64_t number(Client& client, const std::string& key) {
  auto status = client.status({});
  EXPECT_TRUE(status.is_ok()) << status.status().to_string();
  return status.is_ok() ? json_number(*status, key) : 0;
}

}  // namespace entrepot::testing
