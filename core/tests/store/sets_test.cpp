// Locality sets, hints and consumers, and their effects.
#include "store/harness.h"

namespace entrepot::testing {
namespace {

SetChange change_of(std::uint8_t fields, const SetAttributes& attributes) { return {fields, attributes}; }

SetChange reading(ReadPattern how) {
  SetAttributes attributes;
  attributes.reading = how;
  return change_of(kSetReading, attributes);
}

struct Put {
  Harness& h;
  std::uint32_t client;
  std::uint32_t session;
  void operator()(std::uint64_t number, std::uint32_t set = 0, std::uint32_t consumers = 0,
                  std::uint64_t bytes = kMiB) const {
    SealSpec spec = h.blob_spec(client, numbered_id(number), session, bytes);
    spec.locality_set = set;
    spec.consumers = consumers;
    const SealOutcome outcome = h.seal(client, spec);
    ASSERT_TRUE(outcome.status.is_ok()) << outcome.status.to_string();
  }
};

// Like Put, but waits for memory.
bool put_patiently(Harness& h, std::uint32_t client, std::uint32_t session, std::uint64_t number) {
  std::optional<Result<LeaseGrant>> got;
  h.store->lease({client, 9}, kMiB, kMiB, 1000, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
  h.run_io();
  if (!got || !got->is_ok()) return false;
  SealSpec spec;
  spec.id = numbered_id(number);
  spec.session = session;
  spec.blobs = {{(*got)->segment, (*got)->offset, kMiB}};
  spec.buffers = {{kNewBlobBit, 0, 0, kMiB}};
  spec.tree = "tree";
  return h.seal(client, spec).status.is_ok();
}

Status hint(Harness& h, std::uint64_t number, const HintSpec& spec) {
  const IdBytes id = numbered_id(number);
  return h.store->hint(std::span(&id, 1), spec)[0];
}

Result<std::uint32_t> consumed(Harness& h, std::uint64_t number, std::string_view consumer) {
  const IdBytes id = numbered_id(number);
  return h.store->consumed(std::span(&id, 1), consumer)[0];
}

std::uint32_t slot_of(const Harness& h, std::uint64_t number) { return *h.store->objects().find(numbered_id(number)); }

bool info_says(const Harness& h, std::uint64_t number, const std::string& text) {
  const std::string info = *h.store->info_json(numbered_id(number));
  EXPECT_NE(info.find(text), std::string::npos) << info;
  return info.find(text) != std::string::npos;
}

TEST(Sets, AreMadeChangedFoundByNameAndSurviveARestart) {
  Harness h(64 * kMiB, 0, true);
  const auto client = h.add_client();
  const auto run = h.open("run");
  const SetGrant made = h.store->define_set(run, "features", 0, reading(ReadPattern::kLoopSequential)).take();
  EXPECT_EQ(made.attributes.reading, ReadPattern::kLoopSequential);
  SetAttributes dear;
  dear.priority = 2;
  // Fields that are not named keep their values.
  const SetGrant changed = h.store->define_set(run, "", made.handle, change_of(kSetPriority, dear)).take();
  EXPECT_EQ(changed.handle, made.handle);
  EXPECT_EQ(changed.attributes.reading, ReadPattern::kLoopSequential);
  EXPECT_EQ(changed.attributes.priority, 2);
  Put{h, client, run}(1, made.handle);
  Put{h, client, run}(2);
  for (int life = 0; life < 3; ++life) {
    SCOPED_TRACE(life);
    EXPECT_EQ(h.store->define_set(run, "features", 0, {})->handle, made.handle);
    EXPECT_EQ(h.store->define_set(run, "features", 0, {})->attributes, changed.attributes);
    EXPECT_TRUE(info_says(h, 1, "\"locality_set\":\"features\""));
    EXPECT_TRUE(info_says(h, 2, "\"locality_set\":\"\""));
    const std::string sets = *h.store->sets_json(run);
    EXPECT_NE(sets.find("\"reading\":\"loop_sequential\""), std::string::npos) << sets;
    EXPECT_NE(sets.find("\"objects\":1,\"nbytes\":1048576"), std::string::npos) << sets;
    const AdoptionReport report = h.restart();
    EXPECT_EQ(report.damaged_entries, 0U);
    EXPECT_EQ(report.objects.lost, 0U);
    ASSERT_EQ(h.open("run"), run);
  }
  h.expect_no_leak();
}

TEST(Sets, BelongToTheirSessionAndEndWithIt) {
  Harness h(64 * kMiB, 0, true);
  const auto client = h.add_client();
  const auto first = h.open("one");
  const auto second = h.open("two");
  const std::uint32_t of_one = h.store->define_set(first, "s", 0, {})->handle;
  const std::uint32_t of_two = h.store->define_set(second, "s", 0, {})->handle;
  EXPECT_NE(of_one, of_two);
  SealSpec spec = h.blob_spec(client, numbered_id(1), second, kMiB);
  spec.locality_set = of_one;
  const SealOutcome wrong = h.seal(client, spec);
  EXPECT_EQ(wrong.status.code(), Code::kInvalidArgument);
  EXPECT_NE(wrong.status.message().find("session 'one'"), std::string::npos) << wrong.status.message();
  spec.locality_set = of_two;
  ASSERT_TRUE(h.seal(client, spec).status.is_ok());
  ASSERT_TRUE(h.store->remove_session("scope", "two").is_ok());
  EXPECT_FALSE(h.has(numbered_id(1)));
  const auto again = h.open("two");
  spec = h.blob_spec(client, numbered_id(2), again, kMiB);
  spec.locality_set = of_two;  // of the removed session
  EXPECT_EQ(h.seal(client, spec).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(h.store->define_set(second, "s", 0, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(h.store->sets_json(again)->find("\"name\":\"s\""), std::string::npos);
  h.expect_no_leak();
}

TEST(Sets, WrongAttributesAndNamesAreRefused) {
  Harness h;
  const auto run = h.open("run");
  SetAttributes wrong;
  wrong.priority = 9;
  EXPECT_EQ(h.store->define_set(run, "s", 0, change_of(kSetPriority, wrong)).status().code(), Code::kInvalidArgument);
  wrong.priority = 0;
  wrong.lifetime = Lifetime::kConsumers;
  EXPECT_EQ(h.store->define_set(run, "s", 0, change_of(kSetLifetime, wrong)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(h.store->define_set(run, std::string(256, 'n'), 0, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(h.store->define_set(run, std::string_view("a\0b", 3), 0, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(h.store->define_set(run, "s", 12345, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(h.store->sets_json(run)->find("\"name\":\"s\""), std::string::npos);
  h.expect_no_leak();
}

TEST(Sets, TheSetWithoutANameIsTheDefaultOfItsSession) {
  Harness h(64 * kMiB, 0, true);
  const auto client = h.add_client();
  const auto run = h.open("run");
  Put{h, client, run}(1);
  const std::uint32_t handle = h.store->define_set(run, "", 0, reading(ReadPattern::kOnce))->handle;
  Put{h, client, run}(2, handle);
  const EvictionPolicy& policy = h.store->pager().policy();
  const std::uint64_t now = h.clock.monotonic_ns();
  EXPECT_EQ(policy.explain(slot_of(h, 1), now).reading, ReadPattern::kOnce);
  EXPECT_EQ(policy.explain(slot_of(h, 2), now).reading, ReadPattern::kOnce);
  EXPECT_FALSE(policy.explain(slot_of(h, 1), now).inferred);
  h.restart();
  EXPECT_EQ(h.store->pager().policy().explain(slot_of(h, 1), now).reading, ReadPattern::kOnce);
  h.expect_no_leak();
}

TEST(Hints, PriorityPinAndSetReachThePolicyAndSurviveARestart) {
  Harness h(64 * kMiB, 0, true);
  const auto client = h.add_client();
  const auto run = h.open("run");
  const std::uint32_t set = h.store->define_set(run, "s", 0, reading(ReadPattern::kRandom))->handle;
  Put{h, client, run}(1);
  Put{h, client, run}(2);
  EXPECT_TRUE(hint(h, 1, {kHintPriority | kHintSet, 5, false, set}).is_ok());
  EXPECT_TRUE(hint(h, 2, {kHintPinned, 0, true, 0}).is_ok());
  EXPECT_EQ(hint(h, 1, {kHintPriority, 9, false, 0}).code(), Code::kInvalidArgument);
  EXPECT_EQ(hint(h, 1, {kHintSet, 0, false, 99}).code(), Code::kInvalidArgument);
  EXPECT_EQ(hint(h, 3, {kHintPriority, 1, false, 0}).code(), Code::kObjectNotFound);
  for (int life = 0; life < 2; ++life) {
    SCOPED_TRACE(life);
    EXPECT_TRUE(info_says(h, 1, "\"priority\":5"));
    EXPECT_TRUE(info_says(h, 1, "\"locality_set\":\"s\""));
    EXPECT_TRUE(info_says(h, 2, "\"user_pinned\":true"));
    EXPECT_TRUE(info_says(h, 2, "a user asked to keep it there"));
    const std::array<IdBytes, 1> pinned = {numbered_id(2)};
    EXPECT_EQ(h.store->evict(pinned)[0].code(), Code::kInvalidArgument);
    h.restart();
  }
  EXPECT_TRUE(hint(h, 2, {kHintPinned, 0, false, 0}).is_ok());
  const std::array<IdBytes, 1> free_again = {numbered_id(2)};
  EXPECT_TRUE(h.store->evict(free_again)[0].is_ok());
  h.run_io();
  EXPECT_FALSE(h.is_resident(numbered_id(2)));
  h.expect_no_leak();
}

TEST(Hints, WhatIsPinnedByItsUserStaysUnderPressure) {
  Harness h(16 * kMiB, 0, true);
  const auto client = h.add_client();
  const auto run = h.open("run");
  Put{h, client, run}(1);
  ASSERT_TRUE(hint(h, 1, {kHintPinned, 0, true, 0}).is_ok());
  for (std::uint64_t i = 2; i < 60; ++i)
    ASSERT_TRUE(put_patiently(h, client, run, i));
  EXPECT_TRUE(h.is_resident(numbered_id(1)));
  EXPECT_FALSE(h.is_resident(numbered_id(2)));
  h.expect_no_leak();
}

TEST(Consumers, EachCountsOnceAndAfterTheLastTheObjectIsDead) {
  Harness h(64 * kMiB, 0, true);
  const auto client = h.add_client();
  const auto run = h.open("run");
  Put{h, client, run}(1, 0, 3);
  Put{h, client, run}(2);
  EXPECT_EQ(consumed(h, 2, "a").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(consumed(h, 1, "").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(*consumed(h, 1, "a"), 2U);
  EXPECT_EQ(*consumed(h, 1, "a"), 2U);  // reported by a second run
  h.restart();
  EXPECT_EQ(*consumed(h, 1, "a"), 2U);
  EXPECT_EQ(*consumed(h, 1, "b"), 1U);
  EXPECT_TRUE(info_says(h, 1, "\"consumers\":3,\"consumers_left\":1,\"dead\":false"));
  EXPECT_EQ(*consumed(h, 1, "c"), 0U);
  EXPECT_TRUE(h.has(numbered_id(1)));  // until memory is short
  EXPECT_TRUE(info_says(h, 1, "all its consumers have finished"));
  h.restart();
  EXPECT_TRUE(h.store->pager().policy().is_dead(slot_of(h, 1)));
  EXPECT_EQ(*consumed(h, 1, "c"), 0U);
  EXPECT_TRUE(h.remove(numbered_id(1)));
  EXPECT_EQ(*consumed(h, 1, "c"), 0U);  // no longer exists
  // Another object in the same slot starts from scratch.
  Put{h, client, run}(5, 0, 2);
  EXPECT_EQ(*consumed(h, 5, "a"), 1U);
  h.expect_no_leak();
}

TEST(Consumers, TheDeadGoFirstAndWithoutBeingWritten) {
  for (const bool spills : {true, false}) {
    SCOPED_TRACE(spills);
    Harness h(16 * kMiB, 0, spills);
    const auto client = h.add_client();
    const auto run = h.open("run");
    Put put{h, client, run};
    put(1, 0, 1);
    put(2, 0, 1);
    put(3);
    EXPECT_EQ(*consumed(h, 2, "only"), 0U);
    const std::uint64_t written = h.spill.used();
    for (std::uint64_t number = 10; h.has(numbered_id(2)) && number < 40; ++number)
      ASSERT_TRUE(put_patiently(h, client, run, number));
    EXPECT_FALSE(h.has(numbered_id(2)));
    EXPECT_TRUE(h.has(numbered_id(1)));
    EXPECT_TRUE(h.has(numbered_id(3)));
    EXPECT_EQ(h.spill.manifest.count(numbered_id(2)), 0U);
    EXPECT_EQ(h.store->pager().stats().dropped_dead, 1U);
    EXPECT_TRUE(spills || h.spill.used() == written);
    h.expect_no_leak();
  }
}

TEST(Consumers, ASetMaySayHowManyAndASessionThatTheyGoAtOnce) {
  Harness h(64 * kMiB, 0, true);
  const auto client = h.add_client();
  const auto run = h.open("run");
  SetAttributes attributes;
  attributes.lifetime = Lifetime::kConsumers;
  attributes.consumers = 2;
  const std::uint32_t set = h.store->define_set(run, "s", 0, change_of(kSetLifetime, attributes))->handle;
  Put put{h, client, run};
  put(1, set);
  put(2, set, 1);  // the put overrides the set
  EXPECT_EQ(*consumed(h, 1, "a"), 1U);
  ASSERT_TRUE(h.store->set_deletes_consumed(run, true).is_ok());
  EXPECT_EQ(*consumed(h, 2, "a"), 0U);
  EXPECT_FALSE(h.has(numbered_id(2)));
  h.restart();
  EXPECT_EQ(*consumed(h, 1, "b"), 0U);
  EXPECT_FALSE(h.has(numbered_id(1)));
  EXPECT_NE(h.store->sessions_json().find("\"deletes_consumed\":true"), std::string::npos);
  h.expect_no_leak();
}

TEST(Consumers, RemovingASessionRemovesSetsAndCountsToo) {
  Harness h(64 * kMiB, 0, true);
  const auto client = h.add_client();
  const auto run = h.open("run");
  const std::uint32_t set = h.store->define_set(run, "s", 0, reading(ReadPattern::kOnce))->handle;
  for (std::uint64_t i = 0; i < 20; ++i) {
    Put{h, client, run}(i, set, 2);
    ASSERT_TRUE(consumed(h, i, "a").is_ok());
  }
  ASSERT_TRUE(h.store->remove_session("scope", "run").is_ok());
  EXPECT_EQ(h.store->parts().catalog.count(), 0U);
  EXPECT_EQ(h.store->pager().policy().size(), 0U);
  EXPECT_EQ(h.store->counted_consumptions(), 0U);
  EXPECT_EQ(h.restart().damaged_entries, 0U);
  h.expect_no_leak();
}

TEST(Reads, WhatClientsNoteReachesThePolicyAndRubbishDoesNot) {
  Harness h(16 * kMiB, 0, true);
  const auto client = h.add_client();
  const auto run = h.open("run");
  Put put{h, client, run};
  for (std::uint64_t i = 1; i <= 4; ++i)
    put(i);
  h.clock.advance_ms(5000);
  h.pins(client).record_access(slot_of(h, 1), h.generation(numbered_id(1)));
  h.pins(client).record_access(slot_of(h, 2), h.generation(numbered_id(2)) + 1);  // another generation
  h.pins(client).record_access(0xffff'fff0U, 1);
  h.store->pager().apply_read_log();
  const std::uint64_t now = h.clock.monotonic_ns();
  EXPECT_TRUE(h.store->pager().policy().explain(slot_of(h, 1), now).was_read);
  EXPECT_FALSE(h.store->pager().policy().explain(slot_of(h, 2), now).was_read);
  h.expect_no_leak();
}

}  // namespace
}  // namespace entrepot::testing
