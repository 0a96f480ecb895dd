#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace entrepot {
namespace {

TEST(Utf8, EveryLengthOfCharacterIsText) {
  for (const std::string text : {"", "plain", "\x7f", "\xc2\x80", "gr\xc3\xbc\xc3\x9f", "\xe2\x82\xac", "\xed\x9f\xbf",
                                 "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(utf8_valid_length(text), text.size()) << text;
    EXPECT_EQ(to_utf8(text, 100), text);
  }
  EXPECT_EQ(utf8_valid_length(std::string("a\0b", 3)), 3U);
}

TEST(Utf8, WhatIsNoneIsFoundAndReplaced) {
  struct Case {
    std::string text;
    std::size_t end;
    std::string shown;
  };
  for (const Case& bad : {
           Case{"ab\xff", 2, "ab?"},             // invalid lead byte
           Case{"\x80x", 0, "?x"},               // continuation byte without a lead
           Case{"a\xc3", 1, "a?"},               // truncated
           Case{"\xc3\x28", 0, "?("},            // missing continuation byte
           Case{"\xc0\xaf", 0, "??"},            // overlong
           Case{"\xe0\x80\xaf", 0, "???"},       // overlong
           Case{"\xf0\x80\x80\xaf", 0, "????"},  // overlong
           Case{"ok\xed\xa0\x80", 2, "ok???"},   // half of a surrogate pair
           Case{"\xf4\x90\x80\x80", 0, "????"},  // beyond U+10FFFF
           Case{"\xc3\xbc\xfe", 2, "\xc3\xbc?"},
       }) {
    EXPECT_EQ(utf8_valid_length(bad.text), bad.end) << bad.shown;
    EXPECT_EQ(to_utf8(bad.text, 100), bad.shown);
  }
}

TEST(Utf8, IsCutBetweenCharacters) {
  const std::string text = "a\xe2\x82\xac!";
  EXPECT_EQ(to_utf8(text, 5), text);
  EXPECT_EQ(to_utf8(text, 4), "a\xe2\x82\xac");
  EXPECT_EQ(to_utf8(text, 3), "a");
  EXPECT_EQ(to_utf8(text, 0), "");
}

}  // namespace
}  // namespace entrepot
