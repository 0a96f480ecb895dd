// Reservations: who may begin, in which order, and what counts against whom.
#include <algorithm>
#include <map>

#include "store/harness.h"

namespace entrepot::testing {
namespace {

constexpr std::uint64_t kCapacity = 64 * kMiB;

class StoreReservations : public ::testing::TestWithParam<bool> {
 protected:
  // Its answer is in answers[number]; the connection is that of disconnect().
  void ask(std::uint32_t client, std::uint32_t number, std::uint64_t bytes, std::uint64_t timeout_ms = 60'000) {
    h.store->reserve(origin(client), number, bytes, timeout_ms, false,
                     [this, number](const Status& answer) { answers.insert_or_assign(number, answer); });
    h.store->run_pending();
  }
  [[nodiscard]] static RequestOrigin origin(std::uint32_t client) { return {client, client + 100}; }
  [[nodiscard]] bool is_granted(std::uint32_t number) const {
    const auto answer = answers.find(number);
    return answer != answers.end() && answer->second.is_ok();
  }
  [[nodiscard]] bool waits(std::uint32_t number) const { return !answers.contains(number); }
  void end(std::uint32_t client, std::uint32_t number) {
    EXPECT_TRUE(h.store->end_reservation(origin(client), number).has_value()) << number;
    h.store->run_pending();
  }
  void seal(std::uint32_t client, std::uint64_t number, std::uint64_t bytes) {
    ASSERT_TRUE(h.seal(client, h.blob_spec(client, numbered_id(number), session, bytes)).status.is_ok());
    h.store->run_pending();
  }
  [[nodiscard]] std::uint64_t used(std::uint32_t client, std::uint32_t number) const {
    const auto held = h.store->reservation(origin(client), number);
    return held ? held->used : UINT64_MAX;
  }
  [[nodiscard]] static bool says(const Status& status, const std::vector<std::string>& parts) {
    return std::all_of(parts.begin(), parts.end(),
                       [&](const std::string& part) { return status.message().find(part) != std::string::npos; });
  }

