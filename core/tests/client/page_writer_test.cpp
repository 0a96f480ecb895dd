// Pages of records, written by several threads, against a real entrepotd.
#include "client/page_writer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "client/support.h"

namespace entrepot::testing {
namespace {

class PageWriterTest : public ::testing::Test {
 protected:
  PageWriterOptions options(std::uint32_t partitions, Framing framing = Framing::kCompact) const {
    PageWriterOptions made;
    made.session = session;
    made.partitions = partitions;
    made.page_bytes = kMinPageBytes;
    made.chunk_bytes = 4096;
    made.framing = framing;
    const IdBytes random = os::random_id();
    std::copy_n(random.begin(), made.prefix.size(), made.prefix.begin());
    return made;
  }
  std::shared_ptr<PageWriter> writer(PageWriterOptions with) const {
    auto made = PageWriter::create(client, std::move(with));
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    return made.take();
  }
  static void append(Appender& appender, std::uint32_t partition, const std::string& record) {
    const Status done = appender.append(partition, record.data(), record.size(), {});
    ASSERT_TRUE(done.is_ok()) << done.to_string();
  }
  // All records of the pages, by partition, in the order of the pages.
  std::map<std::uint32_t, std::vector<std::string>> records(const std::vector<SealedPage>& pages) const {
    std::map<std::uint32_t, std::vector<std::string>> received;
    for (const SealedPage& page : pages) {
      const auto object = get_one(*client, page.id).take();
      const std::span<const std::byte> bytes(object->buffers()[0].data, object->buffers()[0].length);
      EXPECT_EQ(bytes.size(), page.bytes);
      EXPECT_EQ(open_page(bytes)->header.partition, page.partition);
      std::uint64_t count = 0;
      const Status read = for_each_record(bytes, [&](std::span<const std::byte> record) {
        received[page.partition].emplace_back(reinterpret_cast<const char*>(record.data()), record.size());
        ++count;
      });
      EXPECT_TRUE(read.is_ok()) << read.to_string();
      EXPECT_EQ(count, page.records);
    }
    return received;
  }
  void expect_empty() const {
    EXPECT_TRUE(eventually([&] { return number(*client, "leased_bytes") == 0; })) << number(*client, "leased_bytes");
    EXPECT_EQ(number(*client, "objects"), 0U);
  }

