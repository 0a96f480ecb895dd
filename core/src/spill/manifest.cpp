#include "spill/manifest.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "os/files.h"
#include "os/log.h"
#include "os/memfd.h"
#include "spill/manifest_format.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kMinRewriteBytes = 1U << 20;  // a smaller manifest is not worth rewriting
constexpr std::uint64_t kBatchBytes = 1U << 20;

Status write_text_at(os::FileIo& io, int fd, const std::string& text, std::uint64_t offset) {
  // The piece is only read from; the type serves both directions.
  const os::IoPiece piece{reinterpret_cast<std::byte*>(const_cast<char*>(text.data())), text.size()};
  return os::write_fully(io, fd, {&piece, 1}, offset);
}

Result<std::string> read_text_at(os::FileIo& io, int fd, std::uint64_t offset, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  const os::IoPiece piece{reinterpret_cast<std::byte*>(text.data()), bytes};
  RETURN_IF_ERROR(os::read_fully(io, fd, {&piece, 1}, offset));
  return text;
}

}  // namespace

SpillManifest::SpillManifest(os::FileIo& io, std::string path, const InstanceId& instance,
                             std::shared_ptr<SpillCipher> cipher)
    : io_(io), path_(std::move(path)), cipher_(std::move(cipher)), instance_(instance) {}

Status SpillManifest::check_key(const std::optional<SpillKeyId>& written_with) const {
  const std::string folder(os::folder_of(path_));
  const std::string_view give_up = ", or remove the folder, which discards the spilled objects";
  if (!written_with && cipher_ == nullptr) return Status::ok();
  if (!written_with) {
    return {Code::kAccessDenied, concat("the objects that an earlier daemon spilled to ", folder,
                                        " are not encrypted: start without a key and delete them", give_up)};
  }
  if (cipher_ != nullptr && cipher_->key_id() == *written_with) return Status::ok();
  return {Code::kAccessDenied, concat("the objects that an earlier daemon spilled to ", folder,
                                      " are encrypted with key ", to_hex(*written_with),
                                      cipher_ == nullptr ? std::string(", but no key was given")
                                                         : concat(", not ", to_hex(cipher_->key_id())),
                                      ": provide that key with --spill-key-file or --spill-key-command", give_up)};
}

Result<SpillManifest::Replay> SpillManifest::open() {
  Replay replay;
  auto fd = io_.open(path_, os::FileUse::kExisting, false);
  if (!fd.is_ok() && fd.code() == Code::kStoreUnavailable) return replay;  // there is none
  RETURN_IF_ERROR(fd);
  ASSIGN_OR_RETURN(const std::uint64_t bytes, os::file_bytes(fd->get()));
  ASSIGN_OR_RETURN(const std::string text, read_text_at(io_, fd->get(), 0, bytes));
  const auto head = decode_head(text);
  if (!head.is_ok() && head.code() == Code::kVersionMismatch) {
    return head.status().with_context(concat("the manifest ", path_));
  }
  if (head.is_ok()) RETURN_IF_ERROR(check_key(head->key_id));
  if (!head.is_ok()) {
    replay.dropped_bytes = bytes;
    replay.damage = head.status().message();
    replace_ = true;
    return replay;
  }
  replay.exists = true;
  replay.instance = head->instance;
  std::map<Key, RememberedObject> live;
  std::uint64_t at = head_bytes(cipher_ != nullptr);
  while (at < bytes) {
    auto record = decode_record(std::string_view(text).substr(at), head->instance, cipher_.get());
    if (!record.is_ok()) {
      replay.dropped_bytes = bytes - at;
      replay.damage = record.status().message();
      break;
    }
    if (record->object) {
      live[record->key] = std::move(*record->object);
      live_records_[record->key] = {at, record->bytes};
    } else {
      live.erase(record->key);
      live_records_.erase(record->key);
    }
    at += record->bytes;
  }
  for (auto& [key, object] : live) {
    live_bytes_ += live_records_.at(key).bytes;
    replay.objects.push_back(std::move(object));
  }
  // Cut off the rest, so that it cannot be taken for records once others precede it.
  if (at < bytes) RETURN_IF_ERROR(io_.truncate(fd->get(), at));
  size_ = at;
  fd_ = std::move(fd).value();
  attached_ = true;
  return replay;
}

void SpillManifest::begin_new() {
  const std::lock_guard<std::mutex> lock(mutex_);
  replacing_ = true;
  replace_ = true;
}

std::uint64_t SpillManifest::finish_new() {
  const std::lock_guard<std::mutex> lock(mutex_);
  replacing_ = false;
  if (replace_) ++appended_;  // stands for the replacement, also if the new manifest is empty
  return appended_;
}

std::uint64_t SpillManifest::remember(const RememberedObject& object) {
  return add({{object.object.id, object.object.generation}, encode_remember(object), false});
}

std::uint64_t SpillManifest::forget(const IdBytes& id, std::uint32_t generation) {
  return add({{id, generation}, encode_forget(id, generation), true});
}

std::uint64_t SpillManifest::add(Record record) {
  auto sealed = seal_record(std::move(record.bytes), instance_, cipher_.get());
  if (!sealed.is_ok()) {  // the object cannot be recovered if both processes die
    log_error("cannot add an object to the manifest: ", sealed.status().message());
    record.is_forget = true;
  }
  record.bytes = sealed.is_ok() ? sealed.take() : std::string();
  const std::lock_guard<std::mutex> lock(mutex_);
  pending_.push_back(std::move(record));
  return ++appended_;
}

