#include "client/segment_views.h"

#include <utility>

#include "base/text.h"
#include "shm/layout.h"

namespace entrepot {

std::shared_ptr<const SegmentView> SegmentViews::find(std::uint32_t segment, std::uint32_t generation) {
  const std::lock_guard lock(mutex_);
  const auto match = views_.find(segment);
  if (match == views_.end() || match->second->generation != generation) return nullptr;
  return match->second;
}

Result<std::shared_ptr<const SegmentView>> SegmentViews::get(std::uint32_t segment, std::uint32_t generation,
                                                             const Wait& wait, const Interrupt& interrupt) {
  if (auto view = find(segment, generation)) return view;
  std::vector<UniqueFd> fds;
  ASSIGN_OR_RETURN(const SegmentReply reply,
                   rpc_.request_reply<SegmentReply>(MessageType::kSegment, SegmentRequest{segment, kReadAccess},
                                                    wait_options(wait, 0, interrupt), &fds));
  if (fds.size() != 1 || reply.segment != segment) {
    return Status(Code::kInternal, concat("the daemon's response about segment ", segment, " has no descriptor"));
  }
  if (reply.segment_generation != generation) {
    return Status(Code::kObjectLost, concat("segment ", segment, " has generation ", reply.segment_generation,
                                            ", but the object is in generation ", generation));
  }
  ASSIGN_OR_RETURN(os::Mapping mapping,
                   os::Mapping::map(fds[0].get(), 0, reply.segment_bytes, os::Access::kReadOnly, kSegmentAlign));
  auto created = std::make_shared<SegmentView>();
  created->segment = segment;
  created->generation = generation;
  created->fd = std::move(fds[0]);
  created->mapping = std::move(mapping);
  const std::lock_guard lock(mutex_);
  auto& slot = views_[segment];
  if (slot && slot->generation == generation) return slot;  // another thread was faster
  slot = std::move(created);
  return slot;
}

}  // namespace entrepot
