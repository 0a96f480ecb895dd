// Services of a running store to its clients.
#include <array>
#include <cstring>
#include <set>

#include "daemon/store_process.h"
#include "os/memfd.h"
#include "os/random.h"
#include "shm/blobs.h"
#include "shm/control.h"
#include "shm/directory.h"
#include "shm/record_arena.h"

namespace entrepot::testing {
namespace {

std::string large_text() {
  std::string text(300'000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>(i * 31);
  return text;
}

TEST(Service, HelloTellsWhoAnswers) {
  StoreProcess store;
  RawClient client = store.client();
  EXPECT_EQ(client.identity.protocol_major, kProtocolMajor);
  EXPECT_EQ(client.identity.abi_stamp, kAbiStamp);
  EXPECT_EQ(client.identity.capacity_bytes, 64U << 20);
  EXPECT_EQ(client.identity.host, os::host_name());
  EXPECT_EQ(client.identity.incarnation, 1U);
  EXPECT_EQ(client.identity.shared_between_users, 0U);
  EXPECT_NE(client.identity.token, 0U);
  EXPECT_TRUE(process_exists(client.identity.daemon_pid));
}

TEST(Service, BytesGoFromOneClientToAnotherThroughSharedMemory) {
  StoreProcess store;
  RawClient writer = store.client();
  const std::string text = large_text();
  const Result<SealResult> sealed = writer.put(kA, text);
  ASSERT_TRUE(sealed.is_ok()) << sealed.status().to_string();

  RawClient reader = store.client();
  std::array<UniqueFd, 5> fds;
  for (std::size_t i = 0; i < fds.size(); ++i)
    fds[i] = std::move(reader.regions[i]);
  const Result<ControlView> view = ControlView::attach(std::move(fds), reader.identity.instance);
  ASSERT_TRUE(view.is_ok()) << view.status().to_string();
  const DirectoryReader directory(*view);
  const auto snapshot = directory.find(kA);
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(snapshot->slot, sealed->slot);
  EXPECT_EQ(snapshot->generation(), sealed->generation);
  const Result<RecordView> record = read_record(*view, directory.slot(snapshot->slot));
  ASSERT_TRUE(record.is_ok()) << record.status().to_string();
  ASSERT_EQ(record->buffers().size(), 1U);
  const auto place = BlobReader(*view).resolve(record->buffers()[0].blob, record->buffers()[0].generation);
  ASSERT_TRUE(place.has_value());
  std::vector<UniqueFd> segment;
  const auto reply = reader.call<SegmentReply>(MessageType::kSegment, SegmentRequest{place->segment, 0}, &segment);
  ASSERT_TRUE(reply.is_ok() && segment.size() == 1);
  EXPECT_EQ(reply->segment_generation, place->segment_generation);
  const auto mapping = os::Mapping::map(segment[0].get(), 0, reply->segment_bytes, os::Access::kReadOnly);
  ASSERT_TRUE(mapping.is_ok());
  EXPECT_EQ(std::memcmp(mapping->data() + place->offset, text.data(), text.size()), 0);
  // The reader's descriptors of payload and directory cannot be mapped writable.
  EXPECT_FALSE(os::is_writable(segment[0].get()));
  EXPECT_FALSE(os::Mapping::map(segment[0].get(), 0, 4096, os::Access::kReadWrite).is_ok());
}

TEST(Service, ControlRegionsAreReadOnlyForClients) {
  StoreProcess store;
  RawClient client = store.client();
  ASSERT_EQ(client.regions.size(), 5U);
  for (const UniqueFd& fd : client.regions) {
    EXPECT_FALSE(os::is_writable(fd.get()));
    EXPECT_FALSE(os::Mapping::map(fd.get(), 0, 4096, os::Access::kReadWrite).is_ok());
  }
  EXPECT_TRUE(os::is_writable(client.pin_table.get()));
  EXPECT_TRUE(os::check_sealed(client.pin_table.get()).is_ok());
}

TEST(Service, ALookupIsAnsweredWhenTheObjectIsSealed) {
  StoreProcess store;
  RawClient waiting = store.client();
  RawClient writer = store.client();
  const std::uint64_t request = waiting.post(MessageType::kLookup, to_wire(LookupRequest{{kA, kB}, 20'000}));
  // A waiting request does not block the client's other requests.
  EXPECT_NE(waiting.status().find("\"waiting\":1"), std::string::npos);
  // (the lookup's reply is still to come)
  ASSERT_TRUE(writer.seal_inline(kA, "a").is_ok());
  ASSERT_TRUE(writer.seal_inline(kB, "b").is_ok());
  const Answer answer = waiting.wait(request);
  LookupReply reply;
  ASSERT_TRUE(answer.status.is_ok() && from_wire(answer.body, reply));
  for (const LookupResult& result : reply.results)
    EXPECT_EQ(result.code, Code::kOk);
  EXPECT_EQ(writer.lookup({9}).code, Code::kObjectNotFound);
  EXPECT_EQ(writer.lookup({9}, 30).code, Code::kObjectNotFound);  // after waiting
}

TEST(Service, SessionsAndNamesOverTheWire) {
  StoreProcess store;
  RawClient client = store.client();
  const std::uint32_t run = client.open("run");
  ASSERT_TRUE(client.seal_inline(kA, "a").is_ok());
  NameRequest name;
  name.session = run;
  name.name = "orders";
  name.id = kA;
  ASSERT_TRUE(client.call<NameReply>(MessageType::kBindName, name).is_ok());
  const auto resolved = client.call<NameReply>(MessageType::kResolveName, name);
  ASSERT_TRUE(resolved.is_ok());
  EXPECT_EQ(resolved->id, kA);
  EXPECT_NE(client.json(MessageType::kList, to_wire(ListRequest{run, 0, "ord*"})).find("orders"), std::string::npos);
  EXPECT_NE(client.json(MessageType::kInfo, to_wire(InfoRequest{kA})).find("\"state\":\"sealed\""), std::string::npos);
  EXPECT_NE(client.json(MessageType::kListSessions).find("\"run\""), std::string::npos);
  ASSERT_TRUE(client.ask(MessageType::kUnbindName, to_wire(name)).status.is_ok());
  EXPECT_EQ(client.ask(MessageType::kResolveName, to_wire(name)).status.code(), Code::kObjectNotFound);
  ASSERT_TRUE(client.ask(MessageType::kRemoveSession, to_wire(RemoveSessionRequest{"scope", "run"})).status.is_ok());
  EXPECT_EQ(client.lookup(kA).code, Code::kObjectNotFound);
}

TEST(Service, WarmMemoryIsThereAfterWaitingForIt) {
  StoreProcess store({"--size=128MiB", "--warm-bytes=32MiB"});
  RawClient client = store.client();
  ASSERT_TRUE(client.ask(MessageType::kWaitProvisioned, to_wire(WaitRequest{20'000})).status.is_ok());
  const std::string status = client.status();
  EXPECT_GE(json_number(status, "warm_bytes"), 32U << 20) << status;
  EXPECT_NE(status.find("\"provisioned\":true"), std::string::npos) << status;
}

TEST(Service, AForkGetsARegistrationOfItsOwn) {
  StoreProcess store;
  RawClient parent = store.client();
  std::vector<UniqueFd> fds;
  const auto child = parent.call<ForkReply>(MessageType::kFork, Empty{}, &fds);
  ASSERT_TRUE(child.is_ok() && fds.size() == 3);
  EXPECT_NE(child->client, parent.identity.client);
  EXPECT_NE(child->token, parent.identity.token);
  RawClient forked(std::move(fds[2]));  // its socket is ready, no Hello needed
  EXPECT_TRUE(forked.seal_inline(kA, "from the child").is_ok());
  EXPECT_EQ(parent.lookup(kA).code, Code::kOk);
  EXPECT_NE(parent.status().find("\"client\":" + std::to_string(child->client)), std::string::npos);
  forked.die();
  fds.clear();
  EXPECT_TRUE(eventually(
      [&] { return parent.status().find("\"client\":" + std::to_string(child->client)) == std::string::npos; }));
}

TEST(Service, APinTableGrowsOnRequestUpToItsCapacity) {
  StoreProcess store;
  RawClient client = store.client();
  const auto memory = [&] { return os::resident_bytes(client.pin_table.get()).take(); };
  EXPECT_EQ(memory(), kPinTableFirstBytes);
  const auto grown = client.call<GrowPinsReply>(MessageType::kGrowPins, GrowPinsRequest{2'000});
  ASSERT_TRUE(grown.is_ok()) << grown.status().to_string();
  EXPECT_GE(grown->pins, 2'000U);
  EXPECT_LE(memory(), 2 * kPinTableFirstBytes);
  const auto again = client.call<GrowPinsReply>(MessageType::kGrowPins, GrowPinsRequest{2'000});
  ASSERT_TRUE(again.is_ok());
  EXPECT_EQ(again->pins, grown->pins) << "asked twice, as after a reconnect";
  // A child's table is as large as its parent's, so that pins keep their positions.
  std::vector<UniqueFd> fds;
  const auto child = client.call<ForkReply>(MessageType::kFork, Empty{}, &fds);
  ASSERT_TRUE(child.is_ok());
  EXPECT_EQ(child->pins, grown->pins);
  const auto refused = client.call<GrowPinsReply>(MessageType::kGrowPins, GrowPinsRequest{kMaxPinsPerClient + 1});
  EXPECT_EQ(refused.status().code(), Code::kStoreFull);
  EXPECT_NE(refused.status().message().find("131072 different objects"), std::string::npos);
}

TEST(Service, ShutdownEndsBothProcessesAndRemovesTheSocket) {
  StoreProcess store;
  const std::uint32_t daemon = store.daemon_pid();
  RawClient client = store.client();
  ASSERT_TRUE(client.ask(MessageType::kShutdown, {}).status.is_ok());
  const auto exit = store.wait_exit();
  ASSERT_TRUE(exit.is_ok());
  EXPECT_EQ(exit->code, 0) << exit->to_string();
  EXPECT_FALSE(process_exists(daemon));
  EXPECT_NE(::access(store.path().c_str(), F_OK), 0);
}

TEST(Service, AnIdleStoreEndsByItselfButNotWithAnObjectInIt) {
  StoreProcess store({"--size=64MiB", "--warm-bytes=0", "--idle-exit=1s"});
  {
    RawClient client = store.client();
    ASSERT_TRUE(client.seal_inline(kA, "a").is_ok());
  }
  const os::Deadline deadline = os::Deadline::after_ms(2500);
  EXPECT_TRUE(eventually([&] { return deadline.passed(); }));
  EXPECT_TRUE(process_exists(static_cast<std::uint64_t>(store.first_pid())));
  {
    RawClient client = store.client();
    EXPECT_TRUE(client.remove(kA));
  }
  const auto exit = store.wait_exit();
  ASSERT_TRUE(exit.is_ok()) << store.log();
  EXPECT_EQ(exit->code, 0);
}

}  // namespace
}  // namespace entrepot::testing
