// Memory that was leased and passed on, against a real entrepotd.
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstring>
#include <memory>
#include <utility>

#include "client/support.h"
#include "os/process.h"

namespace entrepot::testing {
namespace {

constexpr std::uint64_t kRangeBytes = 100'000;
constexpr std::uint32_t kLeaseMs = 10'000;

struct LeasedObjects : ::testing::Test {
  LeasedObjects() {
    object.id = kA;
    object.session = client->open_session("scope", "", std::nullopt, {}).take();
    object.tree = "tree";
  }

  StoreProcess store;
  const std::shared_ptr<Client> client = connect(store);
  ObjectSpec object;
};

TEST_F(LeasedObjects, ARangeWhoseSealIsOfUnknownOutcomeIsNeverGivenOutAgain) {
  const LeasedRange range = client->lease(kRangeBytes, 64, kLeaseMs, {}).take();
  fill(reinterpret_cast<std::uint8_t*>(range.data()), kRangeBytes, 1);
  const auto daemon = static_cast<pid_t>(store.daemon_pid());
  ASSERT_TRUE(os::send_signal(daemon, SIGSTOP).is_ok());
  const Interrupt at_once{[](void*) { return true; }, nullptr};
  const InPlaceSeal sealed = client->seal_in_place(range, object, std::array{kRangeBytes}, at_once);
  ASSERT_TRUE(os::send_signal(daemon, SIGCONT).is_ok());
  EXPECT_EQ(sealed.status.code(), Code::kTimeout) << sealed.status.to_string();
  EXPECT_FALSE(sealed.is_leased);

  // The daemon has received the request, and seals the object once it goes on.
  ASSERT_TRUE(eventually([&] { return client->find(kA, os::Deadline::never()).take() != nullptr; }));
  client->return_lease(range);  // as if it were still leased
  for (int i = 0; i < 50; ++i) {
    const LeasedRange other = client->lease(kRangeBytes, 64, kLeaseMs, {}).take();
    EXPECT_NE(other.data(), range.data());
    std::memset(other.data(), 0, kRangeBytes);
  }
  const auto stored = client->find(kA, os::Deadline::never()).take();
  const auto expected = pattern(kRangeBytes, 1);
  ASSERT_EQ(stored->buffers().size(), 1U);
  EXPECT_EQ(std::memcmp(stored->buffers()[0].data, expected.data(), kRangeBytes), 0);
}

TEST_F(LeasedObjects, ASealThatIsUnansweredAtItsDeadlineCanBeRepeated) {
  const LeasedRange range = client->lease(kRangeBytes, 64, kLeaseMs, {}).take();
  const std::uint32_t pins = client->pins_in_use();
  const auto daemon = static_cast<pid_t>(store.daemon_pid());
  ASSERT_TRUE(os::send_signal(daemon, SIGSTOP).is_ok());
  const InPlaceSeal first =
      client->seal_in_place(range, object, std::array{kRangeBytes}, {}, os::Deadline::after_ms(10));
  ASSERT_TRUE(os::send_signal(daemon, SIGCONT).is_ok());
  EXPECT_EQ(first.status.code(), Code::kTimeout) << first.status.to_string();
  EXPECT_TRUE(first.is_unanswered);
  EXPECT_TRUE(first.is_leased);
  ASSERT_TRUE(first.unanswered_pin);

  const InPlaceSeal second = client->seal_in_place(range, object, std::array{kRangeBytes}, {});
  EXPECT_TRUE(second.status.is_ok()) << second.status.to_string();  // it is the same object
  EXPECT_FALSE(second.is_unanswered);
  EXPECT_FALSE(second.is_leased);
  EXPECT_NE(second.pin, nullptr);
  EXPECT_EQ(client->pins_in_use(), pins + 2);  // one is that of the first, which nobody else knows of
  client->settle_seal(*first.unanswered_pin);
  EXPECT_EQ(client->pins_in_use(), pins + 1);
}

TEST_F(LeasedObjects, ARangeStaysLeasedIfItsSealIsRefused) {
  for (const Code expected : {Code::kOk, Code::kObjectExists}) {
    const LeasedRange range = client->lease(kRangeBytes, 64, kLeaseMs, {}).take();
    const InPlaceSeal sealed = client->seal_in_place(range, object, std::array{kRangeBytes}, {});
    EXPECT_EQ(sealed.status.code(), expected) << sealed.status.to_string();
    EXPECT_EQ(sealed.is_leased, expected != Code::kOk);
    if (sealed.is_leased) client->return_lease(range);
  }
}

// Leases and seals an object; returns where it is.
std::pair<std::uint32_t, std::uint32_t> seal_in_segment(Client& client, ObjectSpec object) {
  object.session = client.open_session("scope", "", std::nullopt, {}).take();
  const LeasedRange range = client.lease(kRangeBytes, 64, kLeaseMs, {}).take();
  const InPlaceSeal sealed = client.seal_in_place(range, object, std::array{kRangeBytes}, {});
  EXPECT_TRUE(sealed.status.is_ok()) << sealed.status.to_string();
  return {range.segment(), range.memory->generation};
}

std::shared_ptr<Client> connect_isolated(const StoreProcess& store) {
  ConnectOptions options;
  options.path = store.path();
  options.isolated_leases = true;
  return Client::connect(options, {}).take();
}

TEST_F(LeasedObjects, AnIsolatedSegmentIsPassedOnByItsWriterOrOnceThatIsGone) {
  auto writer = connect_isolated(store);
  const auto other = connect_isolated(store);
  const auto [segment, generation] = seal_in_segment(*writer, object);
  const auto own = writer->isolated_segment(segment, generation, {}, os::Deadline::never());
  ASSERT_TRUE(own.is_ok()) << own.status().to_string();
  EXPECT_EQ(other->isolated_segment(segment, generation, {}, os::Deadline::never()).code(), Code::kAccessDenied);
  EXPECT_EQ(writer->isolated_segment(segment, generation + 1, {}, os::Deadline::never()).code(), Code::kObjectLost);
  writer->close();
  writer.reset();
  ASSERT_TRUE(
      eventually([&] { return other->isolated_segment(segment, generation, {}, os::Deadline::never()).is_ok(); }));
  const auto again = other->isolated_segment(segment, generation, {}, os::Deadline::never()).take();
  EXPECT_TRUE(
      os::Mapping::map(again->fd.get(), 0, again->mapping.bytes(), os::Access::kReadWrite, kSegmentAlign).is_ok());
}

TEST_F(LeasedObjects, NoOtherSegmentIsPassedOn) {
  auto writer = connect(store);
  const auto other = connect_isolated(store);
  const auto [segment, generation] = seal_in_segment(*writer, object);
  EXPECT_EQ(other->isolated_segment(segment, generation, {}, os::Deadline::never()).code(), Code::kAccessDenied);
  writer->close();
  writer.reset();
  // It goes to whoever leases next.
  ASSERT_TRUE(eventually([&] { return json_number(client->status({}).take(), "leased_bytes") == 0; }));
  EXPECT_EQ(other->isolated_segment(segment, generation, {}, os::Deadline::never()).code(), Code::kAccessDenied);
}

}  // namespace
}  // namespace entrepot::testing
