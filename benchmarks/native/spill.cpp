// Spilling and reloading beside plain direct I/O of the same bytes, in turns, to the same folder.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "base/crc32c.h"
#include "base/text.h"
#include "os/direct_io.h"
#include "os/events.h"
#include "os/files.h"
#include "os/memfd.h"
#include "spill/spill_files.h"
#include "support.h"

namespace bench {

namespace {

using namespace entrepot;

constexpr std::uint64_t kPlainPiece = 4U << 20;
constexpr std::uint64_t kNotice = 1ULL << 32;  // tickets of reads begin here

template <class T>
T must(Result<T> result) {
  if (!result.is_ok()) fail(result.status().to_string());
  return std::move(result).value();
}
void must(const Status& status) {
  if (!status.is_ok()) fail(status.to_string());
}

struct Segment {
  UniqueFd fd;
  os::Mapping memory;
};

Segment make_segment(std::uint64_t bytes) {
  Segment segment{must(os::create_memfd("bench-spill", bytes)), {}};
  segment.memory = must(os::Mapping::map(segment.fd.get(), 0, bytes, os::Access::kReadWrite, os::kHugePageBytes));
  if (!must(os::collapse(segment.memory.data(), bytes))) must(os::populate_write(segment.memory.data(), bytes));
  std::uint64_t state = 1;
  for (std::uint64_t at = 0; at < bytes; at += 8) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(segment.memory.data() + at, &state, 8);
  }
  return segment;
}

// What dd with several processes would do: pieces of 4 MiB, one after the other, from `threads` threads.
std::uint64_t plain(int fd, const Segment& segment, std::uint64_t bytes, std::uint32_t threads, bool write) {
  os::FileIo& io = os::system_file_io();
  std::atomic<std::uint64_t> next{0};
  const std::uint64_t begin = now_ns();
  std::vector<std::thread> all;
  for (std::uint32_t i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      while (true) {
        const std::uint64_t at = next.fetch_add(kPlainPiece);
        if (at >= bytes) return;
        const os::IoPiece piece{segment.memory.data() + at, std::min(kPlainPiece, bytes - at)};
        must(write ? os::write_fully(io, fd, {&piece, 1}, at) : os::read_fully(io, fd, {&piece, 1}, at));
      }
    });
  }
  for (std::thread& thread : all)
    thread.join();
  return now_ns() - begin;
}

class Spiller {
 public:
  Spiller(const std::string& folder, std::uint64_t bytes, std::uint64_t blob_bytes, const Segment& segment)
      : blob_bytes_(blob_bytes), event_(must(os::create_event_fd())) {
    SpillOptions options;
    options.folders = {folder};
    options.socket_path = "/bench-spill";
    options.limits = {4 * bytes, 0};
    const int fd = segment.fd.get();
    files_ = must(SpillFiles::open(
        os::system_file_io(), options, [fd](std::uint32_t, std::uint32_t) { return os::duplicate(fd); }, event_.get()));
    files_->adopt_end();
    copies_.resize(bytes / blob_bytes);
  }
  ~Spiller() { files_->discard_all(); }
  Spiller(const Spiller&) = delete;
  Spiller& operator=(const Spiller&) = delete;

  std::uint64_t write() {
    const std::uint64_t begin = now_ns();
    for (std::uint32_t i = 0; i < copies_.size(); ++i)
      must(files_->write(i, {i, 1}, place(i)));
    wait();
    return now_ns() - begin;
  }
  std::uint64_t read() {
    const std::uint64_t begin = now_ns();
    for (std::uint32_t i = 0; i < copies_.size(); ++i)
      must(files_->read(kNotice + i, {i, 1}, copies_[i], place(i)));
    wait();
    return now_ns() - begin;
  }
  void release() {
    for (std::uint32_t i = 0; i < copies_.size(); ++i)
      files_->release({i, 1}, copies_[i], blob_bytes_);
  }

 private:
  [[nodiscard]] BlobLocation place(std::uint64_t i) const { return {0, i * blob_bytes_, blob_bytes_, 1}; }
  void wait() {
    for (std::size_t done = 0; done < copies_.size();) {
      (void)must(os::wait_readable(event_.get(), os::Deadline::after_ms(60'000)));
      os::clear_event(event_.get());
      for (const SpillCompletion& completion : files_->take_completions()) {
        must(completion.status);
        if (!completion.is_read) copies_[completion.ticket] = completion.location;
        ++done;
      }
    }
  }

  std::uint64_t blob_bytes_;
  UniqueFd event_;
  std::unique_ptr<SpillFiles> files_;
  std::vector<SpillLocation> copies_;
};

}  // namespace

int spill(const std::vector<std::string>& arguments) {
  const std::string& folder = arguments[0];
  const std::uint64_t blob_bytes = to_number(arguments[2].c_str());
  const std::uint64_t bytes = to_number(arguments[1].c_str()) / blob_bytes * blob_bytes;
  const std::uint64_t rounds = to_number(arguments[3].c_str());
  const std::uint32_t threads = SpillOptions{}.threads;  // as many for the plain copy
  const Segment segment = make_segment((bytes + os::kHugePageBytes - 1) / os::kHugePageBytes * os::kHugePageBytes);
  os::FileIo& io = os::system_file_io();
  must(os::ensure_private_subfolder(folder));
  const std::string path = folder + "/plain";
  must(io.remove(path));
  const UniqueFd file = must(io.open(path, os::FileUse::kNew, true));
  must(io.preallocate(file.get(), bytes));

  std::vector<std::uint64_t> crc, plain_write, plain_read, one_write, one_read, spill_write, spill_read;
  {
    Spiller spiller(folder, bytes, blob_bytes, segment);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      // By turns first: what a disk took last is not like what it took before.
      if (round % 2 == 0) spill_write.push_back(spiller.write());
      plain_write.push_back(plain(file.get(), segment, bytes, threads, true));
      if (round % 2 == 1) spill_write.push_back(spiller.write());
      one_write.push_back(plain(file.get(), segment, bytes, 1, true));
      spill_read.push_back(spiller.read());
      plain_read.push_back(plain(file.get(), segment, bytes, threads, false));
      one_read.push_back(plain(file.get(), segment, bytes, 1, false));
      spiller.release();
      const std::uint64_t begin = now_ns();
      const std::uint32_t sum = crc32c(segment.memory.data(), bytes);
      crc.push_back(now_ns() - begin + (sum == 0 ? 1 : 0));
    }
  }
  must(io.remove(path));
  Line()
      .number("bytes", bytes)
      .number("blob_bytes", blob_bytes)
      .number("threads", threads)
      .samples("spill_write", spill_write)
      .samples("plain_write", plain_write)
      .samples("plain_write_one_thread", one_write)
      .samples("spill_read", spill_read)
      .samples("plain_read", plain_read)
      .samples("plain_read_one_thread", one_read)
      .samples("crc32c", crc)
      .print();
  return 0;
}

}  // namespace bench
