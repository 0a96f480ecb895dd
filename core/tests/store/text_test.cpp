// Patterns, JSON, and the store's status texts.
#include "store/harness.h"
#include "store/status/glob.h"
#include "store/status/json_writer.h"

namespace entrepot::testing {
namespace {

TEST(Glob, MatchesAsAShellDoes) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("ord*", "orders"));
  EXPECT_FALSE(glob_match("ord*", "border"));
  EXPECT_TRUE(glob_match("*ord*", "border"));
  EXPECT_TRUE(glob_match("a?c", "abc"));
  EXPECT_FALSE(glob_match("a?c", "ac"));
  EXPECT_TRUE(glob_match("[a-c]x", "bx"));
  EXPECT_FALSE(glob_match("[!a-c]x", "bx"));
  EXPECT_TRUE(glob_match("[]]", "]"));
  EXPECT_TRUE(glob_match("[", "["));
  EXPECT_TRUE(glob_match("*a*b*c", "xxaxxbxxabc"));
  EXPECT_FALSE(glob_match("", "x"));
  EXPECT_TRUE(glob_match("", ""));
  // A naive algorithm takes exponential time here.
  EXPECT_FALSE(glob_match("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", std::string(20000, 'a')));
}

TEST(Json, QuotesWhatNeedsIt) {
  EXPECT_EQ(json_quote("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
  EXPECT_EQ(json_quote("\xc3\xa4"), "\"\xc3\xa4\"");
  EXPECT_EQ(json_quote("\xff"), "\"\\ufffd\"");
  EXPECT_EQ(json_quote("\xc3"), "\"\\ufffd\"");
  EXPECT_EQ(json_quote("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\"");  // half of a surrogate pair
  JsonWriter json;
  json.open_object()
      .field("a", 1)
      .key("b")
      .open_array()
      .value(true)
      .null()
      .close_array()
      .field("c", "x")
      .close_object();
  EXPECT_EQ(json.take(), R"({"a":1,"b":[true,null],"c":"x"})");
}

TEST(Report, ListPagesAndFilters) {
  Harness h;
  const auto client = h.add_client();
  const auto run = h.open("run");
  const auto other = h.open("other");
  for (std::uint64_t i = 0; i < 25; ++i) {
    SealSpec spec = h.inline_spec(numbered_id(i), i < 20 ? run : other, "v");
    const std::string name = "value-" + std::to_string(i);
    spec.name = name;
    ASSERT_TRUE(h.seal(client, spec).status.is_ok());
  }
  const auto count = [](const std::string& json) {
    std::size_t matches = 0;
    for (std::size_t at = json.find("\"id\":"); at != std::string::npos; at = json.find("\"id\":", at + 1))
      ++matches;
    return matches;
  };
  ListQuery query;
  query.session = run;
  query.limit = 12;
  const auto first = h.store->list_json(query);
  ASSERT_TRUE(first.is_ok());
  EXPECT_EQ(count(*first), 12U);
  EXPECT_NE(first->find("\"next_cursor\":12"), std::string::npos) << *first;
  query.cursor = 12;
  EXPECT_EQ(count(*h.store->list_json(query)), 8U);
  query.cursor = 0xffff'ffffU;
  EXPECT_EQ(count(*h.store->list_json(query)), 0U);
  query.cursor = 0;
  query.limit = 1000;
  query.pattern = "value-1*";
  EXPECT_EQ(count(*h.store->list_json(query)), 11U);
  query.pattern = to_hex(numbered_id(3));
  EXPECT_EQ(count(*h.store->list_json(query)), 1U);
  query.pattern = "";
  query.all_sessions = true;
  EXPECT_EQ(count(*h.store->list_json(query)), 25U);
  query.all_sessions = false;
  query.session = 12345;
  EXPECT_EQ(h.store->list_json(query).code(), Code::kInvalidArgument);
  h.expect_no_leak();
}

TEST(Report, InfoNamesBlobsAndPins) {
  Harness h;
  const auto client = h.add_client("reader");
  const auto run = h.open("run");
  SealSpec spec = h.blob_spec(client, numbered_id(1), run, 5000);
  spec.name = "orders";
  ASSERT_TRUE(h.seal(client, spec).status.is_ok());
  h.pin(client, numbered_id(1));
  const auto info = h.store->info_json(numbered_id(1));
  ASSERT_TRUE(info.is_ok());
  for (const char* part : {"\"names\":[\"orders\"]", "\"session\":\"run\"", "\"scope\":\"scope\"", "\"nbytes\":5000",
                           "\"length\":5000", "\"refs\":1", "\"used\":5000", "\"extent\":5056", "\"owner\":\"",
                           "\"label\":\"reader\"", "\"pins\":1", "\"state\":\"sealed\""}) {
    EXPECT_NE(info->find(part), std::string::npos) << part << " in " << *info;
  }
  EXPECT_EQ(h.store->info_json(numbered_id(2)).code(), Code::kObjectNotFound);
  h.expect_no_leak();
}

}  // namespace
}  // namespace entrepot::testing
