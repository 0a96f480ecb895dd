// A get allocates nothing and makes no system call: each test forbids one of them and still gets its objects.
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <vector>

#include "fakes/fake_memory.h"
#include "shm/record_arena.h"

namespace {
std::atomic<std::uint64_t> g_allocations{0};
}

// Counts the whole program's allocations. Not inlined: the compiler would report a mismatch of malloc and delete.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace entrepot {
namespace {

using testing::numbered_id;
using testing::numbered_instance;

constexpr std::uint64_t kObjects = 500;

struct Store {
  ControlMemory memory = ControlMemory::create(numbered_instance(1), {{RegionKind::kIndex, 4ULL << 14}}).take();
  DirectoryWriter directory{memory};
  IndexWriter index{memory};
  RecordArena arena{memory};
  BlobWriter blobs{memory};
  ControlView view = ControlView::attach(memory.client_fds().take(), numbered_instance(1)).take();
  DirectoryReader reader{view};
  BlobReader blob_reader{view};
  PinTable pins = PinTable::attach(create_pin_table(1024).take()).take();

  Store() {
    EXPECT_TRUE(index.reset().is_ok());
    for (std::uint64_t i = 0; i < kObjects; ++i) {
      const std::uint32_t blob = blobs.allocate().take();
      const std::uint32_t generation = blobs.publish(blob, {1, i * 64, 64, 1});
      const BufferRef buffer{blob, generation, 0, 64};
      const RecordBlob counted{blob, generation};
      std::uint32_t bytes = 0;
      const std::uint64_t offset =
          arena.write({.buffers = {&buffer, 1}, .blobs = {&counted, 1}, .tree = "tree"}, bytes).take();
      const std::uint32_t slot = directory.allocate().take();
      directory.publish_sealed(slot, {.id = numbered_id(i), .record_offset = offset, .record_bytes = bytes});
      EXPECT_TRUE(index.insert(numbered_id(i), slot).is_ok());
    }
  }

  // Every step of a client's get, up to the payload addresses. Returns the number of correct objects.
  std::uint64_t get_all() {
    std::uint64_t right = 0;
    for (std::uint64_t i = 0; i < kObjects; ++i) {
      const std::optional<SlotSnapshot> snapshot = reader.find(numbered_id(i));
      if (!snapshot) continue;
      const std::uint32_t position = pins.pin(snapshot->slot, snapshot->generation());
      if (position == PinTable::kNoPosition) continue;
      if (reader.recheck(*snapshot)) {
        const Result<RecordView> record = read_record(view, reader.slot(snapshot->slot));
        if (record.is_ok()) {
          const BufferRef& buffer = record->buffers()[0];
          const std::optional<BlobLocation> place = blob_reader.resolve(buffer.blob, buffer.generation);
          if (place && place->offset == i * 64) ++right;
        }
      }
      pins.unpin(position);
    }
    return right;
  }
};

TEST(HotPath, AGetAllocatesNothing) {
  Store store;
  const std::uint64_t before = g_allocations.load();
  EXPECT_EQ(store.get_all(), kObjects);
  EXPECT_EQ(g_allocations.load(), before);
  const std::vector<int> something(100);  // check that the counter works
  EXPECT_GT(g_allocations.load(), before);
  EXPECT_EQ(something.size(), 100U);
}

// Exit code of a child that runs `body` with only read, write and exit allowed; -1 if it was killed.
template <class Body>
int run_without_system_calls(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) ::_exit(77);
    const bool right = body();
    ::syscall(SYS_exit, right ? 0 : 1);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(HotPath, AGetMakesNoSystemCall) {
  Store store;
  const int control = run_without_system_calls([] { return ::getppid() != 0; });
  if (control == 77) GTEST_SKIP() << "this machine has no strict seccomp";
  EXPECT_EQ(control, -1);  // a system call kills the child
  EXPECT_EQ(run_without_system_calls([&] { return store.get_all() == kObjects; }), 0);
}

}  // namespace
}  // namespace entrepot
