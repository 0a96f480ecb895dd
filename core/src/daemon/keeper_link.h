// KeeperLink: the daemon's side of the keeper's channel, and the owner of every descriptor that outlives the daemon.
//
//   linked ──end-of-file, or no answer in time──▶ (new keeper spawned, everything held again) ──▶ linked
//                                                 └──cannot──▶ alone: the store works on, unprotected, and tries again
//
// hold() returns when the keeper has acknowledged: only then may what lies in the memory be published.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "daemon/keeper_channel.h"

namespace entrepot {

// Guarded by the daemon's thread.
class KeeperLink {
 public:
  // `keeper_arguments`: for a keeper that this daemon has to start, without role and channel.
  KeeperLink(UniqueFd channel, std::vector<std::string> keeper_arguments)
      : channel_(std::move(channel)), keeper_arguments_(std::move(keeper_arguments)) {}

  // First thing: what the keeper held for the former daemon, the listening socket at least.
  [[nodiscard]] Status take_over();

  // Takes the descriptor; from now on fd(tag) is it.
  [[nodiscard]] Status hold(const HeldTag& tag, UniqueFd fd);
  void drop(const HeldTag& tag);
  [[nodiscard]] int fd(const HeldTag& tag) const;  // -1: not held
  [[nodiscard]] const std::map<HeldTag, UniqueFd>& all() const { return held_; }

  // For the poller; -1 while alone. It changes when a new keeper was started: ask again after on_readable() or hold().
  [[nodiscard]] int channel() const { return channel_.get(); }
  // Which keeper the channel leads to: another number for each, where the descriptor may well be the same.
  [[nodiscard]] std::uint64_t keeper_number() const { return keeper_number_; }
  [[nodiscard]] std::uint32_t keeper_pid() const { return keeper_pid_; }
  // The channel is readable: the keeper died (it says nothing by itself). Starts another.
  void on_readable();
  // Starts a keeper if there is none; called from a timer while alone.
  void restart_if_alone();

  // When this daemon has ended, the keeper's process runs this program. An error: nothing changes.
  [[nodiscard]] Status upgrade(const UniqueFd& program);

  // A clean stop: the keeper ends too, and starts no daemon.
  void goodbye();

 private:
  [[nodiscard]] Status hold_once(const HeldTag& tag, int fd);
  [[nodiscard]] Status start_keeper();
  void keeper_is_gone(const Status& why);

  UniqueFd channel_;
  std::uint64_t keeper_number_ = 1;
  std::vector<std::string> keeper_arguments_;
  std::map<HeldTag, UniqueFd> held_;
  std::uint32_t keeper_pid_ = 0;
};

}  // namespace entrepot
