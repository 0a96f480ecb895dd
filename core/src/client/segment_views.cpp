#include "client/segment_views.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "client/call_deadline.h"
#include "shm/layout.h"

namespace entrepot {

std::shared_ptr<const SegmentView> SegmentViews::find(const SegmentKey& key) {
  const std::lock_guard lock(mutex_);
  const auto match = views_.find(key.segment);
  if (match == views_.end() || match->second->generation != key.generation) return nullptr;
  return match->second;
}

Result<std::shared_ptr<const SegmentView>> SegmentViews::get(const SegmentKey& key, const Wait& wait,
                                                             const Interrupt& interrupt) {
  if (auto view = find(key)) return view;
  std::vector<UniqueFd> fds;
  ASSIGN_OR_RETURN(const SegmentReply reply,
                   rpc_.request_reply<SegmentReply>(MessageType::kSegment, SegmentRequest{key.segment, kReadAccess},
                                                    wait_options(wait, 0, interrupt), &fds));
  return add(key, reply, std::move(fds));
}

Status SegmentViews::map_together(std::span<const SegmentKey> keys, const Wait& wait, const Interrupt& interrupt) {
  std::vector<SegmentKey> missing;
  std::vector<std::vector<std::uint8_t>> requests;
  for (const SegmentKey& key : keys) {
    if (missing.size() == kMappedTogether) break;
    if (find(key) || std::ranges::find(missing, key) != missing.end()) continue;
    missing.push_back(key);
    requests.push_back(to_wire(SegmentRequest{key.segment, kReadAccess}));
  }
  const std::shared_ptr<Connection> connection = rpc_.current_connection();
  if (missing.size() < 2 || !connection) return Status::ok();  // get() needs no more requests, or reconnects
  const os::Deadline deadline = CallDeadline::bounded(wait_options(wait, 0, interrupt).deadline);
  auto answers = connection->call_all(MessageType::kSegment, requests, deadline, interrupt);
  if (!answers.is_ok()) return answers.code() == Code::kTimeout ? answers.status() : Status::ok();
  for (std::size_t i = 0; i < missing.size(); ++i) {
    Result<Frame>& answer = (*answers)[i];
    SegmentReply reply;
    if (!answer.is_ok() || answer->lost_fds() || !from_wire(answer->body, reply)) continue;
    static_cast<void>(add(missing[i], reply, std::move(answer->fds)).is_ok());
  }
  return Status::ok();
}

Result<std::shared_ptr<const SegmentView>> SegmentViews::add(const SegmentKey& key, const SegmentReply& reply,
                                                             std::vector<UniqueFd> fds) {
  const auto [segment, generation] = key;
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
