// The part of the C API that builds objects of several buffers: see client/object_builder.h.
#include <memory>
#include <mutex>
#include <span>

#include "client/c_api.h"
#include "client/object_builder.h"

using entrepot::Code;
using entrepot::concat;
using entrepot::Status;
using entrepot::c_api::Attachment;
using entrepot::c_api::convert;
using entrepot::c_api::finish;
using entrepot::c_api::guarded;
using entrepot::c_api::missing;

extern "C" {

int32_t entrepot_builder_create(entrepot_client* client, entrepot_builder** out, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (client == nullptr || out == nullptr) return missing("an argument");
    auto created = std::make_unique<entrepot_builder>();
    created->access = client->access;
    created->builder =
        std::make_shared<entrepot::ObjectBuilder>(client->access->reconnecting_client->attachment()->client);
    created->interrupt = client->interrupt;
    created->interrupt_context = client->interrupt_context;
    *out = created.release();
    return Status::ok();
  });
}

int32_t entrepot_builder_allocate(entrepot_builder* builder, uint64_t length, uint32_t wait_ms, void** data,
                                  entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (builder == nullptr || data == nullptr) return missing("an argument");
    ASSIGN_OR_RETURN(const auto part, builder->run([&] {
      return builder->builder->allocate(length, wait_ms, builder->interrupt_check());
    }));
    builder->add({part->data(), length});
    *data = part->data();
    return Status::ok();
  });
}

int32_t entrepot_builder_copy(entrepot_builder* builder, const void* data, uint64_t length, uint32_t wait_ms,
                              entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (builder == nullptr || (data == nullptr && length != 0)) return missing("an argument");
    const entrepot::SourceBuffer source{data, length};
    ASSIGN_OR_RETURN(const auto stored, builder->run([&] {
      return builder->builder->store(std::span(&source, 1), entrepot::ObjectBuilder::Sealed::kCopy, wait_ms,
                                     builder->interrupt_check());
    }));
    builder->add(stored.front().bytes);
    return Status::ok();
  });
}

int32_t entrepot_builder_reference(entrepot_builder* builder, const entrepot_object* object, uint64_t index,
                                   uint64_t offset, uint64_t length, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (builder == nullptr || object == nullptr) return missing("an argument");
    const auto& buffers = object->object->buffers();
    if (index >= buffers.size()) {
      return {Code::kInvalidArgument, concat("the object has ", buffers.size(), " buffers, but none at index ", index)};
    }
    if (offset > buffers[index].length || length > buffers[index].length - offset) {
      return {Code::kInvalidArgument,
              concat(length, " bytes at ", offset, " exceed buffer ", index, " of ", buffers[index].length, " bytes")};
    }
    RETURN_IF_ERROR(builder->builder->keep(object->object));
    builder->add({buffers[index].data + offset, length});
    return Status::ok();
  });
}

int32_t entrepot_builder_seal(entrepot_builder* builder, const entrepot_item* item, uint32_t wait_ms,
                              uint32_t* generation, entrepot_error* error) {
  return guarded(error, [&]() -> Status {
    if (builder == nullptr) return missing("the builder");
    entrepot::PutItem put_item;
    RETURN_IF_ERROR(convert(*builder->access, item, put_item));
    {
      const std::lock_guard lock(builder->mutex);
      put_item.buffers = builder->buffers;
    }
    auto& reconnecting_client = *builder->access->reconnecting_client;
    return finish(reconnecting_client.run(builder->interrupt_check(),
                                          [&](const Attachment& attachment) {
                                            return reconnecting_client.seal(attachment, *builder->builder, put_item,
                                                                            wait_ms, builder->interrupt_check());
                                          }),
                  generation);
  });
}

void entrepot_builder_free(entrepot_builder* builder) { delete builder; }

}  // extern "C"
