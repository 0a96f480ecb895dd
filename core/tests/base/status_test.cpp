#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace entrepot {
namespace {

Status fail_if(bool fail) {
  if (fail) return Status(Code::kStoreFull, "capacity 1 MiB is in use", true);
  return Status::ok();
}

Result<std::unique_ptr<int>> number(bool fail) {
  RETURN_IF_ERROR(fail_if(fail));
  return std::make_unique<int>(7);
}

Result<int> doubled(bool fail) {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> value, number(fail));
  return *value * 2;
}

TEST(Status, SuccessHasNoMessage) {
  EXPECT_TRUE(Status().is_ok());
  EXPECT_EQ(Status::ok().to_string(), "Ok");
  EXPECT_TRUE(Status().with_context("reading").is_ok());
}

TEST(Status, FailureKeepsCodeAndRetryableThroughContext) {
  const Status status = fail_if(true).with_context("lease of 2 MiB");
  EXPECT_EQ(status.code(), Code::kStoreFull);
  EXPECT_TRUE(status.retryable());
  EXPECT_EQ(status.to_string(), "StoreFull: lease of 2 MiB: capacity 1 MiB is in use");
}

TEST(Result, MacrosPassValuesAndFailures) {
  EXPECT_EQ(*doubled(false), 14);
  EXPECT_EQ(doubled(true).code(), Code::kStoreFull);
  EXPECT_EQ(doubled(true).status().message(), "capacity 1 MiB is in use");
}

TEST(Result, SuccessWithoutValueIsAnError) {
  const Result<int> result = Status::ok();
  EXPECT_FALSE(result.is_ok());
  EXPECT_EQ(result.code(), Code::kInternal);
}

TEST(Status, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (std::uint16_t number = 0; number <= 15; ++number)
    names.insert(code_name(static_cast<Code>(number)));
  EXPECT_EQ(names.size(), 16U);
  EXPECT_EQ(names.count("Unknown"), 0U);
  EXPECT_EQ(code_name(static_cast<Code>(999)), "Unknown");
}

}  // namespace
}  // namespace entrepot
