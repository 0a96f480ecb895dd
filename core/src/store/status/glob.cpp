#include "store/status/glob.h"

#include <cstddef>

namespace entrepot {
namespace {

// Matches one character against the set at pattern[at] == '['. `end` is set behind the set; an unterminated set is the
// literal character '['.
bool match_set(std::string_view pattern, std::size_t at, char c, std::size_t& end) {
  std::size_t i = at + 1;
  const bool negated = i < pattern.size() && pattern[i] == '!';
  if (negated) ++i;
  const std::size_t first = i;
  bool matches = false;
  while (i < pattern.size() && (pattern[i] != ']' || i == first)) {
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') {
      matches = matches || (pattern[i] <= c && c <= pattern[i + 2]);
      i += 3;
    } else {
      matches = matches || pattern[i] == c;
      ++i;
    }
  }
  if (i >= pattern.size()) {
    end = at + 1;
    return c == '[';
  }
  end = i + 1;
  return matches != negated;
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  // Where to backtrack to: the last `*`, and the text position it started at
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
      continue;
    }
    bool matched = false;
    std::size_t next = p + 1;
    if (p < pattern.size()) {
      if (pattern[p] == '[') {
        matched = match_set(pattern, p, text[t], next);
      } else {
        matched = pattern[p] == '?' || pattern[p] == text[t];
      }
    }
    if (matched) {
      p = next;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*')
    ++p;
  return p == pattern.size();
}

}  // namespace entrepot
