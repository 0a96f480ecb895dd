// PageWriter: one process's part of a shuffle. Its threads append records to partitions, each through an Appender of its
// own, into pages that lie in the store from the beginning; a full page is sealed as an object.
//
// A page:
//
//   open ──it has no room for another chunk──▶ detached ──its last chunk is given back──▶ sealed
//     └──────────────────finish()───────────────▶┘               (the writer fails, or is destroyed: dropped)
//
// A chunk of a page belongs to one Appender, which fills it without a lock, allocation or system call. If nobody has
// taken a chunk behind it, it is extended in place, so that a page that only one thread writes is a single chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/client.h"
#include "client/page_format.h"

namespace entrepot {

inline constexpr std::uint32_t kMaxPartitions = 1U << 16;
inline constexpr std::uint64_t kMinPageBytes = 64U << 10;
inline constexpr std::uint64_t kMaxPageBytes = 1U << 30;
// What remains of a page of this size or less, at the end of a shuffle, is not given back: it would be a small fragment.
inline constexpr std::uint64_t kMinSealedBytes = 32U << 10;

struct SealedPage {
  IdBytes id{};
  std::uint32_t partition = 0;
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;      // of the object
  std::uint64_t sealed_ns = 0;  // by the host's monotonic clock: puts the pages of all its writers in order
};

struct PageWriterOptions {
  std::uint32_t session = 0;
  std::vector<std::uint32_t> sets;  // the locality set of each partition's pages; or one, of all; empty: the default
  std::uint32_t partitions = 1;
  std::uint64_t page_bytes = 1U << 20;
  std::uint64_t chunk_bytes = 64U << 10;
  Framing framing = Framing::kCompact;
  std::uint32_t record_bytes = 0;  // with Framing::kFixed
  std::uint32_t wait_ms = 30'000;  // for memory
  PagePrefix prefix{};             // unique; see page_id()
};

class Appender;

class PageWriter : public std::enable_shared_from_this<PageWriter> {
 public:
  // kInvalidArgument: an option is out of range.
  [[nodiscard]] static Result<std::shared_ptr<PageWriter>> create(std::shared_ptr<Client> client,
                                                                  PageWriterOptions options);
  ~PageWriter();
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;
  PageWriter(PageWriter&&) = delete;
  PageWriter& operator=(PageWriter&&) = delete;

  // For one thread. It ends with finish().
  [[nodiscard]] std::shared_ptr<Appender> appender();
  // Seals what is left. No thread may be appending. Returns all pages of this writer, in the order of their seals. If it
  // fails for lack of memory, or any append did, the writer has failed and this returns why.
  [[nodiscard]] Result<std::vector<SealedPage>> finish(const Interrupt& interrupt);
  // For services that fill whole pages on their own: memory for one, and its seal. The page's first chunk begins behind
  // its header, and ends at `used`.
  [[nodiscard]] Result<std::shared_ptr<WritableBlob>> new_blob(std::uint64_t bytes, const Interrupt& interrupt);
  struct FilledPage {
    std::shared_ptr<WritableBlob> blob;
    std::uint64_t used = 0;
    std::uint64_t records = 0;
    std::uint32_t hash_prefix = 0;
    std::uint32_t hash_bits = 0;
  };
  [[nodiscard]] Status seal(std::uint32_t partition, const FilledPage& page, const Interrupt& interrupt);
  // Gives everything up: open pages are dropped, and sealed ones deleted.
  void abandon();

  [[nodiscard]] const PageWriterOptions& options() const { return options_; }
  // kNotSealed: this process is a fork of the writer's. Otherwise why the writer has failed, if it has.
  [[nodiscard]] Status usable() const;

 private:
  friend class Appender;
  struct Page {
    std::shared_ptr<WritableBlob> blob;
    std::uint64_t used = sizeof(PageHeader);  // guarded by its partition's mutex: chunks begin before it
    std::uint32_t users = 0;                  // guarded by its partition's mutex: chunks that were not given back
    std::uint64_t records = 0;                // guarded by its partition's mutex: of chunks that were given back
    bool detached = false;                    // guarded by its partition's mutex
  };
  struct Partition {
    std::mutex mutex;            // held while memory is waited for, but not during a seal
    std::shared_ptr<Page> open;  // guarded by mutex; null: none
  };
  // A part of a page that an Appender fills.
  struct Cursor {
    std::byte* at = nullptr;
    std::byte* end = nullptr;
    std::byte* begin = nullptr;  // its ChunkHeader
    std::uint64_t records = 0;
    std::shared_ptr<Page> page;
  };

  PageWriter(std::shared_ptr<Client> client, PageWriterOptions options);
  // Makes room for `need` bytes in the cursor's partition.
  [[nodiscard]] Status make_room(std::uint32_t partition, Cursor& cursor, std::uint64_t need,
                                 const Interrupt& interrupt);
  // Returns the page if it is to be sealed now. Requires the partition's mutex.
  [[nodiscard]] std::shared_ptr<Page> give_back(Cursor& cursor);
  [[nodiscard]] Status seal(std::uint32_t partition, const Page& page, const Interrupt& interrupt);
  Status fail(Status status);
  [[nodiscard]] Status failure() const;
  [[nodiscard]] bool is_orphan() const;

  const std::shared_ptr<Client> client_;
  const std::uint32_t forks_;  // of the client when this was created
  const PageWriterOptions options_;
  const std::string tree_;
  std::vector<Partition> partitions_;

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Appender>> appenders_;  // guarded by mutex_
  std::vector<SealedPage> sealed_;                    // guarded by mutex_
  std::uint64_t next_page_ = 0;                       // guarded by mutex_
  Status failure_;                                    // guarded by mutex_: the first one
  bool finished_ = false;                             // guarded by mutex_
};

// Appends records for one thread. After an error, what was appended is not complete, and its writer cannot finish; the
// only exceptions are records that are refused with kInvalidArgument.
class Appender {
 public:
  [[nodiscard]] Status append(std::uint32_t partition, const void* data, std::uint64_t length,
                              const Interrupt& interrupt) {
    if (partition >= cursors_.size()) return wrong_partition(partition);
    if (framing_ == Framing::kFixed && length != record_bytes_) return wrong_length(length);
    PageWriter::Cursor& cursor = cursors_[partition];
    const std::uint64_t need = framed_bytes(framing_, length);
    if (static_cast<std::uint64_t>(cursor.end - cursor.at) < need) {
      RETURN_IF_ERROR(make_room(partition, length, need, interrupt));
    }
    cursor.at = write_record(framing_, cursor.at, data, length);
    ++cursor.records;
    return Status::ok();
  }

 private:
  friend class PageWriter;
  explicit Appender(PageWriter& writer);
  [[nodiscard]] Status wrong_partition(std::uint32_t partition) const;
  [[nodiscard]] Status wrong_length(std::uint64_t length) const;
  [[nodiscard]] Status make_room(std::uint32_t partition, std::uint64_t length, std::uint64_t need,
                                 const Interrupt& interrupt);

  PageWriter& writer_;  // which has this
  const Framing framing_;
  const std::uint32_t record_bytes_;
  std::vector<PageWriter::Cursor> cursors_;  // by partition
};

}  // namespace entrepot
