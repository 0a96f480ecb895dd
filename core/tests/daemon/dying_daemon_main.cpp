// An entrepotd whose keeper takes a store over correctly, but whose daemon exits at once.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "daemon/config.h"
#include "daemon/keeper.h"
#include "daemon/takeover.h"

int main(int argc, char** argv) {
  const auto config = entrepot::parse_config(std::vector<std::string>(argv + 1, argv + argc));
  if (!config.is_ok()) return 2;
  if (config->role == entrepot::Role::kCandidate) {
    std::printf("%s\n", entrepot::candidate_reply().c_str());
    return 0;
  }
  if (config->role == entrepot::Role::kDaemon) return 1;
  entrepot::KeeperOptions options;
  options.daemon_arguments = config_arguments(*config);
  options.socket_path = config->socket_path;
  return entrepot::Keeper(std::move(options)).run_handover(entrepot::UniqueFd(config->handover_fd));
}
