#include "spill/manifest_format.h"

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/text.h"
#include "base/wire.h"

namespace entrepot {

namespace {

struct Head {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t crc;  // of the instance, and the key ID if there is one
  InstanceId instance;
};
static_assert(sizeof(Head) == 32);

std::uint32_t head_crc(const ManifestHead& head) {
  Crc32c crc;
  crc.add_bytes(head.instance.data(), head.instance.size());
  if (head.key_id) crc.add_bytes(head.key_id->data(), head.key_id->size());
  return crc.value();
}

struct WireBlob {
  std::uint32_t blob = 0;
  std::uint32_t generation = 0;
  std::uint64_t length = 0;
  std::uint64_t location = 0;
  InstanceId copy_instance{};
  std::uint32_t copy_blob = 0;
  std::uint32_t copy_generation = 0;
  std::uint64_t packed_bytes = 0;
  template <class V>
  void fields(V& v) {
    v(blob, generation, length, location, copy_instance, copy_blob, copy_generation, packed_bytes);
  }
};

struct WireObject {
  IdBytes id{};
  std::uint32_t generation = 0;
  std::string scope;
  std::string session;
  std::uint64_t ttl_seconds = 0;
  std::vector<std::string> names;
  std::uint64_t sealed_unix_ns = 0;
  std::string record;
  std::vector<WireBlob> blobs;
  template <class V>
  void fields(V& v) {
    v(id, generation, scope, session, ttl_seconds, names, sealed_unix_ns, record, blobs);
  }
};

struct WireForget {
  IdBytes id{};
  std::uint32_t generation = 0;
  template <class V>
  void fields(V& v) {
    v(id, generation);
  }
};

std::uint32_t frame_crc(std::uint32_t length, std::string_view content) {
  return Crc32c().add(length).add_bytes(content.data(), content.size()).value();
}

std::string framed(ManifestRecord kind, const std::vector<std::uint8_t>& body) {
  std::string content(1, static_cast<char>(kind));
  content.append(reinterpret_cast<const char*>(body.data()), body.size());
  const auto length = static_cast<std::uint32_t>(content.size());
  const std::uint32_t crc = frame_crc(length, content);
  std::string out(kManifestFrameBytes, '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  std::memcpy(out.data() + sizeof(length), &crc, sizeof(crc));
  return out + content;
}

Status bad(std::string_view what) { return Status(Code::kCorruptData, std::string(what)); }

template <class T>
bool read_body(std::string_view body, T& out) {
  return from_wire({reinterpret_cast<const std::uint8_t*>(body.data()), body.size()}, out);
}

// `content` begins with the kind.
bool unseal_record(std::string_view content, const InstanceId& instance, const SpillCipher& cipher,
                   std::string& plain) {
  SpillNonce nonce{};
  SpillTag tag{};
  const std::size_t around = 1 + nonce.size() + tag.size();
  if (content.front() != static_cast<char>(ManifestRecord::kSealed) || content.size() <= around) return false;
  const std::size_t bytes = content.size() - around;
  std::memcpy(nonce.data(), content.data() + 1, nonce.size());
  std::memcpy(tag.data(), content.data() + content.size() - tag.size(), tag.size());
  plain.resize(bytes);
  return cipher.unseal(nonce, std::as_bytes(std::span(instance)), tag,
                       reinterpret_cast<const std::byte*>(content.data() + 1 + nonce.size()), bytes,
                       reinterpret_cast<std::byte*>(plain.data()));
}

RememberedObject from_wire_object(WireObject&& wire) {
  RememberedObject out;
  SpilledObject& object = out.object;
  object.id = wire.id;
  object.generation = wire.generation;
  object.scope = std::move(wire.scope);
  object.session = std::move(wire.session);
  object.ttl_seconds = wire.ttl_seconds;
  object.names = std::move(wire.names);
  object.sealed_unix_ns = wire.sealed_unix_ns;
  object.record = std::move(wire.record);
  for (const WireBlob& blob : wire.blobs) {
    object.blobs.push_back({{blob.blob, blob.generation}, blob.length, blob.location});
    out.copies.push_back({{blob.copy_instance, {blob.copy_blob, blob.copy_generation}}, blob.packed_bytes});
  }
  return out;
}

}  // namespace

std::uint64_t head_bytes(bool encrypted) { return sizeof(Head) + (encrypted ? sizeof(SpillKeyId) : 0); }

std::string encode_head(const ManifestHead& head) {
  const Head fixed{kManifestMagic, head.key_id ? kEncryptedManifestVersion : kManifestVersion, head_crc(head),
                   head.instance};
  std::string out(head_bytes(head.key_id.has_value()), '\0');
  std::memcpy(out.data(), &fixed, sizeof(fixed));
  if (head.key_id) std::memcpy(out.data() + sizeof(fixed), head.key_id->data(), head.key_id->size());
  return out;
}

Result<ManifestHead> decode_head(std::string_view bytes) {
  Head fixed{};
  if (bytes.size() < sizeof(fixed)) return bad("its header is truncated");
  std::memcpy(&fixed, bytes.data(), sizeof(fixed));
  if (fixed.magic != kManifestMagic) return bad("it does not start with ENSPLMF1");
  if (fixed.version != kManifestVersion && fixed.version != kEncryptedManifestVersion) {
    return Status(Code::kVersionMismatch, concat("it has format ", fixed.version, "; this version reads format ",
                                                 kManifestVersion, ", and ", kEncryptedManifestVersion, " with a key"));
  }
  ManifestHead head{fixed.instance, std::nullopt};
  if (fixed.version == kEncryptedManifestVersion) {
    if (bytes.size() < head_bytes(true)) return bad("its header is truncated");
    head.key_id.emplace();
    std::memcpy(head.key_id->data(), bytes.data() + sizeof(fixed), head.key_id->size());
  }
  if (fixed.crc != head_crc(head)) return bad("its header is damaged");
  return head;
}

std::string encode_remember(const RememberedObject& remembered) {
  const SpilledObject& object = remembered.object;
  WireObject wire{object.id,
                  object.generation,
                  object.scope,
                  object.session,
                  object.ttl_seconds,
                  object.names,
                  object.sealed_unix_ns,
                  object.record,
                  {}};
  for (std::size_t i = 0; i < object.blobs.size(); ++i) {
    const SpilledBlob& blob = object.blobs[i];
    const auto& [copy, packed_bytes] = remembered.copies[i];
    wire.blobs.push_back({blob.key.blob, blob.key.generation, blob.length, blob.location, copy.instance, copy.key.blob,
                          copy.key.generation, packed_bytes});
  }
  return framed(ManifestRecord::kRemember, to_wire(wire));
}

std::string encode_forget(const IdBytes& id, std::uint32_t generation) {
  return framed(ManifestRecord::kForget, to_wire(WireForget{id, generation}));
}

Result<std::string> seal_record(std::string record, const InstanceId& instance, SpillCipher* cipher) {
  if (cipher == nullptr) return record;
  const std::uint64_t bytes = record.size() - kManifestFrameBytes;
  const SpillNonce nonce = cipher->take_nonces(1);
  SpillTag tag{};
  std::vector<std::uint8_t> body(nonce.size() + bytes + tag.size());
  std::memcpy(body.data(), nonce.data(), nonce.size());
  RETURN_IF_ERROR(cipher->seal(nonce, std::as_bytes(std::span(instance)),
                               reinterpret_cast<const std::byte*>(record.data() + kManifestFrameBytes), bytes,
                               reinterpret_cast<std::byte*>(body.data() + nonce.size()), tag));
  std::memcpy(body.data() + nonce.size() + bytes, tag.data(), tag.size());
  return framed(ManifestRecord::kSealed, body);
}

Result<DecodedRecord> decode_record(std::string_view bytes, const InstanceId& instance, const SpillCipher* cipher) {
  if (bytes.size() < kManifestFrameBytes) return bad("the last record is truncated");
  std::uint32_t length = 0;
  std::uint32_t crc = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  std::memcpy(&crc, bytes.data() + sizeof(length), sizeof(crc));
  if (length == 0 || length > kMaxRecordBytes) return bad(concat("a record declares a length of ", length));
  if (length > bytes.size() - kManifestFrameBytes) return bad("the last record is truncated");
  std::string_view content = bytes.substr(kManifestFrameBytes, length);
  if (crc != frame_crc(length, content)) return bad("a record's checksum does not match");
  DecodedRecord out;
  out.bytes = kManifestFrameBytes + length;
  std::string plain;
  if (cipher != nullptr) {
    if (!unseal_record(content, instance, *cipher, plain)) return bad("a record fails authentication");
    content = plain;
  }
  const std::string_view body = content.substr(1);
  switch (static_cast<ManifestRecord>(content.front())) {
    case ManifestRecord::kRemember: {
      WireObject wire;
      if (!read_body(body, wire)) return bad("a record of an object is malformed");
      out.key = {wire.id, wire.generation};
      out.object = from_wire_object(std::move(wire));
      return out;
    }
    case ManifestRecord::kForget: {
      WireForget wire;
      if (!read_body(body, wire)) return bad("a record of an object's removal is malformed");
      out.key = {wire.id, wire.generation};
      return out;
    }
    case ManifestRecord::kSealed:
      return bad("a record is encrypted, but the daemon has no key");
  }
  return bad(concat("a record of kind ", static_cast<int>(content.front()), " is unknown"));
}

}  // namespace entrepot
