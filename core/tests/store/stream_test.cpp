// Streams: what is handed to whom, what waits, and what becomes of the chunks when an end is gone.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "store/harness.h"
#include "store/stream/stream_table.h"

namespace entrepot::testing {
namespace {

class FakeObjects : public ChunkObjects {
 public:
  [[nodiscard]] std::optional<Sealed> find(const IdBytes& id) const override {
    const auto it = sealed.find(id);
    if (it == sealed.end()) return std::nullopt;
    const auto size = bytes.find(id);
    return Sealed{it->second, size == bytes.end() ? 1 : size->second};
  }
  void remove(const IdBytes& id) override { sealed.erase(id); }
  std::map<IdBytes, std::uint32_t> sealed;  // generations
  std::map<IdBytes, std::uint64_t> bytes;   // 1 unless given
};

class Streams : public ::testing::Test {
 protected:
  static RequestOrigin origin(std::uint32_t client) { return {client, client + 100}; }
  std::uint64_t open(std::uint32_t capacity, std::uint32_t writers = 1, std::vector<std::string> groups = {"g"}) {
    const auto opened =
        table.open(1, "session 's'", "x", StreamOpening::kNew, {capacity, writers, std::nullopt, std::move(groups)});
    EXPECT_TRUE(opened.is_ok()) << opened.status().to_string();
    return opened->number;
  }
  std::uint64_t writer(std::uint32_t client, std::uint64_t stream) {
    const auto opened = table.open_writer(origin(client), stream);
    EXPECT_TRUE(opened.is_ok()) << opened.status().to_string();
    return opened.is_ok() ? *opened : 0;
  }
  std::uint64_t reader(std::uint32_t client, std::uint64_t stream, const std::string& group = "g") {
    const auto opened = table.open_reader(origin(client), stream, group, false);
    EXPECT_TRUE(opened.is_ok()) << opened.status().to_string();
    return opened.is_ok() ? opened->number : 0;
  }
  // Its answer is in appended[number].
  void append(std::uint32_t client, std::uint64_t writer, std::uint64_t number, std::uint64_t timeout_ms = 1000,
              std::uint64_t deadline_ns = StreamTable::kNever) {
    objects.sealed.emplace(numbered_id(number), 7);
    table.append(
        origin(client), writer, numbered_id(number), {}, timeout_ms,
        [this, number](const Result<std::uint64_t>& done) { appended.emplace(number, done.status()); }, deadline_ns);
  }
  // Its answer is in given[reader].
  void ask(std::uint32_t client, std::uint64_t reader, std::optional<std::uint64_t> done = std::nullopt,
           std::uint64_t timeout_ms = 1000) {
    given.erase(reader);
    table.next(origin(client), reader, done, timeout_ms, [this, reader](const Result<NextChunk>& next) {
      ASSERT_TRUE(given.emplace(reader, next).second) << "answered twice";
    });
  }
  [[nodiscard]] Code code(std::uint64_t number) const { return appended.at(number).code(); }
  [[nodiscard]] std::optional<std::uint64_t> position(std::uint64_t reader) const {
    const auto it = given.find(reader);
    return it == given.end() || !it->second.is_ok() || it->second->ended ? std::nullopt
                                                                         : std::optional(it->second->position);
  }
  [[nodiscard]] bool has_end(std::uint64_t reader) const {
    const auto it = given.find(reader);
    return it != given.end() && it->second.is_ok() && it->second->ended;
  }
  [[nodiscard]] bool exists(std::uint64_t number) const { return objects.sealed.contains(numbered_id(number)); }

