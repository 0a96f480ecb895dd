#include "client/page_aggregator.h"

#include <algorithm>
#include <array>
#include <utility>

namespace entrepot {
namespace {

constexpr std::uint32_t kMaxPrefixBits = 16;   // of a prefix: a partition has at most so many pages, as a power of two
constexpr std::size_t kAggregatedAtOnce = 32;  // their slots are brought into the cache together

}  // namespace

PageAggregator::PageAggregator(std::shared_ptr<PageWriter> writer, AggregateLayout layout, std::uint64_t budget_bytes)
    : writer_(std::move(writer)),
      layout_(std::move(layout)),
      budget_bytes_(budget_bytes),
      partitions_(writer_->options().partitions) {
  for (Partition& partition : partitions_)
    partition.entries.push_back(std::make_shared<Partition::Entry>());
}

Status PageAggregator::append(RowKeys& keys, std::span<const ValueColumn> values, const Interrupt& interrupt) {
  RETURN_IF_ERROR(writer_->usable());
  if (values.size() != layout_.kinds().size()) {
    return {Code::kInvalidArgument, "there must be as many columns of values as aggregates"};
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].data == nullptr && layout_.kinds()[i] != AggregateKind::kCount && keys.rows() != 0) {
      return {Code::kInvalidArgument, "only a count needs no values"};
    }
  }
  const std::lock_guard lock(mutex_);
  const std::uint64_t page_bytes = writer_->options().page_bytes;
  std::array<RowKey, kAggregatedAtOnce> ahead;
  for (std::uint64_t first = 0; first < keys.rows(); first += kAggregatedAtOnce) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kAggregatedAtOnce, keys.rows() - first));
    if (keys.is_single()) {
      for (std::size_t i = 0; i < count; ++i) {
        ahead[i] = keys[first + i];
        const Partition& partition = partitions_[partition_of(ahead[i].hash)];
        const Partition::Entry& entry = *partition.entries[partition.index(ahead[i].tag())];
        if (entry.page) entry.page->prefetch(ahead[i].tag());
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      const RowKey key = keys.is_single() ? ahead[i] : keys[first + i];
      if (!AggregatePage::fits(page_bytes, layout_.record_bytes(key.bytes.size()))) {
        RETURN_IF_ERROR(append_alone(key, values, first + i, interrupt));
        continue;
      }
      ASSIGN_OR_RETURN(std::byte* const states, states_of(key, interrupt));
      add_row(states, values, first + i);
    }
  }
  return Status::ok();
}

void PageAggregator::add_row(std::byte* states, std::span<const ValueColumn> values, std::uint64_t row) const {
  for (std::size_t i = 0; i < values.size(); ++i)
    add_value(layout_.kinds()[i], states + layout_.offset(i), values[i], row);
}

Result<std::byte*> PageAggregator::states_of(const RowKey& key, const Interrupt& interrupt) {
  const std::uint32_t number = partition_of(key.hash);
  Partition& partition = partitions_[number];
  while (true) {
    const std::shared_ptr<Partition::Entry> entry = partition.entries[partition.index(key.tag())];
    if (!entry->page) RETURN_IF_ERROR(open_page(*entry, interrupt));
    if (std::byte* const states = entry->page->find_or_insert(key)) return states;
    if (entry->bits < kMaxPrefixBits && open_bytes_ + writer_->options().page_bytes <= budget_bytes_) {
      RETURN_IF_ERROR(split(partition, entry, interrupt));
    } else {
      RETURN_IF_ERROR(spill(number, *entry->page, interrupt));
    }
  }
}

Status PageAggregator::open_page(Partition::Entry& entry, const Interrupt& interrupt) {
  ASSIGN_OR_RETURN(auto blob, writer_->new_blob(writer_->options().page_bytes, interrupt));
  entry.page = std::make_shared<AggregatePage>(std::move(blob), layout_, entry.prefix, entry.bits);
  open_bytes_ += entry.page->bytes();
  return Status::ok();
}

Status PageAggregator::split(Partition& partition, const std::shared_ptr<Partition::Entry>& entry,
                             const Interrupt& interrupt) {
  const auto other = std::make_shared<Partition::Entry>();
  RETURN_IF_ERROR(open_page(*other, interrupt));
  entry->page->split(*other->page);
  for (const auto& half : {entry, other}) {
    half->prefix = half->page->prefix();
    half->bits = half->page->bits();
  }
  if (entry->bits > partition.bits) {
    std::vector<std::shared_ptr<Partition::Entry>> twice;
    for (const auto& each : partition.entries)
      twice.insert(twice.end(), 2, each);
    partition.entries = std::move(twice);
    ++partition.bits;
  }
  const std::size_t width = std::size_t{1} << (partition.bits - other->bits);
  for (std::size_t i = 0; i < width; ++i)
    partition.entries[other->prefix * width + i] = other;
  return Status::ok();
}

Status PageAggregator::seal(std::uint32_t partition, Partition::Entry& entry, const Interrupt& interrupt) {
  const std::shared_ptr<AggregatePage> page = std::exchange(entry.page, nullptr);
  open_bytes_ -= page->bytes();
  PageWriter::FilledPage filled{nullptr, page->used(), page->records(), page->prefix(), page->bits()};
  filled.blob = page->take();
  return writer_->seal(partition, filled, interrupt);
}

Status PageAggregator::spill(std::uint32_t partition, AggregatePage& page, const Interrupt& interrupt) {
  PageWriter::FilledPage filled{nullptr, page.used(), page.records(), page.prefix(), page.bits()};
  ASSIGN_OR_RETURN(filled.blob, writer_->new_blob(std::max(page.used(), kMinSealedBytes), interrupt));
  page.move_to(filled.blob->data());
  ++spilled_pages_;
  return writer_->seal(partition, filled, interrupt);
}

Status PageAggregator::append_alone(const RowKey& key, std::span<const ValueColumn> values, std::uint64_t row,
                                    const Interrupt& interrupt) {
  // With slots for one key, which are cut off.
  const std::uint64_t bytes = writer_->options().page_bytes + round_up(layout_.record_bytes(key.bytes.size()), 64);
  ASSIGN_OR_RETURN(auto blob, writer_->new_blob(bytes, interrupt));
  Partition::Entry entry{std::make_shared<AggregatePage>(std::move(blob), layout_, 0, 0), 0, 0};
  open_bytes_ += entry.page->bytes();
  add_row(entry.page->find_or_insert(key), values, row);
  return seal(partition_of(key.hash), entry, interrupt);
}

Result<std::vector<SealedPage>> PageAggregator::finish(const Interrupt& interrupt) {
  RETURN_IF_ERROR(writer_->usable());
  const std::lock_guard lock(mutex_);
  for (std::uint32_t number = 0; number < partitions_.size(); ++number) {
    for (const auto& entry : partitions_[number].entries)
      if (entry->page) RETURN_IF_ERROR(seal(number, *entry, interrupt));
  }
  return writer_->finish(interrupt);
}

void PageAggregator::abandon() {
  if (writer_->usable().code() == Code::kNotSealed) return;  // the child of a fork: the parent's threads have the lock
  {
    const std::lock_guard lock(mutex_);
    for (Partition& partition : partitions_)
      for (const auto& entry : partition.entries)
        entry->page = nullptr;
    open_bytes_ = 0;
  }
  writer_->abandon();
}

std::uint64_t PageAggregator::spilled_pages() const {
  const std::lock_guard lock(mutex_);
  return spilled_pages_;
}

}  // namespace entrepot
