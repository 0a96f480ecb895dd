#include "daemon/startup.h"

#include <algorithm>
#include <csignal>
#include <memory>
#include <utility>

#include "base/text.h"
#include "daemon/address.h"
#include "daemon/keeper_channel.h"
#include "daemon/keeper_link.h"
#include "daemon/pressure_events.h"
#include "daemon/provisioner.h"
#include "daemon/segment_files.h"
#include "daemon/server.h"
#include "daemon/spill_settings.h"
#include "net/event_loop.h"
#include "os/clock.h"
#include "os/events.h"
#include "os/files.h"
#include "os/log.h"
#include "os/memfd.h"
#include "os/memory_info.h"
#include "os/process.h"
#include "os/random.h"
#include "os/spawn.h"
#include "os/store_lock.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kMinCapacityBytes = 8ULL << 20;
constexpr std::uint64_t kDefaultMinBytes = 64ULL << 20;
constexpr std::uint64_t kDefaultMaxBytes = 16ULL << 30;
constexpr std::uint64_t kLockMs = 10'000;          // for a killed daemon to be completely gone
constexpr std::uint64_t kWarmBytes = 64ULL << 20;  // one segment of the largest usual size

class SystemClock : public Clock {
 public:
  [[nodiscard]] std::uint64_t monotonic_ns() const override { return os::monotonic_ns(); }
  [[nodiscard]] std::uint64_t unix_ns() const override { return os::unix_ns(); }
};

Result<std::uint64_t> capacity_of(const DaemonConfig& config) {
  if (config.capacity_bytes != 0) return config.capacity_bytes;
  ASSIGN_OR_RETURN(const os::MemoryInfo memory, os::read_memory_info());
  const std::uint64_t share = std::min({memory.ceiling() / 10 * 3, memory.available / 2, kDefaultMaxBytes});
  return std::max(share / kSegmentAlign * kSegmentAlign, kDefaultMinBytes);
}

// Locks the store before anything of it is read or changed; held until this process ends.
Status lock_store(KeeperLink& link) {
  const DescriptorTag tag{DescriptorKind::kStoreLock, 0};
  if (link.fd(tag) < 0) {
    for (const auto& [held_tag, fd] : link.all()) {
      if (held_tag.kind == DescriptorKind::kListenSocket || held_tag.kind == DescriptorKind::kAddressLock) continue;
      return Status(Code::kInternal, "the keeper holds a store without its lock: it cannot be adopted safely");
    }
    ASSIGN_OR_RETURN(UniqueFd lock, os::create_store_lock());
    link.hold(tag, std::move(lock));  // first, so that no process has a part of the store without its lock
  }
  return os::take_store_lock(link.fd(tag), os::Deadline::after_ms(kLockMs));
}

Result<ControlMemory> open_memory(KeeperLink& link, bool& is_new) {
  std::map<RegionKind, UniqueFd> existing_fds;
  for (const RegionKind kind : kAllRegions) {
    const int fd = link.fd({DescriptorKind::kRegion, static_cast<std::uint64_t>(kind)});
    if (fd < 0) continue;
    ASSIGN_OR_RETURN(UniqueFd own, os::duplicate(fd));
    existing_fds.emplace(kind, std::move(own));
  }
  is_new = existing_fds.size() != kAllRegions.size();  // a daemon that died before all were held had published nothing
  if (!is_new) return ControlMemory::adopt(std::move(existing_fds));
  ASSIGN_OR_RETURN(ControlMemory memory, ControlMemory::create(os::random_instance()));
  for (const RegionKind kind : kAllRegions) {
    ASSIGN_OR_RETURN(UniqueFd copy, os::duplicate(memory.region(kind).fd()));
    link.hold({DescriptorKind::kRegion, static_cast<std::uint64_t>(kind)}, std::move(copy));
  }
  return memory;
}

