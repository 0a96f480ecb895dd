// Memory that the tables of control memory no longer need is there for payload, and what they keep is said.
#include "store/harness.h"

namespace entrepot::testing {
namespace {

class Trim : public ::testing::Test {
 protected:
  void fill_and_remove_session() {
    for (std::uint64_t number = 0; number < 8000; ++number) {
      SealSpec spec = h.inline_spec(numbered_id(number), session, "x");
      const std::string name = "name " + std::to_string(number);
      if (number < 2000) spec.name = name;
      ASSERT_TRUE(h.seal(client, spec).status.is_ok()) << number;
    }
    first_generation = h.generation(numbered_id(7999));
    ASSERT_TRUE(h.store->remove_session("scope", "run").is_ok());
    ASSERT_EQ(h.store->parts().catalog.count(), 0U);
  }
  std::optional<Result<LeaseGrant>> ask(std::uint64_t bytes) {
    std::optional<Result<LeaseGrant>> got;
    h.store->lease(origin, bytes, bytes, 30'000, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
    return got;
  }

  Harness h{15 * kMiB};
  std::uint32_t client = h.add_client();
  RequestOrigin origin{client, client + 100};
  std::uint32_t session = h.open("run");
  std::uint32_t first_generation = 0;
  std::uint64_t heap_before = h.store->budget().granted(BudgetItem::kHeap);
};

TEST_F(Trim, WhatRemovedObjectsTookIsThereForALargeOne) {
  fill_and_remove_session();
  const std::optional<Result<LeaseGrant>> got = ask(14 * kMiB);
  ASSERT_TRUE(got.has_value()) << "it waits";
  ASSERT_TRUE(got->is_ok()) << got->status().to_string();
  for (const BudgetItem item : {BudgetItem::kSlots, BudgetItem::kNames, BudgetItem::kIndex})
    EXPECT_LE(h.store->budget().granted(item), 64U << 10) << budget_item_name(item);
  EXPECT_LE(h.store->budget().granted(BudgetItem::kHeap), heap_before + (64U << 10));
  // What comes next is another generation, also after a restart.
  const LeaseGrant grant = **got;
  ASSERT_TRUE(h.store->unlease(client, grant.segment, grant.offset, grant.length, true).is_ok());
  h.restart();
  static const std::vector<ReportedLease> kNone;
  ASSERT_TRUE(h.store->reconnect(client, h.store->clients().find(client)->token, &kNone).is_ok());
  session = h.open("run");
  for (std::uint64_t number = 0; number < 8000; ++number)
    ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(7999 - number), session, "x")).status.is_ok()) << number;
  EXPECT_GT(h.generation(numbered_id(7999)) - first_generation, 0U);
  EXPECT_LT(h.generation(numbered_id(7999)) - first_generation, 20'000U);
  h.expect_no_leak();
}

TEST_F(Trim, WhatRemainsKeepsItsPlace) {
  for (std::uint64_t number = 0; number < 8000; ++number)
    ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(number), session, "x")).status.is_ok());
  const std::uint32_t kept = h.generation(numbered_id(2000));
  for (std::uint64_t number = 0; number < 8000; ++number) {
    ASSERT_TRUE(number == 2000 || h.remove(numbered_id(number)));
  }
  const std::optional<Result<LeaseGrant>> got = ask(14 * kMiB);
  ASSERT_TRUE(got && got->is_ok());
  EXPECT_EQ(h.generation(numbered_id(2000)), kept);
  EXPECT_LE(h.store->budget().granted(BudgetItem::kSlots), 320U << 10);
  h.restart();
  EXPECT_EQ(h.generation(numbered_id(2000)), kept);
}

TEST_F(Trim, WhatTablesKeepIsRefusedAtOnceAndItemised) {
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(0), session, "x")).status.is_ok());
  ASSERT_TRUE(h.remove(numbered_id(0)));
  const std::optional<Result<LeaseGrant>> got = ask(14 * kMiB + 1);
  ASSERT_TRUE(got.has_value()) << "it waits";
  EXPECT_EQ(got->code(), Code::kStoreFull);
  for (const char* part : {"waiting would not help", "slots 64 KiB", "index "})
    EXPECT_NE(got->status().message().find(part), std::string::npos) << part << " in: " << got->status().message();
  h.expect_no_leak();
}

}  // namespace
}  // namespace entrepot::testing
