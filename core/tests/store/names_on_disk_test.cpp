// Names and IDs after keeper and daemon are both killed: what was answered to lead elsewhere never leads back.
#include <random>
#include <span>

#include "store/harness.h"

namespace entrepot::testing {
namespace {

constexpr std::uint64_t kWaitMs = 20'000;

// A store whose manifest is written when the test says so; object A is spilled, in the manifest, and has the name "n".
class NamesOnDisk : public ::testing::Test {
 protected:
  NamesOnDisk() {
    client_ = h_.add_client();
    session_ = h_.open("run");
    spill_object(kA, "n");
    h_.spill.records_at_once = false;
  }

  void spill_object(const IdBytes& id, std::string_view name) {
    SealSpec spec = h_.blob_spec(client_, id, session_, 100 * kKiB);
    spec.name = name;
    spec.replace = true;
    ASSERT_TRUE(h_.seal(client_, spec).status.is_ok());
    ASSERT_TRUE(h_.store->evict(std::span(&id, 1))[0].is_ok());
    h_.run_io();
    write_records();
    ASSERT_TRUE(h_.spill.manifest.contains(id));
  }
  void write_records() {
    h_.spill.write_records();
    h_.store->run_pending();
  }
  SealOutcome put(const IdBytes& id, std::string_view name, std::string_view payload = "new") {
    SealSpec spec = h_.inline_spec(id, session_, payload);
    spec.name = name;
    spec.replace = true;
    return h_.seal(client_, spec);
  }
  // Kills keeper and daemon; returns what the name then leads to.
  std::optional<IdBytes> after_both_died(std::string_view name = "n") {
    h_.begin_anew();
    const std::uint32_t* session = h_.store->sessions().find("scope", "run");
    const IdBytes* id = session == nullptr ? nullptr : h_.store->names().resolve(*session, name);
    return id == nullptr ? std::nullopt : std::optional(*id);
  }
  // What a request that must wait for the record is answered; nothing yet: not answered.
  std::optional<Status>& wait(std::uint64_t record) {
    answer_.reset();
    h_.store->when_recorded({client_, 1}, record, kWaitMs, [this](const Status& status) { answer_ = status; });
    return answer_;
  }

