// Looks, on a thread of its own, whether a program could take this store over: it lies on a file system that may not
// answer, and is run and asked, for which it has some seconds.
//
//   idle ──start()──▶ looking ──the thread has an answer, and signals the event──▶ answered ──take()──▶ idle
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "daemon/takeover.h"

namespace entrepot {

// Guarded by the daemon's thread, but for what the two share.
class ProgramCheck {
 public:
  using Done = std::function<void(Result<Program>)>;

  [[nodiscard]] Status open();  // once, first
  // kStoreUnavailable while another one is looked at: `done` is not called then.
  [[nodiscard]] Status start(std::string path, std::vector<std::string> arguments, Done done);
  [[nodiscard]] int event() const { return shared_->event.get(); }
  void take();  // the event was signalled

 private:
  struct Shared {  // lives as long as the thread, which the end of the process does not wait for
    UniqueFd event;
    std::mutex mutex;
    std::optional<Result<Program>> answer;  // guarded by mutex
  };

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  Done done_;  // of the one that is looked at; none: idle
};

}  // namespace entrepot
