// Admission and the store's reports alone: over the tables that they read, without a store.
#include "store/admission.h"
#include "store/object_report.h"
#include "store/paging_parts.h"
#include "store/store_report.h"
#include "store/stream/sealed_chunks.h"

namespace entrepot::testing {
namespace {

constexpr std::uint32_t kAsking = 2;  // a client

struct StorePartsTest : ::testing::Test {
  [[nodiscard]] static PendingLease request(std::uint64_t bytes) {
    PendingLease lease;
    lease.origin.client = kAsking;
    lease.client = {kAsking, 1002};
    lease.min_bytes = bytes;
    lease.want_bytes = bytes;
    return lease;
  }
  [[nodiscard]] bool contains(const std::string& text, const std::string& part) const {
    return text.find(part) != std::string::npos;
  }

  PagingParts p;
  ClientTable clients{p.memory};
  Pager pager{{p.parts, p.objects, p.residency, p.pool, p.pins, p.sets, p.clock, p.options, &p.spill}};
  PendingRequests pending;
  Reservations reservations{p.budget, [](std::uint32_t, std::uint32_t) { return true; }};
  SealedChunks chunks{p.objects};
  StreamTable streams{{p.clock, p.budget, chunks, [](std::uint32_t) { return std::string(); }}};
  GatewayCalls gateway{p.clock};
  AdoptionReport adoption;
  Timers timers;
  SurplusMemory surplus{{p.pool, timers, p.clock, 30, [] { return false; }}};
  StoreReport report{{p.memory, p.clock, p.options, p.budget, p.records, p.sessions, p.sets, p.names, clients, p.pins,
                      p.pool, surplus, p.parts, pager, pending, reservations, streams, gateway, adoption}};
  ObjectReport objects{{p.clock, clients, p.parts, p.objects, pager}};
  TableRoom room{{p.options, p.clock, p.budget, p.pool, p.parts, p.names, p.consumers, pager}};
  Admission admission{{clients, p.options, p.budget, p.pool, pager, p.parts, room, report, reservations}};
};

TEST_F(StorePartsTest, WhatFitsIsLeasedAtOnce) {
  PendingLease lease = request(2 * kMiB);
  const auto grant = admission.try_lease(lease);
  ASSERT_TRUE(grant.is_ok() && grant->has_value());
  EXPECT_GE((*grant)->length, 2 * kMiB);
  EXPECT_FALSE(lease.remedies.evicting);
}

TEST_F(StorePartsTest, WhatIsLargerThanTheStoreEvictsNothing) {
  const std::uint32_t slot = p.put(1);
  PendingLease lease = request(kPartsCapacity + 1);
  const auto grant = admission.try_lease(lease);
  EXPECT_EQ(grant.code(), Code::kStoreFull);
  EXPECT_TRUE(contains(grant.status().message(), "larger than the whole store")) << grant.status().message();
  EXPECT_FALSE(grant.status().retryable());
  EXPECT_FALSE(lease.remedies.evicting);
  EXPECT_TRUE(p.parts.catalog.is_resident(slot));
  EXPECT_TRUE(p.spill.waiting.empty());
}

TEST_F(StorePartsTest, WhatOthersPinIsWaitedForAndNamed) {
  p.fill(1);
  for (std::uint64_t number = 1; p.objects.find(numbered_id(number)); ++number)
    p.pin(*p.objects.find(numbered_id(number)));
  PendingLease lease = request(8 * kMiB);
  lease.remedies.waiting = true;
  const auto grant = admission.try_lease(lease);
  ASSERT_TRUE(grant.is_ok()) << grant.status().to_string();
  EXPECT_FALSE(grant->has_value());
  EXPECT_TRUE(p.spill.waiting.empty()) << "evicting would not be enough";
  const Status full = admission.store_full_error(lease);
  EXPECT_EQ(full.code(), Code::kStoreFull);
  EXPECT_TRUE(full.retryable());
  EXPECT_TRUE(contains(full.message(), "no room for 8")) << full.message();
  EXPECT_TRUE(contains(full.message(), "pins")) << full.message();
  EXPECT_TRUE(contains(full.message(), ", waiting")) << full.message();
}

TEST_F(StorePartsTest, PinTablesCountAgainstTheBudget) {
  EXPECT_TRUE(admission.reserve_for_client(kMiB).is_ok());
  EXPECT_EQ(p.budget.granted(BudgetItem::kPinTables), kMiB);
  EXPECT_TRUE(admission.check_client_limit(false).is_ok());
  EXPECT_TRUE(admission.check_client_limit(true).is_ok());
}

TEST_F(StorePartsTest, ReportsListWhatTheTablesHold) {
  static_cast<void>(p.put(1));
  static_cast<void>(p.put_spilled(2));
  const std::string status = report.status_json({});
  EXPECT_TRUE(contains(status, "\"objects\":2")) << status;
  EXPECT_TRUE(contains(status, "\"follows_killed_store\":false")) << status;
  EXPECT_TRUE(contains(report.sessions_json(), "\"session\":\"run\""));
  ListQuery query;
  query.all_sessions = true;
  query.pattern = to_hex(numbered_id(2));
  const auto listed = objects.list_json(query);
  ASSERT_TRUE(listed.is_ok());
  EXPECT_TRUE(contains(*listed, query.pattern) && contains(*listed, "\"spilled\"")) << *listed;
  EXPECT_FALSE(contains(*listed, to_hex(numbered_id(1)))) << *listed;
  EXPECT_EQ(objects.info_json(numbered_id(3)).code(), Code::kObjectNotFound);
  const auto info = objects.info_json(numbered_id(2));
  ASSERT_TRUE(info.is_ok());
  EXPECT_TRUE(contains(*info, "it was spilled")) << *info;
  EXPECT_EQ(report.sets_json(12345).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace entrepot::testing
