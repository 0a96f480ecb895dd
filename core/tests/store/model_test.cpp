// Random requests, deaths and restarts against a simple model of the expected contents.
#include <array>
#include <random>
#include <set>

#include "base/align.h"
#include "store/harness.h"

namespace entrepot::testing {
namespace {

class Model {
 public:
  explicit Model(std::uint32_t seed, bool spills, bool drops = false, std::uint64_t quota = UINT64_MAX)
      : random_(seed), drops_(drops), h_(32 * kMiB, 0, spills) {
    h_.spill.quota = quota;
    h_.options.give_back_after_seconds = 1;
    h_.restart();
    for (int i = 0; i < 4; ++i)
      clients_.push_back(h_.add_client());
  }

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      step();
      check();
    }
    h_.expect_no_leak();
  }

 private:
  struct Known {
    std::uint32_t generation = 0;
    std::string session;
    std::uint64_t bytes = 0;
  };
  struct Held {
    std::uint32_t client = 0;
    std::uint32_t position = 0;
    std::uint64_t bytes = 0;
    IdBytes id{};
    std::uint32_t generation = 0;
  };

  std::uint32_t pick(std::uint32_t below) {
    return std::uniform_int_distribution<std::uint32_t>(0, below - 1)(random_);
  }

  void step() {
    if (h_.spills && pick(4) == 0) return page();
    if (drops_ && pick(3) == 0) return say_how_long();
    switch (pick(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return put();
      case 4:
      case 5:
        return remove();
      case 6:
        return pin();
      case 7:
      case 8:
        return unpin();
      case 9:
        if (pick(8) == 0) remove_session();
        return;
      case 10:
        if (pick(6) == 0) kill();
        return;
      default:
        if (pick(6) == 0) restart();
        h_.clock.advance_ms(pick(500));
        h_.store->tick();
    }
  }

  // Sets random recompute costs: short, very long, or not recomputable after all.
  void say_how_long() {
    const IdBytes id = numbered_id(pick(40));
    HintSpec spec;
    spec.fields = kHintRecompute;
    spec.recompute_ns = pick(4) == 0 ? RecomputeCode::kNotRecomputableNs : pick(2) == 0 ? 1000 : 3'600'000'000'000;
    const Status status = h_.store->hint(std::span(&id, 1), spec)[0];
    ASSERT_EQ(status.is_ok(), existing_.contains(id)) << status.to_string();
    if (!status.is_ok()) return;
    if (spec.recompute_ns == RecomputeCode::kNotRecomputableNs) {
      droppable_.erase(id);
    } else {
      droppable_[id] = existing_[id].generation;
    }
  }

  // Operations that only a store with a spill backend supports.
  void page() {
    const std::vector<IdBytes> ids = {numbered_id(pick(40)), numbered_id(pick(40))};
    switch (pick(4)) {
      case 0:
        h_.spill.at_once = pick(2) == 0;
        for (const Status& status : h_.store->evict(ids)) {
          ASSERT_TRUE(status.is_ok() || status.code() == Code::kObjectNotFound ||
                      status.code() == Code::kObjectDropped || status.code() == Code::kInvalidArgument)
              << status.to_string();
        }
        return;
      case 1:
        h_.store->lookup({clients_[0], 1}, ids, 0, 1, [](const auto&) {});
        return;
      case 2: {
        const LookupOutcome got = h_.get(ids[0]);
        if (got.code == Code::kOk) {
          ASSERT_TRUE(got.resident);
        } else {
          // This load, or the ones queued before it, may have dropped another object; the loaded one never is.
          ASSERT_TRUE(got.code == Code::kStoreFull || !existing_.contains(ids[0]) || found_dropped(ids[0]))
              << got.message;
        }
        return;
      }
      default:
        h_.run_io();
    }
  }

  void put() {
    const std::uint32_t client = clients_[pick(static_cast<std::uint32_t>(clients_.size()))];
    const IdBytes id = numbered_id(pick(40));
    const std::string session = kSessions.at(pick(kSessions.size()));
    const std::uint32_t handle = h_.open(session, nullptr, 1);
    SealSpec spec;
    const std::string payload(pick(1000), 'x');
    if (pick(2) == 0) {
      spec = Harness::inline_spec(id, handle, payload);
    } else {
      const std::uint64_t bytes = 64 * (1 + pick(20'000));
      std::optional<Result<LeaseGrant>> got;
      h_.store->lease({client, 1}, bytes, pick(2) == 0 ? bytes : 4 * bytes, 0,
                      [&](Result<LeaseGrant> grant) { got = std::move(grant); });
      ASSERT_TRUE(got.has_value());
      if (!got->is_ok()) {
        ASSERT_EQ(got->code(), Code::kStoreFull) << got->status().to_string();
        if (h_.spill.quota != UINT64_MAX && pick(4) == 0) expect_justified(client, bytes);
        return;
      }
      spec.id = id;
      spec.session = handle;
      spec.blobs = {{(*got)->segment, (*got)->offset, bytes}};
      spec.buffers = {{kNewBlobBit, 0, 0, bytes}};
      // Return the unused part of the lease.
      const std::uint64_t used = round_up(blob_extent_bytes((*got)->offset, bytes), kLeaseGranule);
      if ((*got)->length > used) {
        ASSERT_TRUE(
            h_.store->unlease(client, (*got)->segment, (*got)->offset + used, (*got)->length - used, false).is_ok());
      }
    }
    spec.replace = pick(3) == 0;
    const std::string name = "n" + std::to_string(pick(10));
    if (pick(3) == 0) spec.name = name;
    find_dropped();  // the lease may have dropped objects
    const SealOutcome outcome = h_.seal(client, spec);
    if (outcome.status.is_ok()) {
      if (dropped_.erase(id) != 0) not_again_.insert(id);
      std::uint64_t bytes = 0;
      for (const BufferSpec& buffer : spec.buffers)
        bytes += buffer.length;
      existing_[id] = {
          outcome.generation,
          existing_.contains(id) && existing_[id].generation == outcome.generation ? existing_[id].session : session,
          bytes};
      return;
    }
    ASSERT_TRUE(outcome.status.code() == Code::kObjectExists || outcome.status.code() == Code::kStoreFull)
        << outcome.status.to_string();
    if (!spec.blobs.empty()) {
      const std::uint64_t used = round_up(blob_extent_bytes(spec.blobs[0].offset, spec.blobs[0].length), kLeaseGranule);
      ASSERT_TRUE(h_.store->unlease(client, spec.blobs[0].segment, spec.blobs[0].offset, used, pick(2) == 0).is_ok());
    }
  }

  // Once nobody reads anything and all I/O is done, a request is refused only if nothing more can be evicted.
  void expect_justified(std::uint32_t client, std::uint64_t bytes) {
    for (const Held& held : held_)
      h_.pins(held.client).unpin(held.position);
    held_.clear();
    h_.store->rescan_pins();
    std::optional<Result<LeaseGrant>> got;
    for (int attempt = 0; attempt < 60 && (!got || !got->is_ok()); ++attempt) {
      h_.run_io();
      h_.clock.advance_ms(1100);  // longer than the writer pauses, and than what was reloaded is held
      h_.store->tick();
      h_.store->lease({client, 1}, bytes, bytes, 0, [&](Result<LeaseGrant> grant) { got = std::move(grant); });
    }
    if (got->is_ok()) {
      ASSERT_TRUE(h_.store->unlease(client, (*got)->segment, (*got)->offset, (*got)->length, false).is_ok());
      return;
    }
    for (const auto& [id, object] : existing_)
      ASSERT_FALSE(may_be_evicted(id, object.bytes)) << got->status().to_string();
  }

  // Whether evicting the object leaves enough clean memory and quota to reload the largest spilled object.
  bool may_be_evicted(const IdBytes& id, std::uint64_t bytes) {
    constexpr std::uint64_t kSlack = 128 * kKiB;
    const auto slot = h_.store->objects().find(id);
    if (!slot || !h_.is_resident(id) || h_.store->parts().catalog.blobs_of(*slot).empty()) return false;
    const BlobTable& blobs = h_.store->parts().blobs;
    const std::uint64_t room = h_.spill.quota - h_.spill.used();
    const bool clean = blobs.copy(h_.store->parts().catalog.blobs_of(*slot).front()) != 0;
    std::uint64_t largest = bytes;
    for (const auto& [other, expected] : existing_) {
      if (!h_.is_resident(other)) largest = std::max(largest, expected.bytes);
    }
    return (clean || bytes <= room) && blobs.clean_bytes() + room >= bytes + largest + largest / 8 + kSlack;
  }

  void remove() {
    std::vector<IdBytes> ids;
    for (std::uint32_t i = pick(4) + 1; i > 0; --i)
      ids.push_back(numbered_id(pick(40)));
    const auto removed = h_.store->remove(ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(removed[i] != 0, existing_.contains(ids[i]) || dropped_.contains(ids[i]));
      existing_.erase(ids[i]);
      dropped_.erase(ids[i]);
      not_again_.erase(ids[i]);
    }
  }

  void pin() {
    const std::uint32_t client = clients_[pick(static_cast<std::uint32_t>(clients_.size()))];
    const IdBytes id = numbered_id(pick(40));
    if (!existing_.contains(id) || !h_.is_resident(id)) return;
    held_.push_back({client, h_.pin(client, id), existing_[id].bytes, id, existing_[id].generation});
  }

  void unpin() {
    if (held_.empty()) return;
    const std::uint32_t at = pick(static_cast<std::uint32_t>(held_.size()));
    h_.pins(held_[at].client).unpin(held_[at].position);
    held_.erase(held_.begin() + at);
    if (pick(2) == 0) h_.store->rescan_pins();
  }

  void remove_session() {
    const std::string session = kSessions.at(pick(kSessions.size()));
    const Status status = h_.store->remove_session("scope", session);
    if (!status.is_ok()) return;
    const auto is_its = [&](const auto& entry) { return entry.second.session == session; };
    for (const auto& [id, object] : existing_) {
      if (object.session == session) not_again_.erase(id);
    }
    std::erase_if(existing_, is_its);
    std::erase_if(dropped_, is_its);
  }

  void kill() {
    const std::uint32_t at = pick(static_cast<std::uint32_t>(clients_.size()));
    std::erase_if(held_, [&](const Held& held) { return held.client == clients_[at]; });
    h_.kill(clients_[at]);
    clients_[at] = h_.add_client();
  }

  void restart() {
    const AdoptionReport report = h_.restart();
    ASSERT_EQ(report.objects.lost, 0U);
    ASSERT_EQ(report.lost_segments, 0U);
    static const std::vector<ReportedLease> kNone;
    for (const std::uint32_t client : clients_) {
      ASSERT_TRUE(h_.store->reconnect(client, h_.store->clients().find(client)->token, &kNone).is_ok());
    }
  }

  // Returns whether the object is dropped; if it was expected to exist, checks that dropping it was allowed.
  bool found_dropped(const IdBytes& id) {
    if (h_.store->objects().lookup(id).code != Code::kObjectDropped) return false;
    const auto match = existing_.find(id);
    if (match == existing_.end()) return dropped_.contains(id);
    EXPECT_TRUE(drops_ && droppable_.contains(id) && droppable_[id] == match->second.generation)
        << "it was not declared recomputable";
    EXPECT_FALSE(not_again_.contains(id)) << "it was dropped before";
    for (const Held& held : held_)
      EXPECT_FALSE(held.id == id && held.generation == match->second.generation) << "somebody reads it";
    dropped_[id] = match->second;
    existing_.erase(match);
    return true;
  }

  void find_dropped() {
    std::vector<IdBytes> ids;
    for (const auto& [id, object] : existing_)
      ids.push_back(id);
    for (const IdBytes& id : ids)
      (void)found_dropped(id);
  }

  void check() {
    find_dropped();
    ASSERT_EQ(h_.store->parts().absent.dropped(), dropped_.size());
    for (const auto& [id, object] : dropped_)
      ASSERT_EQ(h_.store->objects().lookup(id).code, Code::kObjectDropped);
    ASSERT_EQ(h_.store->parts().catalog.count(), existing_.size());
    std::uint64_t bytes = 0;
    for (const auto& [id, object] : existing_) {
      const LookupOutcome outcome = h_.store->objects().lookup(id);
      ASSERT_EQ(outcome.code, Code::kOk);
      ASSERT_EQ(outcome.generation, object.generation);
      bytes += object.bytes;
    }
    ASSERT_EQ(h_.store->parts().catalog.payload_bytes(), bytes);
    ASSERT_LE(h_.store->parts().deferred.count(), held_.size() + 60);
    // All blobs of a pinned object are in memory.
    for (const Held& held : held_) {
      const std::uint64_t pin = h_.pins(held.client).pin_at(held.position);
      const auto slot = static_cast<std::uint32_t>(pin) - 1;
      for (const std::uint32_t blob : h_.store->parts().catalog.blobs_of(slot))
        ASSERT_TRUE(h_.store->parts().blobs.is_resident(blob));
    }
    // Live blobs do not overlap and lie within their segments.
    std::set<std::array<std::uint64_t, 3>> ranges;
    const BlobTable& blobs = h_.store->parts().blobs;
    for (std::uint32_t blob = 0; blob < blobs.size(); ++blob) {
      if (!blobs.is_sealed(blob, blobs.generation(blob))) continue;
      const BlobLocation place = blobs.place(blob);
      const std::uint64_t extent = blob_extent_bytes(place.offset, place.length);
      ASSERT_TRUE(h_.store->pool().is_live(place.segment));
      ASSERT_LE(place.offset + place.length, h_.store->pool().bytes(place.segment));
      ASSERT_EQ(place.segment_generation, h_.store->pool().generation(place.segment));
      ranges.insert({place.segment, place.offset, place.offset + extent});
    }
    const std::array<std::uint64_t, 3>* before = nullptr;
    for (const auto& range : ranges) {
      if (before != nullptr && (*before)[0] == range[0]) {
        ASSERT_LE((*before)[2], range[1]);
      }
      before = &range;
    }
    ASSERT_LE(h_.store->pool().committed_bytes(), 32 * kMiB);
  }

  static constexpr std::array<const char*, 3> kSessions = {"", "run-1", "run-2"};

  std::mt19937 random_;
  bool drops_;
  Harness h_;
  std::vector<std::uint32_t> clients_;
  std::map<IdBytes, Known> existing_;
  std::map<IdBytes, Known> dropped_;
  std::map<IdBytes, std::uint32_t> droppable_;  // droppable objects and their generations
  std::set<IdBytes> not_again_;                 // objects that were dropped once
  std::vector<Held> held_;
};

class RandomRequests : public ::testing::TestWithParam<std::uint32_t> {};
TEST_P(RandomRequests, AgreeWithTheModel) { Model(GetParam(), false).run(1500); }
TEST_P(RandomRequests, AgreeWithTheModelWhileObjectsLeaveMemoryAndComeBack) { Model(GetParam(), true).run(1500); }
TEST_P(RandomRequests, AgreeWithTheModelWithinASpillQuota) {
  Model(GetParam(), true, false, (4 + GetParam()) * kMiB).run(1500);
}
TEST_P(RandomRequests, AgreeWithTheModelWhileObjectsAreDroppedAndMadeAgain) { Model(GetParam(), true, true).run(1500); }
TEST_P(RandomRequests, AgreeWithTheModelWhereWhatCanBeMadeAgainIsAllThatLeavesMemory) {
  Model(GetParam(), false, true).run(1500);
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomRequests, ::testing::Range(1U, 13U));

}  // namespace
}  // namespace entrepot::testing
