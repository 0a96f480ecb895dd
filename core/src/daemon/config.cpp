#include "daemon/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <span>
#include <utility>

#include "base/text.h"
#include "os/files.h"

namespace entrepot {

namespace {

Result<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
    return Status(Code::kInvalidArgument, concat("'", text, "' is not a whole number"));
  }
  return value;
}

using Units = std::array<std::pair<std::string_view, std::uint64_t>, 5>;

Result<std::uint64_t> parse_with_unit(std::string_view text, const Units& units, std::string_view example) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  const std::string_view unit = digits == std::string_view::npos ? std::string_view() : text.substr(digits);
  const auto number = parse_number(text.substr(0, digits));
  if (number.is_ok()) {
    for (const auto& [name, factor] : units) {
      if (name != unit || factor == 0) continue;
      if (*number > UINT64_MAX / factor) return Status(Code::kInvalidArgument, concat("'", text, "' is too large"));
      return *number * factor;
    }
  }
  return Status(Code::kInvalidArgument, concat("'", text, "' is not of the form ", example));
}

Status set_address(std::string_view text, DaemonConfig& config) {
  constexpr std::string_view kPrefix = "unix://";
  if (!text.starts_with(kPrefix) || text.size() <= kPrefix.size() || text[kPrefix.size()] != '/') {
    return Status(Code::kInvalidArgument, concat("'", text, "' is not of the form unix:///absolute/path"));
  }
  config.socket_path = text.substr(kPrefix.size());
  return Status::ok();
}

template <class T>
Status set_small(std::string_view text, T& out) {
  ASSIGN_OR_RETURN(const std::uint64_t value, parse_number(text));
  if (value > INT32_MAX) return Status(Code::kInvalidArgument, concat("'", text, "' is too large"));
  out = static_cast<T>(value);
  return Status::ok();
}

Status set_role(std::string_view text, DaemonConfig& config) {
  if (text == "keeper") {
    config.role = Role::kKeeper;
  } else if (text == "daemon") {
    config.role = Role::kDaemon;
  } else if (text == "candidate") {
    config.role = Role::kCandidate;
  } else {
    return Status(Code::kInvalidArgument, concat("'", text, "' is not a valid role"));
  }
  return Status::ok();
}

template <class Parse>
Status set_to(std::uint64_t& out, std::string_view text, Parse&& parse) {
  ASSIGN_OR_RETURN(out, parse(text));
  return Status::ok();
}

// If repeated as a flag, the last one wins, whichever of the two key options it is.
Status set_key_file(std::string_view text, DaemonConfig& config) {
  if (!text.starts_with('/')) return Status(Code::kInvalidArgument, concat("'", text, "' is not an absolute path"));
  config.spill_key_file = text;
  config.spill_key_command.clear();
  return Status::ok();
}

Status set_key_command(std::string_view text, DaemonConfig& config) {
  if (text.empty()) return Status(Code::kInvalidArgument, "the command is empty");
  config.spill_key_command = text;
  config.spill_key_file.clear();
  return Status::ok();
}

// One directory, several separated by commas, or "none"; repeated flags add up.
Status set_spill_path(std::string_view text, DaemonConfig& config) {
  if (text == "none") {
    if (!config.spill_paths.empty()) {
      return Status(Code::kInvalidArgument,
                    concat("'none' cannot be combined with the folder ", config.spill_paths.front()));
    }
    config.spill = false;
    return Status::ok();
  }
  if (!config.spill)
    return Status(Code::kInvalidArgument, concat("the folder '", text, "' cannot be combined with 'none'"));
  while (true) {
    const std::size_t comma = text.find(',');
    std::string path(text.substr(0, comma));
    if (!path.starts_with('/')) {
      return Status(Code::kInvalidArgument, concat("'", path, "' is neither an absolute path nor 'none'"));
    }
    while (path.size() > 1 && path.ends_with('/'))
      path.pop_back();
    if (std::find(config.spill_paths.begin(), config.spill_paths.end(), path) != config.spill_paths.end()) {
      return Status(Code::kInvalidArgument, concat("the folder '", path, "' is listed twice"));
    }
    config.spill_paths.push_back(std::move(path));
    if (comma == std::string_view::npos) return Status::ok();
    text.remove_prefix(comma + 1);
  }
}

