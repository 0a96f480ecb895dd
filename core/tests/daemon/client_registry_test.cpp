#include "daemon/client_registry.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/peer.h"
#include "daemon/provisioner.h"
#include "daemon/segment_files.h"
#include "daemon/test_keeper.h"
#include "os/memfd.h"
#include "os/random.h"
#include "store/harness.h"

namespace entrepot {
namespace {

using testing::Peer;
using testing::status_of;

StoreOptions small_store() {
  StoreOptions options;
  options.capacity_bytes = 64U << 20;
  options.host = "host";
  return options;
}

struct ClientRegistryTest : ::testing::Test {
  ClientRegistryTest() {
    EXPECT_TRUE(store.start_fresh().is_ok());
    connections.on_frame([this](Connection& connection, Frame& frame) {
      if (!connection.client()) return registry->hello(connection, frame);
      if (frame.header.type == MessageType::kFork) return registry->fork(connection, frame.header.request);
      connections.reply(connection.owner(), frame.header.request, GrowPinsReply{*connection.client()});
    });
  }
  // What a client has after its Hello.
  struct Client {
    Peer peer;
    std::uint64_t owner = 0;
    HelloReply identity;
    UniqueFd pin_table;
    UniqueFd liveness;
  };

  // As Server::run(); the keeper receives what it is sent.
  void turn() {
    ASSERT_TRUE(loop.dispatch().is_ok());
    connections.read_more();
    loop.run_due();
    keeper.receive();
  }
  // The answer to one request; none if the connection was closed instead.
  std::optional<Frame> ask(Peer& peer, MessageType type, std::vector<std::uint8_t> body,
                           std::vector<UniqueFd> fds = {}) {
    peer.send(type, 1, std::move(body), std::move(fds));
    turn();
    std::vector<Frame> answers = peer.receive();
    if (answers.empty()) return std::nullopt;
    EXPECT_EQ(answers.size(), 1U);
    return std::move(answers.front());
  }
  Client connect() {
    auto [peer, connection] = Peer::connect(connections);
    Client client{std::move(peer), connection->owner(), {}, {}, {}};
    std::optional<Frame> answer = ask(client.peer, MessageType::kHello, to_wire(Hello{}));
    EXPECT_TRUE(answer && from_wire(answer->body, client.identity));
    EXPECT_EQ(answer->fds.size(), 7U);
    client.pin_table = std::move(answer->fds[5]);
    client.liveness = std::move(answer->fds[6]);
    return client;
  }
  Status come_back(Peer& peer, std::uint32_t client, std::uint64_t token, const UniqueFd& pin_table) {
    Hello hello;
    hello.client = client;
    hello.token = token;
    std::vector<UniqueFd> fds;
    fds.push_back(os::duplicate(pin_table.get()).take());
    const std::optional<Frame> answer = ask(peer, MessageType::kHello, to_wire(hello), std::move(fds));
    EXPECT_TRUE(answer);
    return status_of(*answer);
  }
  // The client as which the daemon serves this connection.
  std::uint32_t client_of(Peer& peer) {
    GrowPinsReply reply;
    const std::optional<Frame> answer = ask(peer, MessageType::kStatus, {});
    EXPECT_TRUE(answer && from_wire(answer->body, reply));
    return reply.pins;
  }
  [[nodiscard]] bool is_client(std::uint32_t client) const { return store.clients().find(client) != nullptr; }
  [[nodiscard]] bool keeper_has(DescriptorKind kind, std::uint32_t client) const {
    return keeper.held.contains({kind, client});
  }

