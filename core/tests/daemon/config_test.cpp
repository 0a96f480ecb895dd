#include "daemon/config.h"

#include <gtest/gtest.h>

#include "os/scratch.h"

namespace entrepot {
namespace {

TEST(Sizes, AreGivenInBinaryUnitsOrBytes) {
  EXPECT_EQ(*parse_bytes("4GiB"), 4ULL << 30);
  EXPECT_EQ(*parse_bytes("512MiB"), 512ULL << 20);
  EXPECT_EQ(*parse_bytes("1KiB"), 1024U);
  EXPECT_EQ(*parse_bytes("1048576"), 1048576U);
  for (const char* bad : {"", "GiB", "4GB", "4 GiB", "-1", "4gib", "1.5GiB", "99999999999999999999", "20000000TiB"}) {
    EXPECT_EQ(parse_bytes(bad).code(), Code::kInvalidArgument) << bad;
  }
}

TEST(Times, AreGivenInSecondsOrWithAUnit) {
  EXPECT_EQ(*parse_seconds("900"), 900U);
  EXPECT_EQ(*parse_seconds("90s"), 90U);
  EXPECT_EQ(*parse_seconds("15min"), 900U);
  EXPECT_EQ(*parse_seconds("24h"), 86400U);
  EXPECT_EQ(*parse_seconds("7d"), 604800U);
  EXPECT_EQ(parse_seconds("7w").code(), Code::kInvalidArgument);
}

TEST(Config, FlagsWinOverTheFileWhereverTheyStand) {
  testing::Scratch folder;
  folder.write("c", "# a comment\nsize = 1GiB  # behind\nlog-file = \"/var/log/with # sign\"\nidle-exit=15min\n\n");
  const auto config = parse_config({"--size", "2GiB", "--config", folder.path("c"), "--address=unix:///run/s.sock"});
  ASSERT_TRUE(config.is_ok()) << config.status().to_string();
  EXPECT_EQ(config->capacity_bytes, 2ULL << 30);
  EXPECT_EQ(config->log_file, "/var/log/with # sign");
  EXPECT_EQ(config->idle_exit_seconds, 900U);
  EXPECT_EQ(config->socket_path, "/run/s.sock");
}

TEST(Config, WhatIsPassedOnIsReadBackTheSame) {
  const auto config = parse_config({"--address=unix:///run/s.sock", "--size=1GiB", "--warm-bytes=0", "--default-ttl=7d",
                                    "--give-back-after=2min", "--idle-exit=5", "--log-file=/tmp/l"});
  ASSERT_TRUE(config.is_ok());
  const auto again = parse_config(config_arguments(*config));
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  EXPECT_EQ(again->capacity_bytes, config->capacity_bytes);
  EXPECT_EQ(again->warm_bytes, 0U);
  EXPECT_EQ(again->default_ttl_seconds, config->default_ttl_seconds);
  EXPECT_EQ(again->idle_exit_seconds, 5U);
  EXPECT_EQ(again->give_back_after_seconds, 120U);
  EXPECT_EQ(again->log_file, "/tmp/l");
}

TEST(Config, SpillFoldersAreNamedOnceOrSeveralTimes) {
  const auto both = parse_config(
      {"--address=unix:///s", "--spill-path=/a,/b/", "--spill-path=/c", "--spill-quota=1GiB", "--spill-reserve=5MiB"});
  ASSERT_TRUE(both.is_ok()) << both.status().to_string();
  EXPECT_EQ(both->spill_paths, (std::vector<std::string>{"/a", "/b", "/c"}));
  const auto again = parse_config(config_arguments(*both));
  ASSERT_TRUE(again.is_ok());
  EXPECT_EQ(again->spill_paths, both->spill_paths);
  EXPECT_EQ(again->spill_quota_bytes, 1ULL << 30);
  EXPECT_EQ(again->spill_reserve_bytes, 5ULL << 20);
  const auto none = parse_config({"--address=unix:///s", "--spill-path=none"});
  ASSERT_TRUE(none.is_ok());
  EXPECT_FALSE(none->spill);
  EXPECT_FALSE(parse_config(config_arguments(*none))->spill);
  EXPECT_TRUE(parse_config({"--address=unix:///s"})->spill);
  for (const char* bad : {"--spill-path=relative", "--spill-path=", "--spill-path=/a,", "--spill-path=/a,/a/",
                          "--spill-path=/a,none", "--spill-quota=0", "--spill-quota=1KiB", "--spill-reserve=1GB"}) {
    const auto refused = parse_config({"--address=unix:///s", bad});
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << bad;
    EXPECT_NE(refused.status().message().find("--spill-"), std::string::npos) << refused.status().message();
  }
  EXPECT_FALSE(parse_config({"--address=unix:///s", "--spill-path=none", "--spill-path=/a"}).is_ok());
  EXPECT_FALSE(parse_config({"--address=unix:///s", "--spill-path=/a", "--spill-path=none"}).is_ok());
}

TEST(Config, TheKeyOfWhatIsSpilledComesFromOnePlace) {
  testing::Scratch folder;
  folder.write("c", "spill-key-file = /k\n");
  const auto file = parse_config({"--address=unix:///s", "--config", folder.path("c")});
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  EXPECT_EQ(parse_config(config_arguments(*file))->spill_key_file, "/k");
  const auto flag = parse_config({"--address=unix:///s", "--spill-key-command=cat /k", "--config", folder.path("c")});
  ASSERT_TRUE(flag.is_ok()) << flag.status().to_string();
  EXPECT_EQ(parse_config(config_arguments(*flag))->spill_key_command, "cat /k");
  EXPECT_EQ(flag->spill_key_file, "");
  EXPECT_EQ(parse_config({"--address=unix:///s", "--spill-key-file=k"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(parse_config({"--address=unix:///s", "--spill-key-command="}).code(), Code::kInvalidArgument);
}

TEST(Config, SpillFoldersOfFlagsReplaceThoseOfTheFile) {
  testing::Scratch folder;
  folder.write("c", "spill-path = /a\nspill-path = /b\nspill-quota = 2GiB\n");
  folder.write("off", "spill-path = none\n");
  const auto file = parse_config({"--address=unix:///s", "--config", folder.path("c")});
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  EXPECT_EQ(file->spill_paths, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(file->spill_quota_bytes, 2ULL << 30);
  const auto flags = parse_config({"--spill-path=/c", "--address=unix:///s", "--config", folder.path("c")});
  EXPECT_EQ(flags->spill_paths, (std::vector<std::string>{"/c"}));
  const auto on = parse_config({"--spill-path=/c", "--address=unix:///s", "--config", folder.path("off")});
  ASSERT_TRUE(on.is_ok()) << on.status().to_string();
  EXPECT_TRUE(on->spill);
}

TEST(Config, AFileMayNotSetWhatIsBetweenTheProcesses) {
  testing::Scratch folder;
  folder.write("c", "role = daemon\n");
  EXPECT_EQ(parse_config({"--address=unix:///s", "--config", folder.path("c")}).code(), Code::kInvalidArgument);
  folder.write("d", "size 1GiB\n");
  EXPECT_EQ(parse_config({"--address=unix:///s", "--config", folder.path("d")}).code(), Code::kInvalidArgument);
  folder.write("e", "log-file = \"open\n");
  EXPECT_EQ(parse_config({"--address=unix:///s", "--config", folder.path("e")}).code(), Code::kInvalidArgument);
  EXPECT_EQ(parse_config({"--address=unix:///s", "--config", folder.path("none")}).code(), Code::kInvalidArgument);
}

TEST(Config, NonsenseIsRefused) {
  EXPECT_EQ(parse_config({"start"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(parse_config({"--size"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(parse_config({"--address=unix:///s", "--size=0"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(parse_config({"--address=unix://relative"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(parse_config({"--address=unix:///s", "--ready-fd=99999999999"}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(parse_config({"--help"})->show_help);
}

TEST(Config, AnUnknownFlagIsNamedBeforeItsValueIsLookedFor) {
  using Arguments = std::vector<std::string>;
  for (const Arguments& arguments : {Arguments{"--verbose"}, Arguments{"--verbose", "--address=unix:///s"},
                                     Arguments{"--verbose", "--address", "unix:///s"}, Arguments{"--verbose=1"},
                                     Arguments{"--verbose", "--help"}, Arguments{"--address=unix:///s", "--verbose"}}) {
    const auto refused = parse_config(arguments);
    ASSERT_EQ(refused.code(), Code::kInvalidArgument) << ::testing::PrintToString(arguments);
    EXPECT_EQ(refused.status().message(), "unknown flag --verbose; see entrepotd --help");
  }
  EXPECT_EQ(parse_config({"--size"}).status().message(), "--size needs a value; see entrepotd --help");
  testing::Scratch folder;
  folder.write("c", "verbose = 1\n");
  const auto file = parse_config({"--address=unix:///s", "--config", folder.path("c")});
  EXPECT_NE(file.status().message().find("line 1: unknown setting 'verbose'; known settings: address, size, "),
            std::string::npos)
      << file.status().message();
}

}  // namespace
}  // namespace entrepot
