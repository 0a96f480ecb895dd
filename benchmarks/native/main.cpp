// bench_native: measurements that want no interpreter in the way. Each prints one line of JSON, times in nanoseconds.
#include <cstdio>
#include <string>
#include <vector>

#include "support.h"

namespace {

constexpr const char* kHelp =
    "bench_native copies BYTES REPEATS anonymous|shared|shared-huge PROCESSES\n"
    "    copies into warm pages: memcpy, plain non-temporal stores, the store's own routine\n"
    "bench_native provide BYTES ROUNDS drop|keep\n"
    "    memory made of small and of huge pages, in turn, then written and read through new mappings; keep: all of it\n"
    "bench_native round-trip COUNT CPU_A CPU_B [THINK_NS]\n"
    "    64 bytes over a unix socket pair to another process and back; CPU -1: any; think: pause before each\n"
    "bench_native get SOCKET BATCHES HEXID...\n"
    "    gets from C++ and through the C interface, in batches of 100\n"
    "bench_native put SOCKET BYTES COUNT\n"
    "    puts through the C interface\n"
    "bench_native loop SOCKET get|put COUNT HEXID\n"
    "    gets of one object, or puts of 1 KiB, between two SIGSTOPs to itself; for steps\n"
    "bench_native steps COMMAND...\n"
    "    runs a command and counts the instructions of its first thread between two SIGSTOPs that it sends itself\n"
    "bench_native spill FOLDER BYTES BLOB_BYTES ROUNDS\n"
    "    spilling and reloading beside plain direct I/O of the same bytes, in turns\n"
    "bench_native shuffle SOCKET FOLDER BYTES RECORD_BYTES PARTITIONS THREADS PAGE_BYTES ROUNDS\n"
    "    a shuffle; SOCKET -: one file for each writer and partition instead\n"
    "bench_native aggregate SOCKET GROUPS TIMES PARTITIONS PAGE_BYTES BUDGET_BYTES ROUNDS\n"
    "    a hash aggregation of string keys; SOCKET -: std::unordered_map instead\n"
    "bench_native crowd SOCKET CLIENTS MILLISECONDS BYTES\n"
    "    clients in processes of their own, all at once: each gets for half the time, then puts\n";

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> all(argv + 1, argv + argc);
  if (all.empty()) {
    std::fputs(kHelp, stderr);
    return 2;
  }
  const std::vector<std::string> rest(all.begin() + 1, all.end());
  if (all[0] == "copies" && rest.size() == 4) return bench::copies(rest);
  if (all[0] == "provide" && rest.size() == 3) return bench::provide(rest);
  if (all[0] == "round-trip" && (rest.size() == 3 || rest.size() == 4)) return bench::round_trip(rest);
  if (all[0] == "get" && rest.size() >= 3) return bench::store_get(rest);
  if (all[0] == "put" && rest.size() == 3) return bench::store_put(rest);
  if (all[0] == "loop" && rest.size() == 4) return bench::store_loop(rest);
  if (all[0] == "steps" && !rest.empty()) return bench::steps(rest);
  if (all[0] == "spill" && rest.size() == 4) return bench::spill(rest);
  if (all[0] == "shuffle" && rest.size() == 8) return bench::shuffle(rest);
  if (all[0] == "aggregate" && rest.size() == 7) return bench::aggregate(rest);
  if (all[0] == "crowd" && rest.size() == 4) return bench::crowd(rest);
  std::fputs(kHelp, stderr);
  return 2;
}