  StoreProcess store;
  std::shared_ptr<Client> client = connect(store);
  std::uint32_t session = client->open_session("scope", "", std::nullopt, {}).take();
};

TEST_F(PageWriterTest, OneThreadsRecordsStayInOrder) {
  const auto made = writer(options(3));
  const auto appender = made->appender();
  std::vector<std::string> expected;
  for (int i = 0; i < 20'000; ++i) {
    expected.push_back(std::string(static_cast<std::size_t>(i % 50), 'x') + std::to_string(i));
    append(*appender, 1, expected.back());
  }
  const auto pages = made->finish({}).take();
  EXPECT_GT(pages.size(), 5U);
  EXPECT_EQ(records(pages)[1], expected);
  const Status late = appender->append(1, "x", 1, {});
  EXPECT_EQ(late.code(), Code::kInvalidArgument) << late.to_string();
}

TEST_F(PageWriterTest, ThreadsFillPartsOfOnePage) {
  for (const Framing framing : {Framing::kFixed, Framing::kCompact, Framing::kAligned}) {
    PageWriterOptions with = options(2, framing);
    if (framing == Framing::kFixed) with.record_bytes = 24;
    const auto made = writer(with);
    constexpr int kThreads = 4;
    constexpr int kRecords = 5'000;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        const auto appender = made->appender();
        for (int i = 0; i < kRecords; ++i) {
          std::string record = std::to_string(thread) + ":" + std::to_string(i);
          record.resize(framing == Framing::kFixed ? 24 : record.size() + static_cast<std::size_t>(i % 30), '.');
          append(*appender, static_cast<std::uint32_t>(i % 2), record);
        }
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    auto received = records(made->finish({}).take());
    std::vector<std::string> all = received[0];
    all.insert(all.end(), received[1].begin(), received[1].end());
    EXPECT_EQ(all.size(), static_cast<std::size_t>(kThreads * kRecords));
    std::ranges::sort(all);
    EXPECT_EQ(std::ranges::unique(all).begin(), all.end()) << "a record is there twice";
  }
}

TEST_F(PageWriterTest, AppendersThatTakeTurnsLeaveGapsThatAreSkipped) {
  const auto made = writer(options(1));
  const auto first = made->appender();
  const auto second = made->appender();
  std::vector<std::string> expected;
  for (int i = 0; i < 300; ++i) {
    // Too long for what is left of a chunk, again and again.
    expected.push_back(std::string(1500, static_cast<char>('a' + i % 26)));
    append(i % 2 == 0 ? *first : *second, 0, expected.back());
  }
  auto received = records(made->finish({}).take())[0];
  std::ranges::sort(received);
  std::ranges::sort(expected);
  EXPECT_EQ(received, expected);
}

TEST_F(PageWriterTest, RecordLargerThanAPageGetsItsOwn) {
  const auto made = writer(options(1));
  const auto appender = made->appender();
  const std::vector<std::string> expected{"before", std::string(5 * kMinPageBytes, 'x'), "after", ""};
  for (const std::string& record : expected)
    append(*appender, 0, record);
  auto received = records(made->finish({}).take())[0];
  auto sorted = expected;
  std::ranges::sort(received);
  std::ranges::sort(sorted);
  EXPECT_EQ(received, sorted);
}

TEST_F(PageWriterTest, WrongArgumentsLeaveTheWriterUsable) {
  PageWriterOptions with = options(2, Framing::kFixed);
  with.record_bytes = 8;
  const auto made = writer(with);
  const auto appender = made->appender();
  EXPECT_EQ(appender->append(2, "12345678", 8, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(appender->append(0, "1234567", 7, {}).code(), Code::kInvalidArgument);
  append(*appender, 0, "12345678");
  EXPECT_EQ(made->finish({})->size(), 1U);
  EXPECT_EQ(made->finish({}).code(), Code::kInvalidArgument);

  for (const auto& change : std::vector<void (*)(PageWriterOptions&)>{
           [](PageWriterOptions& wrong) { wrong.partitions = 0; },
           [](PageWriterOptions& wrong) { wrong.partitions = kMaxPartitions + 1; },
           [](PageWriterOptions& wrong) { wrong.page_bytes = kMinPageBytes - 1; },
           [](PageWriterOptions& wrong) { wrong.chunk_bytes = 100; },
           [](PageWriterOptions& wrong) { wrong.record_bytes = 1; },
           [](PageWriterOptions& wrong) { wrong.sets = {0, 0, 0}; },
       }) {
    PageWriterOptions wrong = options(2);
    change(wrong);
    EXPECT_EQ(PageWriter::create(client, wrong).code(), Code::kInvalidArgument);
  }
}

TEST_F(PageWriterTest, WhatIsGivenUpLeavesNothing) {
  {
    const auto made = writer(options(4));
    const auto appender = made->appender();
    for (int i = 0; i < 40'000; ++i)
      append(*appender, static_cast<std::uint32_t>(i % 4), "a record of some bytes");
    EXPECT_GT(number(*client, "objects"), 0U);
  }
  expect_empty();
}

TEST_F(PageWriterTest, ForkedChildNeitherWritesNorDeletes) {
  const auto made = writer(options(1));
  auto appender = made->appender();
  for (int i = 0; i < 10'000; ++i)
    append(*appender, 0, "a record of some bytes");
  const std::uint64_t before = number(*client, "objects");
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string large(2 * kMinPageBytes, 'x');
    const bool refused = appender->append(0, large.data(), large.size(), {}).code() == Code::kNotSealed &&
                         made->finish({}).code() == Code::kNotSealed;
    made->abandon();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(number(*client, "objects"), before);
  EXPECT_EQ(records(made->finish({}).take())[0].size(), 10'000U);
}

TEST(PageFormatTest, DamagedPagesAreRefused) {
  PageHeader header;
  header.magic = kPageMagic;
  header.version = kPageVersion;
  header.framing = static_cast<std::uint8_t>(Framing::kCompact);
  header.records = 1;
  header.bytes = kPageOverheadBytes + 8;
  ChunkHeader chunk;
  chunk.bytes = 8;
  chunk.records = 1;
  const std::uint32_t length = 4;
  const auto read = [&](const PageHeader& first, const ChunkHeader& second, std::uint32_t of_record) {
    std::vector<std::byte> page(kPageOverheadBytes + 8);
    std::memcpy(page.data(), &first, sizeof(first));
    std::memcpy(page.data() + sizeof(first), &second, sizeof(second));
    std::memcpy(page.data() + kPageOverheadBytes, &of_record, sizeof(of_record));
    return for_each_record(page, [](std::span<const std::byte>) {}).code();
  };
  EXPECT_EQ(read(header, chunk, length), Code::kOk);
  EXPECT_EQ(read(header, chunk, 5), Code::kCorruptData);
  EXPECT_EQ(read(header, chunk, 3), Code::kCorruptData);
  ChunkHeader wrong_chunk = chunk;
  wrong_chunk.bytes = 9;
  EXPECT_EQ(read(header, wrong_chunk, length), Code::kCorruptData);
  wrong_chunk = chunk;
  wrong_chunk.records = 2;
  EXPECT_EQ(read(header, wrong_chunk, length), Code::kCorruptData);
  PageHeader wrong = header;
  wrong.magic = 0;
  EXPECT_EQ(read(wrong, chunk, length), Code::kCorruptData);
  wrong = header;
  wrong.version = 2;
  EXPECT_EQ(read(wrong, chunk, length), Code::kVersionMismatch);
  wrong = header;
  wrong.bytes = header.bytes + 1;
  EXPECT_EQ(read(wrong, chunk, length), Code::kCorruptData);
  wrong = header;
  wrong.framing = 3;
  EXPECT_EQ(read(wrong, chunk, length), Code::kCorruptData);
  wrong = header;
  wrong.framing = static_cast<std::uint8_t>(Framing::kFixed);
  wrong.record_bytes = 3;
  EXPECT_EQ(read(wrong, chunk, length), Code::kCorruptData);
  EXPECT_EQ(for_each_record(std::span<const std::byte>(), [](std::span<const std::byte>) {}).code(),
            Code::kCorruptData);
}

}  // namespace
}  // namespace entrepot::testing
