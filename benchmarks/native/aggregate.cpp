// A hash aggregation of string keys in pages of the store, or in a std::unordered_map: the same rows, in a process of its
// own, so that the map's can be given as little memory as the store has. Both end with the result in columns.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>
#include <unordered_map>

#include "base/hash.h"
#include "client/aggregate_merger.h"
#include "client/page_aggregator.h"
#include "os/random.h"
#include "support.h"

namespace bench {

namespace {

using namespace entrepot;

constexpr std::size_t kBatchRows = 8192;
constexpr std::size_t kKeyBytes = 24;

template <class T>
T must(Result<T> result) {
  if (!result.is_ok()) fail(result.status().to_string());
  return std::move(result).value();
}
void must(const Status& status) {
  if (!status.is_ok()) fail(status.to_string());
}

struct Rows {
  std::uint64_t groups = 0;
  std::uint64_t times = 0;  // how often each key comes, on average
};
struct Batch {
  std::vector<std::byte> keys;
  std::vector<std::int32_t> offsets;
  std::vector<std::int64_t> values;
};
struct Sums {
  std::uint64_t groups = 0;
  std::uint64_t count = 0;
  std::int64_t total = 0;
};

// Calls `visit` with batches of rows whose keys are random.
template <class Visit>
void for_each_batch(const Rows& rows, Visit&& visit) {
  Batch batch;
  batch.keys.resize(kBatchRows * kKeyBytes);
  const std::uint64_t all = rows.groups * rows.times;
  for (std::uint64_t first = 0; first < all; first += kBatchRows) {
    const std::uint64_t count = std::min<std::uint64_t>(kBatchRows, all - first);
    batch.offsets.assign(1, 0);
    batch.values.clear();
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t number = mix64(first + i + 1) % rows.groups;
      char key[32];  // of which kKeyBytes are written, and a zero
      std::snprintf(key, sizeof(key), "customer-%015llu", static_cast<unsigned long long>(number));
      std::memcpy(batch.keys.data() + i * kKeyBytes, key, kKeyBytes);
      batch.offsets.push_back(static_cast<std::int32_t>((i + 1) * kKeyBytes));
      batch.values.push_back(static_cast<std::int64_t>(number & 0xff));
    }
    visit(batch);
  }
}

std::uint64_t in_map(const Rows& rows, Sums& sums) {
  struct State {
    std::uint64_t count = 0;
    std::int64_t total = 0;
  };
  std::uint64_t took = 0;
  std::unordered_map<std::string, State> states;
  std::string key;
  for_each_batch(rows, [&](const Batch& batch) {
    const std::uint64_t begin = now_ns();
    for (std::size_t i = 0; i < batch.values.size(); ++i) {
      key.assign(reinterpret_cast<const char*>(batch.keys.data()) + batch.offsets[i],
                 static_cast<std::size_t>(batch.offsets[i + 1] - batch.offsets[i]));
      State& state = states[key];
      ++state.count;
      state.total += batch.values[i];
    }
    took += now_ns() - begin;
  });
  const std::uint64_t begin = now_ns();
  DecodedColumn keys;
  std::vector<std::uint64_t> counts;
  std::vector<std::int64_t> totals;
  for (const auto& [name, state] : states) {
    keys.append(std::as_bytes(std::span(name)), true);
    counts.push_back(state.count);
    totals.push_back(state.total);
  }
  took += now_ns() - begin;
  sums = {counts.size(), 0, 0};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sums.count += counts[i];
    sums.total += totals[i];
  }
  return took;
}

struct Store {
  std::shared_ptr<Client> client;
  std::uint32_t session = 0;
  std::vector<std::uint32_t> sets;
  std::uint32_t partitions = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t budget_bytes = 0;
};

