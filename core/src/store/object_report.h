// Object report: what the objects are, where they are and why, as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/id.h"
#include "base/status.h"
#include "store/object/object_parts.h"
#include "store/object/object_table.h"
#include "store/paging/pager.h"
#include "store/session/client_table.h"
#include "store/types.h"

namespace entrepot {

struct ListQuery {
  bool all_sessions = false;
  std::uint32_t session = 0;  // handle
  std::string pattern;        // glob over names and hexadecimal IDs; empty matches all
  std::uint32_t cursor = 0;
  std::uint32_t limit = 1000;
};

class JsonWriter;

// Reads only; every text is written anew. Guarded by the daemon's thread.
class ObjectReport {
 public:
  struct Sources {  // all must outlive it
    const Clock& clock;
    const ClientTable& clients;
    const ObjectParts& parts;
    const ObjectTable& objects;
    const Pager& pager;
  };
  explicit ObjectReport(const Sources& sources) : from_(sources) {}

  [[nodiscard]] Result<std::string> list_json(const ListQuery& query) const;
  [[nodiscard]] Result<std::string> info_json(const IdBytes& id) const;

 private:
  void object_json(JsonWriter& json, std::uint32_t slot) const;
  void write_explanation(JsonWriter& json, std::uint32_t slot) const;
  void write_set(JsonWriter& json, std::uint32_t slot) const;
  void write_blobs(JsonWriter& json, const RecordView& record) const;
  [[nodiscard]] std::optional<std::uint32_t> owner_of(std::uint32_t blob) const;

  Sources from_;
};

}  // namespace entrepot
