#include "client/segment_views.h"

#include <utility>

#include "base/text.h"
#include "shm/layout.h"

namespace entrepot {

std::shared_ptr<const SegmentView> SegmentViews::find(std::uint32_t segment, std::uint32_t generation) {
  const std::lock_guard lock(mutex_);
  const auto found = views_.find(segment);
  if (found == views_.end() || found->second->generation != generation) return nullptr;
  return found->second;
}

Result<std::shared_ptr<const SegmentView>> SegmentViews::get(std::uint32_t segment, std::uint32_t generation,
                                                             const Interrupt& interrupt) {
  if (auto view = find(segment, generation)) return view;
  std::vector<UniqueFd> fds;
  CallOptions options;
  options.interrupt = interrupt;
  ASSIGN_OR_RETURN(const SegmentReply reply,
                   rpc_.ask<SegmentReply>(MessageType::kSegment, SegmentRequest{segment, 0}, options, &fds));
  if (fds.size() != 1 || reply.segment != segment) {
    return Status(Code::kInternal, concat("the daemon's answer about segment ", segment, " has no descriptor"));
  }
  if (reply.segment_generation != generation) {
    return Status(Code::kObjectLost, concat("segment ", segment, " is of generation ", reply.segment_generation,
                                            ", but the object lies in generation ", generation));
  }
  ASSIGN_OR_RETURN(os::Mapping mapping,
                   os::Mapping::map(fds[0].get(), 0, reply.segment_bytes, os::Access::kReadOnly, kSegmentAlign));
  auto made = std::make_shared<SegmentView>();
  made->segment = segment;
  made->generation = generation;
  made->fd = std::move(fds[0]);
  made->mapping = std::move(mapping);
  const std::lock_guard lock(mutex_);
  auto& place = views_[segment];
  if (place && place->generation == generation) return place;  // another thread was faster
  place = std::move(made);
  return place;
}

}  // namespace entrepot
