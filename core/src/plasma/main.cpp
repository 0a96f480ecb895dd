// entrepot-plasma-store: the front end for Plasma clients.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/text.h"
#include "os/events.h"
#include "os/files.h"
#include "os/log.h"
#include "os/process.h"
#include "os/socket.h"
#include "plasma/front_end.h"
#include "plasma/options.h"
#include "plasma/supervisor.h"

namespace {

int fail(const entrepot::Status& status, int code) {
  std::fputs(("entrepot-plasma-store: " + status.message() + "\n").c_str(), stderr);
  return code;
}

int run(const std::vector<std::string>& arguments) {
  using namespace entrepot::plasma;  // NOLINT(google-build-using-namespace): this program is its front end
  const char* const address = std::getenv("ENTREPOT_ADDRESS");
  const auto options = parse_options(arguments, address == nullptr ? "" : address);
  if (!options.is_ok()) return fail(options.status(), kExitUsage);
  if (options->show_help) {
    std::fputs(std::string(options_help()).c_str(), stdout);
    return 0;
  }
  if (options->show_version) {
    std::printf("entrepot-plasma-store %s\n", ENTREPOT_VERSION);
    return 0;
  }
  entrepot::os::raise_descriptor_limit();
  entrepot::set_log_role("plasma");
  if (options->keep_running) {
    std::vector<std::string> own = arguments;
    std::erase(own, "--keep-running");
    return supervise(own);
  }
  auto front_end = FrontEnd::start(*options);
  if (!front_end.is_ok()) {
    // A store whose daemon or keeper stands still does not answer either, but somebody still has its socket.
    const bool is_gone =
        !entrepot::os::file_exists(options->store_path) || entrepot::os::is_socket_abandoned(options->store_path);
    const bool has_no_store = is_gone && front_end.status().code() == entrepot::Code::kStoreUnavailable;
    return fail(front_end.status(), has_no_store ? kExitNoStore : kExitCannotStart);
  }
  for (const std::string& flag : options->ignored)
    entrepot::log_info("the flag ", flag, " has no effect here: memory and spilling are the store's");
  entrepot::log_info("serving Plasma clients at ", options->socket_path, ", ",
                     entrepot::format_bytes(options->capacity_bytes), ", from the store at ", options->store_path);
  const entrepot::Status ended = (*front_end)->run();
  return ended.is_ok() ? 0 : fail(ended, kExitFailed);
}

}  // namespace

int main(int argc, char** argv) { return run(std::vector<std::string>(argv + 1, argv + argc)); }
