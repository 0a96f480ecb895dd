// Values that are made in the store's memory, without NumPy and Arrow.
#include "client/value_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <future>
#include <thread>

#include "client/support.h"
#include "os/clock.h"
#include "os/process.h"

namespace entrepot::testing {
namespace {

constexpr std::uint64_t kBytes = 3U << 20;

class ValueMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    client_ = connect(store_);
    session_ = client_->open_session("scope", "", std::nullopt, {}).take();
    active_ = activate(client_);
  }
  void TearDown() override { memory().deactivate(active_); }

  static ValueMemory& memory() { return ValueMemory::instance(); }
  static std::uint64_t activate(const std::shared_ptr<Client>& client) {
    return memory().activate([weak = std::weak_ptr(client)] { return weak.lock(); });
  }
  // On a busy machine, the store may take too long to provide memory, and is not asked again at once.
  static std::byte* allocate(std::uint64_t bytes, bool zeroed) {
    std::byte* data = nullptr;
    static_cast<void>(eventually([&] {
      data = memory().allocate(bytes, zeroed);
      return data != nullptr;
    }));
    return data;
  }
  static std::uint8_t* make(std::uint64_t bytes, std::uint32_t seed) {
    auto* const data = reinterpret_cast<std::uint8_t*>(allocate(bytes, false));
    if (data != nullptr) fill(data, bytes, seed);
    return data;
  }
  PutItem item_over(const std::uint8_t* data, std::uint64_t bytes) const {
    PutItem item;
    item.id = os::random_id();
    item.session = session_;
    item.tree = "tree";
    item.fresh_id = true;
    item.buffers = {{data, bytes}};
    return item;
  }
  std::vector<std::uint8_t> read(const IdBytes& id) {
    const auto object = get_one(*client_, id);
    EXPECT_TRUE(object.is_ok()) << object.status().to_string();
    if (!object.is_ok()) return {};
    const BufferView& view = (*object)->buffers()[0];
    const auto* const data = reinterpret_cast<const std::uint8_t*>(view.data);
    return {data, data + view.length};
  }

  StoreProcess store_;
  std::shared_ptr<Client> client_;
  std::uint32_t session_ = 0;
  std::uint64_t active_ = 0;
};

TEST_F(ValueMemoryTest, APutSealsAValueWhereItIs) {
  std::uint8_t* const data = make(kBytes, 1);
  ASSERT_NE(data, nullptr);
  const PutItem item = item_over(data, kBytes);
  const std::uint64_t sealed = memory().counts().sealed;
  ASSERT_TRUE(put_one(*client_, item).status.is_ok());
  EXPECT_EQ(memory().counts().sealed, sealed + 1);
  EXPECT_EQ(read(item.id), pattern(kBytes, 1));
  EXPECT_EQ(std::memcmp(data, pattern(kBytes, 1).data(), kBytes), 0);
  EXPECT_TRUE(memory().free(data));
  EXPECT_FALSE(memory().free(data));
  EXPECT_EQ(read(item.id), pattern(kBytes, 1));
}

TEST_F(ValueMemoryTest, WritesAfterThePutStayInTheProcess) {
  std::uint8_t* const data = make(kBytes, 2);
  const PutItem item = item_over(data, kBytes);
  ASSERT_TRUE(put_one(*client_, item).status.is_ok());
  std::memset(data, 0xee, kBytes);
  EXPECT_EQ(read(item.id), pattern(kBytes, 2));
  EXPECT_EQ(data[kBytes - 1], 0xee);
  const PutItem changed = item_over(data, kBytes);  // copied: what is there now
  ASSERT_TRUE(put_one(*client_, changed).status.is_ok());
  EXPECT_EQ(read(changed.id), std::vector<std::uint8_t>(kBytes, 0xee));
  EXPECT_EQ(read(item.id), pattern(kBytes, 2));
  EXPECT_TRUE(memory().free(data));
}