Status adopt(Store& store, KeeperLink& link) {
  store.adopt_clients();
  for (const auto& [client, state] : store.clients().all()) {
    const int pins = link.fd({DescriptorKind::kPinTable, client});
    const std::uint32_t capacity = state.identity.pin_capacity;
    Status added;
    if (pins < 0) {
      added = Status(Code::kInternal, "the keeper does not hold it");
    } else if (capacity == 0) {
      added = Status(Code::kCorruptData, "the client's entry is damaged");
    } else {
      added = store.pins().add(client, pins, capacity);
    }
    if (added.is_ok()) {
      store.budget().charge(BudgetItem::kPinTables, pin_memory_bytes(store.pins().reserved_pins(client), capacity));
      continue;
    }
    log_error("cannot read the pin table of client ", client, " (", added.message(),
              "): no memory is freed until that client exits or reconnects with its pin table");
    store.pins().add_unreadable(client);
  }
  ASSIGN_OR_RETURN(const AdoptionReport report, store.adopt_rest());
  log_info("adopted ", count_of(report.objects.adopted, "object"), ", ", report.objects.deferred, " being deleted, ",
           report.objects.lost, " lost, ", report.lost_segments, " segments lost, ", report.damaged_entries,
           " damaged entries");
  return Status::ok();
}

// Drops descriptors that a dead daemon gave to the keeper before any table listed them.
void drop_orphans(const Store& store, KeeperLink& link) {
  std::vector<DescriptorTag> orphans;
  for (const auto& [tag, fd] : link.all()) {
    if (tag.kind == DescriptorKind::kSegment) {
      const auto segment = static_cast<std::uint32_t>(tag.number);
      const bool is_listed =
          store.pool().contains(segment) && tag == segment_tag(segment, store.pool().generation(segment));
      if (!is_listed) orphans.push_back(tag);
    } else if (tag.kind == DescriptorKind::kPinTable || tag.kind == DescriptorKind::kLiveness) {
      if (store.clients().find(static_cast<std::uint32_t>(tag.number)) == nullptr) orphans.push_back(tag);
    }
  }
  for (const DescriptorTag& tag : orphans)
    link.drop(tag);
}

void announce(int ready_fd) {
  if (ready_fd < 0) return;
  UniqueFd fd(ready_fd);
  if (const Status written = os::write_text(fd.get(), "ready\n"); !written.is_ok()) {
    log_warning("cannot report that the store is ready: ", written.message());
  }
}

// From the first request on, a successor must be able to detect that this store was killed.
void mark_address(const KeeperLink& link) {
  const int lock = link.fd({DescriptorKind::kAddressLock, 0});
  if (const Status written = write_address_owner(lock, link.keeper_pid(), true); !written.is_ok()) {
    log_warning(
        "cannot write the lock file, so the next store at this address may not report that this one was killed: ",
        written.message());
  }
}

