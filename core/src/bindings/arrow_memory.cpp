// Memory of Arrow arrays from the store, while a block of `store.allocating()` runs anywhere in the process.
//
// pyarrow can be given another arrow::MemoryPool, as a C++ object. Its header and library are not used here: they would
// tie this extension to one release of pyarrow. Instead, the class below declares the same virtual functions in the same
// order, which are equal in the releases that the caller allows (tests/core/test_allocating.py runs with them; see
// decision 35). The pool that was there before serves what the store does not.
#include <Python.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>

#include "bindings/allocating.h"
#include "client/value_memory.h"

namespace entrepot::bindings {

// Not in an anonymous namespace: the compiler would conclude that StorePool is the only pool there is.
namespace arrow_interface {

// arrow::Status: one pointer, null if there is no error.
class ArrowStatus {
 public:
  ArrowStatus() = default;
  ArrowStatus(ArrowStatus&& other) noexcept : state_(other.state_) { other.state_ = nullptr; }
  // NOLINTNEXTLINE: an error is only ever passed on from the pool that made it, and never destroyed here.
  ~ArrowStatus() {}

 private:
  void* state_ = nullptr;
};

// arrow::MemoryPool, since pyarrow 20.
class ArrowPool {
 public:
  virtual ~ArrowPool() = default;
  virtual ArrowStatus Allocate(std::int64_t bytes, std::int64_t alignment, std::uint8_t** out) = 0;
  virtual ArrowStatus Reallocate(std::int64_t before, std::int64_t bytes, std::int64_t alignment,
                                 std::uint8_t** data) = 0;
  virtual void Free(std::uint8_t* data, std::int64_t bytes, std::int64_t alignment) = 0;
  virtual void ReleaseUnused() = 0;
  virtual void PrintStats() = 0;
  [[nodiscard]] virtual std::int64_t bytes_allocated() const = 0;
  [[nodiscard]] virtual std::int64_t max_memory() const = 0;
  [[nodiscard]] virtual std::int64_t total_bytes_allocated() const = 0;
  [[nodiscard]] virtual std::int64_t num_allocations() const = 0;
  [[nodiscard]] virtual std::string backend_name() const = 0;
};

}  // namespace arrow_interface

namespace {

using arrow_interface::ArrowPool;
using arrow_interface::ArrowStatus;

// Functions for text first make a buffer for the most that there could be, four bytes for each character, write to a
// part of it, and cut it down. In ordinary memory, what is not written to costs nothing; the store's is there from the
// start. So what is as large as a buffer that was cut to less than half is made in ordinary memory, and moved when it is
// cut.
class UpperBounds {
 public:
  void add(std::int64_t bytes) {
    if (!contains(bytes)) sizes_.at(next_.fetch_add(1, std::memory_order_relaxed) % kSizes).store(bytes);
  }
  // It was kept as it is.
  void remove(std::int64_t bytes) {
    if (!contains(bytes)) return;
    for (auto& size : sizes_) {
      if (is_near(bytes, size.load(std::memory_order_relaxed))) size.store(0);
    }
  }
  [[nodiscard]] bool contains(std::int64_t bytes) const {
    if (bytes < static_cast<std::int64_t>(kMinValueBytes)) return false;
    for (const auto& size : sizes_) {
      if (is_near(bytes, size.load(std::memory_order_relaxed))) return true;
    }
    return false;
  }

 private:
  static constexpr std::size_t kSizes = 8;  // those that were added last
  static constexpr std::int64_t kNearness = 8;
  static bool is_near(std::int64_t bytes, std::int64_t size) {
    return size != 0 && bytes >= size - size / kNearness && bytes <= size + size / kNearness;
  }

  std::array<std::atomic<std::int64_t>, kSizes> sizes_{};  // 0: none
  std::atomic<std::size_t> next_ = 0;
};

class StorePool final : public ArrowPool {
 public:
  explicit StorePool(ArrowPool* before) : before_(before) {}

  ArrowStatus Allocate(std::int64_t bytes, std::int64_t alignment, std::uint8_t** out) override {
    std::byte* const data = upper_bounds_.contains(bytes) ? nullptr : allocate(bytes, alignment);
    if (data != nullptr) {
      *out = reinterpret_cast<std::uint8_t*>(data);
      return {};
    }
    return before_->Allocate(bytes, alignment, out);
  }

