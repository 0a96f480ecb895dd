#include "client/page_writer.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "base/text.h"

namespace entrepot {
namespace {

std::uint64_t monotonic_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

Status check(const PageWriterOptions& options) {
  if (options.partitions == 0 || options.partitions > kMaxPartitions) {
    return {Code::kInvalidArgument,
            concat("the number of partitions must be 1 to ", kMaxPartitions, ", but got ", options.partitions)};
  }
  if (options.page_bytes < kMinPageBytes || options.page_bytes > kMaxPageBytes) {
    return {Code::kInvalidArgument,
            concat("a page must have ", kMinPageBytes, " to ", kMaxPageBytes, " bytes, but got ", options.page_bytes)};
  }
  if (options.chunk_bytes <= sizeof(ChunkHeader) || options.chunk_bytes % kChunkAlign != 0) {
    return {Code::kInvalidArgument, concat("a chunk must have a multiple of ", kChunkAlign, " bytes, more than ",
                                           sizeof(ChunkHeader), ", but got ", options.chunk_bytes)};
  }
  if ((options.framing == Framing::kFixed) != (options.record_bytes != 0)) {
    return {Code::kInvalidArgument, concat("records of one length need that length, and others must have none, but "
                                           "got ",
                                           options.record_bytes)};
  }
  if (options.sets.size() > 1 && options.sets.size() != options.partitions) {
    return {Code::kInvalidArgument,
            concat("got ", options.sets.size(), " locality sets for ", options.partitions, " partitions")};
  }
  return Status::ok();
}

Status orphan_error() {
  return {Code::kNotSealed,
          "the parent process was writing these pages when this process was forked: only the parent can go on; open a "
          "writer here"};
}

}  // namespace

Result<std::shared_ptr<PageWriter>> PageWriter::create(std::shared_ptr<Client> client, PageWriterOptions options) {
  RETURN_IF_ERROR(check(options));
  options.page_bytes = round_up(options.page_bytes, kChunkAlign);
  return std::shared_ptr<PageWriter>(new PageWriter(std::move(client), std::move(options)));
}

PageWriter::PageWriter(std::shared_ptr<Client> client, PageWriterOptions options)
    : client_(std::move(client)),
      forks_(client_->forks_.load(std::memory_order_relaxed)),
      options_(std::move(options)),
      tree_(page_tree()),
      partitions_(options_.partitions) {}

PageWriter::~PageWriter() { abandon(); }

std::shared_ptr<Appender> PageWriter::appender() {
  std::shared_ptr<Appender> made(new Appender(*this));
  const std::lock_guard lock(mutex_);
  appenders_.push_back(made);
  return made;
}

Result<std::shared_ptr<WritableBlob>> PageWriter::new_blob(std::uint64_t bytes, const Interrupt& interrupt) {
  auto blob = client_->create(bytes, options_.wait_ms, interrupt);
  if (!blob.is_ok()) return fail(blob.status());
  return blob;
}

Status PageWriter::usable() const { return is_orphan() ? orphan_error() : failure(); }

std::shared_ptr<PageWriter::Page> PageWriter::give_back(Cursor& cursor) {
  Page& page = *cursor.page;
  ChunkHeader header;
  header.bytes = static_cast<std::uint64_t>(cursor.at - cursor.begin) - sizeof(header);
  header.records = cursor.records;
  std::memcpy(cursor.begin, &header, sizeof(header));
  // What it did not use is free again if nothing lies behind it.
  const auto begin = static_cast<std::uint64_t>(cursor.begin - page.blob->data());
  if (static_cast<std::uint64_t>(cursor.end - page.blob->data()) == page.used) {
    page.used = begin + sizeof(header) + round_up(header.bytes, kChunkAlign);
  } else {
    // Chunks follow each other, so one without records covers what is left over.
    std::byte* const gap = cursor.begin + sizeof(header) + round_up(header.bytes, kChunkAlign);
    if (gap != cursor.end) {
      ChunkHeader filler;
      filler.bytes = static_cast<std::uint64_t>(cursor.end - gap) - sizeof(filler);
      std::memcpy(gap, &filler, sizeof(filler));
    }
  }
  page.records += cursor.records;
  --page.users;
  std::shared_ptr<Page> ready = page.detached && page.users == 0 ? std::move(cursor.page) : nullptr;
  cursor = {};
  return ready;
}

Status PageWriter::make_room(std::uint32_t number, Cursor& cursor, std::uint64_t need, const Interrupt& interrupt) {
  Partition& partition = partitions_[number];
  std::shared_ptr<Page> full[2];
  {
    const std::lock_guard lock(partition.mutex);
    const std::uint64_t chunk = round_up(std::max(options_.chunk_bytes, need + sizeof(ChunkHeader)), kChunkAlign);
    if (cursor.page) {
      Page& page = *cursor.page;
      const std::uint64_t room = page.blob->bytes() - page.used;
      const auto at_hand = static_cast<std::uint64_t>(cursor.end - cursor.at);
      if (static_cast<std::uint64_t>(cursor.end - page.blob->data()) == page.used && room + at_hand >= need) {
        const std::uint64_t more = std::min(room, std::max(chunk, round_up(need - at_hand, kChunkAlign)));
        page.used += more;
        cursor.end += more;
        return Status::ok();
      }
      full[0] = give_back(cursor);
    }
    std::shared_ptr<Page>& open = partition.open;
    if (open && open->blob->bytes() - open->used < need + sizeof(ChunkHeader)) {
      open->detached = true;
      if (open->users == 0) full[1] = std::move(open);
      open = nullptr;
    }
    if (!open) {
      const std::uint64_t bytes = std::max(options_.page_bytes, round_up(need + kPageOverheadBytes, kChunkAlign));
      auto page = std::make_shared<Page>();
      ASSIGN_OR_RETURN(page->blob, new_blob(bytes, interrupt));
      open = std::move(page);
    }
    const std::uint64_t taken = std::min(chunk, open->blob->bytes() - open->used);
    cursor.begin = open->blob->data() + open->used;
    cursor.at = cursor.begin + sizeof(ChunkHeader);
    cursor.end = cursor.begin + taken;
    cursor.records = 0;
    cursor.page = open;
    open->used += taken;
    ++open->users;
  }
  for (const std::shared_ptr<Page>& page : full) {
    if (page) RETURN_IF_ERROR(seal(number, *page, interrupt));
  }
  return Status::ok();
}

Status PageWriter::seal(std::uint32_t partition, const Page& page, const Interrupt& interrupt) {
  return seal(partition, FilledPage{page.blob, page.used, page.records}, interrupt);
}

Status PageWriter::seal(std::uint32_t partition, const FilledPage& page, const Interrupt& interrupt) {
  if (page.records == 0) return Status::ok();  // and its memory goes back
  PageHeader header;
  header.magic = kPageMagic;
  header.version = kPageVersion;
  header.framing = static_cast<std::uint8_t>(options_.framing);
  header.partition = partition;
  header.record_bytes = options_.record_bytes;
  header.records = page.records;
  header.bytes = page.used;
  header.hash_prefix = page.hash_prefix;
  header.hash_bits = page.hash_bits;
  std::memcpy(page.blob->data(), &header, sizeof(header));

  PutItem item;
  {
    const std::lock_guard lock(mutex_);
    item.id = page_id(options_.prefix, next_page_++);
  }
  item.session = options_.session;
  if (!options_.sets.empty()) item.locality_set = options_.sets[options_.sets.size() == 1 ? 0 : partition];
  item.tree = tree_;
  item.fresh_id = true;
  page.blob->shorten(std::max(page.used, kMinSealedBytes));
  item.buffers = {{page.blob->data(), page.used}};
  const PutResult result = client_->seal_parts(std::span(&page.blob, 1), item, interrupt);
  if (!result.status.is_ok()) return fail(result.status);
  const std::lock_guard lock(mutex_);
  sealed_.push_back({item.id, partition, page.records, page.used, monotonic_ns()});
  return Status::ok();
}

Result<std::vector<SealedPage>> PageWriter::finish(const Interrupt& interrupt) {
  if (is_orphan()) return orphan_error();
  std::vector<std::shared_ptr<Appender>> appenders;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.is_ok()) return failure_;
    if (finished_) return Status(Code::kInvalidArgument, "this writer has finished already: create another one");
    finished_ = true;
    appenders = appenders_;
  }
  for (std::uint32_t number = 0; number < options_.partitions; ++number) {
    std::vector<std::shared_ptr<Page>> last;
    {
      const std::lock_guard lock(partitions_[number].mutex);
      for (const auto& appender : appenders) {
        Cursor& cursor = appender->cursors_[number];
        if (!cursor.page) continue;
        if (std::shared_ptr<Page> full = give_back(cursor)) last.push_back(std::move(full));
      }
      if (partitions_[number].open) last.push_back(std::exchange(partitions_[number].open, nullptr));
    }
    for (const auto& page : last)
      RETURN_IF_ERROR(seal(number, *page, interrupt));
  }
  for (const auto& appender : appenders)
    appender->cursors_.clear();  // later appends are refused
  const std::lock_guard lock(mutex_);
  std::ranges::stable_sort(sealed_, {}, &SealedPage::sealed_ns);
  return std::exchange(sealed_, {});
}

