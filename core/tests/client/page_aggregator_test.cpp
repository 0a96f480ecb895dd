// Hash aggregation in pages: results are those of a std::map, whether pages are split or spilled; against a real
// entrepotd. Damaged pages are refused.
#include "client/page_aggregator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "client/aggregate_merger.h"
#include "client/support.h"

namespace entrepot::testing {
namespace {

using Groups = std::map<std::string, std::pair<std::uint64_t, std::int64_t>>;

class PageAggregatorTest : public ::testing::Test {
 protected:
  std::unique_ptr<PageAggregator> aggregator(std::uint64_t budget) {
    PageWriterOptions options;
    options.session = client->open_session("scope", "", std::nullopt, {}).take();
    options.partitions = kPartitions;
    options.page_bytes = kMinPageBytes;
    options.framing = Framing::kAligned;
    const IdBytes random = os::random_id();
    std::copy_n(random.begin(), options.prefix.size(), options.prefix.begin());
    return std::make_unique<PageAggregator>(PageWriter::create(client, options).take(), layout, budget);
  }
  static void append(PageAggregator& to, const std::vector<std::string>& keys, Groups& expected) {
    std::vector<std::byte> data;
    std::vector<std::int64_t> offsets = {0}, values;
    for (const std::string& key : keys) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(key.data());
      data.insert(data.end(), bytes, bytes + key.size());
      offsets.push_back(static_cast<std::int64_t>(data.size()));
      values.push_back(static_cast<std::int64_t>(key.size()) - 3);
      ++expected[key].first;
      expected[key].second += values.back();
    }
    KeyColumn column;
    column.data = data.data();
    column.offsets = offsets.data();
    column.offset_bytes = 8;
    column.rows = keys.size();
    RowKeys rows = RowKeys::create({column}).take();
    const ValueColumn columns[] = {{}, {reinterpret_cast<const std::byte*>(values.data()), nullptr}};
    const Status done = to.append(rows, columns, {});
    ASSERT_TRUE(done.is_ok()) << done.to_string();
  }
  Groups merged(const std::vector<SealedPage>& pages) {
    Groups groups;
    for (std::uint32_t partition = 0; partition < kPartitions; ++partition) {
      AggregateMerger merger({0}, layout);
      for (const SealedPage& page : pages) {
        if (page.partition != partition) continue;
        const auto object = get_one(*client, page.id).take();
        const Status added = merger.add({object->buffers()[0].data, object->buffers()[0].length});
        EXPECT_TRUE(added.is_ok()) << added.to_string();
      }
      const auto keys = merger.keys().take();
      const auto counts = merger.results(0).take(), sums = merger.results(1).take();
      for (std::uint64_t row = 0; row < merger.rows(); ++row) {
        std::pair<std::uint64_t, std::int64_t> state;
        std::memcpy(&state.first, counts.data.data() + row * 8, 8);
        std::memcpy(&state.second, sums.data.data() + row * 8, 8);
        const auto begin = static_cast<std::size_t>(keys[0].offsets[row]);
        const auto end = static_cast<std::size_t>(keys[0].offsets[row + 1]);
        EXPECT_TRUE(groups.emplace(keys[0].data.substr(begin, end - begin), state).second) << "a key is in two rows";
      }
    }
    return groups;
  }
  static std::vector<std::string> random_keys(std::uint32_t seed) {
    std::vector<std::string> keys;
    std::uint64_t state = seed;
    for (int i = 0; i < 5000; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      keys.push_back((state >> 40) % 10 == 0 ? "heavy"
                                             : std::string((state >> 33) % 40, 'k') + std::to_string(i % 3000));
    }
    keys.emplace_back();
    keys.emplace_back(200'000, 'x');  // longer than a page
    return keys;
  }

  static constexpr std::uint32_t kPartitions = 3;
  StoreProcess store;
  std::shared_ptr<Client> client = connect(store);
  AggregateLayout layout =
      AggregateLayout::create(std::vector<std::uint8_t>{static_cast<std::uint8_t>(AggregateKind::kCount),
                                                        static_cast<std::uint8_t>(AggregateKind::kSumSigned)})
          .take();
};

TEST_F(PageAggregatorTest, ResultsAreThoseOfAMap) {
  for (const std::uint64_t budget : {std::uint64_t{0}, std::uint64_t{64} << 20}) {
    const auto made = aggregator(budget);
    Groups expected;
    for (std::uint32_t seed = 0; seed < 8; ++seed)
      append(*made, random_keys(seed), expected);
    EXPECT_EQ(made->spilled_pages() != 0, budget == 0);
    const auto pages = made->finish({});
    ASSERT_TRUE(pages.is_ok()) << pages.status().to_string();
    EXPECT_EQ(merged(*pages), expected);
  }
}

TEST_F(PageAggregatorTest, AbandonLeavesNothing) {
  Groups expected;
  const auto made = aggregator(0);
  append(*made, random_keys(1), expected);
  append(*made, random_keys(2), expected);
  made->abandon();
  EXPECT_EQ(number(*client, "objects"), 0U);
  EXPECT_TRUE(eventually([&] { return number(*client, "leased_bytes") == 0; })) << number(*client, "leased_bytes");
}

TEST_F(PageAggregatorTest, DamagedPagesAreRefused) {
  Groups expected;
  const auto made = aggregator(64U << 20);
  append(*made, {"a", "b", "c"}, expected);
  const auto pages = made->finish({}).take();
  const auto object = get_one(*client, pages[0].id).take();
  const std::vector<std::byte> page(object->buffers()[0].data, object->buffers()[0].data + object->buffers()[0].length);
  for (std::size_t at = 0; at < page.size(); ++at) {
    std::vector<std::byte> damaged = page;
    damaged[at] ^= std::byte{0xff};
    AggregateMerger merger({8, 0}, layout);  // another key than it has, too
    EXPECT_FALSE(merger.add(damaged).is_ok() && merger.keys().is_ok()) << at;
  }
}

}  // namespace
}  // namespace entrepot::testing
