// Room for the tables that grow with what is stored: a spilling store evicts for them, and waits for its writes.
#include <functional>

#include "store/harness.h"

namespace entrepot::testing {
namespace {

constexpr std::uint64_t kMedium = 64U << 10;

class Room : public ::testing::Test {
 protected:
  // What the daemon does with a request that is refused for the time being.
  Status serve(const std::function<Status()>& attempt) {
    Status status = attempt();
    if (status.code() != Code::kStoreFull || !h.store->room_is_coming()) return status;
    ++waited;
    bool answered = false;
    h.store->when_room(origin, [&](bool last) {
      status = attempt();
      answered = last || status.code() != Code::kStoreFull || !h.store->room_is_coming();
      return answered;
    });
    h.run_io();
    EXPECT_TRUE(answered) << status.to_string();
    return status;
  }

  Status put(std::uint64_t number, std::uint64_t bytes) {
    std::optional<Result<LeaseGrant>> got;
    h.store->lease(origin, bytes, bytes, 30'000, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
    if (!got) h.run_io();
    if (!got) {
      h.clock.advance_ms(30'000);
      h.store->tick();
    }
    if (!got->is_ok()) return got->status();
    SealSpec spec;
    spec.id = numbered_id(number);
    spec.session = session;
    spec.blobs = {{(*got)->segment, (*got)->offset, bytes}};
    spec.buffers = {{kNewBlobBit, 0, 0, bytes}};
    spec.tree = "tree";
    const Status sealed = serve([&] { return h.seal(client, spec).status; });
    // As a client does with the rest of a lease, or with all of it.
    const std::uint64_t used = sealed.is_ok() ? blob_extent_bytes((*got)->offset, bytes) : 0;
    EXPECT_TRUE(h.store->unlease(client, (*got)->segment, (*got)->offset + used, (*got)->length - used, true).is_ok());
    h.store->run_pending();
    return sealed;
  }

  // Objects that are all on disk too, and a budget without a free byte.
  void fill_with_clean_objects() {
    for (std::uint64_t number = 0; number < 6; ++number)
      ASSERT_TRUE(put(number, 2 * kMiB).is_ok());
    const std::vector<IdBytes> ids = {numbered_id(0), numbered_id(1), numbered_id(2), numbered_id(3)};
    static_cast<void>(h.store->evict(ids));
    h.run_io();
    for (const IdBytes& id : ids)
      ASSERT_EQ(h.get(id).code, Code::kOk);
    h.clock.advance_ms(1000);  // they are no longer held for their reader
    take_the_rest();
  }
  void take_the_rest() {
    while (h.store->budget().reserve(BudgetItem::kSets, 4096).is_ok()) {
    }
    h.store->budget().charge(BudgetItem::kSets, h.store->budget().free_bytes());
  }

  void expect_readable(std::uint64_t count) {
    for (std::uint64_t number = 0; number < count; ++number) {
      const LookupOutcome outcome = h.get(numbered_id(number));
      ASSERT_EQ(outcome.code, Code::kOk) << number << ": " << outcome.message;
      h.clock.advance_ms(300);  // it is no longer held for its reader
    }
  }

  Harness h{16 * kMiB, 0, true};
  std::uint32_t client = h.add_client();
  RequestOrigin origin{client, client + 100};
  std::uint32_t session = h.open("run");
  int waited = 0;
};

TEST_F(Room, TenTimesTheMemoryInMediumObjects) {
  h.spill.at_once = false;
  const std::uint64_t count = 10 * 16 * kMiB / kMedium;
  for (std::uint64_t number = 0; number < count; ++number) {
    const Status status = put(number, kMedium);
    ASSERT_TRUE(status.is_ok()) << number << ": " << status.to_string();
  }
  expect_readable(count);
  EXPECT_LE(h.store->budget().granted(), 18 * kMiB);
  h.expect_no_leak();
}

TEST_F(Room, ASealWaitsForTheWriteThatMakesRoomForIt) {
  h.spill.at_once = false;
  for (std::uint64_t number = 0; number < 5; ++number)
    ASSERT_TRUE(put(number, 2 * kMiB).is_ok());
  take_the_rest();
  std::uint64_t number = 100;
  while (waited == 0 && number < 8000) {
    const Status status =
        serve([&] { return h.seal(client, h.inline_spec(numbered_id(number), session, "x")).status; });
    ASSERT_TRUE(status.is_ok()) << number << ": " << status.to_string();
    ++number;
  }
  EXPECT_EQ(waited, 1);
  EXPECT_GT(h.store->pager().stats().evictions, 0U);
}

TEST_F(Room, WhoeverWaitsForRoomIsForgottenWithTheConnection) {
  h.store->when_room(origin, [](bool) {
    ADD_FAILURE() << "it is gone";
    return true;
  });
  h.store->disconnected(client, origin.owner);
  h.clock.advance_ms(60'000);
  h.store->tick();
}

TEST_F(Room, WhoeverWaitsInVainIsAnsweredAtTheDeadline) {
  bool answered = false;
  h.store->when_room(origin, [&](bool last) { return answered = last; });
  h.store->run_pending();
  EXPECT_FALSE(answered);
  h.clock.advance_ms(20'000);
  h.store->tick();
  EXPECT_TRUE(answered);
  h.expect_no_leak();
}

TEST_F(Room, EveryTableThatGrowsEvictsForIt) {
  const std::map<std::string, std::function<Status(std::uint64_t)>> growing = {
      {"names",
       [&](std::uint64_t number) {
         return h.store->bind_name(session, "name " + std::to_string(number), numbered_id(0), false).status();
       }},
      {"sets",
       [&](std::uint64_t number) { return h.store->define_set(session, std::to_string(number), 0, {}).status(); }},
      {"consumptions",
       [&](std::uint64_t number) {
         const std::vector<IdBytes> ids = {numbered_id(900)};
         return h.store->consumed(ids, std::to_string(number)).at(0).status();
       }},
      {"pin tables", [&](std::uint64_t) { return h.store->reserve_for_client(64U << 10); }},
  };
  SealSpec counted = h.inline_spec(numbered_id(900), session, "x");
  counted.consumers = 1'000'000;
  ASSERT_TRUE(h.seal(client, counted).status.is_ok());
  fill_with_clean_objects();
  for (const auto& [name, grow] : growing) {
    const auto evictions = h.store->pager().stats().evictions;
    take_the_rest();
    Status status;
    std::uint64_t number = 0;
    for (; number < 3000 && status.is_ok() && h.store->pager().stats().evictions == evictions; ++number)
      status = serve([&] { return grow(number); });
    EXPECT_TRUE(status.is_ok()) << name << " after " << number << ": " << status.to_string();
    EXPECT_GT(h.store->pager().stats().evictions, evictions) << name;
  }
}

TEST_F(Room, WithoutAnythingThatCanLeaveARefusalComesAtOnceWithTheNumbers) {
  h.spill.quota = 4 * kMiB;
  std::uint64_t count = 0;
  Status status;
  while (count < 2000 && (status = put(count, kMedium)).is_ok())
    ++count;
  ASSERT_EQ(status.code(), Code::kStoreFull);
  take_the_rest();
  std::uint64_t number = 5000;
  const auto put_small = [&] { return h.seal(client, h.inline_spec(numbered_id(number), session, "x")).status; };
  while (number < 8000 && (status = put_small()).is_ok())
    ++number;
  ASSERT_EQ(status.code(), Code::kStoreFull);
  EXPECT_FALSE(h.store->room_is_coming());
  EXPECT_NE(status.message().find("segments "), std::string::npos) << status.message();
  expect_readable(count);
  for (std::uint64_t object = 0; object < count; object += 2)
    ASSERT_TRUE(h.remove(numbered_id(object)));
  h.run_io();
  EXPECT_TRUE(put_small().is_ok());
  EXPECT_TRUE(put(6000, kMedium).is_ok());
}

// The segments have taken the whole budget, but nothing in them is sealed.
TEST(RoomWithoutSpilling, ASealWaitsForLeasesToBeReturned) {
  Harness h(12 * kMiB);
  const std::uint32_t client = h.add_client();
  const std::uint32_t other = h.add_client();
  const RequestOrigin origin{client, client + 100};
  const std::uint32_t session = h.open("run");
  std::vector<LeaseGrant> leases;
  while (h.store->budget().free_bytes() >= 2 * kMiB)
    leases.push_back(h.lease(other, 2 * kMiB, 2 * kMiB));
  ASSERT_GE(leases.size(), 4U);
  while (h.store->budget().reserve(BudgetItem::kSets, 4096).is_ok()) {
  }
  std::uint64_t number = 0;
  const auto put_small = [&] { return h.seal(client, h.inline_spec(numbered_id(number), session, "x")).status; };
  Status status;
  while (number < 8000 && (status = put_small()).is_ok())
    ++number;
  ASSERT_EQ(status.code(), Code::kStoreFull);
  ASSERT_TRUE(h.store->room_is_coming()) << status.to_string();
  bool answered = false;
  h.store->when_room(origin, [&](bool last) { return answered = last || (status = put_small()).is_ok(); });
  h.store->run_pending();
  EXPECT_FALSE(answered);
  for (const LeaseGrant& lease : leases)
    ASSERT_TRUE(h.store->unlease(other, lease.segment, lease.offset, lease.length, true).is_ok());
  h.store->run_pending();
  EXPECT_TRUE(answered);
  EXPECT_TRUE(status.is_ok()) << status.to_string();
}

TEST_F(Room, SegmentsLeaveHeadroomForWhatIsWrittenIntoThem) {
  for (std::uint64_t number = 0; number < 64; ++number)
    ASSERT_TRUE(put(number, kMedium).is_ok());
  const LeaseGrant all = h.lease(client, kMiB, 14 * kMiB);
  EXPECT_GE(h.store->budget().free_bytes(), 64U << 10) << "of a lease of " << all.length;
  EXPECT_TRUE(h.store->unlease(client, all.segment, all.offset, all.length, false).is_ok());
  h.expect_no_leak();
}

}  // namespace
}  // namespace entrepot::testing
