#include "daemon/pressure_events.h"

#include <utility>

#include "os/events.h"
#include "os/log.h"
#include "os/memory_pressure.h"

namespace entrepot {

void PressureEvents::open(Callback callback, const std::string& root) {
  callback_ = std::move(callback);
  auto trigger = os::open_stall_trigger(root);
  auto counters = os::open_memory_events(root);
  if (trigger.is_ok()) trigger_ = trigger.take();
  if (counters.is_ok()) counters_ = counters.take();
  if (has_trigger()) return;
  log_info("memory pressure is looked at once a second: ", trigger.status().message());
}

void PressureEvents::follow(bool on) {
  if (!on) {
    trigger_watch_.reset();
    counters_watch_.reset();
    return;
  }
  if (has_trigger() && !trigger_watch_.is_active()) give_up_unless(follow_trigger(), trigger_);
  if (has_counters() && !counters_watch_.is_active()) give_up_unless(follow_counters(), counters_);
}

void PressureEvents::give_up_unless(const Status& followed, UniqueFd& source) {
  if (followed.is_ok()) return;
  log_warning("memory pressure is looked at once a second: ", followed.message());
  source.reset();
}

Status PressureEvents::follow_trigger() {
  os::clear_urgent(trigger_.get());
  ASSIGN_OR_RETURN(trigger_watch_, loop_->watch_urgent(trigger_.get(), [this](const os::Ready& ready) {
    if (ready.urgent) return callback_(Event::kStalled);
    log_info("the control group whose memory pressure was followed is gone");
    trigger_watch_.reset();
    trigger_.reset();
  }));
  return Status::ok();
}

Status PressureEvents::follow_counters() {
  os::clear_memory_events(counters_.get());
  ASSIGN_OR_RETURN(counters_watch_, loop_->watch(counters_.get(), Interest::kRead, [this](const os::Ready&) {
    os::clear_memory_events(counters_.get());
    callback_(Event::kCounted);
  }));
  return Status::ok();
}

}  // namespace entrepot
