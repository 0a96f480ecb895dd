// Crash tests: the daemon dies at every step of a change.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "store/harness.h"

namespace entrepot::testing {

struct SimulatedCrash {};

// For each n: prepares a store, dies at the n-th step of `change`, adopts, and calls `check(harness, done)`, where
// `done` means that the change completed.
inline void at_every_step(const std::function<void(Harness&)>& prepare, const std::function<void(Harness&)>& change,
                          const std::function<void(Harness&, bool)>& check, std::uint64_t least_steps,
                          bool spills = false) {
  std::set<std::string> places;
  for (std::uint64_t step = 0;; ++step) {
    Harness h(8 * kMiB, 0, spills);
    prepare(h);
    std::uint64_t passed = 0;
    bool done = false;
    sync_hook = [&](std::string_view place) {
      places.emplace(place);
      if (passed++ == step) throw SimulatedCrash{};
    };
    try {
      change(h);
      done = true;
    } catch (const SimulatedCrash&) {
    }
    const AdoptionReport report = h.restart();
    SCOPED_TRACE(::testing::Message() << "cut at step " << step << ", done " << done);
    EXPECT_EQ(report.objects.lost, 0U);
    EXPECT_EQ(report.lost_segments, 0U);
    EXPECT_EQ(report.damaged_entries, 0U);
    check(h, done);
    h.restart();  // once more: an adoption leaves an adoptable state
    check(h, done);
    h.expect_no_leak();
    if (::testing::Test::HasFailure()) return;
    if (done) {
      EXPECT_GE(step, least_steps) << "the change has fewer steps than it should";
      return;
    }
  }
}

}  // namespace entrepot::testing