  Harness h_{64 * kMiB, 0, true};
  std::uint32_t client_ = 0;
  std::uint32_t session_ = 0;
  std::optional<Status> answer_;
};

TEST_F(NamesOnDisk, ARebindingIsAnsweredOnceTheManifestHasIt) {
  const SealOutcome sealed = put(kB, "n");
  ASSERT_TRUE(sealed.status.is_ok());
  EXPECT_FALSE(h_.store->is_recorded(sealed.record));
  const auto& answer = wait(sealed.record);
  h_.store->run_pending();
  EXPECT_FALSE(answer.has_value());
  EXPECT_NE(h_.store->status_json({}).find("\"waiting\":1"), std::string::npos);
  write_records();
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(answer->is_ok());
  EXPECT_EQ(after_both_died(), std::nullopt);  // the new one was only in memory
  EXPECT_TRUE(h_.has(kA));
}

TEST_F(NamesOnDisk, WhatHasNoFormerObjectThereDoesNotWait) {
  EXPECT_EQ(put(kB, "n").record, 1U + h_.spill.recorded());
  EXPECT_EQ(put(numbered_id(3), "").record, 0U);
  EXPECT_EQ(put(numbered_id(4), "other").record, 0U) << "while another name's change is being written";
  EXPECT_EQ(put(numbered_id(5), "other").record, 0U) << "its former object was only in memory";
  const auto other = h_.open("other");
  SealSpec spec = h_.inline_spec(numbered_id(6), other, "v");
  spec.name = "n";
  EXPECT_EQ(h_.seal(client_, spec).record, 0U) << "the same name in another session";
  write_records();
  EXPECT_EQ(put(numbered_id(7), "n").record, 0U);
}

TEST_F(NamesOnDisk, TheNextRebindingWaitsForTheOneBeforeIt) {
  const std::uint64_t first = put(kB, "n").record;
  EXPECT_EQ(put(numbered_id(3), "n").record, first) << "its own former object was never on disk";
  EXPECT_TRUE(h_.store->bind_name(session_, "n", numbered_id(3), true).is_ok());
  EXPECT_EQ(h_.store->unrecorded(session_, "n"), first) << "repeated";
  EXPECT_TRUE(h_.store->unbind_name(session_, "n").is_ok());
  EXPECT_EQ(h_.store->unrecorded(session_, "n"), first);
}

TEST_F(NamesOnDisk, TheWinnersRecordIsWaitedForToo) {
  spill_object(kB, "");
  ASSERT_TRUE(h_.store->bind_name(session_, "n", kB, true).is_ok());
  EXPECT_EQ(h_.store->unrecorded(session_, "n"), h_.spill.recorded() + h_.spill.unwritten.size());
  h_.spill.write_records(h_.spill.unwritten.size() - 1);
  EXPECT_EQ(after_both_died(), std::nullopt) << "between the two, it leads nowhere";
}

TEST_F(NamesOnDisk, UnbindingReplacingAndDeleting) {
  ASSERT_TRUE(h_.store->unbind_name(session_, "n").is_ok());
  EXPECT_NE(h_.store->unrecorded(session_, "n"), 0U);
  write_records();
  EXPECT_EQ(h_.store->unrecorded(session_, "n"), 0U);
  const SealOutcome replaced = put(kA, "");
  EXPECT_FALSE(h_.store->is_recorded(replaced.record)) << "the ID led to the former generation";
  write_records();
  spill_object(kB, "m");
  write_records();
  EXPECT_TRUE(h_.remove(kB));
  EXPECT_NE(h_.store->unrecorded(std::span(&kB, 1)), 0U);
  EXPECT_NE(put(numbered_id(9), "m").record, 0U) << "the deleted object had the name";
  EXPECT_FALSE(h_.remove(kB));
  EXPECT_NE(h_.store->unrecorded(std::span(&kB, 1)), 0U) << "deleted by another request, still on disk";
}

TEST_F(NamesOnDisk, ASessionThatIsOpenedAnewHasTheNamesOfTheOneThatWasRemoved) {
  ASSERT_TRUE(h_.store->remove_session("scope", "run").is_ok());
  EXPECT_NE(h_.store->unrecorded_session("scope", "run"), 0U);
  session_ = h_.open("run");
  EXPECT_FALSE(h_.store->is_recorded(put(kB, "n").record));
  write_records();
  EXPECT_EQ(h_.store->unrecorded_session("scope", "run"), 0U);
  ASSERT_TRUE(put(numbered_id(3), "n").status.is_ok());
  ASSERT_TRUE(h_.store->remove_session("scope", "run").is_ok());
  EXPECT_EQ(h_.store->unrecorded_session("scope", "run"), 0U) << "nothing of it was on disk";
}

TEST_F(NamesOnDisk, ADaemonThatTakesOverTrustsNothingUntilItsOwnManifestIsWritten) {
  ASSERT_TRUE(put(kB, "n").status.is_ok());
  h_.restart();
  session_ = h_.open("run");
  EXPECT_TRUE(h_.store->bind_name(session_, "n", kB, true).is_ok());  // the client repeats its request
  EXPECT_FALSE(h_.store->is_recorded(h_.store->unrecorded(session_, "n")));
  write_records();
  EXPECT_EQ(h_.store->unrecorded(session_, "n"), 0U);
  EXPECT_EQ(after_both_died(), std::nullopt);
}

TEST_F(NamesOnDisk, ADaemonThatTakesOverForgetsWhatWasDeletedWhilePinned) {
  const std::uint32_t position = h_.pin(client_, kA);
  ASSERT_TRUE(h_.remove(kA));
  h_.restart();  // without having written that
  h_.spill.write_records();
  EXPECT_FALSE(h_.spill.manifest.contains(kA));
  h_.pins(client_).unpin(position);
}

TEST_F(NamesOnDisk, AHungDiskIsWaitedForNoLongerThanSaid) {
  const auto& answer = wait(put(kB, "n").record);
  EXPECT_EQ(h_.store->next_deadline_ns() <= h_.clock.monotonic_ns() + kWaitMs * 1'000'000, true);
  h_.clock.advance_ms(kWaitMs - 1);
  h_.store->tick();
  EXPECT_FALSE(answer.has_value());
  h_.clock.advance_ms(1);
  h_.store->tick();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code(), Code::kTimeout);
  EXPECT_NE(answer->message().find("former object in the next store"), std::string::npos) << answer->message();
  EXPECT_EQ(*h_.store->names().resolve(*h_.store->sessions().find("scope", "run"), "n"), kB) << "it holds here";
}

TEST_F(NamesOnDisk, WhoeverDisconnectsIsNotAnswered) {
  const auto& answer = wait(put(kB, "n").record);
  h_.store->disconnected(client_, 1);
  write_records();
  EXPECT_FALSE(answer.has_value());
}

TEST_F(NamesOnDisk, ANameInAnotherSessionIsNotListedAsOneOfTheObjectsOwn) {
  const auto other = h_.open("other");
  ASSERT_TRUE(h_.store->bind_name(other, "elsewhere", kA, false).is_ok());
  ASSERT_TRUE(h_.store->bind_name(session_, "again", kA, false).is_ok());
  h_.spill.write_records();
  EXPECT_EQ(h_.spill.manifest.at(kA).names, (std::vector<std::string>{"again", "n"}));
  EXPECT_EQ(after_both_died("elsewhere"), std::nullopt) << "no name of this session";
}

// ---- random requests, deaths of the daemon, and deaths of both ----

class NamesModel {
 public:
  explicit NamesModel(std::uint32_t seed) : random_(seed) {
    h_.spill.records_at_once = false;
    begin();
  }

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i)
      step();
  }

 private:
  using Target = std::pair<IdBytes, std::uint32_t>;  // object, generation
  using Key = std::pair<std::string, std::string>;   // session, name; or "", ID
  // What a key led to since the last change that was answered, that one included, by change. Nothing is always possible.
  using Led = std::vector<std::pair<std::uint64_t, std::optional<Target>>>;

  std::uint32_t pick(std::uint32_t below) {
    return std::uniform_int_distribution<std::uint32_t>(0, below - 1)(random_);
  }
  IdBytes pick_id() { return numbered_id(1 + pick(6)); }
  std::string pick_name() { return std::string(1, static_cast<char>('a' + pick(3))); }
  std::string pick_session() { return pick(2) == 0 ? "one" : "two"; }
  static Key key_of(const IdBytes& id) { return {"", to_hex(id)}; }

  void begin() {
    client_ = h_.add_client();
    for (const char* session : {"one", "two"})
      sessions_[session] = h_.open(session);
  }

  std::optional<Target> target(const IdBytes& id) {
    const LookupOutcome outcome = h_.store->objects().lookup(id);
    return outcome.code == Code::kOk ? std::optional(Target{id, outcome.generation}) : std::nullopt;
  }
  std::map<Key, std::optional<Target>> now() {
    std::map<Key, std::optional<Target>> result;
    for (std::uint64_t i = 1; i <= 6; ++i)
      result[key_of(numbered_id(i))] = target(numbered_id(i));
    for (const char* session : {"one", "two"}) {
      const std::uint32_t* index = h_.store->sessions().find("scope", session);
      for (const char* name : {"a", "b", "c"}) {
        const IdBytes* id = index == nullptr ? nullptr : h_.store->names().resolve(*index, name);
        result[{session, name}] = id == nullptr ? std::nullopt : target(*id);
      }
    }
    return result;
  }

  // Executes a request, which returns the record that it waits for. Its client relies on what it changed, and on what
  // it found to be so already: `about`.
  void request(std::vector<Key> about, const std::function<std::uint64_t()>& execute) {
    const auto before = now();
    const std::uint64_t record = execute();
    ++changes_;
    for (const auto& [key, to] : now()) {
      if (to == before.at(key)) continue;
      led_[key].emplace_back(changes_, to);
      about.push_back(key);
    }
    rely_on(about, record);
  }

  void rely_on(const std::vector<Key>& keys, std::uint64_t record) {
    std::map<Key, std::uint64_t> since;
    for (const Key& key : keys)
      since[key] = led_[key].empty() ? 0 : led_[key].back().first;
    h_.store->when_recorded({client_, 1}, record, 1U << 30, [this, since](const Status& done) {
      if (!done.is_ok()) return;
      for (const auto& [key, change] : since)
        std::erase_if(led_[key], [&](const auto& led) { return led.first < change; });
    });
  }

  void step() {
    const std::string session = pick_session();
    const std::string name = pick_name();
    const IdBytes id = pick_id();
    const std::span ids(&id, 1);
    switch (pick(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return request({{session, name}, key_of(id)}, [&] {
          const std::string payload = std::to_string(changes_);  // the spec only refers to it
          SealSpec spec = pick(3) == 0 ? h_.inline_spec(id, sessions_[session], payload)
                                       : h_.blob_spec(client_, id, sessions_[session], 20 * kKiB);
          spec.name = name;
          spec.replace = true;
          const SealOutcome sealed = h_.seal(client_, spec);
          EXPECT_TRUE(sealed.status.is_ok()) << sealed.status.message();
          return sealed.record;
        });
      case 4:
      case 5:
        return request({}, [&] {
          const bool bound = h_.store->bind_name(sessions_[session], name, id, true).is_ok();
          return bound ? h_.store->unrecorded(sessions_[session], name) : 0;
        });
      case 6:
        return request({{session, name}}, [&] {
          (void)h_.store->unbind_name(sessions_[session], name);
          return h_.store->unrecorded(sessions_[session], name);
        });
      case 7:
        return request({key_of(id)}, [&] {
          (void)h_.store->remove(ids);
          return h_.store->unrecorded(ids);
        });
      case 8:
        if (pick(4) != 0) return;
        request({}, [&] {
          EXPECT_TRUE(h_.store->remove_session("scope", session).is_ok());
          return h_.store->unrecorded_session("scope", session);
        });
        sessions_[session] = h_.open(session);
        return;
      case 9:
      case 10:
      case 11:
        (void)h_.store->evict(ids);
        return h_.run_io();
      case 12:
      case 13:
        h_.spill.write_records(1 + pick(4));
        return h_.store->run_pending();
      case 14:
        if (pick(3) == 0) restart();
        return;
      default:
        if (pick(3) == 0) both_die();
    }
  }

  // Clients repeat what was not answered.
  void restart() {
    h_.restart();
    for (const char* session : {"one", "two"})
      sessions_[session] = h_.open(session);
    for (const auto& [key, led] : led_) {
      if (!key.first.empty()) rely_on({key}, h_.store->unrecorded(sessions_[key.first], key.second));
    }
  }

  void both_die() {
    h_.begin_anew();
    for (const auto& [key, to] : now()) {
      if (!to) continue;
      const Led& possible = led_[key];
      EXPECT_TRUE(std::any_of(possible.begin(), possible.end(), [&](const auto& led) { return led.second == to; }))
          << key.first << " " << key.second << " leads to generation " << to->second << " of " << to_hex(to->first)
          << ", which it did not after change " << (possible.empty() ? 0 : possible.front().first);
      ++survived_;
    }
    led_.clear();
    begin();
    for (const auto& [key, to] : now())
      led_[key].emplace_back(++changes_, to);
    h_.spill.write_records();
    h_.store->run_pending();
  }

  std::mt19937 random_;
  Harness h_{32 * kMiB, 0, true};
  std::uint32_t client_ = 0;
  std::map<std::string, std::uint32_t> sessions_;
  std::map<Key, Led> led_;
  std::uint64_t changes_ = 0;

 public:
  int survived_ = 0;
};

TEST(NamesOnDiskModel, RandomRequestsAndDeaths) {
  int survived = 0;
  for (std::uint32_t seed = 0; seed < 60 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    NamesModel model(seed);
    model.run(400);
    survived += model.survived_;
  }
  EXPECT_GT(survived, 500) << "hardly anything was found again";
}

}  // namespace
}  // namespace entrepot::testing
