// Columns of keys or records, as Python passes them: values of one width, or Arrow's offsets and data.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bindings/common.h"
#include "bindings/items.h"
#include "client/page_writer.h"
#include "client/row_keys.h"

namespace entrepot::bindings {

class RecordColumn {
 public:
  // `offset_bytes`: 0: `width` bytes each; 4 or 8: the size of an offset, of which there is one more than values.
  // Throws InvalidArgument if the values do not lie within the data.
  RecordColumn(Exports& exports, nb::handle data, std::uint64_t width, nb::handle offsets, unsigned offset_bytes);

  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] std::span<const std::byte> operator[](std::uint64_t i) const {
    if (offset_bytes_ == 0) return data_.subspan(i * width_, width_);
    if (offset_bytes_ == 4) return slice(static_cast<const std::int32_t*>(offsets_), i);
    return slice(static_cast<const std::int64_t*>(offsets_), i);
  }
  // The same for the client's tables.
  [[nodiscard]] KeyColumn key_column() const { return {data_.data(), width_, offsets_, offset_bytes_, nullptr, size_}; }

 private:
  template <class Offset>
  [[nodiscard]] std::span<const std::byte> slice(const Offset* offsets, std::uint64_t i) const {
    return data_.subspan(static_cast<std::uint64_t>(offsets[i]),
                         static_cast<std::uint64_t>(offsets[i + 1] - offsets[i]));
  }

  std::span<const std::byte> data_;
  std::uint64_t width_ = 0;
  const void* offsets_ = nullptr;
  unsigned offset_bytes_ = 0;
  std::uint64_t size_ = 0;
};

// Columns of keys, as Python passes them: a list of (data, width, offsets, offset_bytes, valid or None).
[[nodiscard]] RowKeys row_keys_from(Exports& exports, const nb::list& columns);

// Opens a writer of pages in a session, given by handles.
[[nodiscard]] std::shared_ptr<PageWriter> open_page_writer(PyClient& client, PageWriterOptions options,
                                                           std::uint64_t session,
                                                           const std::vector<std::uint64_t>& sets,
                                                           const nb::bytes& prefix);
// For each page: ID, partition, records, bytes, when it was sealed: 20, 4, 8, 8, 8 bytes.
[[nodiscard]] nb::bytes pack_pages(const std::vector<SealedPage>& pages);

}  // namespace entrepot::bindings