TEST_F(ValueMemoryTest, AValueStaysAfterItsObjectWasDeleted) {
  std::uint8_t* const data = make(kBytes, 3);
  const PutItem item = item_over(data, kBytes);
  ASSERT_TRUE(put_one(*client_, item).status.is_ok());
  ASSERT_EQ(client_->remove(std::span(&item.id, 1), {}).take().front(), 1);
  EXPECT_EQ(number(*client_, "deferred_frees"), 1U);
  for (std::uint32_t seed = 10; seed < 40; ++seed) {  // takes what is free
    ASSERT_TRUE(put_one(*client_, item_of(session_, {pattern(1U << 20, seed)})).status.is_ok());
  }
  EXPECT_EQ(std::memcmp(data, pattern(kBytes, 3).data(), kBytes), 0);
  EXPECT_TRUE(memory().free(data));
  EXPECT_TRUE(eventually([&] { return number(*client_, "deferred_frees") == 0; }));
}

TEST_F(ValueMemoryTest, LessThanHalfIsCopied) {
  std::uint8_t* const data = make(kBytes, 4);
  const std::uint64_t sealed = memory().counts().sealed;
  const PutItem part = item_over(data + 100, kBytes / 3);
  ASSERT_TRUE(put_one(*client_, part).status.is_ok());
  EXPECT_EQ(memory().counts().sealed, sealed);
  EXPECT_EQ(std::memcmp(read(part.id).data(), pattern(kBytes, 4).data() + 100, kBytes / 3), 0);
  const PutItem most = item_over(data + 100, kBytes - 200);
  ASSERT_TRUE(put_one(*client_, most).status.is_ok());
  EXPECT_EQ(memory().counts().sealed, sealed + 1);
  EXPECT_EQ(std::memcmp(read(most.id).data(), pattern(kBytes, 4).data() + 100, kBytes - 200), 0);
  EXPECT_TRUE(memory().free(data));
}

TEST_F(ValueMemoryTest, AChildInheritsValuesAndWritesToItsOwn) {
  std::uint8_t* const written = make(kBytes, 5);
  std::uint8_t* const sealed = make(kBytes, 6);
  const PutItem item = item_over(sealed, kBytes);
  ASSERT_TRUE(put_one(*client_, item).status.is_ok());
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(go[1]);
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) ::_exit(1);  // the parent has changed and freed both
    if (std::memcmp(written, pattern(kBytes, 5).data(), kBytes) != 0) ::_exit(2);
    if (std::memcmp(sealed, pattern(kBytes, 6).data(), kBytes) != 0) ::_exit(3);
    std::memset(written, 1, kBytes);
    std::memset(sealed, 1, kBytes);
    if (!memory().free(written) || !memory().free(sealed)) ::_exit(4);
    ::_exit(0);
  }
  EXPECT_EQ(std::memcmp(written, pattern(kBytes, 5).data(), kBytes), 0);
  std::memset(written, 2, kBytes);
  EXPECT_TRUE(memory().free(written));
  EXPECT_TRUE(memory().free(sealed));
  ASSERT_EQ(client_->remove(std::span(&item.id, 1), {}).take().front(), 1);
  for (std::uint32_t seed = 10; seed < 40; ++seed)
    ASSERT_TRUE(put_one(*client_, item_of(session_, {pattern(1U << 20, seed)})).status.is_ok());
  ASSERT_EQ(::write(go[1], "1", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status), 0);
  ::close(go[0]);
  ::close(go[1]);
  EXPECT_TRUE(eventually([&] { return number(*client_, "deferred_frees") == 0; }));
}

