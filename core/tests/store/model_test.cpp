// Random requests, deaths and restarts against a plain model of what must be there.
#include <array>
#include <random>
#include <set>

#include "store/harness.h"

namespace entrepot::testing {
namespace {

class Model {
 public:
  explicit Model(std::uint32_t seed) : random_(seed) {
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
  };

  std::uint32_t pick(std::uint32_t below) {
    return std::uniform_int_distribution<std::uint32_t>(0, below - 1)(random_);
  }

  void step() {
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
        return;
      }
      spec.id = id;
      spec.session = handle;
      spec.blobs = {{(*got)->segment, (*got)->offset, bytes}};
      spec.buffers = {{kNewBlobBit, 0, 0, bytes}};
      // What is not used goes back, with or without the mapping.
      const std::uint64_t used = blob_extent_bytes((*got)->offset, bytes);
      if ((*got)->length > used) {
        ASSERT_TRUE(
            h_.store->unlease(client, (*got)->segment, (*got)->offset + used, (*got)->length - used, false).is_ok());
      }
    }
    spec.replace = pick(3) == 0;
    const std::string name = "n" + std::to_string(pick(10));
    if (pick(3) == 0) spec.name = name;
    const SealOutcome outcome = h_.seal(client, spec);
    if (outcome.status.is_ok()) {
      std::uint64_t bytes = 0;
      for (const BufferSpec& buffer : spec.buffers)
        bytes += buffer.length;
      known_[id] = {outcome.generation,
                    known_.contains(id) && known_[id].generation == outcome.generation ? known_[id].session : session,
                    bytes};
      return;
    }
    ASSERT_TRUE(outcome.status.code() == Code::kObjectExists || outcome.status.code() == Code::kStoreFull)
        << outcome.status.to_string();
    if (!spec.blobs.empty()) {
      const std::uint64_t used = blob_extent_bytes(spec.blobs[0].offset, spec.blobs[0].length);
      ASSERT_TRUE(h_.store->unlease(client, spec.blobs[0].segment, spec.blobs[0].offset, used, pick(2) == 0).is_ok());
    }
  }

  void remove() {
    std::vector<IdBytes> ids;
    for (std::uint32_t i = pick(4) + 1; i > 0; --i)
      ids.push_back(numbered_id(pick(40)));
    const auto removed = h_.store->remove(ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(removed[i] != 0, known_.contains(ids[i]));
      known_.erase(ids[i]);
    }
  }

  void pin() {
    const std::uint32_t client = clients_[pick(static_cast<std::uint32_t>(clients_.size()))];
    const IdBytes id = numbered_id(pick(40));
    if (!known_.contains(id)) return;
    held_.push_back({client, h_.pin(client, id), known_[id].bytes});
  }

  void unpin() {
    if (held_.empty()) return;
    const std::uint32_t at = pick(static_cast<std::uint32_t>(held_.size()));
    h_.pins(held_[at].client).unpin(held_[at].position);
    held_.erase(held_.begin() + at);
    if (pick(2) == 0) h_.store->released();
  }

  void remove_session() {
    const std::string session = kSessions.at(pick(kSessions.size()));
    const Status status = h_.store->remove_session("scope", session);
    if (!status.is_ok()) return;
    std::erase_if(known_, [&](const auto& entry) { return entry.second.session == session; });
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
    static const std::vector<HeldLease> kNone;
    for (const std::uint32_t client : clients_) {
      ASSERT_TRUE(h_.store->reconnect(client, h_.store->clients().find(client)->token, &kNone).is_ok());
    }
  }

  void check() {
    ASSERT_EQ(h_.store->objects().count(), known_.size());
    std::uint64_t bytes = 0;
    for (const auto& [id, known] : known_) {
      const LookupOutcome found = h_.store->objects().lookup(id);
      ASSERT_EQ(found.code, Code::kOk);
      ASSERT_EQ(found.generation, known.generation);
      bytes += known.bytes;
    }
    ASSERT_EQ(h_.store->objects().payload_bytes(), bytes);
    ASSERT_LE(h_.store->objects().deferred(), held_.size() + 60);
    // No two live blobs overlap, and none lies outside of its segment.
    std::set<std::array<std::uint64_t, 3>> ranges;
    const BlobWriter& blobs = h_.store->objects().blobs();
    for (std::uint32_t blob = 0; blob < blobs.size(); ++blob) {
      if (!blobs.is_sealed(blob, blobs.generation(blob))) continue;
      const BlobPlace place = blobs.place(blob);
      const std::uint64_t extent = blob_extent_bytes(place.offset, place.length);
      ASSERT_TRUE(h_.store->pool().is_live(place.segment));
      ASSERT_LE(place.offset + place.length, h_.store->pool().bytes(place.segment));
      ASSERT_EQ(blobs.at(blob).segment_generation, h_.store->pool().generation(place.segment));
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
  Harness h_{32 * kMiB};
  std::vector<std::uint32_t> clients_;
  std::map<IdBytes, Known> known_;
  std::vector<Held> held_;
};

class RandomRequests : public ::testing::TestWithParam<std::uint32_t> {};
TEST_P(RandomRequests, AgreeWithTheModel) { Model(GetParam()).run(1500); }
INSTANTIATE_TEST_SUITE_P(Seeds, RandomRequests, ::testing::Range(1U, 13U));

}  // namespace
}  // namespace entrepot::testing
