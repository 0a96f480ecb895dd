#include "daemon/sealing.h"

namespace entrepot {

SealSpec spec_of(const SealObject& object) {
  SealSpec spec;
  spec.id = object.id;
  spec.session = object.session;
  spec.replace = object.replace != 0;
  spec.blobs.reserve(object.blobs.size());
  for (const NewBlob& blob : object.blobs)
    spec.blobs.push_back({blob.segment, blob.offset, blob.length});
  spec.buffers.reserve(object.buffers.size());
  for (const SealBuffer& buffer : object.buffers) {
    spec.buffers.push_back({buffer.blob, buffer.generation, buffer.offset, buffer.length});
  }
  spec.tree = object.tree;
  spec.payload = object.payload;
  spec.name = object.name;
  spec.locality_set = object.locality_set;
  spec.consumers = object.consumers;
  if (object.pin_position != kNoPin) spec.pin_position = object.pin_position;
  return spec;
}

}  // namespace entrepot