// Within this program, 0 stands for the default.
Status set_size(std::string_view text, DaemonConfig& config) {
  RETURN_IF_ERROR(set_to(config.capacity_bytes, text, parse_bytes));
  if (config.capacity_bytes != 0) return Status::ok();
  return Status(Code::kInvalidArgument, concat("'", text, "' is not a size; without --size, a default applies"));
}

Status set_packing(std::string_view text, DaemonConfig& config) {
  ASSIGN_OR_RETURN(config.spill_packing, parse_packing(text));
  return Status::ok();
}

Status set_log_file(std::string_view text, DaemonConfig& config) {
  config.log_file = text;
  return Status::ok();
}

// Less than a megabyte is taken for a mistake.
Status set_spill_quota(std::string_view text, DaemonConfig& config) {
  constexpr std::uint64_t kMin = 1ULL << 20;
  RETURN_IF_ERROR(set_to(config.spill_quota_bytes, text, parse_bytes));
  if (config.spill_quota_bytes >= kMin) return Status::ok();
  return Status(Code::kInvalidArgument, concat("'", text, "' is below the minimum of ", format_bytes(kMin),
                                               "; to disable spilling, use --spill-path none"));
}

// A setting, and what stores a value of it.
struct Setting {
  std::string_view key;
  Status (*set)(std::string_view value, DaemonConfig& config);
};

constexpr auto kSettings = std::to_array<Setting>({
    {"address", set_address},
    {"size", set_size},
    {"warm-bytes", [](std::string_view v, DaemonConfig& c) { return set_to(c.warm_bytes, v, parse_bytes); }},
    {"give-back-after",
     [](std::string_view v, DaemonConfig& c) { return set_to(c.give_back_after_seconds, v, parse_seconds); }},
    {"idle-exit", [](std::string_view v, DaemonConfig& c) { return set_to(c.idle_exit_seconds, v, parse_seconds); }},
    {"default-ttl",
     [](std::string_view v, DaemonConfig& c) { return set_to(c.default_ttl_seconds, v, parse_seconds); }},
    {"spill-path", set_spill_path},
    {"spill-quota", set_spill_quota},
    {"spill-reserve",
     [](std::string_view v, DaemonConfig& c) { return set_to(c.spill_reserve_bytes, v, parse_bytes); }},
    {"spill-compression", set_packing},
    {"spill-key-file", set_key_file},
    {"spill-key-command", set_key_command},
    {"log-file", set_log_file},
});

// Flags only: what keeper and daemon tell each other, and their starter.
constexpr auto kInternalSettings = std::to_array<Setting>({
    {"ready-fd", [](std::string_view v, DaemonConfig& c) { return set_small(v, c.ready_fd); }},
    {"keeper-fd", [](std::string_view v, DaemonConfig& c) { return set_small(v, c.keeper_fd); }},
    {"daemon-fd", [](std::string_view v, DaemonConfig& c) { return set_small(v, c.daemon_fd); }},
    {"handover-fd", [](std::string_view v, DaemonConfig& c) { return set_small(v, c.handover_fd); }},
    {"daemon-pid", [](std::string_view v, DaemonConfig& c) { return set_small(v, c.daemon_pid); }},
    {"recovered-from-crash", [](std::string_view v, DaemonConfig& c) { return set_small(v, c.recovered_from_crash); }},
    {"role", set_role},
});

// Null: there is no such setting.
const Setting* find_setting(std::span<const Setting> settings, std::string_view key) {
  const auto setting = std::find_if(settings.begin(), settings.end(), [&](const Setting& s) { return s.key == key; });
  return setting == settings.end() ? nullptr : &*setting;
}

const Setting* find_flag(std::string_view key) {
  const Setting* setting = find_setting(kSettings, key);
  return setting == nullptr ? find_setting(kInternalSettings, key) : setting;
}

