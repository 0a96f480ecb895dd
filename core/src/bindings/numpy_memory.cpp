// Memory of NumPy arrays from the store, while a block of `store.allocating()` runs anywhere in the process.
//
// NumPy asks the handler of its default allocator for the data of arrays (NEP 49). The handler is chosen by a context
// variable, which new threads do not inherit. Therefore the default handler itself is replaced, once per process, by one
// that asks the store first and else calls the original functions; it stays for good, because arrays remember it.
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <mutex>

#include "bindings/allocating.h"
#include "bindings/gil.h"
#include "client/value_memory.h"

#ifdef Py_LIMITED_API
extern "C" int PyGILState_Check(void);  // every CPython exports it, but the headers of the stable ABI leave it out
#endif

namespace entrepot::bindings {
namespace {

// As in NumPy's ndarraytypes.h since version 1.22; `version` is 1.
struct DataMemoryAllocator {
  void* context;
  void* (*malloc)(void* context, std::size_t bytes);
  void* (*calloc)(void* context, std::size_t count, std::size_t bytes);
  void* (*realloc)(void* context, void* data, std::size_t bytes);
  void (*free)(void* context, void* data, std::size_t bytes);
};
struct DataMemoryHandler {
  char name[127];
  std::uint8_t version;
  DataMemoryAllocator allocator;
};
constexpr std::size_t kDefaultHandlerSlot = 306;  // PyDataMem_DefaultHandler in NumPy's table of functions
constexpr const char* kHandlerCapsule = "mem_handler";

DataMemoryAllocator original;  // set once, before the handler is installed

// A store that has to make the memory first takes seconds for it, and other threads (of a heartbeat, a thread pool, a
// web server) must run meanwhile. NumPy's own functions let them run while they compute, so giving the GIL away once
// more for an array of this size costs nothing that shows.
void* allocate_in_store(std::size_t bytes, bool zeroed) {
  if (bytes < kMinValueBytes || !ValueMemory::instance().is_active()) return nullptr;
  if (PyGILState_Check() == 0) return ValueMemory::instance().allocate(bytes, zeroed);
  const GilReleased released;
  return ValueMemory::instance().allocate(bytes, zeroed);
}

void* allocate(void* /*context*/, std::size_t bytes) {
  if (void* const data = allocate_in_store(bytes, false)) return data;
  return original.malloc(original.context, bytes);
}

void* allocate_zeroed(void* /*context*/, std::size_t count, std::size_t bytes) {
  std::size_t total = 0;
  if (!__builtin_mul_overflow(count, bytes, &total)) {
    if (void* const data = allocate_in_store(total, true)) return data;
  }
  return original.calloc(original.context, count, bytes);
}

void release(void* /*context*/, void* data, std::size_t bytes) {
  if (!ValueMemory::instance().free(data)) original.free(original.context, data, bytes);
}

void* reallocate(void* /*context*/, void* data, std::size_t bytes) {
  ValueMemory& memory = ValueMemory::instance();
  const auto before = memory.bytes_at(data);
  if (!before) return original.realloc(original.context, data, bytes);
  if (memory.resize(data, bytes)) return data;
  // Keeps the GIL, where there is one: no other thread may write to the array between the copy and NumPy's use of its
  // new place. Without one, resizing an array that another thread writes to is as wrong as it is in NumPy itself.
  void* moved = memory.allocate(bytes, false);
  if (moved == nullptr) moved = original.malloc(original.context, bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, data, std::min<std::size_t>(*before, bytes));
  static_cast<void>(memory.free(data));
  return moved;
}

DataMemoryHandler handler = {"entrepot", 1, {nullptr, &allocate, &allocate_zeroed, &reallocate, &release}};

}  // namespace

bool install_numpy_handler(nb::handle array_api) {
  static std::mutex mutex;
  static bool installed = false;  // guarded by mutex
  const std::lock_guard lock(mutex);
  if (installed) return true;
  auto* const functions = static_cast<void**>(PyCapsule_GetPointer(array_api.ptr(), nullptr));
  if (functions == nullptr) throw nb::python_error();
  auto* const capsule = *static_cast<PyObject**>(functions[kDefaultHandlerSlot]);
  if (capsule == nullptr || PyCapsule_IsValid(capsule, kHandlerCapsule) == 0) return false;
  auto* const before = static_cast<DataMemoryHandler*>(PyCapsule_GetPointer(capsule, kHandlerCapsule));
  if (before->version != 1) return false;
  original = before->allocator;
  if (PyCapsule_SetPointer(capsule, &handler) != 0) throw nb::python_error();
  installed = true;
  return true;
}

}  // namespace entrepot::bindings
