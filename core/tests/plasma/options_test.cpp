// The command line of entrepot-plasma-store.
#include "plasma/options.h"

#include <gtest/gtest.h>

namespace entrepot::plasma {
namespace {

TEST(Options, PlasmasOwnFlagsAreTaken) {
  const auto options =
      parse_options({"-s", "/tmp/p", "-m", "1000", "-d", "/dev/shm", "-h", "-e", "hashtable://x"}, "unix:///tmp/store");
  ASSERT_TRUE(options.is_ok()) << options.status().to_string();
  EXPECT_EQ(options->socket_path, "/tmp/p");
  EXPECT_EQ(options->capacity_bytes, 1000U);
  EXPECT_EQ(options->store_path, "/tmp/store");
  EXPECT_EQ(options->ignored.size(), 3U);
  EXPECT_FALSE(options->strict || options->isolate);
}

TEST(Options, TheFlagPrecedesTheEnvironment) {
  const auto options =
      parse_options({"-s", "/p", "-m", "1", "--address=unix:///other", "--strict", "--isolate"}, "unix:///tmp/store");
  ASSERT_TRUE(options.is_ok());
  EXPECT_EQ(options->store_path, "/other");
  EXPECT_TRUE(options->strict && options->isolate);
}

TEST(Options, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"-m", "1"}, "-s"},
      {{"-s", "/p"}, "-m"},
      {{"-s", "/p", "-m", "0"}, "-m 0"},
      {{"-s", "/p", "-m", "1G"}, "-m 1G"},
      {{"-s", "/p", "-m"}, "-m needs"},
      {{"-s", "/p", "-m", "1", "--fast"}, "--fast"},
      {{"-s", "/p", "-m", "1", "--address", "tcp://x"}, "tcp://x"},
  };
  for (const auto& [arguments, named] : cases) {
    const auto options = parse_options(arguments, "unix:///tmp/store");
    EXPECT_EQ(options.code(), Code::kInvalidArgument);
    EXPECT_NE(options.status().message().find(named), std::string::npos) << options.status().message();
  }
  EXPECT_EQ(parse_options({"-s", "/p", "-m", "1"}, "").code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace entrepot::plasma
