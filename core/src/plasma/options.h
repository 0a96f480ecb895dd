// Command line of entrepot-plasma-store: Plasma's own flags, and where the store is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace entrepot::plasma {

struct Options {
  std::string socket_path;
  std::uint64_t capacity_bytes = 0;
  std::string store_path;  // the store's socket
  bool strict = false;
  bool isolate = false;
  bool keep_running = false;         // in a process of its own, which is started again when it dies
  std::vector<std::string> ignored;  // flags that are accepted and have no effect
  bool show_help = false;
  bool show_version = false;
};

// `address`: ENTREPOT_ADDRESS, used without --address. kInvalidArgument names the flag.
[[nodiscard]] Result<Options> parse_options(const std::vector<std::string>& arguments, std::string_view address);
[[nodiscard]] std::string_view options_help();

}  // namespace entrepot::plasma
