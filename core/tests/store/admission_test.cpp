// Requests that cannot be satisfied are rejected at once and evict nothing; requests that can be, once memory is
// released, wait.
#include "store/harness.h"

namespace entrepot::testing {
namespace {

class LeaseAdmission : public ::testing::Test {
 protected:
  // Seals objects of 4 MiB each, numbered from 0: 24 MiB of 32.
  void fill() {
    for (std::uint64_t number = 0; number < 6; ++number)
      ASSERT_TRUE(h.seal(writer, h.blob_spec(writer, numbered_id(number), session, 4 * kMiB)).status.is_ok());
  }
  void ask(std::uint32_t client, std::uint64_t bytes) {
    got.reset();
    h.store->lease({client, client + 100}, bytes, bytes, 30'000,
                   [&](Result<LeaseGrant> grant) { got = std::move(grant); });
  }
  void expect_refused_with_nothing_moved() {
    ASSERT_TRUE(got.has_value()) << "it waits";
    EXPECT_EQ(got->code(), Code::kStoreFull);
    EXPECT_FALSE(got->status().retryable());
    h.run_io();
    EXPECT_EQ(h.spill.used(), 0U);
    EXPECT_EQ(h.store->pager().stats().evictions, 0U);
  }

  Harness h{32 * kMiB, 0, true};
  std::uint32_t writer = h.add_client("writer");
  std::uint32_t reader = h.add_client("reader");
  std::uint32_t session = h.open("run");
  std::optional<Result<LeaseGrant>> got;
};

TEST_F(LeaseAdmission, WhatDoesNotFitBesideWhatTheRequesterPinsIsRefusedAtOnce) {
  fill();
  for (std::uint64_t number = 0; number < 4; ++number)
    h.pin(writer, numbered_id(number));
  ask(writer, 18 * kMiB);
  expect_refused_with_nothing_moved();
  const std::string& text = got->status().message();
  for (const char* part : {"no room for 18 MiB", "itself pins 16 MiB", "Nothing was evicted", "Release values"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  ask(writer, 8 * kMiB);  // memory is freed for a request that fits beside the pinned objects
  h.run_io();
  ASSERT_TRUE(got.has_value());
  EXPECT_TRUE(got->is_ok()) << got->status().to_string();
  h.expect_no_leak();
}

TEST_F(LeaseAdmission, WhatDoesNotFitBesideWhatIsKeptIsRefusedAtOnce) {
  fill();
  const std::vector<IdBytes> kept = {numbered_id(0), numbered_id(1), numbered_id(2), numbered_id(3)};
  HintSpec keep;
  keep.fields = kHintPinned;
  keep.pinned = true;
  for (const Status& status : h.store->hint(kept, keep))
    ASSERT_TRUE(status.is_ok());
  ask(writer, 18 * kMiB);
  expect_refused_with_nothing_moved();
  EXPECT_NE(got->status().message().find("users pin 16 MiB"), std::string::npos) << got->status().message();
  keep.pinned = false;
  for (const Status& status : h.store->hint(kept, keep))
    ASSERT_TRUE(status.is_ok());
  ask(writer, 18 * kMiB);
  h.run_io();
  ASSERT_TRUE(got.has_value());
  EXPECT_TRUE(got->is_ok()) << got->status().to_string();
  h.expect_no_leak();
}

TEST_F(LeaseAdmission, WhatFitsOnceOthersLetGoWaitsAndMovesNothingOutBefore) {
  fill();
  std::vector<std::uint32_t> positions;
  for (std::uint64_t number = 0; number < 4; ++number)
    positions.push_back(h.pin(reader, numbered_id(number)));
  ask(writer, 18 * kMiB);
  h.run_io();
  EXPECT_FALSE(got.has_value());
  EXPECT_EQ(h.spill.used(), 0U);
  for (const std::uint32_t position : positions)
    h.pins(reader).unpin(position);
  h.store->rescan_pins();
  h.store->run_pending();
  h.run_io();
  ASSERT_TRUE(got.has_value());
  EXPECT_TRUE(got->is_ok()) << got->status().to_string();
  EXPECT_GT(h.spill.used(), 0U);
  h.expect_no_leak();
}

TEST_F(LeaseAdmission, WhatIsSaidToHaveBeenTriedWasTried) {
  const auto tried = [&](std::uint64_t bytes, std::uint64_t wait_ms) {
    got.reset();
    h.store->lease({writer, writer + 100}, bytes, bytes, wait_ms,
                   [&](Result<LeaseGrant> grant) { got = std::move(grant); });
    if (wait_ms > 0) {
      h.clock.advance_ms(wait_ms);
      h.store->tick();
    }
    const std::string text = got && !got->is_ok() ? got->status().message() : "no refusal";
    const std::size_t from = text.find("Tried: ");
    return from == std::string::npos ? text : text.substr(from, text.find('.', from) - from);
  };
  const std::string always = "Tried: free segments, empty segments, free ranges of others, holes among the records";
  fill();
  std::vector<std::uint32_t> positions;
  for (std::uint64_t number = 0; number < 4; ++number)
    positions.push_back(h.pin(reader, numbered_id(number)));
  EXPECT_EQ(tried(18 * kMiB, 0), always) << "only what waits for the pins could help";
  EXPECT_EQ(tried(18 * kMiB, 100), always + ", waiting");
  for (const std::uint32_t position : positions)
    h.pins(reader).unpin(position);
  h.store->rescan_pins();
  EXPECT_EQ(tried(20 * kMiB, 0), always + ", moving objects to disk");
  h.run_io();
  for (std::uint64_t number = 0; number < 4; ++number)
    h.pin(writer, numbered_id(number));
  EXPECT_EQ(tried(18 * kMiB, 100), always) << "refused at once";
}

TEST_F(LeaseAdmission, ABlobThatTwoPinnedObjectsShareCountsOnce) {
  fill();
  const std::uint32_t slot = h.store->objects().lookup(numbered_id(0)).slot;
  const std::uint32_t blob = h.store->parts().catalog.blobs_of(slot).at(0);
  SealSpec spec;
  spec.id = numbered_id(77);
  spec.session = session;
  spec.buffers = {{blob, h.store->parts().blobs.generation(blob), 0, 4 * kMiB}};
  ASSERT_TRUE(h.seal(writer, spec).status.is_ok());
  h.pin(writer, numbered_id(0));
  h.pin(writer, numbered_id(77));
  EXPECT_EQ(h.store->pager().immovable(writer).own, 4 * kMiB);
  EXPECT_EQ(h.store->pager().immovable(reader).own, 0U);
  EXPECT_EQ(h.store->pager().immovable(reader).others, 4 * kMiB);
  h.expect_no_leak();
}

TEST(Clients, HaveALimitAndForkedOnesHalfOfIt) {
  Harness h{16 * kMiB};
  EXPECT_TRUE(h.store->check_client_limit(false).is_ok());
  for (int i = 0; i < 64; ++i) {
    const std::uint32_t forked = h.store->begin_client().take();
    h.store->publish_client(forked, 1, {0, 1000, 1024, "child", true});
  }
  EXPECT_TRUE(h.store->check_client_limit(false).is_ok());
  const Status refused = h.store->check_client_limit(true);
  EXPECT_EQ(refused.code(), Code::kStoreFull);
  EXPECT_NE(refused.message().find("supports 64 forked clients"), std::string::npos) << refused.message();
  while (h.store->clients().all().size() < 128)
    h.store->publish_client(h.store->begin_client().take(), 1, {1, 1000, 1024, "other"});
  const Status all = h.store->check_client_limit(false);
  EXPECT_EQ(all.code(), Code::kStoreFull);
  EXPECT_NE(all.message().find("supports 128 clients"), std::string::npos) << all.message();
  h.expect_no_leak();
}

}  // namespace
}  // namespace entrepot::testing