  Harness h{kCapacity, 0, GetParam()};
  std::uint32_t a = h.add_client("a");
  std::uint32_t b = h.add_client("b");
  std::uint32_t c = h.add_client("c");
  std::uint32_t session = h.open("run");
  std::map<std::uint32_t, Status> answers;  // by number
};

INSTANTIATE_TEST_SUITE_P(Store, StoreReservations, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Spilling" : "MemoryOnly"; });

TEST_P(StoreReservations, AreGrantedInTheOrderOfArrivalAndNoneOvertakes) {
  ask(a, 1, 40 * kMiB);
  ask(b, 2, 40 * kMiB);
  ask(c, 3, kMiB);  // would fit
  EXPECT_TRUE(is_granted(1));
  EXPECT_TRUE(waits(2));
  EXPECT_TRUE(waits(3));
  end(a, 1);
  EXPECT_TRUE(is_granted(2));
  EXPECT_TRUE(is_granted(3));
  EXPECT_EQ(h.store->reservations().bytes(), 41 * kMiB);
}

TEST_P(StoreReservations, OneThatTimesOutSaysWhoHoldsWhatAndLetsTheNextIn) {
  ask(a, 1, 40 * kMiB);
  ask(b, 2, 40 * kMiB, 5'000);
  ask(c, 3, 20 * kMiB);
  h.clock.advance_ms(4'999);
  h.store->tick();
  EXPECT_TRUE(waits(2));
  h.clock.advance_ms(1);
  h.store->tick();
  ASSERT_FALSE(waits(2));
  const Status& refused = answers.at(2);
  EXPECT_EQ(refused.code(), Code::kStoreFull);
  EXPECT_TRUE(refused.retryable());
  EXPECT_TRUE(says(refused, {"reserve 40 MiB", "(a, process", "has reserved 40 MiB for 5 s", "1 more request"}))
      << refused.message();
  EXPECT_TRUE(is_granted(3)) << "nobody is before it any more";
}

TEST_P(StoreReservations, OneThatDoesNotWaitIsRefusedAtOnceAndNobodyOvertakes) {
  ask(a, 1, 40 * kMiB, 0);
  EXPECT_TRUE(is_granted(1));
  ask(b, 2, 40 * kMiB, 0);
  ASSERT_FALSE(waits(2));
  EXPECT_EQ(answers.at(2).code(), Code::kStoreFull);
  ask(b, 3, 40 * kMiB);
  ask(c, 4, kMiB, 0);  // would fit, but 3 was first
  EXPECT_EQ(answers.at(4).code(), Code::kStoreFull);
}

TEST_P(StoreReservations, MoreThanCouldEverFitIsRefusedAtOnceWithWhatCould) {
  ask(a, 1, kCapacity + 1);
  ASSERT_FALSE(waits(1));
  EXPECT_EQ(answers.at(1).code(), Code::kStoreFull);
  EXPECT_FALSE(answers.at(1).retryable());
  EXPECT_TRUE(says(answers.at(1), {"waiting would not help", "at most 64.0 MiB ("})) << answers.at(1).message();
  ask(a, 2, UINT64_MAX);
  EXPECT_EQ(answers.at(2).code(), Code::kStoreFull);
}

TEST_P(StoreReservations, WhatUsersKeepInMemoryCanNeverBeReserved) {
  seal(a, 1, 24 * kMiB);
  HintSpec keep;
  keep.fields = kHintPinned;
  keep.pinned = true;
  ASSERT_TRUE(h.store->hint(std::vector{numbered_id(1)}, keep).front().is_ok());
  ask(b, 1, 48 * kMiB);
  ASSERT_FALSE(waits(1));
  EXPECT_TRUE(says(answers.at(1), {"waiting would not help", "users pin in memory (24 MiB)"}))
      << answers.at(1).message();
}

TEST_P(StoreReservations, WhatItsClientStoresCountsOnceAndAgainstIt) {
  ask(a, 1, 40 * kMiB);
  seal(a, 1, 24 * kMiB);
  EXPECT_EQ(used(a, 1), 24 * kMiB);
  h.pin(a, numbered_id(1));
  ask(b, 2, 20 * kMiB);
  EXPECT_TRUE(is_granted(2)) << "24 of the 40 MiB are stored, and pinned: 40 MiB are taken, not 64";
  h.lease(a, 8 * kMiB);  // more of what it has reserved
  ask(c, 3, 2 * kMiB);
  EXPECT_TRUE(is_granted(3));
}

TEST_P(StoreReservations, WhatIsStoredIsNotGivenToOthersUntilTheEnd) {
  ask(a, 1, 40 * kMiB);
  seal(a, 1, 40 * kMiB);
  ask(b, 2, 40 * kMiB);
  EXPECT_TRUE(waits(2)) << "it would push out what a running task has just stored";
  h.remove(numbered_id(1));
  h.store->run_pending();
  EXPECT_TRUE(waits(2)) << "the holder may store 40 MiB again";
  end(a, 1);
  EXPECT_TRUE(is_granted(2));
}

TEST_P(StoreReservations, BlobsOfOthersCostNothing) {
  seal(a, 1, 16 * kMiB);
  const std::uint32_t slot = h.store->objects().lookup(numbered_id(1)).slot;
  const std::uint32_t blob = h.store->parts().catalog.blobs_of(slot).at(0);
  ask(b, 1, 16 * kMiB);
  SealSpec shared = h.blob_spec(b, numbered_id(2), session, 4 * kMiB);
  shared.buffers.push_back({blob, h.store->parts().blobs.generation(blob), 0, 16 * kMiB});
  ASSERT_TRUE(h.seal(b, shared).status.is_ok());
  EXPECT_EQ(used(b, 1), 4 * kMiB);
  ASSERT_TRUE(h.seal(b, h.inline_spec(numbered_id(3), session, "small")).status.is_ok());
  EXPECT_EQ(used(b, 1), 4 * kMiB);
}

TEST_P(StoreReservations, WhatIsStoredBeyondItIsNotCovered) {
  ask(a, 1, 8 * kMiB);
  seal(a, 1, 12 * kMiB);
  EXPECT_EQ(used(a, 1), 12 * kMiB);
  EXPECT_EQ(h.store->reservation(origin(a), 1)->covered, 8 * kMiB);
  h.pin(a, numbered_id(1));
  ask(b, 2, 54 * kMiB);
  EXPECT_TRUE(waits(2)) << "8 MiB are reserved and 4 more are pinned";
  ask(b, 3, 0);
  EXPECT_TRUE(is_granted(3)) << "one of no bytes takes nothing from those before it";
}

TEST_P(StoreReservations, SeveralOfOneClientAreUsedUpFromTheLatest) {
  ask(a, 1, 8 * kMiB);
  ask(a, 2, 4 * kMiB);
  seal(a, 1, 4 * kMiB);
  seal(a, 2, 4 * kMiB);
  EXPECT_EQ(used(a, 1), 4 * kMiB);
  EXPECT_EQ(used(a, 2), 4 * kMiB);
  end(a, 2);
  EXPECT_EQ(h.store->reservation(origin(a), 1)->covered, 4 * kMiB);
}

TEST_P(StoreReservations, EndWithTheirConnectionAndWithTheirClient) {
  ask(a, 1, 40 * kMiB);
  seal(a, 1, 8 * kMiB);
  ask(b, 2, 40 * kMiB);
  ask(c, 3, 40 * kMiB);
  h.store->disconnected(a, origin(a).owner);
  h.store->run_pending();
  EXPECT_TRUE(is_granted(2));
  EXPECT_TRUE(waits(3));
  h.kill(b);
  h.store->run_pending();
  EXPECT_TRUE(is_granted(3));
  EXPECT_EQ(h.store->reservations().bytes(), 40 * kMiB);
  h.expect_no_leak();
}

TEST_P(StoreReservations, OneThatWaitsCanBeEnded) {
  ask(a, 1, 40 * kMiB);
  ask(b, 2, 40 * kMiB);
  ask(c, 3, 8 * kMiB);
  EXPECT_FALSE(h.store->end_reservation(origin(b), 2).has_value()) << "it was never granted";
  h.store->run_pending();
  EXPECT_EQ(answers.at(2).code(), Code::kTimeout);
  EXPECT_TRUE(is_granted(3));
  EXPECT_FALSE(h.store->end_reservation(origin(b), 77).has_value());
}

TEST_P(StoreReservations, AreRestoredByTheirClientAfterARestartWithoutAWait) {
  ask(a, 1, 40 * kMiB);
  h.restart();
  EXPECT_FALSE(h.store->reservation(origin(a), 1).has_value());
  Status restored(Code::kInternal, "unanswered");
  h.store->reserve(origin(a), 1, 40 * kMiB, 0, true, [&](const Status& answer) { restored = answer; });
  EXPECT_TRUE(restored.is_ok()) << restored.to_string();
  ask(b, 2, 40 * kMiB);
  EXPECT_TRUE(waits(2));
  h.store->reserve(origin(c), 3, kCapacity + 1, 0, true, [&](const Status& answer) { restored = answer; });
  EXPECT_EQ(restored.code(), Code::kStoreFull);
}

TEST_P(StoreReservations, NumbersInUseAndTooManyAreRefused) {
  ask(a, 1, kMiB);
  answers.clear();
  ask(a, 1, kMiB);
  EXPECT_EQ(answers.at(1).code(), Code::kInvalidArgument);
  ask(a, 0, kMiB);
  EXPECT_EQ(answers.at(0).code(), Code::kInvalidArgument);
  for (std::uint32_t number = 2; number <= Reservations::kMaxOfClient; ++number)
    ask(a, number, 0);
  EXPECT_TRUE(is_granted(Reservations::kMaxOfClient));
  ask(a, 1000, 0);
  EXPECT_EQ(answers.at(1000).code(), Code::kStoreFull);
}

TEST_P(StoreReservations, PutsNeitherNeedOneNorWaitForOne) {
  ask(a, 1, 60 * kMiB);
  seal(b, 1, 32 * kMiB);  // fails the test if its lease is not granted at once
  EXPECT_TRUE(h.has(numbered_id(1)));
}

TEST(Reservations, ForgetFreedBlobsHoweverManyThereWere) {
  constexpr std::uint32_t kBlobs = 10'000;
  MemoryBudget budget{kCapacity};
  std::uint32_t kept = 0;
  Reservations reservations{budget, [&](std::uint32_t blob, std::uint32_t) { return blob < kept; }};
  reservations.grant({3, 103}, 1, UINT64_MAX, 0);
  const auto charge = [&](std::uint32_t blob) { reservations.charge(3, {{blob, 1, 10}}); };
  std::uint64_t most = 0;
  for (std::uint32_t blob = 0; blob < kBlobs; ++blob) {
    charge(blob);
    most = std::max(most, budget.granted(BudgetItem::kHeap));
  }
  EXPECT_LE(most, 64 * kKiB) << "all of them were freed at once";
  kept = kBlobs;
  for (std::uint32_t blob = 0; blob < kBlobs; ++blob)
    charge(blob);
  EXPECT_EQ(reservations.covered(7), 10U);
  EXPECT_EQ(reservations.find({3, 103}, 1)->covered, 10 * kBlobs);
  EXPECT_EQ(reservations.find({3, 103}, 1)->used, 20 * kBlobs);
  EXPECT_EQ(reservations.covered_bytes(), 10 * kBlobs);
  EXPECT_TRUE(reservations.end({3, 103}, 1).has_value());
  EXPECT_EQ(reservations.covered_bytes(), 0U);
  EXPECT_EQ(budget.granted(BudgetItem::kHeap), 0U);
}

TEST_P(StoreReservations, AreInTheStatus) {
  ask(a, 1, 40 * kMiB);
  seal(a, 1, 8 * kMiB);
  ask(b, 2, 40 * kMiB);
  h.clock.advance_ms(2'000);
  const std::string json = h.store->status_json({});
  for (const char* part : {R"("reservations":{"bytes":41943040,"granted":[{"client":)",
                           R"("label":"a","bytes":41943040,"used_bytes":8388608)", R"("waiting":[{"client":)",
                           R"("label":"b","bytes":41943040,"waiting_seconds":2)"})
    EXPECT_NE(json.find(part), std::string::npos) << part << " in: " << json;
}

TEST(SpillingStoreReservations, OnlyWhatCannotLeaveMemoryIsInTheWay) {
  Harness h{kCapacity, 0, true};
  const std::uint32_t a = h.add_client("a");
  const std::uint32_t b = h.add_client("b");
  const std::uint32_t session = h.open("run");
  ASSERT_TRUE(h.seal(a, h.blob_spec(a, numbered_id(1), session, 40 * kMiB)).status.is_ok());
  std::optional<Status> answer;
  const auto ask = [&](std::uint32_t number) {
    answer.reset();
    h.store->reserve({b, b + 100}, number, 40 * kMiB, 60'000, false, [&](const Status& status) { answer = status; });
    h.store->run_pending();
  };
  ask(1);
  EXPECT_TRUE(answer.has_value() && answer->is_ok()) << "the object can be spilled";
  ASSERT_TRUE(h.store->end_reservation({b, b + 100}, 1).has_value());
  const std::uint32_t position = h.pin(a, numbered_id(1));
  ask(2);
  EXPECT_FALSE(answer.has_value()) << "it is pinned";
  h.pins(a).unpin(position);
  h.clock.advance_ms(kRescanNs / 1'000'000);
  ASSERT_LE(h.store->next_deadline_ns(), h.clock.monotonic_ns());
  h.store->tick();  // nobody said that the pin is gone
  EXPECT_TRUE(answer.has_value() && answer->is_ok());
}

TEST(MemoryOnlyStoreReservations, WhatIsStoredIsInTheWayUntilItIsDeleted) {
  Harness h{kCapacity, 0, false};
  const std::uint32_t a = h.add_client("a");
  const std::uint32_t session = h.open("run");
  ASSERT_TRUE(h.seal(a, h.blob_spec(a, numbered_id(1), session, 40 * kMiB)).status.is_ok());
  std::optional<Status> answer;
  h.store->reserve({a, a + 100}, 1, 40 * kMiB, 60'000, false, [&](const Status& status) { answer = status; });
  EXPECT_FALSE(answer.has_value());
  h.remove(numbered_id(1));
  h.store->run_pending();
  EXPECT_TRUE(answer.has_value() && answer->is_ok());
}

}  // namespace
}  // namespace entrepot::testing
