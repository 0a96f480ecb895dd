#include "daemon/program_check.h"

#include <utility>

#include "os/events.h"
#include "os/thread.h"

namespace entrepot {

Status ProgramCheck::open() {
  ASSIGN_OR_RETURN(shared_->event, os::create_event_fd());
  return Status::ok();
}

Status ProgramCheck::start(std::string path, std::vector<std::string> arguments, Done done) {
  if (done_) {
    return Status(Code::kStoreUnavailable, "another program is already being checked for an upgrade of this store",
                  true);
  }
  const auto check = [shared = shared_, path = std::move(path), arguments = std::move(arguments)] {
    Result<Program> answer = open_program(path, arguments);
    {
      const std::lock_guard<std::mutex> lock(shared->mutex);
      shared->answer.emplace(std::move(answer));
    }
    os::signal_event(shared->event.get());
  };
  ASSIGN_OR_RETURN(std::thread thread, os::start_thread("a thread for the upgrade", check));
  thread.detach();
  done_ = std::move(done);
  return Status::ok();
}

void ProgramCheck::take() {
  os::clear_event(shared_->event.get());
  std::optional<Result<Program>> answer;
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    std::swap(answer, shared_->answer);
  }
  if (answer) std::exchange(done_, nullptr)(std::move(*answer));
}

}  // namespace entrepot