std::string known_settings() {
  std::string text;
  for (const Setting& setting : kSettings)
    text += concat(text.empty() ? "" : ", ", setting.key);
  return text;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// `key = value` lines; `#` starts a comment; values may be in double quotes.
Status read_file_into(const std::string& path, DaemonConfig& config) {
  auto text = os::read_file(path);
  if (!text.is_ok()) {
    return Status(Code::kInvalidArgument, concat("--config ", path, ": ", text.status().message()));
  }
  std::string_view rest = *text;
  for (int number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    std::string_view line = trimmed(rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (line.empty() || line.front() == '#') continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      return Status(Code::kInvalidArgument,
                    concat(path, " line ", number, ": '", line, "' is not of the form key = value"));
    }
    const std::string_view key = trimmed(line.substr(0, equals));
    std::string_view value = trimmed(line.substr(equals + 1));
    if (!value.empty() && value.front() == '"') {
      const std::size_t close = value.find('"', 1);
      if (close == std::string_view::npos) {
        return Status(Code::kInvalidArgument, concat(path, " line ", number, ": missing closing quote"));
      }
      value = value.substr(1, close - 1);
    } else {
      value = trimmed(value.substr(0, value.find('#')));
    }
    const Setting* setting = find_setting(kSettings, key);
    if (setting == nullptr) {
      return Status(Code::kInvalidArgument, concat(path, " line ", number, ": unknown setting '", key,
                                                   "'; known settings: ", known_settings()));
    }
    const Status applied = setting->set(value, config);
    if (!applied.is_ok()) return applied.with_context(concat(path, " line ", number, ": ", key));
  }
  return Status::ok();
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  if (text.ends_with("B") && !text.ends_with("iB")) {
    return Status(
        Code::kInvalidArgument,
        concat("'", text, "': sizes are given in KiB, MiB, GiB or TiB, such as 4GiB, or in bytes without a unit"));
  }
  constexpr Units kUnits = {
      {{"", 1}, {"KiB", 1ULL << 10}, {"MiB", 1ULL << 20}, {"GiB", 1ULL << 30}, {"TiB", 1ULL << 40}}};
  return parse_with_unit(text, kUnits, "4GiB, 512MiB or 1048576");
}

Result<std::uint64_t> parse_seconds(std::string_view text) {
  constexpr Units kUnits = {{{"", 1}, {"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}}};
  return parse_with_unit(text, kUnits, "900, 90s, 15min, 24h or 7d");
}

Result<DaemonConfig> parse_config(const std::vector<std::string>& arguments) {
  // The file first, so that flags win wherever they stand.
  DaemonConfig config;
  std::vector<std::pair<std::string, std::string>> flags;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      config.show_help = true;
      return config;
    }
    if (argument == "--version") {
      config.show_version = true;
      return config;
    }
    if (!argument.starts_with("--")) {
      return Status(Code::kInvalidArgument, concat("'", argument, "' is not a flag; see entrepotd --help"));
    }
    const std::size_t equals = argument.find('=');
    std::string key = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    // Before its value is looked for: that of an unknown flag may be missing, or be the next flag.
    if (key != "config" && find_flag(key) == nullptr) {
      return Status(Code::kInvalidArgument, concat("unknown flag --", key, "; see entrepotd --help"));
    }
    if (equals != std::string::npos) {
      flags.emplace_back(std::move(key), argument.substr(equals + 1));
    } else if (i + 1 < arguments.size()) {
      flags.emplace_back(std::move(key), arguments[++i]);
    } else {
      return Status(Code::kInvalidArgument, concat("--", key, " needs a value; see entrepotd --help"));
    }
  }
  for (const auto& [key, value] : flags) {
    if (key == "config") RETURN_IF_ERROR(read_file_into(value, config));
  }
  const auto is_spill_path = [](const auto& flag) { return flag.first == "spill-path"; };
  if (std::any_of(flags.begin(), flags.end(), is_spill_path)) {  // then those of the file do not count
    config.spill_paths.clear();
    config.spill = true;
  }
  for (const auto& [key, value] : flags) {
    if (key == "config") continue;
    const Status applied = find_flag(key)->set(value, config);
    if (!applied.is_ok()) return applied.with_context(concat("--", key));
  }
  if (config.socket_path.empty()) {
    return Status(Code::kInvalidArgument, "missing --address: specify where to listen, as unix:///absolute/path");
  }
  return config;
}

std::vector<std::string> config_arguments(const DaemonConfig& config) {
  std::vector<std::string> arguments = {concat("--address=unix://", config.socket_path),
                                        concat("--idle-exit=", config.idle_exit_seconds),
                                        concat("--default-ttl=", config.default_ttl_seconds)};
  if (config.capacity_bytes != 0) arguments.push_back(concat("--size=", config.capacity_bytes));
  if (config.warm_bytes != UINT64_MAX) arguments.push_back(concat("--warm-bytes=", config.warm_bytes));
  if (config.give_back_after_seconds != kGiveBackAfterSeconds) {
    arguments.push_back(concat("--give-back-after=", config.give_back_after_seconds));
  }
  if (!config.spill) arguments.emplace_back("--spill-path=none");
  for (const std::string& path : config.spill_paths)
    arguments.push_back(concat("--spill-path=", path));
  if (config.spill_quota_bytes != UINT64_MAX) arguments.push_back(concat("--spill-quota=", config.spill_quota_bytes));
  if (config.spill_reserve_bytes != UINT64_MAX) {
    arguments.push_back(concat("--spill-reserve=", config.spill_reserve_bytes));
  }
  if (config.spill_packing.codec != SpillCodec::kNone) {
    arguments.push_back(concat("--spill-compression=", to_text(config.spill_packing)));
  }
  if (!config.spill_key_file.empty()) arguments.push_back(concat("--spill-key-file=", config.spill_key_file));
  if (!config.spill_key_command.empty()) arguments.push_back(concat("--spill-key-command=", config.spill_key_command));
  if (!config.log_file.empty()) arguments.push_back(concat("--log-file=", config.log_file));
  return arguments;
}

std::string_view help_text() {
  return R"(entrepotd: runs an Entrepot store in the foreground. On SIGTERM or SIGINT, exits and discards its objects.

  --address unix:///PATH   address to listen on (required); its folder must belong to the user; the socket is mode 0600
  --size SIZE              capacity, such as 4GiB (default: 30 % of memory, at most 16 GiB)
  --warm-bytes SIZE        memory that is always warm ahead of demand, two thirds of it for one large value (default:
                           64 MiB, at most half of the capacity, for usual values)
  --give-back-after TIME   return free memory beyond that to the machine once it was not in use for this long, or within
                           a second if the machine is short of memory (default: 30s; 0: never)
  --idle-exit TIME         exit after this long without clients and objects, such as 15min (default: 0, never)
  --default-ttl TIME       how long a named session lives after its last use (default: 24h; 0: forever)
  --spill-path DIR         folder on disk for objects that do not fit in memory; several: repeat the flag, or separate
                           them with commas; "none": a full store rejects puts instead (default: /var/tmp/entrepot-UID)
  --spill-quota SIZE       disk space that spilled objects may use (default: four times the capacity, at most half of
                           what the disks have free)
  --spill-reserve SIZE     space to leave free on each disk (default: 5 % of the disk, at least 1 GiB)
  --spill-compression C    none, lz4, zstd or zstd:LEVEL (1 to 19), with the machine's liblz4 or libzstd (default: none)
  --spill-key-file FILE    encrypt spilled objects with the key in this file: 32 bytes or 64 hexadecimal digits,
                           readable only by its owner (openssl rand -hex 32); uses the machine's libcrypto
  --spill-key-command CMD  same, with the key that this shell command prints; it runs at each start, for at most 10 s
  --log-file PATH          append the log to this file (default: standard error)
  --config FILE            read these settings from a file of `key = value` lines; flags take precedence
  --ready-fd N             write a line to this descriptor once the store accepts connections
  --version, --help
)";
}

}  // namespace entrepot