  testing::TestKeeper keeper;
  testing::TestLoop loop;
  KeeperLink link{loop, keeper.take_daemon_end(), {}};
  Provisioner provisioner;
  SegmentFiles segments{link, provisioner};
  ControlMemory memory{ControlMemory::create(os::random_instance()).take()};
  testing::FakeClock clock;
  Store store{memory, segments, clock, small_store()};
  Connections connections{loop, store.budget()};
  std::optional<ClientRegistry> registry{std::in_place, loop, connections, link, memory, store};
};

TEST_F(ClientRegistryTest, HelloRegistersAClientWhoseDescriptorsTheKeeperHas) {
  Client client = connect();
  EXPECT_EQ(client.identity.instance, memory.instance());
  EXPECT_EQ(client.identity.capacity_bytes, 64U << 20);
  const std::uint32_t number = client.identity.client;
  ASSERT_TRUE(is_client(number));
  EXPECT_EQ(client_of(client.peer), number);
  ASSERT_TRUE(keeper_has(DescriptorKind::kPinTable, number));
  EXPECT_TRUE(keeper_has(DescriptorKind::kLiveness, number));
  EXPECT_TRUE(*os::same_file(keeper.held.at({DescriptorKind::kPinTable, number}).get(), client.pin_table.get()));
  EXPECT_GT(store.budget().granted(BudgetItem::kPinTables), 0U);
}

TEST_F(ClientRegistryTest, WhoseFirstMessageIsNoHelloOfThisBuildIsNoClient) {
  Hello other;
  other.abi_stamp ^= 1;
  const std::vector<std::pair<MessageType, std::vector<std::uint8_t>>> messages = {
      {MessageType::kStatus, {}}, {MessageType::kHello, {1, 2, 3}}, {MessageType::kHello, to_wire(other)}};
  for (const auto& [type, body] : messages) {
    auto [peer, connection] = Peer::connect(connections);
    const std::optional<Frame> answer = ask(peer, type, body);
    ASSERT_TRUE(answer);
    EXPECT_EQ(status_of(*answer).code(), body.size() > 3 ? Code::kVersionMismatch : Code::kInvalidArgument);
    EXPECT_TRUE(peer.receive().empty());
    EXPECT_TRUE(peer.is_closed);
  }
  EXPECT_TRUE(store.clients().all().empty());
  EXPECT_TRUE(connections.is_empty());
  EXPECT_TRUE(keeper.held.empty());
}

TEST_F(ClientRegistryTest, AClientOutlivesItsConnectionAndEndsWithItsLivenessSocket) {
  Client client = connect();
  const std::uint32_t number = client.identity.client;
  client.peer = Peer(os::socket_pair(os::SocketKind::kStream).take().first);
  turn();
  EXPECT_TRUE(connections.is_empty());
  EXPECT_TRUE(is_client(number));
  UniqueFd in_a_child = os::duplicate(client.liveness.get()).take();
  client.liveness.reset();
  turn();
  EXPECT_TRUE(is_client(number)) << "another process has it";
  in_a_child.reset();
  turn();
  EXPECT_FALSE(is_client(number));
  EXPECT_TRUE(keeper.held.empty());
  EXPECT_EQ(store.budget().granted(BudgetItem::kPinTables), 0U);
}

TEST_F(ClientRegistryTest, TheEndOfAClientClosesItsConnection) {
  Client client = connect();
  Client other = connect();
  client.liveness.reset();
  turn();
  EXPECT_EQ(connections.find(client.owner), nullptr);
  EXPECT_NE(connections.find(other.owner), nullptr);
  EXPECT_EQ(client_of(other.peer), other.identity.client);
}

TEST_F(ClientRegistryTest, AClientComesBackWithTokenAndPinTableAndLosesItsFormerConnection) {
  Client client = connect();
  Client thief = connect();
  const auto& [number, token] = std::pair(client.identity.client, client.identity.token);
  for (const auto& [sent_token, table] : {std::pair(token ^ 1, &client.pin_table), {token, &thief.pin_table}}) {
    auto [peer, connection] = Peer::connect(connections);
    EXPECT_EQ(come_back(peer, number, sent_token, *table).code(), Code::kAccessDenied);
    EXPECT_NE(connections.find(client.owner), nullptr) << "it is not disturbed";
  }
  auto [peer, connection] = Peer::connect(connections);
  const Status back = come_back(peer, number, token, client.pin_table);
  EXPECT_TRUE(back.is_ok()) << back.to_string();
  EXPECT_EQ(client_of(peer), number);
  EXPECT_TRUE(client.peer.receive().empty());
  EXPECT_TRUE(client.peer.is_closed);
  client.liveness.reset();
  turn();
  EXPECT_FALSE(is_client(number));
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_TRUE(peer.is_closed) << "its present connection ends with it";
}

TEST_F(ClientRegistryTest, AChildHasAConnectionOfItsOwnAndOutlivesItsParent) {
  Client parent = connect();
  std::optional<Frame> answer = ask(parent.peer, MessageType::kFork, {});
  ForkReply child;
  ASSERT_TRUE(answer && from_wire(answer->body, child));
  ASSERT_EQ(answer->fds.size(), 3U);
  EXPECT_NE(child.client, parent.identity.client);
  EXPECT_TRUE(store.clients().find(child.client)->identity.forked);
  EXPECT_EQ(child.pins, store.pins().reserved_pins(parent.identity.client));
  UniqueFd liveness = std::move(answer->fds[1]);
  Peer peer(std::move(answer->fds[2]));
  EXPECT_EQ(client_of(peer), child.client);
  EXPECT_EQ(store.clients().find(child.client)->identity.pid, 0U);
  EXPECT_TRUE(store.clients().describe(child.client).ends_with("unknown process)"));
  ASSERT_TRUE(os::send_some(liveness.get(), std::array<std::uint8_t, 1>{}).is_ok());
  turn();
  EXPECT_EQ(store.clients().find(child.client)->identity.pid, static_cast<std::uint32_t>(os::current_pid()));
  ASSERT_TRUE(os::send_some(liveness.get(), std::array<std::uint8_t, 64>{}).is_ok());  // wakes the loop no more
  EXPECT_EQ(client_of(peer), child.client);
  parent.liveness.reset();
  turn();
  EXPECT_FALSE(is_client(parent.identity.client));
  EXPECT_EQ(client_of(peer), child.client);
  liveness.reset();
  turn();
  EXPECT_FALSE(is_client(child.client));
  EXPECT_TRUE(connections.is_empty());
}

TEST_F(ClientRegistryTest, AfterTheHelloDescriptorsEndTheConnectionAChildsToo) {
  Client parent = connect();
  std::optional<Frame> answer = ask(parent.peer, MessageType::kFork, {});
  ASSERT_TRUE(answer && answer->fds.size() == 3U);
  Peer child(std::move(answer->fds[2]));
  for (Peer* peer : {&child, &parent.peer}) {
    std::vector<UniqueFd> fds;
    fds.push_back(os::duplicate(parent.pin_table.get()).take());
    const std::optional<Frame> refusal = ask(*peer, MessageType::kStatus, {}, std::move(fds));
    ASSERT_TRUE(refusal);
    EXPECT_EQ(status_of(*refusal).message(), "only a Hello may carry descriptors");
    turn();
    EXPECT_TRUE(peer->receive().empty());
    EXPECT_TRUE(peer->is_closed);
  }
}

TEST_F(ClientRegistryTest, PinTablesGrowUpToTheirCapacity) {
  Client client = connect();
  const std::uint32_t number = client.identity.client;
  const std::uint32_t before = store.pins().reserved_pins(number);
  const std::uint64_t charged = store.budget().granted(BudgetItem::kPinTables);
  const auto same = registry->grow_pins(number, before);
  ASSERT_TRUE(same.is_ok());
  EXPECT_EQ(*same, before);
  const auto grown = registry->grow_pins(number, before + 1);
  ASSERT_TRUE(grown.is_ok()) << grown.status().to_string();
  EXPECT_GE(*grown, 2 * before) << "growing is rare";
  EXPECT_EQ(store.pins().reserved_pins(number), *grown);
  EXPECT_GT(store.budget().granted(BudgetItem::kPinTables), charged);
  EXPECT_EQ(registry->grow_pins(number, kMaxPinsPerClient + 1).code(), Code::kStoreFull);
  EXPECT_FALSE(registry->grow_pins(number + 1, 1).is_ok()) << "there is no such client";
  client.liveness.reset();
  turn();
  EXPECT_EQ(store.budget().granted(BudgetItem::kPinTables), 0U);
}

TEST_F(ClientRegistryTest, AdoptedClientsEndWithTheirLivenessSocketAndAtOnceIfItIsLost) {
  Client client = connect();
  Client lost = connect();
  registry.reset();  // as if the daemon had died
  link.drop({DescriptorKind::kLiveness, lost.identity.client});
  registry.emplace(loop, connections, link, memory, store);
  registry->watch_adopted_clients();
  EXPECT_FALSE(is_client(lost.identity.client));
  EXPECT_TRUE(is_client(client.identity.client));
  turn();
  EXPECT_FALSE(keeper_has(DescriptorKind::kPinTable, lost.identity.client));
  client.liveness.reset();
  turn();
  EXPECT_FALSE(is_client(client.identity.client));
}

}  // namespace
}  // namespace entrepot
