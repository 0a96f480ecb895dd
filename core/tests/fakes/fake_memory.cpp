#include "fakes/fake_memory.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/hash.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define ENTREPOT_POISON(address, bytes) ASAN_POISON_MEMORY_REGION(address, bytes)
#define ENTREPOT_UNPOISON(address, bytes) ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#else
#define ENTREPOT_POISON(address, bytes) static_cast<void>(0)
#define ENTREPOT_UNPOISON(address, bytes) static_cast<void>(0)
#endif

namespace entrepot::testing {

namespace {

void require(const Status& status) {
  if (status.is_ok()) return;
  std::fprintf(stderr, "the fake store cannot be set up: %s\n", status.to_string().c_str());
  std::abort();
}

template <class T>
T require(Result<T> result) {
  require(result.status());
  return result.take();
}

}  // namespace

IdBytes numbered_id(std::uint64_t number) {
  IdBytes id{};
  const std::uint64_t mixed = mix64(number + 1);
  std::memcpy(id.data(), &mixed, sizeof(mixed));
  std::memcpy(id.data() + 12, &number, sizeof(number));
  return id;
}

InstanceId numbered_instance(std::uint8_t number) {
  InstanceId id{};
  id.fill(number);
  return id;
}

FakeStore::FakeStore(const std::map<RegionKind, std::uint64_t>& capacities)
    : memory(require(ControlMemory::create_private(numbered_instance(1), capacities))),
      view(require(ControlView::from_memory(memory))),
      directory(memory),
      index(memory),
      reader(view) {
  require(index.reset());
}

std::uint32_t FakeStore::seal(const IdBytes& id) {
  const std::uint32_t slot = require(directory.allocate());
  directory.publish_sealed(slot, {.id = id});
  require(index.insert(id, slot));
  return slot;
}

std::uint32_t FakeStore::replace(const IdBytes& id, std::uint32_t old_slot) {
  const std::uint32_t slot = require(directory.allocate());
  directory.publish_sealed(slot, {.id = id});
  EXPECT_TRUE(index.replace(id, old_slot, slot));
  directory.mark_deleting(old_slot);
  return slot;
}

void FakeStore::unlink(const IdBytes& id, std::uint32_t slot) {
  directory.mark_deleting(slot);
  EXPECT_TRUE(index.remove(id, slot));
}

FakeSegment::FakeSegment(std::uint64_t bytes) : memory_(require(os::Mapping::anonymous(bytes))), extents_(bytes) {
  ENTREPOT_POISON(memory_.data(), bytes);
}

FakeSegment::~FakeSegment() { ENTREPOT_UNPOISON(memory_.data(), memory_.bytes()); }

std::optional<std::uint64_t> FakeSegment::allocate(std::uint64_t bytes, std::uint64_t align) {
  const std::optional<std::uint64_t> offset = extents_.allocate(bytes, align);
  if (offset) ENTREPOT_UNPOISON(at(*offset), bytes);
  return offset;
}

Status FakeSegment::free(std::uint64_t offset, std::uint64_t bytes) {
  RETURN_IF_ERROR(extents_.free(offset, bytes));
  ENTREPOT_POISON(at(offset), bytes);
  return Status::ok();
}

}  // namespace entrepot::testing
