// Sessions and names: limits, TTL, removal, rebinding.
#include "store/harness.h"

namespace entrepot::testing {
namespace {

TEST(Sessions, RemovingOneRemovesAllThatIsInItAndNothingElse) {
  Harness h;
  const auto client = h.add_client();
  const auto run = h.open("run-1");
  const auto own = h.open("");
  for (std::uint64_t i = 0; i < 10; ++i) {
    SealSpec spec = h.inline_spec(numbered_id(i), run, "value");
    const std::string name = "n" + std::to_string(i);
    spec.name = name;
    ASSERT_TRUE(h.seal(client, spec).status.is_ok());
  }
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(100), own, "stays")).status.is_ok());
  const auto position = h.pin(client, numbered_id(3));
  EXPECT_TRUE(h.store->remove_session("scope", "run-1").is_ok());
  EXPECT_EQ(h.store->parts().catalog.count(), 1U);
  EXPECT_EQ(h.store->names().count(), 0U);
  EXPECT_EQ(h.store->parts().deferred.count(), 1U);  // the pinned object
  EXPECT_TRUE(h.has(numbered_id(100)));
  EXPECT_EQ(h.store->remove_session("scope", "run-1").code(), Code::kObjectNotFound);
  // The removed session's handle does not refer to the session that replaces it.
  const auto next = h.open("run-2");
  EXPECT_NE(next, run);
  EXPECT_EQ(h.seal(client, h.inline_spec(numbered_id(200), run, "late")).status.code(), Code::kInvalidArgument);
  h.pins(client).unpin(position);
  h.expect_no_leak();
}

TEST(Sessions, AreRemovedAsUnusedOnlyIfNobodyHasThemOpenOrUsedThemMeanwhile) {
  Harness h;
  const auto client = h.add_client();
  const auto opener = h.add_client();
  const auto run = h.open("run", nullptr, opener);
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(1), run, "v")).status.is_ok());
  const auto last_used = [&] { return h.clock.unix_ns(); };
  const std::uint64_t looked_at = last_used();
  const auto refused = h.store->remove_unused_session("scope", "run", 0);
  ASSERT_TRUE(refused.is_ok());
  EXPECT_FALSE(refused->removed);
  EXPECT_EQ(refused->opened_by, 1U);
  h.clock.advance_ms(1'000);
  h.store->disconnected(opener, 7);
  EXPECT_EQ(h.store->remove_unused_session("scope", "run", 0)->opened_by, 1U) << "it may reconnect";
  h.kill(opener);  // counts as a use
  const auto used_meanwhile = h.store->remove_unused_session("scope", "run", looked_at);
  ASSERT_TRUE(used_meanwhile.is_ok());
  EXPECT_FALSE(used_meanwhile->removed);
  EXPECT_EQ(used_meanwhile->opened_by, 0U);
  EXPECT_TRUE(h.has(numbered_id(1)));
  EXPECT_TRUE(h.store->remove_unused_session("scope", "run", last_used())->removed);
  EXPECT_FALSE(h.has(numbered_id(1)));
  EXPECT_EQ(h.store->remove_unused_session("scope", "run", 0).code(), Code::kObjectNotFound);
  h.expect_no_leak();
}

TEST(Sessions, OneThatWentIsNamedByTheErrorOfWhoeverStillUsesIt) {
  Harness h;
  const auto client = h.add_client();
  const auto session = h.open("run-7");
  ASSERT_TRUE(h.store->remove_session("scope", "run-7").is_ok());
  const Status gone = h.seal(client, h.inline_spec(numbered_id(1), session, "v")).status;
  EXPECT_EQ(gone.code(), Code::kInvalidArgument);
  EXPECT_NE(gone.message().find("session 'run-7' of scope 'scope' is not open: it was removed"), std::string::npos)
      << gone.message();
  EXPECT_NE(h.store->bind_name(session, "n", numbered_id(1), false).status().message().find("'run-7'"),
            std::string::npos);
  // The session that replaces it is not named; of many removed sessions, only the latest are remembered.
  for (int i = 0; i < 300; ++i) {
    h.open("next");
    ASSERT_TRUE(h.store->remove_session("scope", "next").is_ok());
  }
  const Status long_gone = h.seal(client, h.inline_spec(numbered_id(1), session, "v")).status;
  EXPECT_EQ(long_gone.code(), Code::kInvalidArgument);
  EXPECT_NE(long_gone.message().find("session number "), std::string::npos) << long_gone.message();
  h.expect_no_leak();
}