TEST_F(ValueMemoryTest, ValuesOutliveTheClient) {
  std::uint8_t* const written = make(kBytes, 7);
  std::uint8_t* const sealed = make(kBytes, 8);
  ASSERT_TRUE(put_one(*client_, item_over(sealed, kBytes)).status.is_ok());
  client_.reset();
  EXPECT_EQ(memory().allocate(kBytes, false), nullptr);
  client_ = connect(store_);
  session_ = client_->open_session("scope", "", std::nullopt, {}).take();
  for (std::uint32_t seed = 10; seed < 40; ++seed)
    ASSERT_TRUE(put_one(*client_, item_of(session_, {pattern(1U << 20, seed)})).status.is_ok());
  EXPECT_EQ(std::memcmp(written, pattern(kBytes, 7).data(), kBytes), 0);
  EXPECT_EQ(std::memcmp(sealed, pattern(kBytes, 8).data(), kBytes), 0);
  const PutItem item = item_over(written, kBytes);  // another client's: copied
  ASSERT_TRUE(put_one(*client_, item).status.is_ok());
  EXPECT_EQ(read(item.id), pattern(kBytes, 7));
  EXPECT_TRUE(memory().free(written));
  EXPECT_TRUE(memory().free(sealed));
}

TEST_F(ValueMemoryTest, ZeroedMemoryIsZeroAlsoWhereOtherValuesWere) {
  std::uint8_t* const first = make(kBytes, 9);
  EXPECT_TRUE(memory().free(first));
  auto* const second = reinterpret_cast<std::uint8_t*>(allocate(kBytes, true));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(std::vector<std::uint8_t>(second, second + kBytes), std::vector<std::uint8_t>(kBytes, 0));
  EXPECT_TRUE(memory().free(second));
}

TEST_F(ValueMemoryTest, NoMoreThanHalfOfTheStore) {
  const std::uint64_t capacity = client_->server().capacity_bytes;
  EXPECT_EQ(memory().allocate(capacity / 2 + (1U << 20), false), nullptr);
  std::vector<std::byte*> all;
  for (std::uint64_t bytes = 0; bytes < capacity / 4; bytes += 4U << 20) {
    all.push_back(allocate(4U << 20, false));
    ASSERT_NE(all.back(), nullptr);
  }
  while (std::byte* const data = memory().allocate(4U << 20, false))
    all.push_back(data);
  EXPECT_LE(all.size() * (4U << 20), capacity / 2);
  for (std::byte* const data : all)
    EXPECT_TRUE(memory().free(data));
  EXPECT_TRUE(eventually([&] { return number(*client_, "leased_bytes") == 0; }));  // returned when idle
}

TEST_F(ValueMemoryTest, AFailedSealLeavesTheValueToBeCopied) {
  std::uint8_t* const data = make(kBytes, 11);
  PutItem wrong = item_over(data, kBytes);
  wrong.session = 4'711;
  EXPECT_FALSE(put_one(*client_, wrong).status.is_ok());
  fill(data, kBytes, 12);
  const PutItem item = item_over(data, kBytes);
  ASSERT_TRUE(put_one(*client_, item).status.is_ok());
  EXPECT_EQ(read(item.id), pattern(kBytes, 12));
  EXPECT_TRUE(memory().free(data));
  EXPECT_EQ(client_->pins_in_use(), 0U);
}

TEST_F(ValueMemoryTest, ThreadsThatPutOneValueStoreItsBytes) {
  for (std::uint32_t round = 0; round < 20; ++round) {
    std::uint8_t* const data = make(kBytes, round);
    ASSERT_NE(data, nullptr);
    std::array<PutItem, 3> items;
    std::vector<std::thread> threads;
    for (PutItem& item : items) {
      item = item_over(data, kBytes);
      threads.emplace_back([&] { EXPECT_TRUE(put_one(*client_, item).status.is_ok()); });
    }
    for (std::thread& thread : threads)
      thread.join();
    EXPECT_TRUE(memory().free(data));
    for (const PutItem& item : items) {
      EXPECT_EQ(read(item.id), pattern(kBytes, round));
      ASSERT_EQ(client_->remove(std::span(&item.id, 1), {}).take().front(), 1);
    }
  }
}