  FakeClock clock;
  MemoryBudget budget{64 * kMiB};
  FakeObjects objects;
  StreamTable table{{clock, budget, objects, [](std::uint32_t client) { return concat("client ", client); }}};
  std::map<std::uint64_t, Status> appended;
  std::map<std::uint64_t, Result<NextChunk>> given;
};

TEST_F(Streams, AWriterWaitsForRoomAndAReaderForAChunk) {
  const std::uint64_t stream = open(2);
  const std::uint64_t w = writer(1, stream);
  const std::uint64_t r = reader(2, stream);
  ask(2, r);
  EXPECT_FALSE(given.contains(r));
  append(1, w, 10);
  EXPECT_EQ(position(r), 0U);
  append(1, w, 11);
  EXPECT_EQ(code(11), Code::kOk);
  append(1, w, 12);
  EXPECT_FALSE(appended.contains(12)) << "two are in the stream: one in a hand, one pending";
  ask(2, r, 0);
  EXPECT_EQ(code(12), Code::kOk);
  EXPECT_EQ(position(r), 1U);
  EXPECT_FALSE(exists(10)) << "consumed by all groups";
  EXPECT_TRUE(exists(11));
}

TEST_F(Streams, EachChunkGoesToOneReaderOfEachGroup) {
  const std::uint64_t stream = open(8, 1, {"a", "b"});
  const std::uint64_t w = writer(1, stream);
  const std::uint64_t a1 = reader(2, stream, "a");
  const std::uint64_t a2 = reader(3, stream, "a");
  const std::uint64_t b = reader(4, stream, "b");
  append(1, w, 10);
  append(1, w, 11);
  ask(2, a1);
  ask(3, a2);
  ask(4, b);
  EXPECT_EQ(position(a1), 0U);
  EXPECT_EQ(position(a2), 1U);
  EXPECT_EQ(position(b), 0U);
  EXPECT_TRUE(table.chunk_done(origin(2), a1, 0).is_ok());
  EXPECT_TRUE(exists(10)) << "the other group has it in hand";
  EXPECT_TRUE(table.chunk_done(origin(4), b, 0).is_ok());
  EXPECT_FALSE(exists(10));
}

TEST_F(Streams, ADeadReadersChunkGoesToItsGroup) {
  const std::uint64_t stream = open(8);
  const std::uint64_t w = writer(1, stream);
  const std::uint64_t r1 = reader(2, stream);
  const std::uint64_t r2 = reader(3, stream);
  append(1, w, 10);
  ask(2, r1);
  ask(3, r2);
  EXPECT_TRUE(table.close_writer(origin(1), w, false, "").is_ok());
  EXPECT_FALSE(given.contains(r2)) << "what the other one has in hand may come back";
  table.connection_ended(102);
  EXPECT_EQ(position(r2), 0U);
  EXPECT_TRUE(given.at(r2)->again);
  ask(3, r2, 0);
  EXPECT_TRUE(has_end(r2));
}

TEST_F(Streams, ADeadWriterIsAnErrorAndNeverAnEnd) {
  const std::uint64_t stream = open(8, 2);
  const std::uint64_t w1 = writer(1, stream);
  const std::uint64_t w2 = writer(2, stream);
  const std::uint64_t r = reader(3, stream);
  append(1, w1, 10);
  EXPECT_TRUE(table.close_writer(origin(1), w1, false, "").is_ok());
  ask(3, r);
  ask(3, r, 0);
  EXPECT_FALSE(given.contains(r)) << "the second writer has not closed";
  table.connection_ended(102);
  EXPECT_EQ(given.at(r).code(), Code::kStreamFailed);
  EXPECT_NE(given.at(r).status().message().find("client 2"), std::string::npos);
  ask(3, r);
  EXPECT_EQ(given.at(r).code(), Code::kStreamFailed);
  EXPECT_EQ(table.open_writer(origin(1), stream).code(), Code::kStreamFailed);
  static_cast<void>(w2);
}

TEST_F(Streams, AnAbortFailsTheOthersAndDeletesTheChunks) {
  const std::uint64_t stream = open(1, 2);
  const std::uint64_t w1 = writer(1, stream);
  const std::uint64_t w2 = writer(2, stream);
  append(1, w1, 10);
  append(1, w1, 11);  // waits
  EXPECT_TRUE(table.close_writer(origin(2), w2, true, "no more input").is_ok());
  EXPECT_EQ(code(11), Code::kStreamFailed);
  EXPECT_FALSE(exists(10));
  const Status closed = table.close_writer(origin(1), w1, false, "");
  EXPECT_EQ(closed.code(), Code::kStreamFailed);
  EXPECT_NE(closed.message().find("no more input"), std::string::npos);
  EXPECT_EQ(budget.granted(BudgetItem::kHeap), 0U);
}

TEST_F(Streams, WhatWaitsIsAnsweredAtItsDeadline) {
  const std::uint64_t stream = open(1);
  const std::uint64_t w = writer(1, stream);
  const std::uint64_t r = reader(2, stream);
  ask(2, r, std::nullopt, 0);
  EXPECT_EQ(given.at(r).code(), Code::kTimeout);
  ask(2, r, std::nullopt, 50);
  EXPECT_EQ(table.next_deadline_ns(), clock.monotonic_ns() + 50'000'000);
  clock.advance_ms(50);
  table.answer_overdue(clock.monotonic_ns());
  EXPECT_EQ(given.at(r).code(), Code::kTimeout);
  EXPECT_EQ(table.next_deadline_ns(), kNoDeadline);
  append(1, w, 10);
  append(1, w, 11, 0);
  EXPECT_EQ(code(11), Code::kTimeout);
  EXPECT_NE(appended.at(11).message().find("1 chunk of 1 in it; group 'g' has not consumed 1"), std::string::npos)
      << appended.at(11).message();
  ask(2, r);
  EXPECT_EQ(position(r), 0U);
  ask(2, r, 0, 0);
  EXPECT_EQ(given.at(r).code(), Code::kTimeout) << "what was refused is not in the stream";
}

TEST_F(Streams, AReaderThatStoppedWaitingIsGivenTheSameChunkAgain) {
  const std::uint64_t stream = open(4);
  const std::uint64_t w = writer(1, stream);
  const std::uint64_t r = reader(2, stream);
  Code first = Code::kOk;
  table.next(origin(2), r, std::nullopt, 1000, [&](const Result<NextChunk>& next) { first = next.code(); });
  ask(2, r);
  EXPECT_EQ(first, Code::kTimeout) << "the request before was replaced";
  append(1, w, 10);
  append(1, w, 11);
  EXPECT_EQ(position(r), 0U);
  ask(2, r);
  EXPECT_EQ(position(r), 0U);
  ask(2, r, 0);
  EXPECT_EQ(position(r), 1U);
  ask(2, r, 0);
  EXPECT_EQ(position(r), 1U) << "reported twice";
}

TEST_F(Streams, AnAppendThatWaitsCanBeWithdrawn) {
  const std::uint64_t stream = open(1);
  const std::uint64_t w = writer(1, stream);
  append(1, w, 10);
  EXPECT_TRUE(*table.withdraw(origin(1), w, numbered_id(10))) << "it was appended";
  append(1, w, 11);
  EXPECT_FALSE(*table.withdraw(origin(1), w, numbered_id(11)));
  EXPECT_EQ(code(11), Code::kTimeout);
  EXPECT_FALSE(*table.withdraw(origin(1), w, numbered_id(10))) << "not the latest";
}

TEST_F(Streams, AnAppendAtOnceNeedsRoomAndNobodyBeforeIt) {
  const std::uint64_t stream = open(2, 2);
  const std::uint64_t w1 = writer(1, stream);
  const std::uint64_t w2 = writer(2, stream);
  const std::uint64_t r = reader(3, stream);
  ask(3, r);
  for (std::uint64_t number = 10; number < 14; ++number)
    objects.sealed.emplace(numbered_id(number), 7);
  EXPECT_EQ(table.append_at_once(origin(1), w1, numbered_id(10), {}), 0U);
  EXPECT_EQ(position(r), 0U) << "the reader that waits gets it";
  EXPECT_EQ(table.append_at_once(origin(1), w1, numbered_id(10), {}), std::nullopt) << "it is a chunk already";
  EXPECT_EQ(table.append_at_once(origin(1), w1, numbered_id(99), {}), std::nullopt) << "it does not exist";
  EXPECT_EQ(table.append_at_once(origin(2), w1, numbered_id(11), {}), std::nullopt) << "another's writer";
  EXPECT_EQ(table.append_at_once(origin(1), w1, numbered_id(11), {}), 1U);
  EXPECT_EQ(table.append_at_once(origin(1), w1, numbered_id(12), {}), std::nullopt) << "it is full";
  EXPECT_TRUE(exists(12)) << "an append follows";
  append(1, w1, 12);
  ask(3, r, 0);
  EXPECT_EQ(code(12), Code::kOk);
  append(1, w1, 20);
  EXPECT_TRUE(table.chunk_done(origin(3), r, 1).is_ok());
  EXPECT_EQ(code(20), Code::kOk);
  append(1, w1, 21);
  EXPECT_EQ(table.append_at_once(origin(2), w2, numbered_id(13), {}), std::nullopt) << "another writer waits";
  EXPECT_TRUE(table.close_writer(origin(2), w2, true, "test").is_ok());
  EXPECT_EQ(table.append_at_once(origin(1), w1, numbered_id(13), {}), std::nullopt) << "the stream has failed";
}

TEST_F(Streams, WhatWasGivenUpBeforeItCameIsNotAppended) {
  const std::uint64_t stream = open(2);
  const std::uint64_t w = writer(1, stream);
  EXPECT_FALSE(*table.withdraw(origin(1), w, numbered_id(10)));
  objects.sealed.emplace(numbered_id(10), 7);
  EXPECT_EQ(table.append_at_once(origin(1), w, numbered_id(10), {}), std::nullopt);
  EXPECT_FALSE(exists(10));
  objects.sealed.emplace(numbered_id(11), 7);
  EXPECT_EQ(table.append_at_once(origin(1), w, numbered_id(11), {}), 0U);
  EXPECT_TRUE(*table.withdraw(origin(1), w, numbered_id(11))) << "it came before";
  EXPECT_TRUE(exists(11));
}

TEST_F(Streams, ADaemonThatWasStoppedAppendsNothingThatItsCallerGaveUp) {
  const std::uint64_t stream = open(1, 2);
  const std::uint64_t w1 = writer(1, stream);
  const std::uint64_t w2 = writer(2, stream);
  const std::uint64_t r = reader(3, stream);
  append(1, w1, 10);
  const std::uint64_t deadline_ns = clock.monotonic_ns() + 2'000'000'000;
  append(1, w1, 11, 1000, deadline_ns);
  append(2, w2, 12, 60'000);
  ask(3, r);
  clock.advance_ms(2000);  // and the first that it gets to know afterwards is that there is room
  EXPECT_TRUE(table.chunk_done(origin(3), r, 0).is_ok());
  EXPECT_EQ(code(11), Code::kTimeout);
  EXPECT_FALSE(exists(11));
  EXPECT_EQ(code(12), Code::kOk) << "its caller still waits";
  ask(3, r, 0);
  ask(3, r, 1, 0);
  append(1, w1, 13, 1000, deadline_ns);
  EXPECT_EQ(code(13), Code::kTimeout) << "there is room, but it came too late";
  EXPECT_FALSE(exists(13));
  append(1, w1, 14, 0, clock.monotonic_ns() + 1);
  EXPECT_EQ(code(14), Code::kOk) << "it came in time";
}

TEST_F(Streams, APutThatComesAfterItsDeadlineLeavesNothing) {
  const std::uint64_t w = writer(1, open(2));
  objects.sealed.emplace(numbered_id(10), 7);
  EXPECT_TRUE(table.check_in_time(origin(1), w, numbered_id(10), clock.monotonic_ns() + 1).is_ok());
  EXPECT_TRUE(exists(10));
  EXPECT_EQ(table.check_in_time(origin(2), w, numbered_id(10), clock.monotonic_ns()).code(), Code::kTimeout);
  EXPECT_TRUE(exists(10)) << "another's writer";
  EXPECT_EQ(table.check_in_time(origin(1), w, numbered_id(10), clock.monotonic_ns()).code(), Code::kTimeout);
  EXPECT_FALSE(exists(10));
}

TEST_F(Streams, WhatWasSealedAndNotAppendedIsDeletedWhenItIsGivenUp) {
  const std::uint64_t w = writer(1, open(1));
  append(1, w, 10);
  objects.sealed.emplace(numbered_id(11), 7);
  EXPECT_EQ(table.append_at_once(origin(1), w, numbered_id(11), {}), std::nullopt) << "it is full";
  EXPECT_FALSE(*table.withdraw(origin(1), w, numbered_id(11)));
  EXPECT_FALSE(exists(11));
  EXPECT_TRUE(exists(10));
}

TEST_F(Streams, ASmallChunkBehindALargeOneThatIsGivenUpIsAppended) {
  const std::uint64_t stream =
      table.open(1, "session 's'", "x", StreamOpening::kNew, {8, 3, std::nullopt, {"g"}, 100})->number;
  const std::uint64_t w1 = writer(1, stream);
  const std::uint64_t w2 = writer(2, stream);
  const auto sized = [&](std::uint32_t client, std::uint64_t writer, std::uint64_t number, std::uint64_t bytes,
                         std::uint64_t timeout_ms) {
    objects.bytes[numbered_id(number)] = bytes;
    append(client, writer, number, timeout_ms);
  };
  sized(1, w1, 10, 60, 1000);
  sized(1, w1, 11, 50, 1000);
  sized(2, w2, 12, 20, 9000);
  EXPECT_FALSE(appended.contains(12));
  clock.advance_ms(1000);
  table.answer_overdue(clock.monotonic_ns());
  EXPECT_EQ(code(11), Code::kTimeout);
  EXPECT_EQ(code(12), Code::kOk);
  sized(1, w1, 13, 50, 1000);
  sized(2, w2, 14, 20, 9000);
  EXPECT_FALSE(appended.contains(14));
  EXPECT_FALSE(*table.withdraw(origin(1), w1, numbered_id(13)));
  EXPECT_EQ(code(14), Code::kOk);
}

TEST_F(Streams, CapacityInBytesAdmitsAnyChunkToAnEmptyStream) {
  const std::uint64_t stream =
      table.open(1, "session 's'", "x", StreamOpening::kNew, {8, 1, std::nullopt, {"g"}, 100})->number;
  const std::uint64_t w = writer(1, stream);
  const std::uint64_t r = reader(2, stream);
  const auto sized = [&](std::uint64_t number, std::uint64_t bytes) {
    objects.bytes[numbered_id(number)] = bytes;
    append(1, w, number);
  };
  sized(10, 500);
  EXPECT_EQ(code(10), Code::kOk) << "the stream was empty";
  objects.bytes[numbered_id(11)] = 1;
  objects.sealed.emplace(numbered_id(11), 7);
  EXPECT_EQ(table.append_at_once(origin(1), w, numbered_id(11), {}), std::nullopt);
  append(1, w, 11);
  EXPECT_FALSE(appended.contains(11));
  ask(2, r);
  ask(2, r, 0);
  EXPECT_EQ(code(11), Code::kOk);
  sized(12, 99);
  EXPECT_EQ(code(12), Code::kOk) << "100 of 100";
  sized(13, 1);
  EXPECT_FALSE(appended.contains(13));
  clock.advance_ms(1000);
  table.answer_overdue(clock.monotonic_ns());
  EXPECT_NE(appended.at(13).message().find("2 chunks of 8 in it, 100 B of 100 B"), std::string::npos)
      << appended.at(13).message();
  EXPECT_EQ((*table.find(stream))->bytes(), 100U);
  ask(2, r, 1);
  EXPECT_EQ((*table.find(stream))->bytes(), 99U);
  sized(14, UINT64_MAX);
  EXPECT_FALSE(appended.contains(14));
  table.session_ended(1);
  EXPECT_EQ(code(14), Code::kStreamFailed);
}

TEST_F(Streams, WaitingAppendsAreServedInTheirOrder) {
  const std::uint64_t stream = open(1, 3);
  const std::uint64_t r = reader(9, stream);
  std::vector<std::uint64_t> writers;
  for (std::uint32_t client = 1; client <= 3; ++client) {
    writers.push_back(writer(client, stream));
    append(client, writers.back(), client);
  }
  std::vector<IdBytes> order;
  std::optional<std::uint64_t> done;
  for (int i = 0; i < 3; ++i) {
    ask(9, r, done);
    order.push_back(given.at(r)->id);
    done = position(r);
  }
  EXPECT_EQ(order, (std::vector<IdBytes>{numbered_id(1), numbered_id(2), numbered_id(3)}));
}

TEST_F(Streams, ChunksWaitForTheFirstGroupAndALateOneIsRefused) {
  const std::uint64_t stream = open(4, 1, {});
  const std::uint64_t w = writer(1, stream);
  append(1, w, 10);
  const std::uint64_t r = reader(2, stream, "first");
  ask(2, r);
  EXPECT_EQ(position(r), 0U);
  EXPECT_TRUE(table.open_reader(origin(3), stream, "second", false).is_ok()) << "nothing was deleted yet";
  ask(2, r, 0, 0);
  const std::uint64_t second = table.open_reader(origin(3), stream, "second", false)->number;
  ask(3, second);
  EXPECT_EQ(position(second), 0U);
  EXPECT_TRUE(table.chunk_done(origin(3), second, 0).is_ok());
  EXPECT_FALSE(exists(10));
  EXPECT_EQ(table.open_reader(origin(4), stream, "third", false).code(), Code::kInvalidArgument);
  EXPECT_EQ(table.open_reader(origin(4), stream, "third", true)->missed, 1U);
}

TEST_F(Streams, EndsAreOfOneConnectionAndOneDaemon) {
  const std::uint64_t stream = open(4);
  const std::uint64_t w = writer(1, stream);
  append(2, w, 10);
  EXPECT_EQ(code(10), Code::kStreamLost);
  StreamTable next_daemon{{clock, budget, objects, [](std::uint32_t) { return std::string(); }}};
  EXPECT_EQ(next_daemon.open_writer(origin(1), stream).code(), Code::kStreamLost);
  EXPECT_EQ(next_daemon.close_writer(origin(1), w, false, "").code(), Code::kStreamLost);
  EXPECT_EQ(table.close_reader(origin(1), w).code(), Code::kStreamLost) << "it is a writer";
}

TEST_F(Streams, NoMoreWritersThanExpectedAndAnEndOnlyAfterAll) {
  const std::uint64_t stream = open(4, 2);
  const std::uint64_t r = reader(3, stream);
  const std::uint64_t w1 = writer(1, stream);
  EXPECT_TRUE(table.close_writer(origin(1), w1, false, "").is_ok());
  ask(3, r, std::nullopt, 0);
  EXPECT_EQ(given.at(r).code(), Code::kTimeout);
  const std::uint64_t w2 = writer(1, stream);
  EXPECT_EQ(table.open_writer(origin(1), stream).code(), Code::kInvalidArgument);
  EXPECT_TRUE(table.close_writer(origin(1), w2, false, "").is_ok());
  ask(3, r);
  EXPECT_TRUE(has_end(r));
}

TEST_F(Streams, WhatIsUnspecifiedMayBeGivenLaterButNotChanged) {
  const auto first = table.open(1, "session 's'", "x", StreamOpening::kAny, {});
  EXPECT_TRUE(first->created);
  EXPECT_EQ(first->capacity, Stream::kDefaultCapacity);
  EXPECT_EQ(first->capacity_bytes, 0U);
  const auto second = table.open(1, "session 's'", "x", StreamOpening::kAny, {3, 2, true, {"a"}, 1000});
  EXPECT_FALSE(second->created);
  EXPECT_EQ(second->capacity, 3U);
  EXPECT_EQ(second->writers, 2U);
  EXPECT_TRUE(second->keeps);
  EXPECT_EQ(second->capacity_bytes, 1000U);
  for (const StreamSpec& other :
       {StreamSpec{4}, StreamSpec{0, 1}, StreamSpec{0, 0, false}, StreamSpec{.capacity_bytes = 999}}) {
    EXPECT_EQ(table.open(1, "session 's'", "x", StreamOpening::kAny, other).code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(table.open(2, "session 't'", "x", StreamOpening::kExisting, {}).code(), Code::kObjectNotFound);
  EXPECT_EQ(table.open(2, "session 't'", "x", StreamOpening::kAny, {Stream::kMaxCapacity + 1}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(table.list().size(), 1U) << "a refused one is not created";
}

TEST_F(Streams, ReplacingAndRemovingFailsIt) {
  const std::uint64_t old = open(4);
  const std::uint64_t r = reader(2, old);
  ask(2, r);
  const std::uint64_t next = open(4);
  EXPECT_NE(next, old);
  EXPECT_EQ(given.at(r).code(), Code::kStreamFailed);
  EXPECT_EQ(table.open_writer(origin(1), old).code(), Code::kStreamLost);
  const std::uint64_t w = writer(1, next);
  append(1, w, 10);
  table.session_ended(1);
  EXPECT_FALSE(exists(10));
  EXPECT_TRUE(table.empty());
  append(1, w, 11);
  EXPECT_EQ(code(11), Code::kStreamFailed);
}

TEST_F(Streams, AnObjectIsAChunkOnceAndMustExist) {
  const std::uint64_t stream = open(4);
  const std::uint64_t w = writer(1, stream);
  append(1, w, 10);
  appended.clear();
  append(1, w, 10);
  EXPECT_EQ(code(10), Code::kInvalidArgument);
  table.append(origin(1), w, numbered_id(99), {}, 0,
               [](const Result<std::uint64_t>& done) { EXPECT_EQ(done.code(), Code::kObjectNotFound); });
  objects.sealed[numbered_id(10)] = 8;  // another object of this ID
  table.session_ended(1);
  EXPECT_TRUE(exists(10)) << "it is not the stream's";
}

TEST_F(Streams, WhatADeadWriterSealedAndDidNotAppendIsDeleted) {
  for (const bool closes : {false, true}) {
    const std::uint64_t stream = open(1);
    const std::uint64_t w = *table.open_writer(origin(1), stream, numbered_id(10));
    objects.sealed.emplace(numbered_id(10), 1);
    table.append(origin(1), w, numbered_id(10), numbered_id(11), 1000, [](const auto&) {});
    objects.sealed.emplace(numbered_id(11), 1);
    table.append(origin(1), w, numbered_id(11), numbered_id(12), 1000, [](const auto&) {});  // waits
    objects.sealed.emplace(numbered_id(12), 1);
    if (closes) {
      EXPECT_TRUE(table.close_writer(origin(1), w, true, "test").is_ok());
    } else {
      table.connection_ended(101);
    }
    EXPECT_TRUE(objects.sealed.empty());
  }
}

TEST_F(Streams, FinishedOnesMakePlaceForNewOnes) {
  for (std::size_t i = 0; i < StreamTable::kMaxStreams; ++i) {
    ASSERT_TRUE(table.open(1, "session 's'", concat("s", i), StreamOpening::kAny, {}).is_ok());
  }
  EXPECT_EQ(table.open(1, "session 's'", "more", StreamOpening::kAny, {}).code(), Code::kStoreFull);
  const auto finished = table.open(1, "session 's'", "s5", StreamOpening::kExisting, {});
  EXPECT_TRUE(table.close_writer(origin(1), writer(1, finished->number), false, "").is_ok());
  EXPECT_TRUE(table.open(1, "session 's'", "more", StreamOpening::kAny, {}).is_ok());
  EXPECT_EQ(table.open(1, "session 's'", "s5", StreamOpening::kExisting, {}).code(), Code::kObjectNotFound);
}

// Random requests against what a stream promises: for each group every chunk at least once, and exactly once unless a
// reader of it ended with the chunk in hand; each writer's chunks in its order, at their first delivery; never more than
// the capacity; and in the end nothing left.
class RandomStreams : public Streams, public ::testing::WithParamInterface<unsigned> {};

TEST_P(RandomStreams, KeepTheirPromises) {
  std::mt19937 random(GetParam());
  const auto pick = [&](std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random); };
  constexpr std::uint32_t kWriters = 3;
  constexpr std::uint64_t kChunksOfWriter = 40;
  const std::uint32_t capacity = static_cast<std::uint32_t>(1 + pick(5));
  const std::vector<std::string> groups = {"a", "b"};
  const std::uint64_t stream = open(capacity, kWriters, groups);
  struct ModelWriter {
    std::uint64_t number = 0;
    std::uint64_t sent = 0;
    bool waits = false;
    bool closed = false;
  };
  std::vector<ModelWriter> writers(kWriters);
  for (std::uint32_t i = 0; i < kWriters; ++i)
    writers[i].number = writer(i, stream);
  struct ModelReader {
    std::uint32_t client = 0;
    std::uint64_t number = 0;
    std::size_t group = 0;
    std::optional<NextChunk> in_hand;
    bool waits = false;
    bool has_end = false;
  };
  std::map<std::uint32_t, ModelReader> readers;  // by client
  std::uint32_t next_client = 100;
  std::vector<std::map<IdBytes, int>> handed(2);                // deliveries, by group
  std::vector<std::map<IdBytes, int>> returned(2);              // by readers that ended
  std::vector<std::map<std::uint32_t, std::uint64_t>> last(2);  // latest first delivery of each writer
  const auto add_reader = [&](std::size_t group) {
    const std::uint32_t client = next_client++;
    readers[client] = {client, reader(client, stream, groups[group]), group, std::nullopt, false, false};
  };
  const auto is_done = [&] {
    return std::all_of(readers.begin(), readers.end(), [](const auto& r) { return r.second.has_end; });
  };
  for (std::size_t group : {0U, 0U, 1U, 1U})
    add_reader(group);
  for (int step = 0; step < 100'000 && !is_done(); ++step) {
    ASSERT_LE((*table.find(stream))->size(), capacity);
    const std::size_t what = pick(100);
    if (what < 35) {
      const std::uint32_t i = static_cast<std::uint32_t>(pick(kWriters));
      ModelWriter& w = writers[i];
      if (w.waits || w.closed) continue;
      if (w.sent == kChunksOfWriter) {
        ASSERT_TRUE(table.close_writer(origin(i), w.number, false, "").is_ok());
        w.closed = true;
        continue;
      }
      const IdBytes id = numbered_id(i * 1000 + w.sent);
      objects.sealed.emplace(id, 1);
      w.waits = true;
      table.append(origin(i), w.number, id, {}, 1000, [&w](const Result<std::uint64_t>& done) {
        ASSERT_TRUE(done.is_ok()) << done.status().to_string();
        w.waits = false;
        ++w.sent;
      });
    } else if (what < 97) {
      auto it = std::next(readers.begin(), static_cast<std::ptrdiff_t>(pick(readers.size())));
      ModelReader& r = it->second;
      if (r.waits || r.has_end) continue;
      const auto done = r.in_hand && pick(10) != 0 ? std::optional(r.in_hand->position) : std::nullopt;
      const bool repeats = r.in_hand && !done;
      if (done) r.in_hand.reset();
      r.waits = true;
      table.next(origin(r.client), r.number, done, 1000,
                 [&, client = r.client, repeats](const Result<NextChunk>& next) {
                   ASSERT_TRUE(next.is_ok()) << next.status().to_string();
                   ModelReader& mine = readers.at(client);
                   mine.waits = false;
                   mine.has_end = next->ended;
                   if (next->ended) {
                     mine.in_hand.reset();
                     return;
                   }
                   if (repeats) {
                     ASSERT_EQ(next->position, mine.in_hand->position);
                     return;
                   }
                   mine.in_hand = *next;
                   const int before = handed[mine.group][next->id]++;
                   ASSERT_EQ(before, returned[mine.group][next->id]) << "handed out again without having come back";
                   ASSERT_EQ(next->again, before != 0);
                   if (before != 0) return;
                   for (std::uint32_t w = 0; w < kWriters; ++w) {
                     for (std::uint64_t sent = 0; sent < kChunksOfWriter; ++sent) {
                       if (numbered_id(w * 1000 + sent) != next->id) continue;
                       ASSERT_EQ(sent, last[mine.group][w]++) << "in the writer's order";
                     }
                   }
                 });
    } else {
      auto it = std::next(readers.begin(), static_cast<std::ptrdiff_t>(pick(readers.size())));
      const ModelReader gone = it->second;
      if (gone.has_end) continue;
      readers.erase(it);
      if (gone.in_hand) ++returned[gone.group][gone.in_hand->id];
      add_reader(gone.group);
      if (pick(2) == 0) {
        table.connection_ended(gone.client + 100);
      } else if (gone.waits) {
        table.connection_ended(gone.client + 100);
      } else {
        ASSERT_TRUE(table.close_reader(origin(gone.client), gone.number).is_ok());
      }
    }
  }
  EXPECT_TRUE(is_done());
  for (std::size_t group = 0; group < 2; ++group) {
    EXPECT_EQ(handed[group].size(), kWriters * kChunksOfWriter) << groups[group];
  }
  EXPECT_TRUE(objects.sealed.empty());
  EXPECT_EQ(budget.granted(BudgetItem::kHeap), 0U);
  EXPECT_EQ(table.waiting(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomStreams, ::testing::Range(1U, 41U));

}  // namespace
}  // namespace entrepot::testing