std::uint64_t in_pages(const Store& store, const Rows& rows, Sums& sums) {
  const std::uint8_t kinds[] = {static_cast<std::uint8_t>(AggregateKind::kCount),
                                static_cast<std::uint8_t>(AggregateKind::kSumSigned)};
  const AggregateLayout layout = must(AggregateLayout::create(kinds));
  PageWriterOptions options;
  options.session = store.session;
  options.sets = store.sets;
  options.partitions = store.partitions;
  options.page_bytes = store.page_bytes;
  options.framing = Framing::kAligned;
  const IdBytes random = os::random_id();
  std::copy_n(random.begin(), options.prefix.size(), options.prefix.begin());
  PageAggregator aggregator(must(PageWriter::create(store.client, options)), layout, store.budget_bytes);
  std::uint64_t took = 0;
  for_each_batch(rows, [&](const Batch& batch) {
    const std::uint64_t begin = now_ns();
    KeyColumn column;
    column.data = batch.keys.data();
    column.offsets = batch.offsets.data();
    column.offset_bytes = sizeof(batch.offsets[0]);
    column.rows = batch.values.size();
    RowKeys keys = must(RowKeys::create({column}));
    const ValueColumn values[] = {{}, {reinterpret_cast<const std::byte*>(batch.values.data()), nullptr}};
    must(aggregator.append(keys, values, {}));
    took += now_ns() - begin;
  });
  const std::uint64_t begin = now_ns();
  std::vector<SealedPage> pages = must(aggregator.finish({}));
  std::ranges::stable_sort(pages, {}, &SealedPage::partition);
  sums = {};
  std::uint64_t summing = 0;
  for (std::uint32_t partition = 0; partition < store.partitions; ++partition) {
    AggregateMerger merger({0}, layout);
    for (const SealedPage& page : std::ranges::equal_range(pages, partition, {}, &SealedPage::partition)) {
      const auto objects = must(store.client->get(std::span(&page.id, 1), Wait(60'000), {}));
      must(merger.add({objects[0]->buffers()[0].data, objects[0]->buffers()[0].length}));
    }
    static_cast<void>(must(merger.keys()));
    const AggregateResults counts = must(merger.results(0));
    const AggregateResults totals = must(merger.results(1));
    const std::uint64_t paused = now_ns();
    sums.groups += merger.rows();
    for (std::uint64_t row = 0; row < merger.rows(); ++row) {
      std::uint64_t count = 0;
      std::int64_t total = 0;
      std::memcpy(&count, counts.data.data() + row * 8, 8);
      std::memcpy(&total, totals.data.data() + row * 8, 8);
      sums.count += count;
      sums.total += total;
    }
    summing += now_ns() - paused;
  }
  took += now_ns() - begin - summing;
  std::vector<IdBytes> ids;
  for (const SealedPage& page : pages)
    ids.push_back(page.id);
  must(store.client->remove(ids, {}));
  return took;
}

}  // namespace

int aggregate(const std::vector<std::string>& arguments) {
  // Their numbers have up to 15 digits.
  const Rows rows{to_number(arguments[1].c_str()), to_number(arguments[2].c_str())};
  const std::uint64_t rounds = to_number(arguments[6].c_str());
  Store store;
  if (arguments[0] != "-") {
    ConnectOptions options;
    options.path = arguments[0];
    options.label = "bench";
    options.version = "bench";
    store.client = must(Client::connect(options, {}));
    store.session = must(store.client->open_session("bench", "aggregate", std::nullopt, {}));
    store.partitions = static_cast<std::uint32_t>(to_number(arguments[3].c_str()));
    store.page_bytes = to_number(arguments[4].c_str());
    store.budget_bytes = to_number(arguments[5].c_str());
    SetChange change;
    change.fields = kSetReading | kSetWriting;
    change.attributes.reading = ReadPattern::kOnce;
    change.attributes.writing = WritePattern::kAppend;
    store.sets.push_back(must(store.client->define_set(store.session, "aggregation", 0, change, {})).handle);
  }
  Sums sums;
  std::vector<std::uint64_t> times;
  for (std::uint64_t round = 0; round < rounds; ++round)
    times.push_back(store.client ? in_pages(store, rows, sums) : in_map(rows, sums));
  Line()
      .number("groups", sums.groups)
      .number("count", sums.count)
      .number("total", static_cast<std::uint64_t>(sums.total))
      .samples("took", times)
      .print();
  return 0;
}

}  // namespace bench
