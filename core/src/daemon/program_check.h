// Checks on a thread of its own whether a program could take this store over: its file system may not answer, and it is
// run and queried, which may take seconds.
//
//   idle ──start()──▶ checking ──the thread has an answer, and signals the event──▶ answered ──take()──▶ idle
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "daemon/takeover.h"
#include "os/unique_fd.h"

namespace entrepot {

// Guarded by the daemon's thread, except for `Shared`.
class ProgramCheck {
 public:
  using Done = std::function<void(Result<Program>)>;

  [[nodiscard]] Status open();  // call once, first
  // kStoreUnavailable while another check is running; `done` is not called then.
  [[nodiscard]] Status start(std::string path, std::vector<std::string> arguments, Done done);
  [[nodiscard]] int event() const { return shared_->event.get(); }
  void take();  // call when the event was signalled

 private:
  struct Shared {  // lives as long as the thread, which process exit does not wait for
    UniqueFd event;
    std::mutex mutex;
    std::optional<Result<Program>> answer;  // guarded by mutex
  };

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  Done done_;  // of the running check; none: idle
};

}  // namespace entrepot
