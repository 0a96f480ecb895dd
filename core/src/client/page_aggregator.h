// PageAggregator: one process's part of a hash aggregation. Rows are aggregated in hash tables of which each is a page of
// the store (see aggregate_page.h). A partition begins with one page. A page that is full is split in two by the next bit
// of the hash while the pages of this aggregator are within their budget. Beyond it, a copy of the page is sealed as a
// partial result, which the store can move to disk, and the table begins anew. (A copy, because the slots that are cut
// off at a seal would be holes in memory, one for each page.)
//
//   open ──finish()──▶ finished: all pages are sealed        ──abandon(), an error──▶ given up
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "client/aggregate_page.h"
#include "client/page_writer.h"
#include "client/row_keys.h"

namespace entrepot {

class PageAggregator {
 public:
  // `budget_bytes`: of open pages. A page for each partition may be open in any case.
  PageAggregator(std::shared_ptr<PageWriter> writer, AggregateLayout layout, std::uint64_t budget_bytes);

  // Aggregates rows: `values` has a column for each aggregate. After an error other than kInvalidArgument, this has
  // failed.
  [[nodiscard]] Status append(RowKeys& keys, std::span<const ValueColumn> values, const Interrupt& interrupt);
  // Seals what is open, and returns all pages, as PageWriter::finish().
  [[nodiscard]] Result<std::vector<SealedPage>> finish(const Interrupt& interrupt);
  void abandon();
  // How many pages were sealed before the end because of the budget.
  [[nodiscard]] std::uint64_t spilled_pages() const;

 private:
  // The pages of a partition, by the first bits of the tags; some of them several times. Null: none yet.
  struct Partition {
    struct Entry {
      std::shared_ptr<AggregatePage> page;
      std::uint32_t prefix = 0;
      std::uint32_t bits = 0;
    };
    std::uint32_t bits = 0;
    std::vector<std::shared_ptr<Entry>> entries;  // 2 to the power of `bits`

    [[nodiscard]] std::size_t index(std::uint32_t tag) const { return std::uint64_t{tag} >> (32 - bits); }
  };
  [[nodiscard]] std::uint32_t partition_of(std::uint64_t hash) const {
    return static_cast<std::uint32_t>((hash >> 32) * partitions_.size() >> 32);
  }
  [[nodiscard]] Result<std::byte*> states_of(const RowKey& key, const Interrupt& interrupt);
  [[nodiscard]] Status open_page(Partition::Entry& entry, const Interrupt& interrupt);
  [[nodiscard]] Status split(Partition& partition, const std::shared_ptr<Partition::Entry>& entry,
                             const Interrupt& interrupt);
  [[nodiscard]] Status seal(std::uint32_t partition, Partition::Entry& entry, const Interrupt& interrupt);
  // Seals a copy of the page, which is empty then.
  [[nodiscard]] Status spill(std::uint32_t partition, AggregatePage& page, const Interrupt& interrupt);
  // Seals a page that has only this record, which no page has room for.
  [[nodiscard]] Status append_alone(const RowKey& key, std::span<const ValueColumn> values, std::uint64_t row,
                                    const Interrupt& interrupt);
  void add_row(std::byte* states, std::span<const ValueColumn> values, std::uint64_t row) const;

  const std::shared_ptr<PageWriter> writer_;
  const AggregateLayout layout_;
  const std::uint64_t budget_bytes_;
  mutable std::mutex mutex_;
  std::vector<Partition> partitions_;  // guarded by mutex_
  std::uint64_t open_bytes_ = 0;       // guarded by mutex_
  std::uint64_t spilled_pages_ = 0;    // guarded by mutex_
};

}  // namespace entrepot
