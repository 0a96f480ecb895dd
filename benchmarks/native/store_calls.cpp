// Gets and puts without Python: the C++ client, and the C interface above it.
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <random>

#include "client/client.h"
#include "entrepot/entrepot.h"
#include "support.h"

namespace bench {
namespace {

constexpr std::size_t kBatch = 100;
constexpr std::uint32_t kWaitMs = 10'000;

entrepot::IdBytes to_id(const std::string& hex) {
  entrepot::IdBytes id{};
  if (hex.size() != 2 * sizeof id) {
    errno = 0;
    fail("an ID is 40 hex digits, but got " + hex);
  }
  for (std::size_t index = 0; index < sizeof id; ++index)
    id[index] = static_cast<std::uint8_t>(std::stoi(hex.substr(2 * index, 2), nullptr, 16));
  return id;
}

entrepot_client* connect_c(const std::string& path) {
  entrepot_connect_options options{};
  options.struct_size = sizeof options;
  options.path = path.c_str();
  entrepot_client* client = nullptr;
  entrepot_error error{};
  error.struct_size = sizeof error;
  errno = 0;
  if (entrepot_connect(&options, &client, &error) != 0) fail(error.message);
  return client;
}

}  // namespace

int store_get(const std::vector<std::string>& arguments) {
  const std::uint64_t batches = to_number(arguments[1].c_str());
  std::vector<entrepot::IdBytes> ids;
  for (std::size_t index = 2; index < arguments.size(); ++index)
    ids.push_back(to_id(arguments[index]));
  entrepot::ConnectOptions options;
  options.path = arguments[0];
  auto connected = entrepot::Client::connect(options, {});
  errno = 0;
  if (!connected.is_ok()) fail(connected.status().message());
  const std::shared_ptr<entrepot::Client> client = connected.take();
  entrepot_client* plain = connect_c(arguments[0]);
  std::vector<std::uint64_t> cpp;
  std::vector<std::uint64_t> in_place;  // empty where the objects are too large for that
  std::vector<std::uint64_t> c;
  std::size_t next = 0;
  std::uint64_t seen = 0;
  // The first batches map the segments and fill the caches; they are not kept.
  const std::uint64_t unkept = batches / 10 + 1;
  for (std::uint64_t batch = 0; batch < batches + unkept; ++batch) {
    std::uint64_t begin = now_ns();
    for (std::size_t index = 0; index < kBatch; ++index) {
      next = next + 1 == ids.size() ? 0 : next + 1;
      auto objects = client->get({&ids[next], 1}, 0, {});
      if (!objects.is_ok()) fail(objects.status().message());
      seen += objects->front()->buffers().size();
    }
    if (batch >= unkept) cpp.push_back((now_ns() - begin) / kBatch);
    begin = now_ns();
    std::size_t found_in_place = 0;
    for (std::size_t index = 0; index < kBatch; ++index) {
      next = next + 1 == ids.size() ? 0 : next + 1;
      entrepot::InlineObject object;
      if (!client->peek(ids[next], object)) break;
      seen += object.record().tree().size() + object.record().payload().size();
      ++found_in_place;
    }
    if (batch >= unkept && found_in_place == kBatch) in_place.push_back((now_ns() - begin) / kBatch);
    begin = now_ns();
    for (std::size_t index = 0; index < kBatch; ++index) {
      next = next + 1 == ids.size() ? 0 : next + 1;
      entrepot_object* object = nullptr;
      if (entrepot_get(plain, ids[next].data(), 0, &object, nullptr) != 0) fail("the C interface found no object");
      seen += entrepot_object_buffer_count(object);
      entrepot_object_free(object);
    }
    if (batch >= unkept) c.push_back((now_ns() - begin) / kBatch);
  }
  entrepot_client_free(plain);
  Line().samples("cpp", cpp).samples("in_place", in_place).samples("c", c).number("buffers", seen).print();
  return 0;
}

int store_put(const std::vector<std::string>& arguments) {
  const std::size_t bytes = to_number(arguments[1].c_str());
  const std::uint64_t count = to_number(arguments[2].c_str());
  entrepot_client* client = connect_c(arguments[0]);
  std::uint32_t session = 0;
  entrepot_error error{};
  error.struct_size = sizeof error;
  if (entrepot_open_session(client, "bench", "native", &session, &error) != 0) fail(error.message);
  const std::vector<char> payload(bytes, 'x');
  const entrepot_buffer buffer{payload.data(), payload.size()};
  std::mt19937_64 random(std::random_device{}());
  std::vector<std::uint64_t> times;
  times.reserve(count);
  for (std::uint64_t index = 0; index < count; ++index) {
    entrepot_item item{};
    item.struct_size = sizeof item;
    item.session = session;
    const std::array<std::uint64_t, 3> drawn{random(), random(), random()};
    std::memcpy(item.id, drawn.data(), sizeof item.id);
    item.buffers = &buffer;
    item.buffer_count = 1;
    const std::uint64_t begin = now_ns();
    if (entrepot_put(client, &item, kWaitMs, nullptr, &error) != 0) fail(error.message);
    times.push_back(now_ns() - begin);
    if (entrepot_delete(client, item.id, nullptr, &error) != 0) fail(error.message);
  }
  entrepot_client_free(client);
  Line().samples("put", times).print();
  return 0;
}

int store_loop(const std::vector<std::string>& arguments) {
  const bool get = arguments[1] == "get";
  const std::uint64_t count = to_number(arguments[2].c_str());
  const entrepot::IdBytes id = to_id(arguments[3]);
  entrepot_client* client = connect_c(arguments[0]);
  std::uint32_t session = 0;
  entrepot_error error{};
  error.struct_size = sizeof error;
  errno = 0;
  if (entrepot_open_session(client, "bench", "loop", &session, &error) != 0) fail(error.message);
  const std::vector<char> payload(1024, 'x');
  const entrepot_buffer buffer{payload.data(), payload.size()};
  std::uint64_t number = static_cast<std::uint64_t>(std::random_device{}()) << 32;
  const auto once = [&] {
    if (get) {
      entrepot_object* object = nullptr;
      if (entrepot_get(client, id.data(), 0, &object, &error) != 0) fail(error.message);
      entrepot_object_free(object);
      return;
    }
    entrepot_item item{};
    item.struct_size = sizeof item;
    item.session = session;
    ++number;
    std::memcpy(item.id, &number, sizeof number);
    item.buffers = &buffer;
    item.buffer_count = 1;
    if (entrepot_put(client, &item, kWaitMs, nullptr, &error) != 0) fail(error.message);
  };
  for (std::uint64_t index = 0; index < 50; ++index)
    once();
  raise(SIGSTOP);
  for (std::uint64_t index = 0; index < count; ++index)
    once();
  raise(SIGSTOP);
  entrepot_client_free(client);
  return 0;
}

}  // namespace bench
