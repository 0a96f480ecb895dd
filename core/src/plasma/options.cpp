#include "plasma/options.h"

#include <charconv>
#include <optional>

#include "base/text.h"

namespace entrepot::plasma {
namespace {

constexpr std::string_view kScheme = "unix://";

Status bad(std::string text) { return Status(Code::kInvalidArgument, std::move(text)); }

}  // namespace

Result<Options> parse_options(const std::vector<std::string>& arguments, std::string_view address) {
  Options options;
  std::string store(address);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string flag = arguments[i];
    std::optional<std::string> attached;
    if (const auto equals = flag.find('='); flag.starts_with("--") && equals != std::string::npos) {
      attached = flag.substr(equals + 1);
      flag.resize(equals);
    }
    const auto value = [&]() -> Result<std::string> {
      if (attached) return *attached;
      if (i + 1 == arguments.size()) return bad(concat(flag, " needs a value"));
      return arguments[++i];
    };
    if (flag == "--help") {
      options.show_help = true;
    } else if (flag == "--version") {
      options.show_version = true;
    } else if (flag == "--strict") {
      options.strict = true;
    } else if (flag == "--isolate") {
      options.isolate = true;
    } else if (flag == "--keep-running") {
      options.keep_running = true;
    } else if (flag == "-h") {
      options.ignored.push_back(flag);
    } else if (flag == "-d" || flag == "-e") {
      ASSIGN_OR_RETURN(const std::string ignored, value());
      options.ignored.push_back(concat(flag, " ", ignored));
    } else if (flag == "-s") {
      ASSIGN_OR_RETURN(options.socket_path, value());
    } else if (flag == "--address") {
      ASSIGN_OR_RETURN(store, value());
    } else if (flag == "-m") {
      ASSIGN_OR_RETURN(const std::string text, value());
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), options.capacity_bytes);
      if (error != std::errc() || end != text.data() + text.size() || options.capacity_bytes == 0 ||
          options.capacity_bytes > INT64_MAX) {
        return bad(concat("-m ", text, ": give a number of bytes, such as 2000000000"));
      }
    } else {
      return bad(concat("unknown flag ", flag, "; see --help"));
    }
  }
  if (options.show_help || options.show_version) return options;
  if (options.socket_path.empty()) return bad("-s is missing: the socket for Plasma clients");
  if (options.capacity_bytes == 0) return bad("-m is missing: how many bytes Plasma clients may use");
  if (store.empty()) {
    return bad("no store is named: pass --address unix:///path, or set ENTREPOT_ADDRESS; 'entrepot start' starts one");
  }
  if (!store.starts_with(kScheme) || store.size() == kScheme.size()) {
    return bad(concat("the address ", store, " is not of the form unix:///absolute/path"));
  }
  options.store_path = store.substr(kScheme.size());
  return options;
}

std::string_view options_help() {
  return R"(usage: entrepot-plasma-store -s SOCKET -m BYTES [--address ADDRESS] [options]

Serves programs written for Apache Arrow's Plasma (the client in pyarrow 11) from an Entrepot store.

  -s SOCKET          where Plasma clients connect
  -m BYTES           what they may occupy at a time, as Plasma's flag
  --address ADDRESS  the store, unix:///path (default: ENTREPOT_ADDRESS)
  --strict           drop the least recently used objects when memory is full, as Plasma does; otherwise they are left
                     to the store, which spills them
  --isolate          give other clients of the store copies, taken when an object is sealed
  --keep-running     start it again when it dies, until the store ends
  -d DIR, -h, -e URL accepted for Plasma's sake, without effect: memory is the store's, and so is spilling
  --help, --version
)";
}

}  // namespace entrepot::plasma
