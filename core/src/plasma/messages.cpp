#include "plasma/messages.h"

#include <cstring>

#include "base/text.h"
#include "plasma/plasma_generated.h"

namespace entrepot::plasma {
namespace {

constexpr std::uint32_t kMaxDepth = 8;
constexpr std::uint32_t kMaxTables = 1U << 20;

Status missing(std::string_view field) {
  return Status(Code::kInvalidArgument, concat("the message lacks its field ", field));
}

// The root of a verified message.
template <class Table>
Result<const Table*> root_of(Body body, std::string_view name) {
  if (body.size() >= FLATBUFFERS_MAX_BUFFER_SIZE) {
    return Status(Code::kInvalidArgument, concat("a ", name, " of ", body.size(), " bytes is too long"));
  }
  flatbuffers::Verifier verifier(body.data(), body.size(), kMaxDepth, kMaxTables);
  if (!verifier.VerifyBuffer<Table>(nullptr)) {
    return Status(Code::kInvalidArgument, concat("a ", name, " of ", body.size(), " bytes is damaged"));
  }
  return flatbuffers::GetRoot<Table>(body.data());
}

std::string_view view_of(const flatbuffers::String* text) {
  return text == nullptr ? std::string_view() : std::string_view(text->c_str(), text->size());
}

Status read_id(const flatbuffers::String* text, IdBytes& id) {
  if (text == nullptr) return missing("object_id");
  if (text->size() != kIdBytes) {
    return Status(Code::kInvalidArgument,
                  concat("an object ID has ", text->size(), " bytes, but must have ", kIdBytes));
  }
  std::memcpy(id.data(), text->c_str(), kIdBytes);
  return Status::ok();
}

using Strings = flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>;

Result<std::vector<IdBytes>> read_ids(const Strings* texts) {
  if (texts == nullptr) return missing("object_ids");
  std::vector<IdBytes> ids(texts->size());
  for (std::uint32_t i = 0; i < texts->size(); ++i)
    RETURN_IF_ERROR(read_id(texts->Get(i), ids[i]));
  return ids;
}

template <class Table>
Result<IdBytes> decode_id(Body body, std::string_view name) {
  ASSIGN_OR_RETURN(const Table* const root, root_of<Table>(body, name));
  IdBytes id{};
  RETURN_IF_ERROR(read_id(root->object_id(), id));
  return id;
}

template <class Table>
Result<std::vector<IdBytes>> decode_ids(Body body, std::string_view name) {
  ASSIGN_OR_RETURN(const Table* const root, root_of<Table>(body, name));
  return read_ids(root->object_ids());
}

}  // namespace

Header parse_header(std::span<const std::uint8_t> bytes) {
  Header header;
  std::int64_t type = 0;
  std::memcpy(&header.version, bytes.data(), sizeof header.version);
  std::memcpy(&type, bytes.data() + 8, sizeof type);
  std::memcpy(&header.length, bytes.data() + 16, sizeof header.length);
  header.type = static_cast<MessageType>(type);
  return header;
}

Result<CreateRequest> decode_create(Body body) {
  ASSIGN_OR_RETURN(const wire::CreateRequest* const root, root_of<wire::CreateRequest>(body, "create request"));
  CreateRequest request;
  RETURN_IF_ERROR(read_id(root->object_id(), request.id));
  request.evict_if_full = root->evict_if_full();
  request.data_bytes = root->data_size();
  request.metadata_bytes = root->metadata_size();
  request.device = root->device();
  return request;
}

Result<CreateAndSealRequest> decode_create_and_seal(Body body) {
  ASSIGN_OR_RETURN(const wire::CreateAndSealRequest* const root,
                   root_of<wire::CreateAndSealRequest>(body, "create-and-seal request"));
  CreateAndSealRequest request;
  request.evict_if_full = root->evict_if_full();
  WholeObject& object = request.objects.emplace_back();
  RETURN_IF_ERROR(read_id(root->object_id(), object.id));
  object.data = view_of(root->data());
  object.metadata = view_of(root->metadata());
  object.digest = view_of(root->digest());
  return request;
}

Result<CreateAndSealRequest> decode_create_and_seal_batch(Body body) {
  ASSIGN_OR_RETURN(const wire::CreateAndSealBatchRequest* const root,
                   root_of<wire::CreateAndSealBatchRequest>(body, "create-and-seal batch"));
  CreateAndSealRequest request;
  request.evict_if_full = root->evict_if_full();
  ASSIGN_OR_RETURN(const std::vector<IdBytes> ids, read_ids(root->object_ids()));
  for (const Strings* const texts : {root->data(), root->metadata(), root->digests()}) {
    if (texts == nullptr) return missing("data, metadata or digests");
    if (texts->size() != ids.size()) {
      return Status(Code::kInvalidArgument, concat("a batch has ", ids.size(), " IDs, but ", texts->size(),
                                                   " entries of data, metadata or digests"));
    }
  }
  for (std::uint32_t i = 0; i < ids.size(); ++i) {
    request.objects.push_back(
        {ids[i], view_of(root->data()->Get(i)), view_of(root->metadata()->Get(i)), view_of(root->digests()->Get(i))});
  }
  return request;
}

Result<SealRequest> decode_seal(Body body) {
  ASSIGN_OR_RETURN(const wire::SealRequest* const root, root_of<wire::SealRequest>(body, "seal request"));
  SealRequest request;
  RETURN_IF_ERROR(read_id(root->object_id(), request.id));
  request.digest = view_of(root->digest());
  return request;
}

Result<GetRequest> decode_get(Body body) {
  ASSIGN_OR_RETURN(const wire::GetRequest* const root, root_of<wire::GetRequest>(body, "get request"));
  GetRequest request;
  ASSIGN_OR_RETURN(request.ids, read_ids(root->object_ids()));
  request.timeout_ms = root->timeout_ms();
  return request;
}

Result<IdBytes> decode_abort(Body body) { return decode_id<wire::AbortRequest>(body, "abort request"); }
Result<IdBytes> decode_release(Body body) { return decode_id<wire::ReleaseRequest>(body, "release request"); }
Result<IdBytes> decode_contains(Body body) { return decode_id<wire::ContainsRequest>(body, "contains request"); }

Result<std::vector<IdBytes>> decode_delete(Body body) {
  return decode_ids<wire::DeleteRequest>(body, "delete request");
}
Result<std::vector<IdBytes>> decode_refresh_lru(Body body) {
  return decode_ids<wire::RefreshLruRequest>(body, "refresh-LRU request");
}

Result<std::uint64_t> decode_evict(Body body) {
  ASSIGN_OR_RETURN(const wire::EvictRequest* const root, root_of<wire::EvictRequest>(body, "evict request"));
  return root->num_bytes();
}

Result<SetOptionsRequest> decode_set_options(Body body) {
  ASSIGN_OR_RETURN(const wire::SetOptionsRequest* const root,
                   root_of<wire::SetOptionsRequest>(body, "request for client options"));
  return SetOptionsRequest{std::string(view_of(root->client_name())), root->output_memory_quota()};
}

}  // namespace entrepot::plasma
