// Exhaustive search of the pin protocol model: no reader ever reads reused memory. As controls, each step of the
// protocol is disabled once, and the search must then find a bad read.
#include <gtest/gtest.h>

#include "pin_protocol_model.h"

namespace entrepot::model {
namespace {

std::string steps(const Exploration& exploration) {
  std::string text;
  for (const std::string& step : exploration.first_bad)
    text.append("\n  ").append(step);
  return text;
}

void expect_safe(const Protocol& protocol) {
  const Exploration exploration = explore(protocol);
  EXPECT_TRUE(exploration.complete) << exploration.states << " states";
  EXPECT_EQ(exploration.bad_reads, 0U) << steps(exploration);
  EXPECT_EQ(exploration.stuck, 0U);
  // Not vacuous: objects were read, memory was freed, and every process finished.
  EXPECT_GT(exploration.good_reads, 0U);
  EXPECT_GT(exploration.frees, 0U);
  EXPECT_GT(exploration.ends, 0U);
  ::testing::Test::RecordProperty("states", std::to_string(exploration.states));
}

void expect_violation(const Protocol& protocol) {
  const Exploration exploration = explore(protocol);
  EXPECT_GT(exploration.bad_reads, 0U) << "in " << exploration.states << " states";
  EXPECT_FALSE(exploration.first_bad.empty());
}

TEST(PinProtocol, OneReaderNeverReadsWhatWasFreed) { expect_safe({.readers = 1, .attempts = 6, .lives = 6}); }

TEST(PinProtocol, TwoReadersNeverReadWhatWasFreed) { expect_safe({.readers = 2, .attempts = 3, .lives = 3}); }

TEST(PinProtocol, OneReaderNeverReadsARecordThatWasFreed) {
  expect_safe({.record = true, .readers = 1, .attempts = 6, .lives = 6});
}

TEST(PinProtocol, TwoReadersNeverReadARecordThatWasFreed) {
  expect_safe({.record = true, .readers = 2, .attempts = 2, .lives = 3});
}

TEST(PinProtocolControl, WithRecordsReadWhileTheirObjectsAreEvictingItFails) {
  expect_violation({.record = true, .reader_refuses_evicting = false});
}

TEST(PinProtocolControl, WithRecordsReadWithoutTheRecheckItFails) {
  expect_violation({.record = true, .reader_rechecks = false});
}

TEST(PinProtocolControl, WithoutTheRecheckItFails) { expect_violation({.reader_rechecks = false}); }

TEST(PinProtocolControl, WithADelayedPinItFails) { expect_violation({.reader_exchanges_pin = false}); }

TEST(PinProtocolControl, WithADelayedChangeOfTheWordItFails) { expect_violation({.daemon_exchanges_word = false}); }

TEST(PinProtocolControl, WithTheScanBeforeTheChangeItFails) { expect_violation({.daemon_marks_before_scan = false}); }

TEST(PinProtocolControl, WithTheMarkRaisedTooLateItFails) { expect_violation({.reader_raises_mark_first = false}); }

TEST(PinProtocolControl, TheTraceOfAViolationCanBeRead) {
  const Exploration exploration = explore({.reader_rechecks = false, .attempts = 1, .lives = 1});
  ASSERT_FALSE(exploration.first_bad.empty());
  EXPECT_EQ(exploration.first_bad.front(), "start");
  EXPECT_NE(steps(exploration).find("daemon frees"), std::string::npos) << steps(exploration);
}

}  // namespace
}  // namespace entrepot::model
