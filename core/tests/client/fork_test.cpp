// Fork without Python: the child's pins are its own from the start.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "client/support.h"

namespace entrepot::testing {
namespace {

// Runs `work` in a child; its result is the exit code.
template <class Work>
pid_t in_child(Work&& work) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(work());
  return pid;
}

int exit_code(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

TEST(Fork, TheChildsPinHoldsAfterTheParentLetGo) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  const auto bytes = pattern(200'000, 1);
  const PutItem item = item_of(session, {bytes});
  ASSERT_TRUE(put_one(*client, item).status.is_ok());
  auto held = get_one(*client, item.id).take();
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  const pid_t child = in_child([&] {
    ::close(go[1]);
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) return 1;
    if (std::memcmp(held->buffers()[0].data, bytes.data(), bytes.size()) != 0) return 2;
    const PutItem mine = item_of(session, {pattern(150'000, 2)});
    if (!put_one(*client, mine).status.is_ok()) return 3;
    if (!get_one(*client, mine.id).is_ok()) return 4;
    return number(*client, "pid") == 0 ? 5 : 0;
  });
  held.reset();
  ASSERT_EQ(client->remove(std::span(&item.id, 1), {}).take().front(), 1);
  EXPECT_EQ(number(*client, "deferred_frees"), 1U);
  ASSERT_EQ(::write(go[1], "1", 1), 1);
  EXPECT_EQ(exit_code(child), 0);
  ::close(go[0]);
  ::close(go[1]);
  EXPECT_TRUE(eventually([&] { return number(*client, "deferred_frees") == 0; }));
}

TEST(Fork, AnUnsealedBlobIsCopiedForTheChild) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  const auto blob = client->create(300'000, 10'000, {}).take();
  std::memset(blob->data(), 1, 300'000);
  const pid_t child = in_child([&] {
    if (blob->data()[299'999] != std::byte{1}) return 1;
    std::memset(blob->data(), 2, 300'000);
    return client->seal(*blob, item_of(session, {}), {}).status.code() == Code::kNotSealed ? 0 : 2;
  });
  EXPECT_EQ(exit_code(child), 0);
  EXPECT_EQ(blob->data()[0], std::byte{1});
  const PutItem item = item_of(session, {});
  ASSERT_TRUE(client->seal(*blob, item, {}).status.is_ok());
  EXPECT_EQ(get_one(*client, item.id).take()->buffers()[0].data[7], std::byte{1});
}

TEST(Fork, WithoutADaemonTheChildIsToldWhy) {
  StoreProcess store;
  const auto client = connect(store);
  ASSERT_TRUE(client->shutdown({}).is_ok());
  ASSERT_TRUE(store.wait_exit().is_ok());
  const pid_t child = in_child([&] {
    const auto status = client->status({});
    return status.code() == Code::kStoreUnavailable && status.status().message().find("fork") != std::string::npos ? 0
                                                                                                                   : 1;
  });
  EXPECT_EQ(exit_code(child), 0);
}

// An unregistered child relies on its parent's pins, so the parent must keep them.
class ForkWithoutARegistration : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(put_one(*client, item).status.is_ok());
    held = get_one(*client, item.id).take();
    client->close();
    ASSERT_EQ(::pipe(go), 0);
    ASSERT_EQ(::pipe(done), 0);
  }
  [[nodiscard]] bool is_whole() const { return std::memcmp(held->buffers()[0].data, bytes.data(), bytes.size()) == 0; }
  void await_child() const {
    char byte = 0;
    ASSERT_EQ(::read(done[0], &byte, 1), 1);
  }
  void let_child_go_on() const { ASSERT_EQ(::write(go[1], "1", 1), 1); }
  // Deletes the object, and overwrites all free memory.
  void overwrite() {
    ASSERT_EQ(other->remove(std::span(&item.id, 1), {}).take().front(), 1);
    for (std::uint32_t i = 0; i < 40; ++i)
      ASSERT_TRUE(put_one(*other, item_of(session, {pattern(bytes.size(), 100 + i)})).status.is_ok());
  }

  StoreProcess store;
  std::shared_ptr<Client> client = connect(store);
  std::shared_ptr<Client> other = connect(store);
  std::uint32_t session = other->open_session("scope", "", std::nullopt, {}).take();
  std::vector<std::uint8_t> bytes = pattern(200'000, 1);
  PutItem item = item_of(client->open_session("scope", "", std::nullopt, {}).take(), {bytes});
  std::shared_ptr<SealedObject> held;
  int go[2] = {-1, -1};
  int done[2] = {-1, -1};
};

TEST_F(ForkWithoutARegistration, TheChildsValueOutlivesTheParents) {
  const pid_t child = in_child([&] {
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) return 1;
    return is_whole() ? 0 : 2;
  });
  held.reset();
  overwrite();
  EXPECT_EQ(number(*other, "deferred_frees"), 1U);
  let_child_go_on();
  EXPECT_EQ(exit_code(child), 0);
}

TEST_F(ForkWithoutARegistration, TheParentsValueOutlivesTheChilds) {
  const pid_t child = in_child([&] {
    held.reset();
    return ::write(done[1], "1", 1) == 1 ? 0 : 1;
  });
  await_child();
  EXPECT_EQ(exit_code(child), 0);
  overwrite();
  EXPECT_TRUE(is_whole());
  EXPECT_EQ(number(*other, "deferred_frees"), 1U);
}

TEST_F(ForkWithoutARegistration, OnlyWhatIsSharedStaysPinned) {
  const auto third = connect(store);
  auto later = get_one(*third, item.id).take();
  const pid_t child = in_child([] { return 0; });  // the third client is registered, the closed one is not
  EXPECT_EQ(exit_code(child), 0);
  later.reset();
  EXPECT_EQ(third->pins_in_use(), 0U);
  held.reset();
  EXPECT_EQ(client->pins_in_use(), 1U) << "a child may read it, as long as this process lives";
}

TEST(Fork, WhileAnotherThreadMapsSegments) {
  StoreProcess store({"--size=256MiB", "--warm-bytes=8MiB"});
  std::vector<std::shared_ptr<Client>> writers;
  std::vector<IdBytes> ids;
  for (std::uint32_t i = 0; i < 8; ++i) {
    const auto& writer = writers.emplace_back(connect(store));
    const PutItem item = item_of(writer->open_session("scope", "", std::nullopt, {}).take(), {pattern(50'000, i + 1)});
    ASSERT_TRUE(put_one(*writer, item).status.is_ok());
    ids.push_back(item.id);
  }
  for (int turn = 0; turn < 20; ++turn) {
    const auto reader = connect(store);
    std::atomic<bool> begun{false};
    // Until then the thread goes on: in the child, TSan takes one that has ended for a leak.
    std::atomic<bool> forked{false};
    std::thread thread([&] {
      begun = true;
      begun.notify_one();
      EXPECT_TRUE(reader->get(ids, 0, {}).is_ok());
      forked.wait(false);
    });
    begun.wait(false);
    const pid_t child = in_child([&] {
      const auto objects = reader->get(ids, 10'000, {});
      if (!objects.is_ok()) return 1;
      for (std::uint32_t i = 0; i < 8; ++i) {
        const auto bytes = pattern(50'000, i + 1);
        if (std::memcmp((*objects)[i]->buffers()[0].data, bytes.data(), bytes.size()) != 0) return 2;
      }
      return 0;
    });
    forked = true;
    forked.notify_one();
    thread.join();
    EXPECT_EQ(exit_code(child), 0);
  }
}

TEST(Fork, AnotherThreadsPinIsNotTheChilds) {
  StoreProcess store;
  const auto client = connect(store);
  const auto session = client->open_session("scope", "", std::nullopt, {}).take();
  PutItem small = item_of(session, {pattern(100, 3)});
  ASSERT_TRUE(put_one(*client, small).status.is_ok());
  std::atomic<bool> pinned{false};
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    InlineObject object;
    EXPECT_TRUE(client->peek(small.id, object));
    pinned = true;
    pinned.notify_one();
    stop.wait(false);
  });
  pinned.wait(false);
  EXPECT_EQ(client->pins_in_use(), 1U);
  // Nothing in the child would ever release it.
  const pid_t child = in_child([&] { return static_cast<int>(client->pins_in_use()); });
  EXPECT_EQ(exit_code(child), 0);
  stop = true;
  stop.notify_one();
  reader.join();
  EXPECT_EQ(client->pins_in_use(), 0U);
}

}  // namespace
}  // namespace entrepot::testing
