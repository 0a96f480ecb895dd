// Reservations of a running store, as its clients ask for them.
#include "base/text.h"
#include "daemon/store_process.h"

namespace entrepot::testing {
namespace {

constexpr std::uint64_t kMiB = 1U << 20;
constexpr std::uint32_t kWaitMs = 20'000;

Result<Empty> reserve(RawClient& client, std::uint32_t number, std::uint64_t bytes, std::uint32_t timeout_ms = 0) {
  return client.call<Empty>(MessageType::kReserve, ReserveRequest{number, bytes, timeout_ms, 0});
}

ReservationReply reservation(RawClient& client, std::uint32_t number, bool ends = false) {
  const auto reply = client.call<ReservationReply>(MessageType::kReservation,
                                                   ReservationRequest{number, static_cast<std::uint8_t>(ends ? 1 : 0)});
  EXPECT_TRUE(reply.is_ok()) << reply.status().to_string();
  return reply.is_ok() ? *reply : ReservationReply{};
}

std::uint64_t post_reserve(RawClient& client, std::uint32_t number, std::uint64_t bytes) {
  return client.post(MessageType::kReserve, to_wire(ReserveRequest{number, bytes, kWaitMs, 0}));
}

// Once the daemon has so many requests that wait, in this store where nothing else does.
bool has_waiting(RawClient& observer, const std::string& label_and_bytes) {
  return eventually([&] { return observer.status().find(label_and_bytes) != std::string::npos; });
}

TEST(Reservations, AreHeldUsedAndEnded) {
  StoreProcess store;
  RawClient client = store.client();
  ASSERT_TRUE(reserve(client, 7, 40 * kMiB).is_ok());
  EXPECT_EQ(reservation(client, 7).bytes, 40 * kMiB);
  ASSERT_TRUE(client.put(kA, std::string(300'000, 'x')).is_ok());
  const ReservationReply held = reservation(client, 7);
  EXPECT_EQ(held.held, 1);
  EXPECT_GE(held.used_bytes, 300'000U);
  EXPECT_LT(held.used_bytes, 310'000U);
  RawClient other = store.client();
  EXPECT_EQ(reservation(other, 7).held, 0) << "it is another client's";
  EXPECT_EQ(reserve(other, 7, 40 * kMiB).code(), Code::kStoreFull);
  EXPECT_EQ(reservation(client, 7, true).used_bytes, held.used_bytes);
  EXPECT_EQ(reservation(client, 7, true).held, 0);
  EXPECT_TRUE(reserve(other, 7, 40 * kMiB).is_ok());
}

TEST(Reservations, OfADeadClientGoToTheNextInLine) {
  StoreProcess store;
  RawClient first = store.client();
  RawClient second = store.client();
  RawClient observer = store.client();
  ASSERT_TRUE(reserve(first, 1, 40 * kMiB).is_ok());
  const std::uint64_t request = post_reserve(second, 1, 41 * kMiB);
  ASSERT_TRUE(has_waiting(observer, concat("\"bytes\":", 41 * kMiB, ",\"waiting_seconds\"")));
  first.die();
  const Answer granted = second.wait(request);
  EXPECT_TRUE(granted.status.is_ok()) << granted.status.to_string();
}

TEST(Reservations, EndWithTheirConnectionAndAreRestoredOnTheNext) {
  StoreProcess store;
  RawClient client = store.client();
  ASSERT_TRUE(reserve(client, 1, 40 * kMiB).is_ok());
  client.hang_up();
  RawClient again(store.path());
  ASSERT_TRUE(again.come_back(client).is_ok());
  EXPECT_TRUE(eventually([&] { return reservation(again, 1).held == 0; }));
  ASSERT_TRUE(again.call<Empty>(MessageType::kReserve, ReserveRequest{1, 40 * kMiB, 0, 1}).is_ok());
  EXPECT_EQ(reservation(again, 1).held, 1);
}

TEST(Reservations, OneThatWaitsIsAnsweredWhenItIsEnded) {
  StoreProcess store;
  RawClient first = store.client();
  RawClient second = store.client();
  ASSERT_TRUE(reserve(first, 1, 40 * kMiB).is_ok());
  const std::uint64_t request = post_reserve(second, 1, 40 * kMiB);
  // On the same connection, so it comes after the request, whose answer comes first.
  const std::uint64_t end = second.post(MessageType::kReservation, to_wire(ReservationRequest{1, 1}));
  const Answer ended = second.wait(request);
  EXPECT_EQ(ended.status.code(), Code::kTimeout);
  EXPECT_NE(ended.status.message().find("was ended while it waited"), std::string::npos) << ended.status.to_string();
  EXPECT_TRUE(second.wait(end).status.is_ok());
  EXPECT_EQ(reservation(first, 1, true).held, 1);
  EXPECT_TRUE(reserve(second, 1, 40 * kMiB).is_ok());
}

}  // namespace
}  // namespace entrepot::testing
