// Fork, without Python: the child's pins are its own from the first instant.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

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

}  // namespace
}  // namespace entrepot::testing