TEST_F(ValueMemoryTest, ADaemonsDeathDuringUseLosesNothing) {
  std::uint8_t* const before = make(kBytes, 13);
  std::uint8_t* const sealed = make(kBytes, 14);
  const PutItem first = item_over(sealed, kBytes);
  ASSERT_TRUE(put_one(*client_, first).status.is_ok());
  store_.kill(store_.daemon_pid());
  const PutItem second = item_over(before, kBytes);
  ASSERT_TRUE(put_one(*client_, second).status.is_ok());
  for (std::uint32_t seed = 20; seed < 40; ++seed)
    ASSERT_TRUE(put_one(*client_, item_of(session_, {pattern(1U << 20, seed)})).status.is_ok());
  EXPECT_EQ(read(first.id), pattern(kBytes, 14));
  EXPECT_EQ(read(second.id), pattern(kBytes, 13));
  EXPECT_EQ(std::memcmp(before, pattern(kBytes, 13).data(), kBytes), 0);
  EXPECT_TRUE(memory().free(before));
  EXPECT_TRUE(memory().free(sealed));
}

// What a value waits for at most, with room for a busy machine.
constexpr std::uint64_t kBoundMs = 5'000;

template <class Work>
std::uint64_t milliseconds_of(const Work& work) {
  const std::uint64_t begin_ns = os::monotonic_ns();
  work();
  return (os::monotonic_ns() - begin_ns) / 1'000'000;
}

TEST_F(ValueMemoryTest, AStoreThatHasJustStartedProvidesALargeValue) {
  memory().deactivate(active_);
  StoreProcess fresh({"--size=1GiB", "--warm-bytes=8MiB"});
  const auto client = connect(fresh);
  active_ = activate(client);
  const std::uint64_t bytes = 256U << 20;
  std::byte* const data = allocate(bytes, false);
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(number(*client, "leased_bytes"), bytes);
  EXPECT_TRUE(memory().free(data));
  EXPECT_TRUE(eventually([&] { return number(*client, "leased_bytes") == 0; }));
}

TEST_F(ValueMemoryTest, AFullStoreDoesNotHoldUpItsClients) {
  for (std::uint32_t seed = 0; seed < 5; ++seed)
    ASSERT_TRUE(put_one(*client_, item_of(session_, {pattern(10U << 20, seed)})).status.is_ok());
  const std::uint64_t refused = memory().counts().refused;
  const std::uint64_t took_ms =
      milliseconds_of([&] { EXPECT_EQ(memory().allocate(30U << 20, false), nullptr); });  // of 64 MiB
  EXPECT_EQ(memory().counts().refused, refused + 1);
  EXPECT_LT(took_ms, kBoundMs);
}

TEST_F(ValueMemoryTest, ADaemonThatStandsStillOrDiesDoesNotHoldUpItsClients) {
  const auto daemon = static_cast<pid_t>(store_.daemon_pid());
  const auto keeper = static_cast<pid_t>(store_.keeper_pid());
  const auto refused_ms = [] {
    return milliseconds_of([] { EXPECT_EQ(memory().allocate(20U << 20, false), nullptr); });
  };
  const auto other = connect(store_);                     // has not been refused anything yet
  ASSERT_TRUE(os::send_signal(keeper, SIGSTOP).is_ok());  // restarts nothing
  ASSERT_TRUE(os::send_signal(daemon, SIGSTOP).is_ok());
  EXPECT_LT(refused_ms(), kBoundMs);
  const std::uint64_t active = activate(other);
  std::promise<void> begun;
  auto waited_ms = std::async(std::launch::async, [&] {
    begun.set_value();
    return refused_ms();
  });
  begun.get_future().wait();
  store_.kill(static_cast<std::uint32_t>(daemon));
  EXPECT_LT(waited_ms.get(), kBoundMs);
  ASSERT_TRUE(os::send_signal(keeper, SIGCONT).is_ok());
  std::byte* const data = allocate(20U << 20, false);  // from the next daemon
  ASSERT_NE(data, nullptr);
  EXPECT_TRUE(memory().free(data));
  memory().deactivate(active);
}

}  // namespace
}  // namespace entrepot::testing
