// One budget for all memory of a store: its items add up, and a rejected request changes nothing.
#include "shm/memory_budget.h"

#include "store/harness.h"

namespace entrepot::testing {
namespace {

std::uint64_t sum_of(const MemoryBudget& budget) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kBudgetItems; ++i)
    sum += budget.granted(static_cast<BudgetItem>(i));
  return sum;
}

TEST(Budget, WhatIsRefusedChangesNothingAndSaysWhoHasWhat) {
  MemoryBudget budget(8 * kMiB);
  budget.enforce();
  ASSERT_TRUE(budget.reserve(BudgetItem::kSegments, 6 * kMiB).is_ok());
  ASSERT_TRUE(budget.reserve(BudgetItem::kSlots, kMiB).is_ok());
  const Status refused = budget.reserve(BudgetItem::kRecords, kMiB + 1);
  EXPECT_EQ(refused.code(), Code::kStoreFull);
  EXPECT_TRUE(refused.retryable());
  for (const char* part : {"of records", "limited to 8 MiB", "segments 6 MiB", "slots 1 MiB", "larger --size"})
    EXPECT_NE(refused.message().find(part), std::string::npos) << part << " in: " << refused.message();
  EXPECT_EQ(budget.granted(), 7 * kMiB);
  EXPECT_EQ(budget.free_bytes(), kMiB);
  ASSERT_TRUE(budget.reserve(BudgetItem::kRecords, kMiB).is_ok());
  EXPECT_EQ(budget.free_bytes(), 0U);
  budget.release(BudgetItem::kSegments, 2 * kMiB);
  EXPECT_EQ(budget.free_bytes(), 2 * kMiB);
  EXPECT_EQ(budget.granted(), sum_of(budget));
}

TEST(Budget, WhatClientsCostIsPaidFromTheMarginFirst) {
  MemoryBudget budget(8 * kMiB);
  budget.enforce();
  ASSERT_TRUE(budget.reserve(BudgetItem::kSegments, 8 * kMiB).is_ok());
  ASSERT_TRUE(budget.reserve(BudgetItem::kPinTables, MemoryBudget::kMarginBytes).is_ok())
      << "a full store lets them in";
  EXPECT_EQ(budget.reserve(BudgetItem::kPinTables, 1).code(), Code::kStoreFull);
  EXPECT_LE(budget.granted(), 10 * kMiB);
  budget.release(BudgetItem::kSegments, kMiB);
  ASSERT_TRUE(budget.reserve(BudgetItem::kPinTables, kMiB).is_ok());
  EXPECT_EQ(budget.free_bytes(), 0U);
}

TEST(Budget, WhatNobodyUsesIsGivenBackBeforeAnythingIsRefused) {
  MemoryBudget budget(8 * kMiB);
  budget.enforce();
  budget.charge(BudgetItem::kSegments, 8 * kMiB);
  std::uint64_t asked = 0;
  budget.on_shortage([&](std::uint64_t bytes) {
    asked = bytes;
    budget.release(BudgetItem::kSegments, 2 * kMiB);
    return true;
  });
  EXPECT_TRUE(budget.reserve(BudgetItem::kNames, kMiB).is_ok());
  EXPECT_EQ(asked, kMiB);
}

class FullStore : public ::testing::Test {
 protected:
  void fill() { h.store->budget().charge(BudgetItem::kSegments, taken = h.store->budget().free_bytes()); }
  void make_free() { h.store->budget().release(BudgetItem::kSegments, taken); }

  Harness h{16 * kMiB};
  std::uint32_t client = h.add_client();
  std::uint32_t session = h.open("run");
  std::uint64_t taken = 0;
};

