// Shared by the parts of the C API: its handles, errors and items.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/text.h"
#include "client/object_builder.h"
#include "client/reconnecting_client.h"
#include "entrepot/entrepot.h"

namespace entrepot::c_api {

using Attachment = ReconnectingClient::Attachment;

// The C API's 32-bit numbers of sessions and sets: the store's own numbers, as long as they are unique.
class Numbers {
 public:
  std::uint32_t of(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    auto number = static_cast<std::uint32_t>(handle);
    for (auto handle_entry = handles_.find(number); handle_entry != handles_.end() && handle_entry->second != handle;
         handle_entry = handles_.find(number))
      --number;  // taken by a store that is gone
    handles_[number] = handle;
    return number;
  }
  std::uint64_t handle(std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    const auto handle_entry = handles_.find(number);
    return handle_entry == handles_.end() ? number : handle_entry->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::uint64_t> handles_;  // guarded by mutex_
};

struct Access {
  std::shared_ptr<ReconnectingClient> reconnecting_client;
  Numbers sessions;
  Numbers sets;
};

inline int32_t report(const Status& status, entrepot_error* error) {
  if (error != nullptr && error->struct_size >= sizeof(entrepot_error)) {
    error->code = static_cast<int32_t>(status.code());
    error->retryable = status.retryable() ? 1 : 0;
    const std::size_t length = std::min(status.message().size(), sizeof(error->message) - 1);
    std::memcpy(error->message, status.message().data(), length);
    error->message[length] = '\0';
  }
  return static_cast<int32_t>(status.code());
}

// Runs `work`, which returns a Status; converts exceptions (memory, threads) to a Status.
template <class Work>
int32_t guarded(entrepot_error* error, Work&& work) noexcept {
  try {
    return report(work(), error);
  } catch (const std::bad_alloc&) {
    return report(Status(Code::kStoreFull, "this process is out of memory"), error);
  } catch (const std::exception& problem) {
    return report(Status(Code::kInternal, problem.what()), error);
  }
}

inline Status missing(const char* what) {
  return {Code::kInvalidArgument, concat(what, " is NULL or smaller than its struct")};
}

inline IdBytes id_of(const uint8_t* bytes) {
  IdBytes id{};
  std::copy_n(bytes, id.size(), id.begin());
  return id;
}

inline Status convert(Access& access, const entrepot_item* item, PutItem& out) {
  constexpr std::size_t kFirstVersion = offsetof(entrepot_item, locality_set);
  if (item == nullptr || item->struct_size < kFirstVersion) return missing("the item");
  if ((item->tree == nullptr && item->tree_length != 0) || (item->buffers == nullptr && item->buffer_count != 0)) {
    return missing("the item's tree or buffers");
  }
  out.id = id_of(item->id);
  out.session_handle = access.sessions.handle(item->session);
  out.replace = item->replace != 0;
  if (item->struct_size >= sizeof(entrepot_item)) {
    out.set_handle = access.sets.handle(item->locality_set);
    out.consumers = item->consumers;
  }
  if (item->name != nullptr) out.name = item->name;
  if (item->tree_length != 0) out.tree.assign(static_cast<const char*>(item->tree), item->tree_length);
  for (uint64_t i = 0; i < item->buffer_count; ++i)
    out.buffers.push_back({item->buffers[i].data, item->buffers[i].length});
  return Status::ok();
}

inline Status finish(const PutResult& result, uint32_t* generation) {
  if (result.status.is_ok() && generation != nullptr) *generation = result.generation;
  return result.status;
}

}  // namespace entrepot::c_api

struct entrepot_client {
  std::shared_ptr<entrepot::c_api::Access> access = std::make_shared<entrepot::c_api::Access>();
  int (*interrupt)(void*) = nullptr;
  void* interrupt_context = nullptr;

  [[nodiscard]] entrepot::Interrupt interrupt_check() {
    if (interrupt == nullptr) return {};
    return {[](void* self) {
              auto* owner = static_cast<entrepot_client*>(self);
              return owner->interrupt(owner->interrupt_context) != 0;
            },
            this};
  }
};

struct entrepot_object {
  std::shared_ptr<entrepot::SealedObject> object;
};

struct entrepot_blob {
  std::shared_ptr<entrepot::c_api::Access> access;
  std::shared_ptr<entrepot::WritableBlob> blob;
};

struct entrepot_builder {
  std::shared_ptr<entrepot::c_api::Access> access;
  std::shared_ptr<entrepot::ObjectBuilder> builder;
  int (*interrupt)(void*) = nullptr;
  void* interrupt_context = nullptr;
  std::mutex mutex;
  std::vector<entrepot::SourceBuffer> buffers;  // guarded by mutex; in the order of the object

  void add(const entrepot::SourceBuffer& buffer) {
    const std::lock_guard lock(mutex);
    buffers.push_back(buffer);
  }
  [[nodiscard]] entrepot::Interrupt interrupt_check() {
    if (interrupt == nullptr) return {};
    return {[](void* self) {
              auto* owner = static_cast<entrepot_builder*>(self);
              return owner->interrupt(owner->interrupt_context) != 0;
            },
            this};
  }
  // Runs `work`, which returns a Status or Result, unless the builder's store has been replaced by another.
  template <class Work>
  auto run(Work&& work) -> std::invoke_result_t<Work&> {
    return access->reconnecting_client->run(
        interrupt_check(), [&](const entrepot::c_api::Attachment& attachment) -> std::invoke_result_t<Work&> {
          RETURN_IF_ERROR(entrepot::ReconnectingClient::check_builder(attachment, *builder));
          return work();
        });
  }
};