std::uint64_t SpillManifest::appended() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return appended_;
}

std::string SpillManifest::note() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return note_;
}

bool SpillManifest::flush() {
  std::vector<Record> batch;
  std::uint64_t number = 0;
  bool replace = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (replacing_) return true;
    batch = std::exchange(pending_, {});
    number = appended_;
    replace = std::exchange(replace_, false);
  }
  if (replace) {  // nothing in the old file counts
    live_records_.clear();
    live_bytes_ = 0;
  }
  Status done;
  if (attached_ && !replace) {
    done = append(batch);
    if (done.is_ok() && is_mostly_garbage()) done = rewrite();
  } else {
    keep_in_memory(std::move(batch));
    done = unsaved_.empty() && live_records_.empty() ? io_.remove(path_) : rewrite();
  }
  if (done.is_ok() || detach(done)) written_.store(number, std::memory_order_release);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (done.is_ok()) note_.clear();
  return done.is_ok();
}

Status SpillManifest::append(const std::vector<Record>& batch) {
  if (batch.empty()) return Status::ok();
  std::string text;
  std::uint64_t at = size_;
  for (const Record& record : batch) {
    drop_live_record(record.key);
    if (record.is_forget) {
      unsaved_.erase(record.key);
    } else {
      unsaved_[record.key] = record.bytes;  // until it is in the file
    }
    text += record.bytes;
  }
  RETURN_IF_ERROR(write_text_at(io_, fd_.get(), text, size_));
  for (const Record& record : batch) {
    const auto live = unsaved_.find(record.key);
    if (!record.is_forget && live != unsaved_.end()) {
      LiveRecord& live_records = live_records_[record.key];  // of several in one batch, the last one wins
      live_bytes_ += record.bytes.size() - live_records.bytes;
      live_records = {at, record.bytes.size()};
    }
    at += record.bytes.size();
  }
  size_ = at;
  unsaved_.clear();
  return Status::ok();
}

void SpillManifest::keep_in_memory(std::vector<Record> batch) {
  for (Record& record : batch) {
    drop_live_record(record.key);
    if (record.is_forget) {
      unsaved_.erase(record.key);
    } else {
      unsaved_[record.key] = std::move(record.bytes);
    }
  }
}

void SpillManifest::drop_live_record(const Key& key) {
  const auto former = live_records_.find(key);
  if (former == live_records_.end()) return;
  live_bytes_ -= former->second.bytes;
  live_records_.erase(former);
}

bool SpillManifest::is_mostly_garbage() const {
  return size_ > kMinRewriteBytes && live_bytes_ < (size_ - head_bytes(cipher_ != nullptr)) / 2;
}

// Writes the live records to a new file, and syncs it before it is renamed over the old one.
Status SpillManifest::rewrite() {
  const std::string fresh_path = path_ + ".new";
  RETURN_IF_ERROR(io_.remove(fresh_path));
  ASSIGN_OR_RETURN(UniqueFd fresh, io_.open(fresh_path, os::FileUse::kNew, false));
  std::map<Key, LiveRecord> live_records;
  std::uint64_t size = 0;
  Status done = write_live(fresh.get(), live_records, size);
  if (done.is_ok()) done = io_.sync(fresh.get());
  if (done.is_ok()) done = io_.rename(fresh_path, path_);
  if (!done.is_ok()) {
    if (const Status removed = io_.remove(fresh_path); !removed.is_ok()) log_warning(removed.message());
    return done;
  }
  fd_ = std::move(fresh);
  attached_ = true;
  live_records_ = std::move(live_records);
  size_ = size;
  live_bytes_ = size - head_bytes(cipher_ != nullptr);
  unsaved_.clear();
  return Status::ok();
}

Status SpillManifest::write_live(int fd, std::map<Key, LiveRecord>& live_records, std::uint64_t& size) {
  std::string text = encode_head({instance_, cipher_ == nullptr ? std::nullopt : std::optional(cipher_->key_id())});
  std::uint64_t written = 0;
  const auto add = [&](const Key& key, const std::string& record) -> Status {
    live_records[key] = {written + text.size(), record.size()};
    text += record;
    if (text.size() < kBatchBytes) return Status::ok();
    RETURN_IF_ERROR(write_text_at(io_, fd, text, written));
    written += text.size();
    text.clear();
    return Status::ok();
  };
  for (const auto& [key, place] : live_records_) {
    ASSIGN_OR_RETURN(const std::string record, read_text_at(io_, fd_.get(), place.offset, place.bytes));
    RETURN_IF_ERROR(add(key, record));
  }
  for (const auto& [key, record] : unsaved_)
    RETURN_IF_ERROR(add(key, record));
  RETURN_IF_ERROR(write_text_at(io_, fd, text, written));
  size = written + text.size();
  return Status::ok();
}

// Keeps the descriptor: the live records are read from it when there is room for a new file.
bool SpillManifest::detach(const Status& why) {
  attached_ = false;
  const Status removed = io_.remove(path_);
  std::string note = concat(
      "cannot write the manifest, so for now spilled objects do not survive the death of both "
      "keeper and daemon: ",
      why.message());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (note_ != note) log_warning(note, removed.is_ok() ? "" : "; ", removed.message());
  note_ = std::move(note);
  return removed.is_ok();
}

}  // namespace entrepot
