// A client that lies, floods, writes garbage wherever it can, and exhausts descriptors: the daemon survives with
// bounded memory, and other clients are not affected.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <set>

#include "client/support.h"
#include "net/frame_socket.h"
#include "os/files.h"
#include "os/memfd.h"
#include "os/socket.h"

namespace entrepot::testing {
namespace {

const std::vector<std::string> kSmall = {"--size=64MiB", "--warm-bytes=0"};

// Random generator whose seed is printed; set ENTREPOT_TEST_SEED to reproduce a failure.
std::mt19937_64 seeded() {
  const char* wished = std::getenv("ENTREPOT_TEST_SEED");
  const std::uint64_t seed = wished != nullptr ? std::stoull(wished) : 20261;
  std::cout << "ENTREPOT_TEST_SEED=" << seed << std::endl;
  return std::mt19937_64(seed);
}

// Another client, whose values must stay intact whatever happens.
class Witness {
 public:
  explicit Witness(const StoreProcess& store) : client_(connect(store)) {
    session_ = client_->open_session("witness", "", std::nullopt, {}).take();
    for (std::uint32_t i = 0; i < 8; ++i) {
      values_.push_back(pattern(i % 2 == 0 ? 100 : 200'000, i));
      items_.push_back(item_of(session_, {values_.back()}));
      EXPECT_TRUE(put_one(*client_, items_.back()).status.is_ok());
    }
  }
  // Checks that all its values are intact, and that it can put, get and delete.
  void expect_undisturbed() {
    for (std::size_t i = 0; i < items_.size(); ++i)
      expect(items_[i].id, values_[i]);
    for (std::uint32_t i = 0; i < 4; ++i) {
      const auto value = pattern(150'000 + i, 77 + i);
      const PutItem item = item_of(session_, {value});
      const PutResult put = put_one(*client_, item);
      ASSERT_TRUE(put.status.is_ok()) << put.status.to_string();
      expect(item.id, value);
      ASSERT_TRUE(client_->remove(std::span(&item.id, 1), {}).is_ok());
    }
  }
  // Checks that no other client's objects are left.
  void expect_alone() {
    EXPECT_TRUE(eventually([&] {
      return number(*client_, "objects") == items_.size() && number(*client_, "deferred_frees") == 0 &&
             number(*client_, "waiting") == 0;
    })) << client_->status({}).take();
  }
  [[nodiscard]] Client& client() { return *client_; }

 private:
  void expect(const IdBytes& id, const std::vector<std::uint8_t>& value) {
    const auto object = get_one(*client_, id);
    ASSERT_TRUE(object.is_ok()) << object.status().to_string();
    ASSERT_EQ((*object)->buffers().at(0).length, value.size());
    EXPECT_EQ(std::memcmp((*object)->buffers()[0].data, value.data(), value.size()), 0);
  }

  std::shared_ptr<Client> client_;
  std::uint32_t session_ = 0;
  std::vector<std::vector<std::uint8_t>> values_;
  std::vector<PutItem> items_;
};

std::size_t times_in(const std::string& text, const std::string& what) {
  std::size_t times = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++times;
  return times;
}

TEST(HostileClient, RequestsThatWaitForEverAreBounded) {
  StoreProcess store(kSmall);
  Witness witness(store);
  RawClient flood = store.client();
  // Single IDs and batches of many; none of them is ever sealed.
  std::uint64_t last = 0;
  for (std::uint32_t i = 0; i < 9'000; ++i) {
    IdBytes id{};
    std::memcpy(id.data(), &i, sizeof(i));
    LookupRequest request{{id}, 3'600'000, 0};
    if (i % 1000 == 0) request.ids.resize(kMaxBatch, id);
    last = flood.post(MessageType::kLookup, to_wire(request));
    ASSERT_NE(last, 0U);
  }
  const Answer refused = flood.wait(last);
  EXPECT_EQ(refused.status.code(), Code::kStoreFull) << refused.status.to_string();
  EXPECT_TRUE(refused.status.retryable());
  EXPECT_NE(refused.status.message().find("wait"), std::string::npos);
  witness.expect_undisturbed();
  // Rejected requests free no capacity; answered ones do.
  EXPECT_EQ(flood.call<LookupReply>(MessageType::kLookup, LookupRequest{{IdBytes{1}}, 0, 0}).status().code(),
            Code::kStoreFull);
  EXPECT_GT(number(witness.client(), "waiting"), 100U);
  flood.hang_up();
  witness.expect_alone();
  RawClient again = store.client();
  EXPECT_EQ(again.lookup(IdBytes{1}, 1).code, Code::kObjectNotFound);
}

std::uint64_t resident_bytes(std::uint64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  std::uint64_t pages = 0;
  file >> pages >> pages;
  return pages * os::page_bytes();
}

TEST(HostileClient, ALeaseGivenBackInCrumbsTakesNoMemory) {
  StoreProcess store(kSmall);
  Witness witness(store);
  RawClient crumbs = store.client();
  const auto lease = crumbs.call<LeaseReply>(MessageType::kLease, LeaseRequest{1U << 20, 1U << 20, 10'000});
  ASSERT_TRUE(lease.is_ok()) << lease.status().to_string();
  const std::uint64_t pid = number(witness.client(), "pid");
  const std::uint64_t before = resident_bytes(pid);
  ASSERT_GT(before, 0U);
  for (std::uint64_t i = 0; i < 100'000; ++i) {  // every other byte, so that no two of them are adjacent
    const auto request =
        crumbs.post(MessageType::kUnlease, to_wire(UnleaseRequest{lease->segment, lease->offset + 2 * i, 1, 0}));
    ASSERT_NE(request, 0U);
    if (i % 500 != 499) continue;
    const Status refused = crumbs.wait(request).status;
    ASSERT_EQ(refused.code(), Code::kInvalidArgument) << refused.to_string();
    ASSERT_NE(refused.message().find("multiples of 65536"), std::string::npos) << refused.message();
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // the sanitizers delay the reuse of freed memory
  EXPECT_LT(resident_bytes(pid), before + (4U << 20));
#endif
  witness.expect_undisturbed();
}

TEST(HostileClient, HalfRequestsAreBoundedTogether) {
  StoreProcess store(kSmall);
  Witness witness(store);
  FrameHeader header{};
  header.magic = kFrameMagic;
  header.type = MessageType::kSeal;
  header.body_bytes = kMaxBodyBytes;
  std::vector<std::uint8_t> half(sizeof(header) + (17U << 20));
  std::memcpy(half.data(), &header, sizeof(header));
  std::vector<RawClient> crowd;
  std::size_t closed = 0;
  for (int i = 0; i < 20; ++i) {
    crowd.push_back(store.client());
    // Sending fails if the connection has been closed meanwhile.
    const Status sent = os::send_all(crowd.back().fd(), half, {}, os::Deadline::after_ms(20'000));
    if (!sent.is_ok()) ++closed;
  }
  EXPECT_TRUE(eventually([&] {
    closed = static_cast<std::size_t>(std::count_if(crowd.begin(), crowd.end(), std::mem_fn(&RawClient::is_hung_up)));
    return closed >= 2;  // a buffer holds at least what was sent, and 20 of 17 MiB do not fit
  })) << closed;
  EXPECT_LT(closed, 20U);
  witness.expect_undisturbed();
  crowd.clear();
  witness.expect_alone();
}

TEST(HostileClient, EveryPieceOfAGoodConversationMayBeTheLast) {
  StoreProcess store(kSmall);
  Witness witness(store);
  auto random = seeded();
  Hello hello;
  std::vector<std::uint8_t> stream = frame_bytes(MessageType::kHello, 1, to_wire(hello), 0);
  const auto add = [&](MessageType type, const std::vector<std::uint8_t>& body) {
    const auto frame = frame_bytes(type, 2, body, 0);
    stream.insert(stream.end(), frame.begin(), frame.end());
  };
  add(MessageType::kOpenSession, to_wire(OpenSessionRequest{"hostile", "", 1, 60, 0, 0, 0}));
  add(MessageType::kLease, to_wire(LeaseRequest{1U << 20, 4U << 20, 5000}));
  add(MessageType::kLookup, to_wire(LookupRequest{{IdBytes{7}}, 60'000, 0}));
  add(MessageType::kFork, {});
  add(MessageType::kStatus, {});
  for (int round = 0; round < 120; ++round) {
    RawClient client(store.path());
    std::vector<std::uint8_t> sent = stream;
    if (round % 2 == 1) sent[random() % sent.size()] ^= static_cast<std::uint8_t>(1U << (random() % 8));
    sent.resize(random() % (sent.size() + 1));
    // Includes its own end of the connection: if the daemon kept that, the connection would never close.
    const std::vector<int> fds(random() % 4 == 0 ? random() % 60 : 0, client.fd());
    if (!sent.empty()) (void)os::send_all(client.fd(), sent, fds, os::Deadline::after_ms(20'000));
    if (random() % 2 == 0) (void)client.is_hung_up();
  }
  witness.expect_undisturbed();
  witness.expect_alone();
  EXPECT_TRUE(eventually([&] { return times_in(witness.client().status({}).take(), "\"label\"") <= 1; }))
      << witness.client().status({}).take();
}

TEST(HostileClient, WhatItMayOnlyReadItCannotWrite) {
  StoreProcess store(kSmall);
  Witness witness(store);
  RawClient writer = store.client();
  ASSERT_TRUE(writer.put(IdBytes{1}, std::string(100'000, 'w')).is_ok());
  RawClient client = store.client();
  for (const UniqueFd& region : client.regions) {
    EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, region.get(), 0), MAP_FAILED);
    EXPECT_EQ(::pwrite(region.get(), "x", 1, 0), -1);
    EXPECT_NE(::ftruncate(region.get(), 0), 0);
  }
  for (std::uint32_t segment = 0; segment < 4; ++segment) {
    for (const std::uint8_t access : {kLeaseAccess, kIsolatedAccess}) {
      const Answer denied = client.ask(MessageType::kSegment, to_wire(SegmentRequest{segment, access}));
      EXPECT_FALSE(denied.status.is_ok());
    }
    Answer shown = client.ask(MessageType::kSegment, to_wire(SegmentRequest{segment, kReadAccess}));
    if (!shown.status.is_ok()) continue;
    ASSERT_EQ(shown.fds.size(), 1U);
    EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shown.fds[0].get(), 0), MAP_FAILED);
    EXPECT_EQ(::pwrite(shown.fds[0].get(), "x", 1, 0), -1);
  }
  // It may write to its own pin table, but neither shrink it under the daemon's mapping nor grow it.
  EXPECT_NE(::ftruncate(client.pin_table.get(), 0), 0);
  EXPECT_NE(::ftruncate(client.pin_table.get(), 1 << 30), 0);
  witness.expect_undisturbed();
}

// Garbage in pins, access ring and header while memory is short, so that the daemon keeps reading them.
TEST(HostileClient, APinThatItHasNotReservedIsRefused) {
  StoreProcess store(kSmall);
  Witness witness(store);
  RawClient liar = store.client();
  const std::uint32_t session = liar.open();
  for (const std::uint32_t position : {0U, 7U, 1U << 20, 0xffff'fffeU}) {  // nothing is reserved in its table
    SealObject object;
    object.id = os::random_id();
    object.session = session;
    object.tree = "tree";
    object.payload = "payload";
    object.buffers = {{kInlineBlob, 0, 0, 7}};
    object.pin_position = position;
    const auto reply = liar.call<SealReply>(MessageType::kSeal, SealRequest{{object}});
    ASSERT_TRUE(reply.is_ok()) << reply.status().to_string();
    ASSERT_EQ(reply->results.size(), 1U);
    EXPECT_EQ(reply->results[0].code, Code::kInvalidArgument);
    EXPECT_EQ(liar.lookup(object.id).code, Code::kObjectNotFound);
  }
  witness.expect_undisturbed();
  witness.expect_alone();
}

TEST(HostileClient, GarbageInItsPinTableKeepsMemoryAtWorst) {
  Scratch folder;
  StoreProcess store({"--size=16MiB", "--warm-bytes=0", "--spill-path=" + folder.path("spill")});
  Witness witness(store);
  auto random = seeded();
  for (int round = 0; round < 2; ++round) {
    RawClient liar = store.client();
    const auto bytes = os::file_bytes(liar.pin_table.get());
    ASSERT_TRUE(bytes.is_ok());
    auto table = os::Mapping::map(liar.pin_table.get(), 0, *bytes, os::Access::kReadWrite);
    ASSERT_TRUE(table.is_ok());
    const auto session = witness.client().open_session("witness", "flood", std::nullopt, {}).take();
    for (std::uint32_t i = 0; i < 16; ++i) {
      for (std::uint64_t at = 0; at + 8 <= *bytes; at += 8) {
        // Garbage, or a pin of an existing slot with a plausible generation.
        const std::uint64_t word = random() % 2 == 0 ? random() : PinWord::make(random() % 64, random() % 4);
        std::memcpy(table->data() + at, &word, sizeof(word));
      }
      if (round == 0) std::memset(table->data(), static_cast<int>(random()), sizeof(PinTableHeader));
      const PutItem item = item_of(session, {pattern(2'000'000, i)});
      // Garbage may retain memory; then a put fails with StoreFull and the reason.
      const PutResult put = witness.client().put(std::span(&item, 1), 20, {}).front();
      EXPECT_TRUE(put.status.is_ok() || put.status.code() == Code::kStoreFull) << put.status.to_string();
    }
    liar.die();
    ASSERT_TRUE(witness.client().remove_session("witness", "flood", {}).is_ok());
    witness.expect_alone();
    witness.expect_undisturbed();
  }
}

class Descriptors : public ::testing::Test {
 protected:
  // Limits the daemon to `more` additional descriptors. The limit applies to descriptor numbers, and free low numbers
  // are used first.
  void limit(std::uint64_t more) {
    std::set<std::uint64_t> open;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/fd"))
      open.insert(std::stoull(entry.path().filename()));
    std::uint64_t end = 0;
    for (;; ++end) {
      if (!open.contains(end) && more-- == 0) break;
    }
    rlimit limit{end, before_.rlim_max};
    ASSERT_EQ(::prlimit(static_cast<pid_t>(pid_), RLIMIT_NOFILE, &limit, nullptr), 0);
  }
  void unlimit() { ASSERT_EQ(::prlimit(static_cast<pid_t>(pid_), RLIMIT_NOFILE, &before_, nullptr), 0); }
  void SetUp() override {
    witness_.expect_undisturbed();            // afterwards it needs no more descriptors
    pid_ = number(witness_.client(), "pid");  // over an existing connection, which takes no new descriptors
    ASSERT_EQ(::prlimit(static_cast<pid_t>(pid_), RLIMIT_NOFILE, nullptr, &before_), 0);
  }

  StoreProcess store_{{"--size=64MiB", "--warm-bytes=0"}};
  Witness witness_{store_};
  std::uint64_t pid_ = 0;
  rlimit before_{};
};

TEST_F(Descriptors, WithoutOneNobodyIsAcceptedAndTheLogStaysShort) {
  limit(2);
  std::vector<RawClient> waiting;
  for (int i = 0; i < 12; ++i)
    waiting.emplace_back(store_.path());
  ASSERT_TRUE(eventually([&] { return store_.log().find("cannot accept a connection") != std::string::npos; }));
  witness_.expect_undisturbed();
  EXPECT_LE(times_in(store_.log(), "cannot accept a connection"), 3U) << "a line in ten seconds";
  unlimit();
  EXPECT_EQ(store_.daemon_pid(), pid_) << "once there is room they are served";
}

TEST_F(Descriptors, WhoCannotBeRegisteredIsToldWhyAndLeavesNothing) {
  const std::uint64_t clients = times_in(witness_.client().status({}).take(), "\"label\"");
  for (std::uint64_t more = 1; more < 12; ++more) {
    limit(more);
    RawClient client(store_.path());
    const Status response = client.say_hello();
    if (!response.is_ok()) {
      EXPECT_NE(response.code(), Code::kOk);
      EXPECT_NE(response.message().find("open files"), std::string::npos) << response.to_string();
    }
    unlimit();
    client.die();
    EXPECT_TRUE(eventually([&] { return times_in(witness_.client().status({}).take(), "\"label\"") == clients; }));
    if (response.is_ok()) break;
  }
  RawClient client = store_.client();
  EXPECT_TRUE(client.put(IdBytes{1}, std::string(100'000, 'a')).is_ok());
}

TEST_F(Descriptors, NoMemoryForASegmentIsStoreFullAndPasses) {
  RawClient client = store_.client();
  client.open();
  limit(0);
  const auto refused = client.call<LeaseReply>(MessageType::kLease, LeaseRequest{30U << 20, 30U << 20, 300});
  EXPECT_EQ(refused.code(), Code::kStoreFull) << refused.status().to_string();
  EXPECT_NE(refused.status().message().find("open files"), std::string::npos) << refused.status().to_string();
  witness_.expect_undisturbed();
  unlimit();
  EXPECT_TRUE(eventually(
      [&] { return client.call<LeaseReply>(MessageType::kLease, LeaseRequest{30U << 20, 30U << 20, 2000}).is_ok(); }));
}

}  // namespace
}  // namespace entrepot::testing
