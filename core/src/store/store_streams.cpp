// Requests about streams that need a session.
#include <string>

#include "store/store.h"

namespace entrepot {

Result<StreamGrant> Store::open_stream(std::uint32_t session, std::string_view name, StreamOpening how,
                                       const StreamSpec& spec) {
  ASSIGN_OR_RETURN(const std::uint32_t index, sessions_.index_of(session));
  RETURN_IF_ERROR(NameTable::check(name));
  for (const std::string& group : spec.groups)
    RETURN_IF_ERROR(NameTable::check(group).with_context("a group of readers"));
  ASSIGN_OR_RETURN(const StreamGrant grant, streams_.open(index, sessions_.describe(index), name, how, spec));
  sessions_.touch(index);
  return grant;
}

Status Store::remove_stream(std::uint32_t session, std::string_view name) {
  ASSIGN_OR_RETURN(const std::uint32_t index, sessions_.index_of(session));
  return streams_.remove(index, name);
}

}  // namespace entrepot