  ArrowStatus Reallocate(std::int64_t before, std::int64_t bytes, std::int64_t alignment,
                         std::uint8_t** data) override {
    ValueMemory& memory = ValueMemory::instance();
    if (!memory.bytes_at(*data)) {
      // A buffer that grows gets into the store when it is large enough, one that was too large when it is cut.
      const bool moves = bytes > before || is_cut(before, bytes);
      std::byte* const moved = moves ? allocate(bytes, alignment) : nullptr;
      if (moved == nullptr) return before_->Reallocate(before, bytes, alignment, data);
      if (before > 0) std::memcpy(moved, *data, static_cast<std::size_t>(std::min(before, bytes)));
      before_->Free(*data, before, alignment);
      *data = reinterpret_cast<std::uint8_t*>(moved);
      return {};
    }
    if (memory.resize(*data, static_cast<std::uint64_t>(bytes))) {
      bytes_.fetch_add(bytes - before, std::memory_order_relaxed);
      return {};
    }
    if (is_cut(before, bytes)) upper_bounds_.add(before);
    std::uint8_t* moved = nullptr;
    if (std::byte* const mine = allocate(bytes, alignment)) {
      moved = reinterpret_cast<std::uint8_t*>(mine);
    } else {
      ArrowStatus failed = before_->Allocate(bytes, alignment, &moved);
      if (moved == nullptr) return failed;
    }
    std::memcpy(moved, *data, static_cast<std::size_t>(std::min(before, bytes)));
    Free(*data, before, alignment);
    *data = moved;
    return {};
  }

  void Free(std::uint8_t* data, std::int64_t bytes, std::int64_t alignment) override {
    if (!ValueMemory::instance().free(data)) {
      upper_bounds_.remove(bytes);
      return before_->Free(data, bytes, alignment);
    }
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }

  void ReleaseUnused() override { before_->ReleaseUnused(); }
  void PrintStats() override { before_->PrintStats(); }
  [[nodiscard]] std::int64_t bytes_allocated() const override {
    return before_->bytes_allocated() + bytes_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::int64_t max_memory() const override { return before_->max_memory(); }
  [[nodiscard]] std::int64_t total_bytes_allocated() const override {
    return before_->total_bytes_allocated() + total_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::int64_t num_allocations() const override {
    return before_->num_allocations() + count_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::string backend_name() const override { return "entrepot, " + before_->backend_name(); }

 private:
  std::byte* allocate(std::int64_t bytes, std::int64_t alignment) {
    if (bytes < static_cast<std::int64_t>(kMinValueBytes) || alignment > kPageAlignment) return nullptr;
    std::byte* const data = ValueMemory::instance().allocate(static_cast<std::uint64_t>(bytes), false);
    if (data == nullptr) return nullptr;
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    total_.fetch_add(bytes, std::memory_order_relaxed);
    count_.fetch_add(1, std::memory_order_relaxed);
    return data;
  }

  static bool is_cut(std::int64_t before, std::int64_t bytes) { return bytes < before / 2; }

  static constexpr std::int64_t kPageAlignment = 4096;

  ArrowPool* const before_;
  UpperBounds upper_bounds_;
  std::atomic<std::int64_t> bytes_ = 0;
  std::atomic<std::int64_t> total_ = 0;
  std::atomic<std::int64_t> count_ = 0;
};

template <class Function>
Function function_of(nb::handle api, const char* name) {
  PyObject* const capsule = PyDict_GetItemString(api.ptr(), name);
  if (capsule == nullptr) return nullptr;
  void* const pointer = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
  if (pointer == nullptr) throw nb::python_error();
  return reinterpret_cast<Function>(pointer);
}

}  // namespace

nb::object arrow_pool(nb::handle arrow_api, nb::handle pool_before) {
  auto* const unbox = function_of<ArrowPool* (*)(PyObject*)>(arrow_api, "maybe_unbox_memory_pool");
  auto* const box = function_of<PyObject* (*)(ArrowPool*)>(arrow_api, "box_memory_pool");
  if (unbox == nullptr || box == nullptr) return nb::none();
  ArrowPool* const before = unbox(pool_before.ptr());
  if (before == nullptr) return nb::none();
  auto* const pool = new StorePool(before);  // never destroyed: buffers refer to it until the process ends
  return nb::steal(box(pool));
}

}  // namespace entrepot::bindings
