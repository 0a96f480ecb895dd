// A shuffle, or one file for each writer and partition: the same records from the same threads, in a process of its own,
// so that the files' can be given as little memory as the store has.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <thread>

#include "base/hash.h"
#include "base/text.h"
#include "client/page_writer.h"
#include "os/random.h"
#include "support.h"

namespace bench {

namespace {

using namespace entrepot;

constexpr std::size_t kFileBufferBytes = 64U << 10;
constexpr std::uint32_t kGetAtOnce = 4;  // pages

template <class T>
T must(Result<T> result) {
  if (!result.is_ok()) fail(result.status().to_string());
  return std::move(result).value();
}
void must(const Status& status) {
  if (!status.is_ok()) fail(status.to_string());
}

struct Plan {
  std::uint64_t records = 0;  // of each writer
  std::uint64_t record_bytes = 0;
  std::uint32_t partitions = 0;
  std::uint32_t threads = 0;
};

// The records of one writer: each begins with its number, which also decides its partition.
template <class Append>
void write_records(const Plan& plan, std::uint32_t writer, Append&& append) {
  std::vector<std::byte> record(plan.record_bytes);
  for (std::uint64_t i = 0; i < plan.records; ++i) {
    const std::uint64_t number = i * plan.threads + writer;
    const std::uint64_t hash = mix64(number + 1);
    std::memcpy(record.data(), &number, sizeof(number));
    append(static_cast<std::uint32_t>((hash >> 32) * plan.partitions >> 32), record);
  }
}

std::uint64_t in_threads(std::uint32_t threads, const std::function<void(std::uint32_t)>& work) {
  const std::uint64_t begin = now_ns();
  std::vector<std::thread> all;
  for (std::uint32_t i = 0; i < threads; ++i)
    all.emplace_back(work, i);
  for (std::thread& thread : all)
    thread.join();
  return now_ns() - begin;
}

class Files {
 public:
  Files(const Plan& plan, std::string folder) : plan_(plan), folder_(std::move(folder)) {}

  std::uint64_t write() {
    return in_threads(plan_.threads, [&](std::uint32_t writer) {
      std::vector<FILE*> files;
      std::vector<std::vector<char>> buffers(plan_.partitions, std::vector<char>(kFileBufferBytes));
      for (std::uint32_t i = 0; i < plan_.partitions; ++i) {
        files.push_back(std::fopen(path(writer, i).c_str(), "wb"));
        if (files.back() == nullptr) fail("fopen");
        std::setvbuf(files.back(), buffers[i].data(), _IOFBF, buffers[i].size());
      }
      write_records(plan_, writer, [&](std::uint32_t partition, const std::vector<std::byte>& record) {
        const auto length = static_cast<std::uint32_t>(record.size());
        if (fwrite_unlocked(&length, sizeof(length), 1, files[partition]) != 1 ||
            fwrite_unlocked(record.data(), record.size(), 1, files[partition]) != 1) {
          fail("fwrite");
        }
      });
      for (FILE* const file : files)
        if (std::fclose(file) != 0) fail("fclose");
    });
  }
  std::uint64_t read(std::uint64_t& sum) {
    std::atomic<std::uint32_t> next{0};
    std::atomic<std::uint64_t> total{0};
    const std::uint64_t took = in_threads(plan_.threads, [&](std::uint32_t) {
      std::vector<std::byte> record(plan_.record_bytes);
      std::vector<char> buffer(kFileBufferBytes);
      std::uint64_t mine = 0;
      for (std::uint32_t partition = next++; partition < plan_.partitions; partition = next++) {
        for (std::uint32_t writer = 0; writer < plan_.threads; ++writer) {
          FILE* const file = std::fopen(path(writer, partition).c_str(), "rb");
          if (file == nullptr) fail("fopen");
          std::setvbuf(file, buffer.data(), _IOFBF, buffer.size());
          std::uint32_t length = 0;
          while (fread_unlocked(&length, sizeof(length), 1, file) == 1) {
            if (length > record.size() || fread_unlocked(record.data(), length, 1, file) != 1) fail("fread");
            std::uint64_t number = 0;
            std::memcpy(&number, record.data(), sizeof(number));
            mine += number + length;
          }
          std::fclose(file);
        }
      }
      total += mine;
    });
    sum = total;
    return took;
  }
  void remove() {
    for (std::uint32_t writer = 0; writer < plan_.threads; ++writer)
      for (std::uint32_t i = 0; i < plan_.partitions; ++i)
        std::remove(path(writer, i).c_str());
  }

