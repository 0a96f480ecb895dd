#include "fuzz/plasma_store.h"

#include "fuzz/plasma_peer.h"
#include "plasma/arena.h"

namespace entrepot::fuzz {
namespace {

constexpr std::uint32_t kPutWaitMs = 1000;
// Packed trees; see docs/plasma.md.
constexpr std::string_view kPlasmaTree(
    "\x92\x01\x95\xad"
    "plasma.Object\x01\x81\xa6"
    "source\xa6"
    "plasma\x92\x00\x01\x90",
    37);
constexpr std::string_view kBytesTree("\x92\x01\x95\xacpython.bytes\x01\xc0\x91\x00\x90", 21);

}  // namespace

testing::StoreProcess& store_process() {
  static const testing::Scratch spill;
  static testing::StoreProcess store({"--size=64MiB", "--warm-bytes=0", "--idle-exit=120", "--spill-quota=256MiB",
                                      "--spill-reserve=0", "--spill-path=" + spill.path()});
  return store;
}

void check_no_leak() {
  testing::RawClient client = store_process().client();
  std::string status;
  const bool is_clean = testing::eventually([&] {
    status = client.status();
    const auto is_none = [&](const char* key) { return testing::json_number(status, key) == 0; };
    return is_none("blobs") && is_none("pinned_bytes") && is_none("leased_bytes") && is_none("deferred_frees");
  });
  if (!is_clean) std::fputs(status.c_str(), stderr);
  require(is_clean, "front ends that ended leave nothing behind");
}

StoreClient::StoreClient() {
  ConnectOptions connect;
  connect.path = store_process().path();
  connect.label = "fuzz";
  connect.version = ENTREPOT_VERSION;
  client_ = Client::connect(connect, {}).take();
  session_ = client_->open_session("default", "", std::nullopt, {}).take();
}

bool StoreClient::put(const IdBytes& id, std::uint64_t bytes, bool is_plasma) {
  const Bytes content = content_of(id, bytes, 0);
  PutItem item;
  item.id = id;
  item.session = session_;
  item.tree = is_plasma ? kPlasmaTree : kBytesTree;
  item.buffers = {{content.data(), content.size()}};
  if (is_plasma) item.buffers.push_back({content.data(), 0});
  return client_->put(std::span(&item, 1), kPutWaitMs, {})[0].status.is_ok();
}

void StoreClient::remove(const Ids& ids) { require(client_->remove(ids, {}).is_ok(), "objects can be deleted"); }

void StoreClient::evict(const IdBytes& id) {
  require(client_->evict(std::span(&id, 1), {}).is_ok(), "the store can be asked to spill an object");
}

void StoreClient::pin(const IdBytes& id) {
  auto got = client_->get(std::span(&id, 1), 0, {});
  if (got.is_ok()) pinned_.push_back(std::move((*got)[0]));
}

void StoreClient::check_content(const IdBytes& id) {
  const auto got = client_->get(std::span(&id, 1), 0, {});
  require(got.is_ok(), "every client of the store gets every sealed object");
  const auto contents = plasma::contents_of(*(*got)[0]);
  require(contents.has_value(), "it is an object that was put here");
  Bytes bytes = bytes_of(contents->data.data(), contents->data.size());
  append(bytes, bytes_of(contents->metadata.data(), contents->metadata.size()));
  require(bytes == content_of(id, contents->data.size(), contents->metadata.size()), "with its bytes");
}

void StoreClient::check_empty() {
  const std::string status = client_->status({}).take();
  require(testing::json_number(status, "objects") == 0, "nothing is left in the store");
}

}  // namespace entrepot::fuzz
