// Requests that wait for seals and names, with deadlines, dropped when their connection closes.
#include "store/harness.h"

namespace entrepot::testing {
namespace {

using Outcomes = std::optional<std::vector<LookupOutcome>>;

TEST(Lookup, AnswersAtOnceWhatIsThereAndWhatIsNot) {
  Harness h;
  const auto client = h.add_client();
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(1), h.open(), "v")).status.is_ok());
  Outcomes got;
  h.store->lookup({client, 1}, {numbered_id(1), numbered_id(2)}, 0, 0,
                  [&](auto outcomes) { got = std::move(outcomes); });
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ((*got)[0].code, Code::kOk);
  EXPECT_EQ((*got)[1].code, Code::kObjectNotFound);
  h.expect_no_leak();
}

TEST(Lookup, WaitsUntilAllAreSealed) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open();
  Outcomes got;
  // A repeated ID counts once.
  h.store->lookup({client, 1}, {numbered_id(1), numbered_id(2), numbered_id(1)}, 1000, 0,
                  [&](auto outcomes) { got = std::move(outcomes); });
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(1), session, "v")).status.is_ok());
  EXPECT_FALSE(got.has_value());
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(2), session, "v")).status.is_ok());
  ASSERT_TRUE(got.has_value());
  ASSERT_EQ(got->size(), 3U);
  for (const LookupOutcome& outcome : *got)
    EXPECT_EQ(outcome.code, Code::kOk);
  h.expect_no_leak();
}

TEST(Lookup, SaysAtTheDeadlineWhatThereIs) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open();
  Outcomes got;
  h.store->lookup({client, 1}, {numbered_id(1), numbered_id(2)}, 1000, 0,
                  [&](auto outcomes) { got = std::move(outcomes); });
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(1), session, "v")).status.is_ok());
  h.clock.advance_ms(1000);
  h.store->tick();
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ((*got)[0].code, Code::kOk);
  EXPECT_EQ((*got)[1].code, Code::kObjectNotFound);
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(2), session, "v")).status.is_ok());  // nothing waits any more
  h.expect_no_leak();
}

TEST(Lookup, ManyWaitersOfOneIdAndOneOfThemGoes) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open();
  int answered = 0;
  for (std::uint64_t owner = 1; owner <= 5; ++owner) {
    h.store->lookup({client, owner}, {numbered_id(1)}, 1000, 0, [&](const auto&) { ++answered; });
    h.store->lookup({client, owner}, {numbered_id(1), numbered_id(2)}, 1000, 0, [&](const auto&) { ++answered; });
  }
  h.store->disconnected(client, 3);
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(1), session, "v")).status.is_ok());
  EXPECT_EQ(answered, 4);
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(2), session, "v")).status.is_ok());
  EXPECT_EQ(answered, 8);
  h.expect_no_leak();
}

TEST(Lookup, AnAnswerMayAskAnew) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open();
  Outcomes second;
  h.store->lookup({client, 1}, {numbered_id(1)}, 1000, 0, [&](const auto&) {
    h.store->lookup({client, 1}, {numbered_id(2)}, 1000, 0, [&](auto outcomes) { second = std::move(outcomes); });
  });
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(1), session, "v")).status.is_ok());
  EXPECT_FALSE(second.has_value());
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(2), session, "v")).status.is_ok());
  EXPECT_TRUE(second.has_value());
  h.expect_no_leak();
}

TEST(ResolveName, WaitsForTheNameAndTimesOut) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open("run");
  std::optional<Result<NameOutcome>> got;
  std::optional<Result<NameOutcome>> late;
  h.store->resolve_name({client, 1}, session, "a", 1000,
                        [&](Result<NameOutcome> outcome) { got = std::move(outcome); });
  h.store->resolve_name({client, 1}, session, "b", 1000,
                        [&](Result<NameOutcome> outcome) { late = std::move(outcome); });
  SealSpec spec = h.inline_spec(numbered_id(1), session, "v");
  spec.name = "a";
  ASSERT_TRUE(h.seal(client, spec).status.is_ok());
  ASSERT_TRUE(got && got->is_ok());
  EXPECT_EQ((*got)->id, numbered_id(1));
  EXPECT_EQ((*got)->generation, h.generation(numbered_id(1)));
  h.clock.advance_ms(1001);
  h.store->tick();
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->code(), Code::kTimeout);
  h.store->resolve_name({client, 1}, session, "b", 0, [&](Result<NameOutcome> outcome) { late = std::move(outcome); });
  EXPECT_EQ(late->code(), Code::kObjectNotFound);
  EXPECT_NE(late->status().message().find("'b'"), std::string::npos);
  h.expect_no_leak();
}

TEST(ResolveName, EndsWithItsSession) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open("run");
  std::optional<Result<NameOutcome>> got;
  h.store->resolve_name({client, 1}, session, "a", 1000,
                        [&](Result<NameOutcome> outcome) { got = std::move(outcome); });
  EXPECT_TRUE(h.store->remove_session("scope", "run").is_ok());
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->code(), Code::kObjectNotFound);
  h.expect_no_leak();
}

}  // namespace
}  // namespace entrepot::testing
