// ForkPlan: prepared by before_fork for the child; see client/fork.cpp.
#pragma once

#include <optional>
#include <vector>

#include "base/status.h"
#include "client/client.h"
#include "os/mapping.h"
#include "os/unique_fd.h"
#include "shm/pins.h"

namespace entrepot {

struct Client::ForkPlan {
  Status failure;  // why the child gets no client
  HelloReply server;
  UniqueFd socket;
  UniqueFd liveness;
  std::optional<PinTable> pins;
  struct Copy {
    WritableBlob* blob = nullptr;
    os::Mapping memory;
  };
  std::vector<Copy> copies;
};

}  // namespace entrepot