TEST_F(FullStore, ASealForWhichNothingCanGrowHasNotHappened) {
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(0), session, "first")).status.is_ok());
  fill();
  std::uint64_t count = 1;
  SealOutcome outcome;
  while (count < 8000 && (outcome = h.seal(client, h.inline_spec(numbered_id(count), session, "x"))).status.is_ok())
    ++count;
  ASSERT_EQ(outcome.status.code(), Code::kStoreFull) << count;
  const auto objects = h.store->parts().catalog.count();
  const auto slots = h.store->parts().catalog.directory().live();
  for (std::uint64_t number = count; number < count + 100; ++number) {
    SealSpec spec = h.inline_spec(numbered_id(number), session, "x");
    spec.name = "a name";
    ASSERT_EQ(h.seal(client, spec).status.code(), Code::kStoreFull);
    ASSERT_FALSE(h.has(numbered_id(number)));
  }
  EXPECT_EQ(h.store->parts().catalog.count(), objects);
  EXPECT_EQ(h.store->parts().catalog.directory().live(), slots);
  EXPECT_EQ(h.store->names().count(), 0U);
  EXPECT_EQ(h.store->budget().granted(), sum_of(h.store->budget()));
  make_free();
  SealSpec spec = h.inline_spec(numbered_id(count), session, "x");
  spec.name = "a name";
  EXPECT_TRUE(h.seal(client, spec).status.is_ok());
  EXPECT_EQ(h.store->names().count(), 1U);
  h.expect_no_leak();
}

TEST_F(FullStore, ANameThatCannotGrowIsNotBoundAndItsObjectNotSealed) {
  std::uint64_t count = 0;
  const auto named = [&](std::uint64_t number) {
    SealSpec spec = h.inline_spec(numbered_id(number), session, "x");
    const std::string name = "name " + std::to_string(number);
    spec.name = name;
    return h.seal(client, spec).status;
  };
  ASSERT_TRUE(named(count++).is_ok());
  fill();
  Status status;
  while (count < 2000 && (status = named(count)).is_ok())
    ++count;
  ASSERT_EQ(status.code(), Code::kStoreFull);
  EXPECT_EQ(h.store->names().count(), count);
  EXPECT_FALSE(h.has(numbered_id(count)));
  EXPECT_EQ(h.store->parts().catalog.count(), count);
  make_free();
  EXPECT_TRUE(named(count).is_ok());
  h.expect_no_leak();
}

TEST_F(FullStore, AFullStoreStillDeletes) {
  ASSERT_TRUE(h.seal(client, h.blob_spec(client, numbered_id(1), session, 4 * kMiB)).status.is_ok());
  fill();
  EXPECT_EQ(h.lease_error(client, 8 * kMiB).code(), Code::kStoreFull);
  EXPECT_TRUE(h.remove(numbered_id(1)));
  h.lease(client, 2 * kMiB);
  make_free();
  h.expect_no_leak();
}

TEST_F(FullStore, WhoeverTakesOverCountsTheSame) {
  for (std::uint64_t number = 0; number < 600; ++number)
    ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(number), session, std::string(1000, 'x'))).status.is_ok());
  ASSERT_TRUE(h.seal(client, h.blob_spec(client, numbered_id(700), session, 3 * kMiB)).status.is_ok());
  std::vector<std::uint64_t> before;
  for (std::size_t i = 0; i < kBudgetItems; ++i)
    before.push_back(h.store->budget().granted(static_cast<BudgetItem>(i)));
  h.restart();
  for (std::size_t i = 0; i < kBudgetItems; ++i) {
    const auto item = static_cast<BudgetItem>(i);
    // The index is rebuilt, possibly in another size than it had grown to.
    if (item == BudgetItem::kIndex) continue;
    EXPECT_EQ(h.store->budget().granted(item), before[i]) << budget_item_name(item);
  }
  static const std::vector<ReportedLease> kNone;
  ASSERT_TRUE(h.store->reconnect(client, h.store->clients().find(client)->token, &kNone).is_ok());
  h.expect_no_leak();
}

TEST_F(FullStore, TheStatusItemisesWhatIsTaken) {
  const std::string status = h.store->status_json({});
  for (const char* part :
       {"\"budget\":{\"limit_bytes\":16777216", "\"items\":{\"segments\":", "\"pin_tables\":", "\"buffers\":"})
    EXPECT_NE(status.find(part), std::string::npos) << part << " in: " << status;
  h.expect_no_leak();
}

}  // namespace
}  // namespace entrepot::testing