 private:
  [[nodiscard]] std::string path(std::uint32_t writer, std::uint32_t partition) const {
    return concat(folder_, "/", writer, "-", partition);
  }
  const Plan& plan_;
  std::string folder_;
};

class Shuffled {
 public:
  Shuffled(const Plan& plan, std::shared_ptr<Client> client, std::uint64_t page_bytes)
      : plan_(plan), client_(std::move(client)), page_bytes_(page_bytes) {
    session_ = must(client_->open_session("bench", "shuffle", std::nullopt, {}));
    SetChange change;
    change.fields = kSetReading | kSetWriting;
    change.attributes.reading = ReadPattern::kSequential;
    change.attributes.writing = WritePattern::kAppend;
    for (std::uint32_t i = 0; i < plan.partitions; ++i)
      sets_.push_back(must(client_->define_set(session_, concat("shuffle:", i), 0, change, {})).handle);
  }
  std::uint64_t write() {
    PageWriterOptions options;
    options.session = session_;
    options.sets = sets_;
    options.partitions = plan_.partitions;
    options.page_bytes = page_bytes_;
    const IdBytes random = os::random_id();
    std::copy_n(random.begin(), options.prefix.size(), options.prefix.begin());
    const std::uint64_t begin = now_ns();
    const auto writer = must(PageWriter::create(client_, options));
    in_threads(plan_.threads, [&](std::uint32_t number) {
      const auto appender = writer->appender();
      write_records(plan_, number, [&](std::uint32_t partition, const std::vector<std::byte>& record) {
        must(appender->append(partition, record.data(), record.size(), {}));
      });
    });
    pages_ = must(writer->finish({}));
    std::ranges::stable_sort(pages_, {}, &SealedPage::partition);
    return now_ns() - begin;
  }
  std::uint64_t read(std::uint64_t& sum) {
    std::atomic<std::uint32_t> next{0};
    std::atomic<std::uint64_t> total{0};
    const std::uint64_t took = in_threads(plan_.threads, [&](std::uint32_t) {
      std::uint64_t mine = 0;
      for (std::uint32_t partition = next++; partition < plan_.partitions; partition = next++) {
        auto pages = std::ranges::equal_range(pages_, partition, {}, &SealedPage::partition);
        std::vector<IdBytes> ids;
        for (const SealedPage& page : pages)
          ids.push_back(page.id);
        for (std::size_t at = 0; at < ids.size(); at += kGetAtOnce) {
          const auto part = std::span(ids).subspan(at, std::min<std::size_t>(kGetAtOnce, ids.size() - at));
          for (const auto& object : must(client_->get(part, Wait(60'000), {}))) {
            must(for_each_record({object->buffers()[0].data, object->buffers()[0].length},
                                 [&](std::span<const std::byte> record) {
                                   std::uint64_t number = 0;
                                   std::memcpy(&number, record.data(), sizeof(number));
                                   mine += number + record.size();
                                 }));
          }
        }
      }
      total += mine;
    });
    sum = total;
    return took;
  }
  void remove() {
    std::vector<IdBytes> ids;
    for (const SealedPage& page : pages_)
      ids.push_back(page.id);
    must(client_->remove(ids, {}));
  }

 private:
  const Plan& plan_;
  std::shared_ptr<Client> client_;
  std::uint64_t page_bytes_;
  std::uint32_t session_ = 0;
  std::vector<std::uint32_t> sets_;
  std::vector<SealedPage> pages_;
};

}  // namespace

int shuffle(const std::vector<std::string>& arguments) {
  Plan plan;
  plan.record_bytes = to_number(arguments[3].c_str());
  plan.partitions = static_cast<std::uint32_t>(to_number(arguments[4].c_str()));
  plan.threads = static_cast<std::uint32_t>(to_number(arguments[5].c_str()));
  plan.records = to_number(arguments[2].c_str()) / plan.record_bytes / plan.threads;
  const std::uint64_t page_bytes = to_number(arguments[6].c_str());
  const std::uint64_t rounds = to_number(arguments[7].c_str());
  std::uint64_t sum = 0;
  std::vector<std::uint64_t> write, read;
  const auto measure = [&](auto& system) {
    for (std::uint64_t round = 0; round <= rounds; ++round) {  // the first one warms up
      const std::uint64_t times[] = {system.write(), system.read(sum)};
      system.remove();
      if (round == 0) continue;
      write.push_back(times[0]);
      read.push_back(times[1]);
    }
  };
  if (arguments[0] == "-") {
    Files files(plan, arguments[1]);
    measure(files);
  } else {
    ConnectOptions options;
    options.path = arguments[0];
    options.label = "bench";
    options.version = "bench";
    Shuffled shuffled(plan, must(Client::connect(options, {})), page_bytes);
    measure(shuffled);
  }
  Line().number("sum", sum).samples("write", write).samples("read", read).print();
  return 0;
}

}  // namespace bench
