// Waiting requests alone: without a store, and with times that the test chooses.
#include "store/wait_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "store/pending_requests.h"

namespace entrepot {
namespace {

struct Waiter {
  std::uint64_t deadline_ns = 0;
  int number = 0;
};

TEST(WaitList, IsInTheOrderOfArrivalAndTakesTheLongestOverdueFirst) {
  WaitList<Waiter> list;
  EXPECT_EQ(list.next_deadline_ns(), kNoDeadline);
  list.add({30, 1});
  list.add({10, 2});
  list.add({20, 3});
  std::vector<int> order;
  for (const Waiter& waiter : list)
    order.push_back(waiter.number);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(list.next_deadline_ns(), 10U);
  EXPECT_FALSE(list.overdue(9));
  EXPECT_EQ(list.take(*list.overdue(25)).number, 2);
  EXPECT_EQ(list.take(*list.overdue(25)).number, 3);
  EXPECT_FALSE(list.overdue(25));
  EXPECT_EQ(list.size(), 1U);
}

TEST(WaitList, DoesWhatANaiveListDoes) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    WaitList<Waiter> list;
    std::vector<Waiter> model;
    std::uint64_t now_ns = 0;
    const auto earlier = [](const Waiter& a, const Waiter& b) { return a.deadline_ns < b.deadline_ns; };
    for (int step = 0; step < 1000; ++step) {
      const std::uint64_t choice = random() % 6;
      if (choice < 3) {
        const Waiter waiter{now_ns + 1 + random() % 20, step};
        list.add(waiter);
        model.push_back(waiter);
      } else if (choice == 3) {
        const auto leaves = [&](const Waiter& waiter) { return waiter.number % 7 == step % 7; };
        std::vector<int> taken;
        for (const Waiter& waiter : list.take_if(leaves))
          taken.push_back(waiter.number);
        std::vector<int> expected;
        for (const Waiter& waiter : model) {
          if (leaves(waiter)) expected.push_back(waiter.number);
        }
        std::erase_if(model, leaves);
        ASSERT_EQ(taken, expected);
      } else {
        now_ns += random() % 10;
        while (const auto overdue = list.overdue(now_ns)) {
          const auto expected = std::min_element(model.begin(), model.end(), earlier);  // the first of equal ones
          ASSERT_EQ(list.take(*overdue).number, expected->number);
          model.erase(expected);
        }
      }
      const auto next = std::min_element(model.begin(), model.end(), earlier);
      ASSERT_EQ(list.next_deadline_ns(), next == model.end() ? kNoDeadline : next->deadline_ns);
      ASSERT_EQ(list.size(), model.size());
    }
  }
}

struct PendingRequestsAlone : ::testing::Test {
  static IdBytes id(std::uint8_t number) {
    IdBytes bytes{};
    bytes[0] = number;
    return bytes;
  }
  void wait_for(std::uint64_t owner, std::uint64_t deadline_ns, const std::vector<IdBytes>& ids) {
    PendingLookup request;
    request.origin.owner = owner;
    request.deadline_ns = deadline_ns;
    request.ids = ids;
    request.missing.insert(ids.begin(), ids.end());
    pending.add(std::move(request));
  }
  PendingRequests pending;
};

TEST_F(PendingRequestsAlone, ALookupIsCompleteWithItsLastIdAndThenHasNoDeadline) {
  wait_for(1, 100, {id(1), id(2)});
  wait_for(2, 200, {id(2)});
  EXPECT_EQ(pending.next_deadline_ns(), 100U);
  const auto of_second = pending.sealed(id(2));
  ASSERT_EQ(of_second.size(), 1U);
  EXPECT_EQ(of_second[0].origin.owner, 2U);
  EXPECT_EQ(pending.sealed(id(1)).size(), 1U);
  EXPECT_EQ(pending.next_deadline_ns(), kNoDeadline);
  EXPECT_EQ(pending.answers_due(), 0U);
}

TEST_F(PendingRequestsAlone, AnOverdueLookupIsNotFoundByItsIdsAnyMore) {
  wait_for(1, 100, {id(1), id(2)});
  EXPECT_FALSE(pending.overdue_lookup(99));
  EXPECT_TRUE(pending.overdue_lookup(100));
  EXPECT_FALSE(pending.overdue_lookup(100));
  EXPECT_TRUE(pending.sealed(id(1)).empty());
}

TEST_F(PendingRequestsAlone, TheEndOfAConnectionDropsAllOfItsRequestsAndReturnsItsLeases) {
  for (const std::uint64_t owner : {1, 2}) {
    wait_for(owner, 100 * owner, {id(1)});
    PendingNameResolution name;
    name.origin.owner = owner;
    name.deadline_ns = 10 * owner;
    name.session = 5;
    name.name = "a";
    pending.add(std::move(name));
    PendingLease lease;
    lease.origin.owner = owner;
    lease.deadline_ns = 20 * owner;
    pending.add(std::move(lease));
    PendingProvision provision;
    provision.origin.owner = owner;
    provision.deadline_ns = 5 * owner;
    pending.add(std::move(provision));
  }
  EXPECT_EQ(pending.next_deadline_ns(), 5U);
  const auto leases = pending.cancel(1);
  ASSERT_EQ(leases.size(), 1U);
  EXPECT_EQ(leases[0].origin.owner, 1U);
  EXPECT_EQ(pending.next_deadline_ns(), 10U);
  EXPECT_EQ(pending.answers_due(), 3U);
  EXPECT_TRUE(pending.named(5, "b").empty());
  EXPECT_EQ(pending.named(5, "a").size(), 1U);
  EXPECT_TRUE(pending.of_session(5).empty());
  EXPECT_TRUE(pending.overdue_provision(10));
  EXPECT_FALSE(pending.waits_for_warm_memory());
  EXPECT_TRUE(pending.overdue_lease(40));
  EXPECT_EQ(pending.next_deadline_ns(), 200U);
}

}  // namespace
}  // namespace entrepot