bool PageWriter::is_orphan() const { return client_->forks_.load(std::memory_order_relaxed) != forks_; }

void PageWriter::abandon() {
  if (is_orphan()) return;  // the pages are the parent's, and its threads, which do not exist here, may hold the locks
  std::vector<IdBytes> ids;
  {
    const std::lock_guard lock(mutex_);
    if (failure_.is_ok()) failure_ = Status(Code::kInvalidArgument, "this writer was given up: create another one");
    for (const SealedPage& page : std::exchange(sealed_, {}))
      ids.push_back(page.id);
    for (const auto& appender : std::exchange(appenders_, {}))
      appender->cursors_.clear();
  }
  for (Partition& partition : partitions_) {
    const std::lock_guard lock(partition.mutex);
    partition.open = nullptr;
  }
  // If the store is away, its end of this session, or the shuffle's discard(), deletes them.
  if (!ids.empty()) static_cast<void>(client_->remove(ids, {}).is_ok());
}

Status PageWriter::fail(Status status) {
  const std::lock_guard lock(mutex_);
  if (failure_.is_ok()) failure_ = status;
  return status;
}

Status PageWriter::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Appender::Appender(PageWriter& writer)
    : writer_(writer),
      framing_(writer.options_.framing),
      record_bytes_(writer.options_.record_bytes),
      cursors_(writer.options_.partitions) {}

Status Appender::wrong_length(std::uint64_t length) const {
  return {Code::kInvalidArgument, concat("a record has ", length, " bytes, but all have to have ", record_bytes_)};
}

Status Appender::wrong_partition(std::uint32_t partition) const {
  if (cursors_.empty()) {
    RETURN_IF_ERROR(writer_.failure());
    return {Code::kInvalidArgument, "this writer has finished: nothing can be appended to it any more"};
  }
  return {Code::kInvalidArgument,
          concat("partition ", partition, " does not exist: the partitions are 0 to ", cursors_.size() - 1)};
}

Status Appender::make_room(std::uint32_t partition, std::uint64_t length, std::uint64_t need,
                           const Interrupt& interrupt) {
  if (framing_ == Framing::kCompact && length > kMaxCompactBytes) {
    return {Code::kInvalidArgument, concat("a record of ", length, " bytes is too long: at most ", kMaxCompactBytes,
                                           " are possible; divide it")};
  }
  if (writer_.is_orphan()) return orphan_error();
  RETURN_IF_ERROR(writer_.failure());
  return writer_.make_room(partition, cursors_[partition], need, interrupt);
}

}  // namespace entrepot
