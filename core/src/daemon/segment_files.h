// SegmentFiles: the store's memory source in the daemon. Segments are memfds held by the keeper; the provisioner's
// thread makes them warm.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/keeper_link.h"
#include "daemon/provisioner.h"
#include "net/event_loop.h"
#include "store/memory/memory_source.h"

namespace entrepot {

// Guarded by the daemon's thread.
class SegmentFiles : public MemorySource {
 public:
  // Called when a segment's memory is ready, or could not be made.
  using Done = std::function<void(const Provisioned&)>;

  // Both must outlive it.
  SegmentFiles(KeeperLink& link, Provisioner& provisioner) : link_(link), provisioner_(provisioner) {
    link_.on_progress([this] { publish_ready(); });
  }
  SegmentFiles(const SegmentFiles&) = delete;
  SegmentFiles& operator=(const SegmentFiles&) = delete;

  // Takes results from now on. `event_fd`: that of the provisioner. Loop and descriptor must outlive it.
  [[nodiscard]] Status watch(EventLoop& loop, int event_fd);
  void on_done(Done done) { done_ = std::move(done); }
  // Called when the store wants to be told of memory pressure, and when no longer.
  void on_follow_pressure(std::function<void(bool)> follow) { follow_ = std::move(follow); }

  void provision(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes, bool urgent) override;
  [[nodiscard]] Status punch(std::uint32_t segment, std::uint64_t offset, std::uint64_t bytes) override;
  void drop(std::uint32_t segment, std::uint32_t generation) override;
  [[nodiscard]] bool machine_is_short() const override { return entrepot::machine_is_short(); }
  void follow_pressure(bool on) override { follow_(on); }
  [[nodiscard]] Existing find(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes) override;

  // For clients: the memory itself, and a read-only descriptor of it.
  [[nodiscard]] Result<UniqueFd> writable(std::uint32_t segment, std::uint32_t generation) const;
  [[nodiscard]] Result<UniqueFd> read_only(std::uint32_t segment, std::uint32_t generation) const;

 private:
  void take_finished();
  void publish_ready();  // reports the segments that are ready and held by the keeper
  [[nodiscard]] Status begin(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes, bool urgent);
  [[nodiscard]] Result<DescriptorTag> tag_of(std::uint32_t segment) const;

  KeeperLink& link_;
  Provisioner& provisioner_;
  EventLoop::Watch watch_;  // of the provisioner's event
  Done done_;
  std::function<void(bool)> follow_ = [](bool) {};
  std::vector<Provisioned> finished_;  // not reported yet
};

}  // namespace entrepot