// Sets `is_ready` once clients are served.
Status serve(const DaemonConfig& config, UniqueFd keeper_channel, bool& is_ready) {
  RETURN_IF_ERROR(os::ignore_sigpipe());
  ASSIGN_OR_RETURN(UniqueFd signals, os::create_signal_fd({SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGCHLD}));
  ASSIGN_OR_RETURN(os::Poller poller, os::Poller::create());
  EventLoop loop(std::move(poller));
  KeeperLink link(loop, std::move(keeper_channel), config_arguments(config));
  RETURN_IF_ERROR(link.take_over());
  RETURN_IF_ERROR(lock_store(link));
  bool is_new = true;
  // A new store needs its threads; a restarted daemon has something to lose, so it tries again whenever it needs one.
  const auto required = [&is_new](const Status& started) {
    if (started.is_ok() || is_new) return started;
    log_warning("continuing without it for now: ", started.message());
    return Status::ok();
  };
  ASSIGN_OR_RETURN(ControlMemory memory, open_memory(link, is_new));

  StoreOptions options;
  // A restarted daemon keeps the store's original capacity, however much memory is free now.
  options.capacity_bytes = is_new ? 0 : memory.root().capacity_bytes.load(std::memory_order_relaxed);
  if (options.capacity_bytes == 0) {
    ASSIGN_OR_RETURN(options.capacity_bytes, capacity_of(config));
  }
  const bool warm_by_default = config.warm_bytes == UINT64_MAX;
  options.warm_bytes = warm_by_default ? std::min(kWarmBytes, options.capacity_bytes / 2)
                                       : std::min(config.warm_bytes, options.capacity_bytes);
  options.warm_for_large = !warm_by_default;
  options.give_back_after_seconds = config.give_back_after_seconds;
  options.recovered_from_crash = config.recovered_from_crash != 0;
  options.default_ttl_seconds = config.default_ttl_seconds;
  options.host = os::host_name();
  options.version = ENTREPOT_VERSION;

  ASSIGN_OR_RETURN(const UniqueFd event, os::create_event_fd());
  Provisioner provisioner;
  RETURN_IF_ERROR(required(start_log_thread()));
  RETURN_IF_ERROR(required(provisioner.start(event.get())));
  SegmentFiles segments(link, provisioner);
  PressureEvents pressure(loop);
  ASSIGN_OR_RETURN(const UniqueFd spill_event, os::create_event_fd());
  const auto open_segment = [&segments](std::uint32_t segment, std::uint32_t generation) {
    return segments.writable(segment, generation);
  };
  const std::unique_ptr<SpillFiles> spill =
      open_spill(os::system_file_io(), config, is_new, options.capacity_bytes, memory.instance(), open_segment,
                 spill_event.get(), options.no_spill_reason);
  if (spill != nullptr && is_new) RETURN_IF_ERROR(spill->threads_status());
  const SystemClock clock;
  Store store(memory, segments, clock, options, spill.get());
  segments.on_done([&store](const Provisioned& provisioned) {
    store.provisioned(provisioned.segment, provisioned.generation, provisioned.status, provisioned.kind);
  });
  pressure.open(
      [&store](PressureEvents::Event event) { store.others_need_memory(event == PressureEvents::Event::kStalled); });
  segments.on_follow_pressure([&pressure](bool on) { pressure.follow(on); });
  if (is_new) {
    RETURN_IF_ERROR(store.start_fresh());
    mark_address(link);
  } else {
    RETURN_IF_ERROR(adopt(store, link));
  }
  drop_orphans(store, link);

  Server server({config, loop, link, memory, store, segments, provisioner, spill.get(), event.get(), spill_event.get()},
                std::move(signals));
  RETURN_IF_ERROR(server.start());
  log_info("store ", to_hex(memory.instance()), " of ", format_bytes(options.capacity_bytes), " at ",
           config.socket_path);
  announce(config.ready_fd);
  is_ready = true;
  link.send_ready();
  return server.run();
}

}  // namespace

Status check_capacity(const DaemonConfig& config) {
  if (config.capacity_bytes == 0) return Status::ok();
  if (config.capacity_bytes < kMinCapacityBytes) {
    return Status(Code::kInvalidArgument, concat("--size ", format_bytes(config.capacity_bytes),
                                                 " is below the minimum of ", format_bytes(kMinCapacityBytes)));
  }
  ASSIGN_OR_RETURN(const os::MemoryInfo memory, os::read_memory_info());
  if (config.capacity_bytes <= memory.ceiling()) return Status::ok();
  return Status(
      Code::kInvalidArgument,
      concat("--size ", format_bytes(config.capacity_bytes), " exceeds the available memory: ",
             memory.cgroup_limit ? "the control group's limit or the machine's memory is " : "the machine has ",
             format_bytes(memory.ceiling())));
}

int run_server(const DaemonConfig& config, UniqueFd keeper_channel) {
  os::outlive_parent();  // the parent is the keeper, which may die from now on
  bool is_ready = false;
  const Status served = serve(config, std::move(keeper_channel), is_ready);
  if (served.is_ok()) return 0;
  log_error(is_ready ? "the daemon cannot continue: " : "the daemon cannot start: ", served.to_string());
  return is_ready ? 1 : kExitDaemonCannotStart;
}

}  // namespace entrepot
