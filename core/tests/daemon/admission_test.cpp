// Admission of clients; a hostile or careless client harms nobody else.
#include <sys/stat.h>

#include <map>
#include <random>

#include "daemon/store_process.h"
#include "net/frame_socket.h"
#include "os/memfd.h"
#include "os/socket.h"

namespace entrepot::testing {
namespace {

// Whether the store closes the connection within the watchdog's timeout.
bool is_closed(const RawClient& client) {
  return eventually([&] { return client.is_hung_up(); });
}

TEST(Admission, OtherVersionsAreToldBothVersions) {
  StoreProcess store;
  for (int what = 0; what < 6; ++what) {
    RawClient client(store.path());
    Hello hello;
    hello.client_version = "9.9.9";
    if (what == 0) hello.protocol_major = kProtocolMajor + 1;
    if (what == 1) hello.protocol_minor = kProtocolMinor + 2;
    if (what == 2) hello.layout_version = kLayoutVersion + 1;
    if (what == 3) hello.abi_stamp = kAbiStamp ^ 1;             // different messages
    if (what == 4) hello.abi_stamp = kAbiStamp ^ (1ULL << 40);  // different control memory
    if (what == 5) {                                            // different control memory, whatever the minor version
      hello.protocol_minor = kProtocolMinor + 1;
      hello.abi_stamp = kAbiStamp ^ (1ULL << 40);
    }
    const Status refused = client.say_hello(hello);
    EXPECT_EQ(refused.code(), Code::kVersionMismatch) << what;
    EXPECT_EQ(refused.message().find("another build") != std::string::npos, what >= 3) << refused.message();
    EXPECT_NE(refused.message().find("entrepot stop"), std::string::npos) << refused.message();
    EXPECT_NE(refused.message().find("9.9.9"), std::string::npos) << refused.message();
    EXPECT_TRUE(is_closed(client));
  }
  RawClient near(store.path());
  Hello hello;
  hello.protocol_minor = kProtocolMinor + 1;
  hello.abi_stamp = kAbiStamp ^ 1;  // a different minor version may have different messages
  EXPECT_TRUE(near.say_hello(hello).is_ok());
}

TEST(Admission, HelloComesFirst) {
  StoreProcess store;
  RawClient client(store.path());
  const Answer answer = client.ask(MessageType::kStatus, {});
  EXPECT_EQ(answer.status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(is_closed(client));
}

TEST(Admission, ATokenAloneIsNoProof) {
  StoreProcess store;
  RawClient victim = store.client();
  RawClient thief = store.client();
  Hello hello;
  hello.token = victim.identity.token;
  hello.client = victim.identity.client;
  {
    RawClient attempt(store.path());
    EXPECT_EQ(attempt.say_hello(hello).code(), Code::kAccessDenied);  // no table
  }
  {
    RawClient attempt(store.path());
    EXPECT_EQ(attempt.say_hello(hello, thief.pin_table.get()).code(), Code::kAccessDenied);  // another client's table
  }
  {
    RawClient attempt(store.path());
    hello.token ^= 1;
    EXPECT_EQ(attempt.say_hello(hello, victim.pin_table.get()).code(), Code::kAccessDenied);  // wrong token
  }
  EXPECT_NE(victim.status(), "");  // the victim was not disturbed
}

TEST(Admission, WhatIsShownIsUtf8) {
  StoreProcess store;
  RawClient client(store.path());
  Hello hello;
  hello.label = std::string(46, 'x') + "\xe2\x82\xac";  // one byte too long: the last character is removed whole
  ASSERT_TRUE(client.say_hello(hello).is_ok());
  EXPECT_NE(client.status().find("\"" + std::string(46, 'x') + "\""), std::string::npos) << client.status();
  const std::uint32_t session = client.open();
  ASSERT_TRUE(client.seal_inline(IdBytes{1}, "value").is_ok());
  const std::string bad = "ab\xff";
  std::map<std::string, Status> refused;
  const auto ask = [&](const std::string& what, MessageType type, const auto& request) {
    refused[what] = client.ask(type, to_wire(request)).status;
  };
  ask("scope", MessageType::kOpenSession, OpenSessionRequest{bad, "s"});
  ask("session's name", MessageType::kOpenSession, OpenSessionRequest{"scope", bad});
  ask("name", MessageType::kBindName, NameRequest{session, bad, IdBytes{1}, 0, 0});
  DefineSetRequest set;
  set.session = session;
  set.name = bad;
  ask("locality set's name", MessageType::kDefineSet, set);
  for (const auto& [what, status] : refused) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << what;
    EXPECT_NE(status.message().find("the " + what + " 'ab?' is not UTF-8: byte 2 is 255"), std::string::npos)
        << status.message();
  }
  // Of several objects in a request, the valid ones are sealed.
  SealRequest seal;
  for (std::uint8_t i = 2; i < 5; ++i) {
    SealObject object;
    object.id = IdBytes{i};
    object.session = session;
    object.payload = "value";
    object.name = i == 3 ? bad : "";
    seal.objects.push_back(object);
  }
  const auto sealed = client.call<SealReply>(MessageType::kSeal, seal);
  ASSERT_TRUE(sealed.is_ok()) << sealed.status().to_string();
  ASSERT_EQ(sealed->results.size(), 3U);
  EXPECT_EQ(sealed->results[0].code, Code::kOk) << sealed->results[0].message;
  EXPECT_EQ(sealed->results[1].code, Code::kInvalidArgument);
  EXPECT_NE(sealed->results[1].message.find("not UTF-8"), std::string::npos) << sealed->results[1].message;
  EXPECT_EQ(sealed->results[2].code, Code::kOk) << sealed->results[2].message;
  EXPECT_EQ(client.lookup(IdBytes{3}).code, Code::kObjectNotFound);
  EXPECT_EQ(client.json(MessageType::kListSessions).find("ufffd"), std::string::npos);
}

// Each held range takes memory in the daemon: with one-byte ranges, a Hello of a few megabytes would take hundreds.
TEST(Admission, MoreLeasesThanAClientCanUseAreRefused) {
  StoreProcess store({"--size=64MiB", "--warm-bytes=0"});
  RawClient client = store.client();
  const auto lease = client.call<LeaseReply>(MessageType::kLease, LeaseRequest{1 << 20, 1 << 20, 5000});
  ASSERT_TRUE(lease.is_ok()) << lease.status().to_string();
  Hello hello;
  hello.token = client.identity.token;
  hello.client = client.identity.client;
  hello.reports_leases = 1;
  for (std::uint64_t i = 0; i <= kMaxReportedRanges; ++i)
    hello.leases.push_back({lease->segment, lease->segment_generation, lease->offset + 2 * i, 1});
  {
    RawClient attempt(store.path());
    const Status refused = attempt.say_hello(hello, client.pin_table.get());
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_NE(refused.message().find("65537 leased ranges"), std::string::npos) << refused.message();
    EXPECT_TRUE(is_closed(attempt));
  }
  EXPECT_NE(client.status(), "");  // its connection was not disturbed
  hello.leases.pop_back();
  RawClient back(store.path());
  EXPECT_TRUE(back.say_hello(hello, client.pin_table.get()).is_ok());
  EXPECT_EQ(json_number(back.status(), "leased_bytes"), kMaxReportedRanges);
}

TEST(Admission, AClientThatDoesNotReadIsClosedAndNobodyElseNotices) {
  StoreProcess store({"--size=64MiB", "--warm-bytes=0"});
  RawClient other = store.client();
  for (std::uint8_t i = 0; i < 200; ++i) {
    IdBytes id{};
    id[0] = 1;
    id[1] = i;
    ASSERT_TRUE(other.seal_inline(id, "x").is_ok());
  }
  RawClient deaf = store.client();
  ASSERT_TRUE(os::set_nonblocking(deaf.fd(), true).is_ok());
  ListRequest list;
  list.all_sessions = 1;
  const std::vector<std::uint8_t> frame = frame_bytes(MessageType::kList, 1, to_wire(list), 0);
  Status status;
  const auto fills = [&] {
    for (int i = 0; i < 200; ++i) {
      const auto sent = os::send_some(deaf.fd(), frame);
      if (!sent.is_ok()) return true;
      if (sent->would_block || sent->bytes != frame.size()) break;
    }
    return false;
  };
  bool closed = eventually(fills);
  for (int more = 0; !closed && more < 4; ++more)
    closed = eventually(fills);  // writing that much takes long under TSan
  EXPECT_TRUE(closed);
  EXPECT_EQ(other.lookup(IdBytes{1, 7}).code, Code::kOk);
}

TEST(Admission, RandomRequestsNeverHurtTheStore) {
  StoreProcess store({"--size=64MiB", "--warm-bytes=0"});
  RawClient witness = store.client();
  ASSERT_TRUE(witness.seal_inline(kA, "untouched").is_ok());
  const auto before = witness.lookup(kA);
  std::mt19937 random(11);
  for (int round = 0; round < 150; ++round) {
    RawClient client = store.client();
    std::vector<std::uint8_t> stream;
    for (int part = 0; part < 20; ++part) {
      std::vector<std::uint8_t> body(random() % 120);
      for (auto& byte : body)
        byte = static_cast<std::uint8_t>(random() % 3 == 0 ? random() : 0);
      auto type = static_cast<MessageType>(random() % 50);
      // These would do what they are meant to.
      if (type == MessageType::kShutdown || type == MessageType::kRemoveSession) type = MessageType::kStatus;
      const auto frame = frame_bytes(type, random(), body, random() % 10 == 0 ? 1 : 0);
      stream.insert(stream.end(), frame.begin(), frame.end());
    }
    (void)os::send_all(client.fd(), stream, {}, os::Deadline::after_ms(5000));
  }
  EXPECT_EQ(json_number(witness.status(), "pid"), witness.identity.daemon_pid);  // the daemon did not die
  EXPECT_EQ(witness.lookup(kA).slot, before.slot);
  EXPECT_EQ(witness.lookup(kA).generation, before.generation);
  EXPECT_TRUE(eventually([&] { return json_number(witness.status(), "leased_bytes") == 0; }));
}

TEST(Admission, TooManyObjectsInOneRequestAreRefused) {
  StoreProcess store;
  RawClient client = store.client();
  const Answer answer =
      client.ask(MessageType::kLookup, to_wire(LookupRequest{std::vector<IdBytes>(kMaxBatch + 1), 0}));
  EXPECT_EQ(answer.status.code(), Code::kInvalidArgument);
  EXPECT_EQ(client.lookup(kA).code, Code::kObjectNotFound);  // the connection stays open
}

TEST(Start, OfManyAtOnceOneWins) {
  Scratch folder;
  const std::string address = "--address=unix://" + folder.path("s.sock");
  std::vector<pid_t> started;
  for (int i = 0; i < 12; ++i) {
    os::SpawnOptions spawn;
    spawn.program = ENTREPOTD_PATH;
    spawn.argv = {"entrepotd", address, "--size=64MiB", "--warm-bytes=0", "--log-file=" + folder.path("log")};
    const auto child = os::spawn(spawn);
    ASSERT_TRUE(child.is_ok());
    started.push_back(child->pid);
  }
  RawClient client(folder.path("s.sock"));
  ASSERT_TRUE(client.say_hello().is_ok());
  std::size_t lost = 0;
  EXPECT_TRUE(eventually([&] {
    std::erase_if(started, [&](pid_t pid) {
      const auto status = os::reap(pid);
      if (!status) return false;
      EXPECT_FALSE(status->signalled);
      EXPECT_EQ(status->code, 1);
      ++lost;
      return true;
    });
    return lost == 11;
  })) << lost;
  ASSERT_EQ(started.size(), 1U);
  EXPECT_EQ(json_number(client.status(), "keeper_pid"), static_cast<std::uint64_t>(started[0]));
  EXPECT_TRUE(client.ask(MessageType::kShutdown, {}).status.is_ok());
  EXPECT_TRUE(eventually([&] { return os::reap(started[0]).has_value(); }));
}

TEST(Start, WhatCannotWorkIsSaidAtOnce) {
  Scratch folder;
  std::string output;
  const std::string address = "--address=unix://" + folder.path("s.sock");
  EXPECT_EQ(run_until_exit({address, "--size=4000TiB"}, folder, output), 1);
  EXPECT_NE(output.find("3.9 PiB"), std::string::npos) << output;
  EXPECT_EQ(run_until_exit({address, "--size=1MiB"}, folder, output), 1);
  EXPECT_EQ(run_until_exit({address, "--size=4GB"}, folder, output), 2);
  EXPECT_NE(output.find("4GiB"), std::string::npos) << output;
  EXPECT_EQ(run_until_exit({address, "--frobnicate=1"}, folder, output), 2);
  EXPECT_NE(output.find("--frobnicate"), std::string::npos) << output;
  EXPECT_EQ(run_until_exit({address, "--spill-path=/tmp"}, folder, output), 1);
  EXPECT_NE(output.find("is shared by all users"), std::string::npos) << output;
  EXPECT_EQ(run_until_exit({}, folder, output), 2);
  EXPECT_NE(output.find("--address"), std::string::npos) << output;
  EXPECT_EQ(run_until_exit({"--address=tcp://host:1"}, folder, output), 2);

  folder.write("config", "size = 64MiB\nsiez = 1\n");
  EXPECT_EQ(run_until_exit({address, "--config=" + folder.path("config")}, folder, output), 2);
  EXPECT_NE(output.find("line 2"), std::string::npos) << output;
  EXPECT_NE(output.find("siez"), std::string::npos) << output;

  folder.write("open/file", "");
  ASSERT_EQ(::chmod(folder.path("open").c_str(), 0777), 0);
  EXPECT_EQ(run_until_exit({"--address=unix://" + folder.path("open/s.sock"), "--size=64MiB"}, folder, output), 1);
  EXPECT_NE(output.find(folder.path("open")), std::string::npos) << output;

  folder.write("file", "not a socket");
  EXPECT_EQ(run_until_exit({"--address=unix://" + folder.path("file"), "--size=64MiB"}, folder, output), 1);
  EXPECT_NE(output.find("not a socket"), std::string::npos) << output;
}

TEST(Start, AnAddressInUseNamesWhoUsesIt) {
  StoreProcess store;
  std::string output;
  EXPECT_EQ(run_until_exit({"--address=unix://" + store.path(), "--size=64MiB"}, store.folder(), output), 1);
  EXPECT_NE(output.find(std::to_string(store.first_pid())), std::string::npos) << output;
  // Also if the process that took the lock has died and the store lives on.
  RawClient client = store.client();
  store.kill(static_cast<std::uint32_t>(store.first_pid()));
  EXPECT_EQ(run_until_exit({"--address=unix://" + store.path(), "--size=64MiB"}, store.folder(), output), 1);
  EXPECT_NE(client.status(), "");
}

TEST(Start, VersionAndHelp) {
  Scratch folder;
  std::string output;
  EXPECT_EQ(run_until_exit({"--version"}, folder, output), 0);
  EXPECT_EQ(run_until_exit({"--help"}, folder, output), 0);
}

}  // namespace
}  // namespace entrepot::testing
