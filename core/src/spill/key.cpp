#include "spill/key.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/text.h"
#include "os/program.h"
#include "os/secret_file.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kMaxText = 4096;  // of input that can only be a mistake

// Overwrites a string that held a key.
void wipe(std::string& text) {
  for (volatile char& character : text)
    character = 0;
}

Result<SpillKey> parse_and_wipe(std::string& text) {
  auto key = parse_key(text);
  wipe(text);
  return key;
}

}  // namespace

Result<SpillKey> parse_key(std::string_view text) {
  SpillKey key{};
  if (text.size() == key.size()) {
    std::memcpy(key.data(), text.data(), key.size());
    return key;
  }
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  const std::string_view digits = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  bool good = digits.size() == 2 * key.size();
  for (std::size_t i = 0; good && i < key.size(); ++i) {
    const char* const pair = digits.data() + 2 * i;
    const auto [end, error] = std::from_chars(pair, pair + 2, key[i], 16);
    good = error == std::errc{} && end == pair + 2;
  }
  if (good) return key;
  return Status(Code::kInvalidArgument, concat("a key must be ", key.size(), " bytes, or ", 2 * key.size(),
                                               " hexadecimal digits, but this is neither (", text.size(),
                                               " bytes): create one with 'openssl rand -hex 32'"));
}

Result<SpillKey> key_from_file(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, os::read_secret_file(path, kMaxText));
  auto key = parse_and_wipe(text);
  return key.is_ok() ? key : Result<SpillKey>(key.status().with_context(path));
}

// The shell appends the command's exit status: output of a failed command is not a key.
Result<SpillKey> key_from_command(const std::string& command, std::uint64_t timeout_ms) {
  constexpr char kMark = '#';
  ASSIGN_OR_RETURN(const UniqueFd shell, os::open_program("/bin/sh"));
  auto output = os::capture_output(shell, {"sh", "-c", concat("(", command, "\n)\nprintf '#%d' $?")}, kMaxText,
                                   os::Deadline::after_ms(timeout_ms), true);
  if (output.code() == Code::kTimeout) {
    return Status(Code::kTimeout, concat("the command did not finish within ", timeout_ms, " ms and was killed"));
  }
  RETURN_IF_ERROR(output);
  std::string text = output.take();
  const std::size_t mark = text.rfind(kMark);
  const std::string status = mark == std::string::npos ? std::string() : text.substr(mark + 1);
  if (status != "0") {
    const std::size_t printed = text.size();
    wipe(text);
    const bool ended = !status.empty() && status.size() <= 3 &&
                       std::all_of(status.begin(), status.end(), [](char c) { return c >= '0' && c <= '9'; });
    return Status(Code::kInvalidArgument,
                  ended ? concat("the command failed with exit status ", status, ": see its standard error")
                        : concat("the shell could not run the command, or it printed too much (", printed, " bytes)"));
  }
  std::string key_text = text.substr(0, mark);
  wipe(text);
  return parse_and_wipe(key_text);
}

}  // namespace entrepot