TEST(Sessions, ExpireAfterTheLastUseUnlessOpen) {
  Harness h;
  const auto client = h.add_client();
  const auto opener = h.add_client();
  const SessionLimits limits{60, 0, 0};
  const auto run = h.open("run", &limits, opener);
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(1), run, "v")).status.is_ok());
  h.clock.advance_ms(100'000);
  h.store->tick();
  EXPECT_TRUE(h.has(numbered_id(1)));  // `opener` has the session open
  h.store->disconnected(opener, 7);
  h.clock.advance_ms(100'000);
  h.store->tick();
  EXPECT_TRUE(h.has(numbered_id(1)));  // and still has it
  h.kill(opener);
  h.clock.advance_ms(59'000);
  h.store->tick();
  EXPECT_TRUE(h.has(numbered_id(1)));
  h.clock.advance_ms(2'000);
  h.store->tick();
  EXPECT_FALSE(h.has(numbered_id(1)));
  EXPECT_EQ(h.store->sessions().count(), 0U);
  h.expect_no_leak();
}

TEST(Sessions, MayExpireOnceNobodyHasThemOpen) {
  Harness h;
  const auto client = h.add_client();
  const auto first = h.add_client();
  const auto second = h.add_client();
  const SessionLimits limits{60, 0, 0};
  const auto run = h.open("run", &limits, first);
  EXPECT_EQ(h.open("run", nullptr, first), run);  // once per client, however often it opens the session
  EXPECT_EQ(h.open("run", nullptr, second), run);
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(1), run, "v")).status.is_ok());
  EXPECT_TRUE(h.store->close_session(first, run).is_ok());
  EXPECT_EQ(h.store->close_session(first, run).code(), Code::kInvalidArgument);
  EXPECT_EQ(h.store->close_session(client, run).code(), Code::kInvalidArgument);
  h.clock.advance_ms(100'000);
  h.store->tick();
  EXPECT_TRUE(h.has(numbered_id(1)));  // `second` has the session open
  EXPECT_TRUE(h.store->close_session(second, run).is_ok());
  h.clock.advance_ms(59'000);
  h.store->tick();
  EXPECT_TRUE(h.has(numbered_id(1)));  // the TTL runs from the close
  h.clock.advance_ms(2'000);
  h.store->tick();
  EXPECT_FALSE(h.has(numbered_id(1)));
  h.expect_no_leak();
}

TEST(Sessions, StayOpenOverARestartUntilTheirClientClosesThemOrEnds) {
  Harness h;
  const auto idle = h.add_client();
  const auto returning = h.add_client();
  const auto dead = h.add_client();
  const SessionLimits limits{60, 0, 0};
  const auto of_idle = h.open("of the idle client", &limits, idle);
  h.open("of both", &limits, idle);
  const auto of_both = h.open("of both", &limits, returning);
  h.open("of the dead client", &limits, dead);
  const auto closed = h.open("closed", &limits, idle);
  ASSERT_TRUE(h.store->close_session(idle, closed).is_ok());
  ASSERT_TRUE(h.seal(idle, h.inline_spec(numbered_id(1), of_idle, "v")).status.is_ok());
  const auto is_live = [&](const char* name) { return h.store->sessions().find("scope", name) != nullptr; };

  h.kill_unseen(dead);
  h.restart();
  h.clock.advance_ms(100'000);
  h.store->tick();
  EXPECT_TRUE(is_live("of the idle client"));
  EXPECT_TRUE(is_live("of both"));
  EXPECT_FALSE(is_live("of the dead client"));
  EXPECT_FALSE(is_live("closed"));
  EXPECT_TRUE(h.has(numbered_id(1)));
  EXPECT_FALSE(h.store->remove_unused_session("scope", "of the idle client", 0)->removed);

  // A client that reconnects opens its sessions again, which counts once, and can close them.
  ASSERT_TRUE(h.store->reconnect(returning, h.store->clients().find(returning)->token, nullptr).is_ok());
  EXPECT_EQ(h.open("of both", nullptr, returning), of_both);
  EXPECT_EQ(h.store->remove_unused_session("scope", "of both", 0)->opened_by, 2U);
  EXPECT_TRUE(h.store->close_session(returning, of_both).is_ok());
  EXPECT_EQ(h.store->remove_unused_session("scope", "of both", 0)->opened_by, 1U);
  h.kill(idle);
  h.clock.advance_ms(61'000);
  h.store->tick();
  EXPECT_FALSE(is_live("of the idle client"));
  EXPECT_FALSE(is_live("of both"));
  EXPECT_FALSE(h.has(numbered_id(1)));

  // What is open for a client ends with it, so a later client with its number does not have it open.
  const auto later = h.add_client();
  h.open("run", &limits, later);
  h.kill(later);
  EXPECT_EQ(h.add_client(), later);
  h.restart();
  EXPECT_EQ(h.store->remove_unused_session("scope", "run", 0)->opened_by, 0U);
  h.expect_no_leak();
}

TEST(Sessions, DefaultsAndExtremesOfTheTimeToLive) {
  Harness h;
  const auto client = h.add_client();
  const SessionLimits eternal{UINT64_MAX, 0, 0};
  h.open("eternal", &eternal, client);
  h.open("default", nullptr, client);
  h.open("", nullptr, client);
  h.kill(client);
  h.clock.advance_ms(25ULL * 3600 * 1000);
  h.store->tick();
  EXPECT_NE(h.store->sessions().find("scope", "eternal"), nullptr);
  EXPECT_EQ(h.store->sessions().find("scope", "default"), nullptr);
  EXPECT_NE(h.store->sessions().find("scope", ""), nullptr);  // the scope's own session never expires
  h.expect_no_leak();
}

TEST(Sessions, LimitsOfBytesAndObjects) {
  Harness h;
  const auto client = h.add_client();
  SessionLimits limits{0, 100, 3};
  const auto run = h.open("run", &limits);
  const std::string sixty(60, 'x');
  ASSERT_TRUE(h.seal(client, h.inline_spec(numbered_id(1), run, sixty)).status.is_ok());
  const SealOutcome full = h.seal(client, h.inline_spec(numbered_id(2), run, sixty));
  EXPECT_EQ(full.status.code(), Code::kStoreFull);
  EXPECT_NE(full.status.message().find("session 'run'"), std::string::npos) << full.status.message();
  // A replacement counts without the object that it replaces.
  SealSpec replacement = h.inline_spec(numbered_id(1), run, sixty);
  replacement.tree = "other";
  replacement.replace = true;
  EXPECT_TRUE(h.seal(client, replacement).status.is_ok());
  EXPECT_TRUE(h.seal(client, h.inline_spec(numbered_id(3), run, "a")).status.is_ok());
  EXPECT_TRUE(h.seal(client, h.inline_spec(numbered_id(4), run, "a")).status.is_ok());
  EXPECT_EQ(h.seal(client, h.inline_spec(numbered_id(5), run, "a")).status.code(), Code::kStoreFull);
  limits.limit_objects = 4;
  EXPECT_EQ(h.open("run", &limits), run);
  EXPECT_TRUE(h.seal(client, h.inline_spec(numbered_id(5), run, "a")).status.is_ok());
  h.expect_no_leak();
}

TEST(Names, BindResolveRebindUnbind) {
  Harness h;
  const auto client = h.add_client();
  const auto run = h.open("run");
  const auto other = h.open("other");
  const IdBytes a = numbered_id(1);
  const IdBytes b = numbered_id(2);
  ASSERT_TRUE(h.seal(client, h.inline_spec(a, run, "a")).status.is_ok());
  ASSERT_TRUE(h.seal(client, h.inline_spec(b, run, "b")).status.is_ok());
  EXPECT_TRUE(h.store->bind_name(run, "orders", a, false).is_ok());
  EXPECT_TRUE(h.store->bind_name(run, "orders", a, false).is_ok());  // idempotent
  const auto taken = h.store->bind_name(run, "orders", b, false);
  EXPECT_EQ(taken.code(), Code::kObjectExists);
  EXPECT_NE(taken.status().message().find("orders"), std::string::npos);
  EXPECT_TRUE(h.store->bind_name(other, "orders", b, false).is_ok());  // names are per session
  EXPECT_TRUE(h.store->bind_name(run, "orders", b, true).is_ok());
  EXPECT_TRUE(h.has(a));  // rebinding removes only the name
  EXPECT_EQ(*h.store->names().resolve(*h.store->sessions().find("scope", "run"), "orders"), b);
  EXPECT_TRUE(h.store->unbind_name(run, "orders").is_ok());
  EXPECT_EQ(h.store->unbind_name(run, "orders").code(), Code::kObjectNotFound);
  EXPECT_EQ(h.store->bind_name(run, "orders", numbered_id(9), false).code(), Code::kObjectNotFound);
  EXPECT_EQ(h.store->bind_name(run, "", a, false).code(), Code::kInvalidArgument);
  EXPECT_EQ(h.store->bind_name(run, std::string(256, 'n'), a, false).code(), Code::kInvalidArgument);
  EXPECT_TRUE(h.store->bind_name(run, std::string(255, 'n'), a, false).is_ok());
  EXPECT_EQ(h.store->bind_name(run, std::string("a\0b", 3), a, false).code(), Code::kInvalidArgument);
  h.expect_no_leak();
}

TEST(Names, GoWithTheirObjectAndStayWithItsReplacement) {
  Harness h;
  const auto client = h.add_client();
  const auto run = h.open("run");
  const IdBytes id = numbered_id(1);
  SealSpec spec = h.inline_spec(id, run, "a");
  spec.name = "orders";
  ASSERT_TRUE(h.seal(client, spec).status.is_ok());
  ASSERT_TRUE(h.store->bind_name(run, "alias", id, false).is_ok());
  SealSpec next = h.inline_spec(id, run, "b");
  next.replace = true;
  ASSERT_TRUE(h.seal(client, next).status.is_ok());
  EXPECT_EQ(h.store->names().count(), 2U);
  std::optional<Result<NameOutcome>> got;
  h.store->resolve_name({client, 1}, run, "orders", 0, [&](Result<NameOutcome> outcome) { got = std::move(outcome); });
  ASSERT_TRUE(got && got->is_ok());
  EXPECT_EQ((*got)->generation, h.generation(id));
  EXPECT_TRUE(h.remove(id));
  EXPECT_EQ(h.store->names().count(), 0U);
  // A taken name fails the whole seal and leaves nothing behind.
  ASSERT_TRUE(h.seal(client, spec).status.is_ok());
  SealSpec rival = h.inline_spec(numbered_id(2), run, "c");
  rival.name = "orders";
  EXPECT_EQ(h.seal(client, rival).status.code(), Code::kObjectExists);
  EXPECT_FALSE(h.has(numbered_id(2)));
  h.expect_no_leak();
}

TEST(Sessions, ScopesAreApartAndTextsAreChecked) {
  Harness h;
  const auto first = h.store->open_session(1, "airflow", "run", nullptr);
  const auto second = h.store->open_session(1, "dagster", "run", nullptr);
  ASSERT_TRUE(first.is_ok() && second.is_ok());
  EXPECT_NE(*first, *second);
  EXPECT_EQ(h.store->open_session(1, std::string(161, 's'), "", nullptr).code(), Code::kInvalidArgument);
  EXPECT_EQ(h.store->open_session(1, "s", std::string(241, 's'), nullptr).code(), Code::kInvalidArgument);
  EXPECT_EQ(h.store->open_session(1, std::string("\0", 1), "", nullptr).code(), Code::kInvalidArgument);
  EXPECT_TRUE(h.store->open_session(1, std::string(160, 's'), std::string(240, 's'), nullptr).is_ok());
  const std::string json = h.store->sessions_json();
  EXPECT_NE(json.find("\"airflow\""), std::string::npos);
  h.expect_no_leak();
}

}  // namespace
}  // namespace entrepot::testing
