#include "daemon/segment_files.h"

#include <utility>

#include "base/text.h"
#include "os/events.h"
#include "os/log.h"
#include "os/memfd.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kMaxPunchBytes = 4ULL << 20;  // per call in the event loop: less than a millisecond

}  // namespace

Status SegmentFiles::watch(EventLoop& loop, int event_fd) {
  ASSIGN_OR_RETURN(watch_, loop.watch(event_fd, Interest::kRead, [this, event_fd](const os::Ready&) {
    os::clear_event(event_fd);
    take_finished();
  }));
  return Status::ok();
}

void SegmentFiles::provision(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes, bool urgent) {
  const Status started = begin(segment, generation, bytes, urgent);
  if (!started.is_ok()) done_({segment, generation, MemoryKind::kUnknown, started});
}

Status SegmentFiles::begin(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes, bool urgent) {
  ASSIGN_OR_RETURN(UniqueFd fd, os::create_memfd(concat("entrepot-segment-", segment), bytes));
  ASSIGN_OR_RETURN(UniqueFd own, os::duplicate(fd.get()));
  link_.hold(segment_tag(segment, generation), std::move(fd));
  provisioner_.add({segment, generation, bytes, urgent, std::move(own)});
  return Status::ok();
}

Result<DescriptorTag> SegmentFiles::tag_of(std::uint32_t segment) const {
  const auto first = link_.all().lower_bound({DescriptorKind::kSegment, 0});
  for (auto it = first; it != link_.all().end() && it->first.kind == DescriptorKind::kSegment; ++it) {
    if (static_cast<std::uint32_t>(it->first.number) == segment) return it->first;
  }
  return Status(Code::kInternal, concat("segment ", segment, " has no memory"));
}

Status SegmentFiles::punch(std::uint32_t segment, std::uint64_t offset, std::uint64_t bytes) {
  ASSIGN_OR_RETURN(const DescriptorTag tag, tag_of(segment));
  return os::punch(link_.fd(tag), offset, bytes);
}

void SegmentFiles::drop(std::uint32_t segment, std::uint32_t generation) {
  provisioner_.cancel(segment, generation);
  std::erase_if(finished_, [&](const Provisioned& provisioned) {
    return provisioned.segment == segment && provisioned.generation == generation;
  });
  const DescriptorTag tag = segment_tag(segment, generation);
  const int fd = link_.fd(tag);
  if (fd < 0) return;
  // Punch it first: a closed memfd keeps its pages as long as somebody maps it.
  const auto bytes = os::file_bytes(fd);
  Status punched = bytes.status();
  if (bytes.is_ok()) {
    auto own = *bytes > kMaxPunchBytes ? os::duplicate(fd) : Result<UniqueFd>(UniqueFd());
    if (own.is_ok() && own->valid()) {
      provisioner_.return_pages(segment, own.take(), *bytes);
    } else {
      punched = os::punch(fd, 0, *bytes);
    }
  }
  if (!punched.is_ok()) log_warning("segment ", segment, ": cannot release its pages: ", punched.message());
  link_.drop(tag);
}

MemorySource::Existing SegmentFiles::find(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes) {
  Existing existing;
  const int fd = link_.fd(segment_tag(segment, generation));
  if (fd < 0) return existing;
  const auto size = os::file_bytes(fd);
  existing.exists = size.is_ok() && *size == bytes;
  if (!existing.exists) return existing;
  auto holes = os::holes(fd, bytes);
  if (holes.is_ok()) {
    existing.holes = holes.take();
  } else {
    log_warning("treating segment ", segment, " as fully allocated: ", holes.status().message());
  }
  return existing;
}

void SegmentFiles::take_finished() {
  for (Provisioned& provisioned : provisioner_.take_finished())
    finished_.push_back(std::move(provisioned));
  publish_ready();
}

void SegmentFiles::publish_ready() {
  // One by one: the callback may drop others.
  for (std::size_t i = 0; i < finished_.size();) {
    const bool held = link_.is_held_by_keeper(segment_tag(finished_[i].segment, finished_[i].generation));
    if (!held && finished_[i].status.is_ok()) {
      i += 1;
      continue;
    }
    const Provisioned provisioned = std::move(finished_[i]);
    finished_.erase(finished_.begin() + static_cast<std::ptrdiff_t>(i));
    done_(provisioned);
    i = 0;
  }
}

Result<UniqueFd> SegmentFiles::writable(std::uint32_t segment, std::uint32_t generation) const {
  const int fd = link_.fd(segment_tag(segment, generation));
  if (fd < 0) return Status(Code::kInternal, concat("segment ", segment, " has no memory"));
  return os::duplicate(fd);
}

Result<UniqueFd> SegmentFiles::read_only(std::uint32_t segment, std::uint32_t generation) const {
  const int fd = link_.fd(segment_tag(segment, generation));
  if (fd < 0) return Status(Code::kInvalidArgument, concat("there is no segment ", segment));
  return os::reopen_read_only(fd);
}

}  // namespace entrepot
