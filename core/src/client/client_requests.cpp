// Simple requests, one question and one answer: sessions, names, status.
#include <algorithm>
#include <iterator>
#include <vector>

#include "client/client.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kCloseMs = 1'000;

}  // namespace

// --- sessions and names --------------------------------------------------------------------------------------------

Result<std::uint32_t> Client::open_session(const std::string& scope, const std::string& session,
                                           const std::optional<SessionLimits>& limits, const Interrupt& interrupt,
                                           std::optional<bool> deletes_consumed) {
  OpenSessionRequest request;
  request.scope = scope;
  request.session = session;
  if (limits) {
    request.set_limits = 1;
    request.ttl_seconds = limits->ttl_seconds;
    request.limit_bytes = limits->bytes;
    request.limit_objects = limits->objects;
  }
  if (deletes_consumed) request.deletes_consumed = *deletes_consumed ? 2 : 1;
  ASSIGN_OR_RETURN(const OpenSessionReply reply,
                   request_reply<OpenSessionReply>(MessageType::kOpenSession, request, wait_options(0, interrupt)));
  const std::lock_guard lock(mutex_);
  OpenSession& open = sessions_[{scope, session}];
  open.number = reply.session;
  open.users += 1;
  unreported_closes_.erase(reply.session);
  return reply.session;
}

void Client::close_session(const std::string& scope, const std::string& session) {
  CallOptions options;
  options.deadline = os::Deadline::after_ms(kCloseMs);
  CloseSessionRequest request;
  {
    const std::lock_guard lock(mutex_);
    const auto open = sessions_.find({scope, session});
    if (open == sessions_.end() || open->second.users == 0 || --open->second.users > 0) return;
    request.session = open->second.number;
    if (state_ == State::kConnected) options.only_on = connection_;
  }
  bool is_reported = false;
  if (options.only_on && !options.only_on->broken()) {
    const Code answer = call(MessageType::kCloseSession, to_wire(request), options).code();
    is_reported = answer == Code::kOk || answer == Code::kInvalidArgument;  // it was removed meanwhile
  }
  bool opened_meanwhile = false;
  {
    const std::lock_guard lock(mutex_);
    if (!is_reported) unreported_closes_.insert(request.session);
    const auto open = sessions_.find({scope, session});
    if (open == sessions_.end()) return;
    opened_meanwhile = open->second.users > 0;
    if (!opened_meanwhile) sessions_.erase(open);  // so that it is not reopened after a reconnect
  }
  if (!opened_meanwhile) return;
  // It must be open from here on, in whichever order the daemon saw the close and the concurrent open.
  OpenSessionRequest reopen_request;
  reopen_request.scope = scope;
  reopen_request.session = session;
  static_cast<void>(call(MessageType::kOpenSession, to_wire(reopen_request), options).is_ok());
}

Status Client::remove_session(const std::string& scope, const std::string& session, const Interrupt& interrupt) {
  RETURN_IF_ERROR(
      call(MessageType::kRemoveSession, to_wire(RemoveSessionRequest{scope, session}), wait_options(0, interrupt)));
  const std::lock_guard lock(mutex_);
  sessions_.erase({scope, session});
  return Status::ok();
}

Result<RemoveUnusedReply> Client::remove_unused_session(const std::string& scope, const std::string& session,
                                                        std::uint64_t last_used_unix_ns, const Interrupt& interrupt) {
  const RemoveUnusedRequest request{scope, session, last_used_unix_ns};
  return request_reply<RemoveUnusedReply>(MessageType::kRemoveUnused, request, wait_options(0, interrupt));
}

Status Client::bind_name(std::uint32_t session, const std::string& name, const IdBytes& id, bool replace,
                         const Interrupt& interrupt) {
  NameRequest request;
  request.session = session;
  request.name = name;
  request.id = id;
  request.replace = replace ? 1 : 0;
  RETURN_IF_ERROR(call(MessageType::kBindName, to_wire(request), wait_options(0, interrupt)));
  return Status::ok();
}

Result<IdBytes> Client::resolve_name(std::uint32_t session, const std::string& name, const Wait& wait,
                                     const Interrupt& interrupt) {
  NameRequest request;
  request.session = session;
  request.name = name;
  request.timeout_ms = wait.remaining_ms();
  ASSIGN_OR_RETURN(const NameReply reply,
                   request_reply<NameReply>(MessageType::kResolveName, request, wait_options(wait, 0, interrupt)));
  return reply.id;
}

Status Client::unbind_name(std::uint32_t session, const std::string& name, const Interrupt& interrupt) {
  NameRequest request;
  request.session = session;
  request.name = name;
  RETURN_IF_ERROR(call(MessageType::kUnbindName, to_wire(request), wait_options(0, interrupt)));
  return Status::ok();
}

// --- locality sets and hints ---------------------------------------------------------------------------------------

Result<Client::LocalitySetInfo> Client::define_set(std::uint32_t session, const std::string& name, std::uint32_t set,
                                                   const SetChange& change, const Interrupt& interrupt) {
  DefineSetRequest request;
  request.session = session;
  request.set = set;
  request.name = name;
  request.changed = change.fields;
  request.attributes = change.attributes.pack();
  ASSIGN_OR_RETURN(const DefineSetReply reply,
                   request_reply<DefineSetReply>(MessageType::kDefineSet, request, wait_options(0, interrupt)));
  return LocalitySetInfo{reply.set, SetAttributes::unpack(reply.attributes)};
}

Result<std::string> Client::sets(std::uint32_t session, const Interrupt& interrupt) {
  ASSIGN_OR_RETURN(JsonReply reply, request_reply<JsonReply>(MessageType::kListSets, ListSetsRequest{session},
                                                             wait_options(0, interrupt)));
  return std::move(reply.json);
}

Status Client::hint(std::span<const IdBytes> ids, HintRequest request, const Interrupt& interrupt) {
  for (std::size_t done = 0; done < ids.size(); done += kMaxBatch) {
    const auto part = ids.subspan(done, std::min<std::size_t>(kMaxBatch, ids.size() - done));
    request.ids.assign(part.begin(), part.end());
    ASSIGN_OR_RETURN(const PerObjectReply reply,
                     request_reply<PerObjectReply>(MessageType::kHint, request, wait_options(0, interrupt)));
    for (const PerObjectResult& result : reply.results)
      RETURN_IF_ERROR(Status(result.code, result.message));
  }
  return Status::ok();
}

Result<std::vector<std::uint32_t>> Client::consumed(std::span<const IdBytes> ids, const std::string& consumer,
                                                    const Interrupt& interrupt) {
  std::vector<std::uint32_t> left;
  for (std::size_t done = 0; done < ids.size(); done += kMaxBatch) {
    const auto part = ids.subspan(done, std::min<std::size_t>(kMaxBatch, ids.size() - done));
    ConsumedRequest request;
    request.ids.assign(part.begin(), part.end());
    request.consumer = consumer;
    ASSIGN_OR_RETURN(const PerObjectReply reply,
                     request_reply<PerObjectReply>(MessageType::kConsumed, request, wait_options(0, interrupt)));
    if (reply.results.size() != part.size())
      return Status(Code::kInternal, "the daemon's response to consumed is too short");
    for (const PerObjectResult& result : reply.results) {
      RETURN_IF_ERROR(Status(result.code, result.message));
      left.push_back(result.left);
    }
  }
  return left;
}

// --- memory and disk ------------------------------------------------------------------------------------------------

Status Client::load(std::span<const IdBytes> ids, const Interrupt& interrupt) {
  RETURN_IF_ERROR(connection());
  RETURN_IF_ERROR(pinned_->map(ids, views_, 0, interrupt));
  std::vector<IdBytes> absent;
  std::ranges::copy_if(ids, std::back_inserter(absent),
                       [this](const IdBytes& id) { return !pinned_->generation_of(id).has_value(); });
  for (std::size_t done = 0; done < absent.size(); done += kMaxBatch) {
    const auto part = std::span(absent).subspan(done, std::min<std::size_t>(kMaxBatch, absent.size() - done));
    LookupRequest request;
    request.ids.assign(part.begin(), part.end());
    request.load_ms = 1;  // starts reloading without waiting
    RETURN_IF_ERROR(request_reply<LookupReply>(MessageType::kLookup, request, wait_options(0, interrupt)));
  }
  return Status::ok();
}

Result<std::vector<Status>> Client::evict(std::span<const IdBytes> ids, const Interrupt& interrupt) {
  std::vector<Status> results;
  for (std::size_t done = 0; done < ids.size(); done += kMaxBatch) {
    const auto part = ids.subspan(done, std::min<std::size_t>(kMaxBatch, ids.size() - done));
    EvictRequest request;
    request.ids.assign(part.begin(), part.end());
    ASSIGN_OR_RETURN(const EvictReply reply,
                     request_reply<EvictReply>(MessageType::kEvict, request, wait_options(0, interrupt)));
    if (reply.results.size() != part.size())
      return Status(Code::kInternal, "the daemon's response to an evict is too short");
    for (const EvictResult& result : reply.results)
      results.emplace_back(result.code, result.message);
  }
  return results;
}

// --- about the store -----------------------------------------------------------------------------------------------

Result<std::string> Client::list(const ListRequest& request, const Interrupt& interrupt) {
  ASSIGN_OR_RETURN(JsonReply reply, request_reply<JsonReply>(MessageType::kList, request, wait_options(0, interrupt)));
  return std::move(reply.json);
}

Result<std::string> Client::info(const IdBytes& id, const Interrupt& interrupt) {
  ASSIGN_OR_RETURN(JsonReply reply,
                   request_reply<JsonReply>(MessageType::kInfo, InfoRequest{id}, wait_options(0, interrupt)));
  return std::move(reply.json);
}

Result<std::string> Client::status(const Interrupt& interrupt) {
  ASSIGN_OR_RETURN(JsonReply reply,
                   request_reply<JsonReply>(MessageType::kStatus, Empty{}, wait_options(0, interrupt)));
  return std::move(reply.json);
}

Result<std::string> Client::sessions(const Interrupt& interrupt) {
  ASSIGN_OR_RETURN(JsonReply reply,
                   request_reply<JsonReply>(MessageType::kListSessions, Empty{}, wait_options(0, interrupt)));
  return std::move(reply.json);
}

Status Client::wait_provisioned(const Wait& wait, const Interrupt& interrupt) {
  RETURN_IF_ERROR(
      call(MessageType::kWaitProvisioned, to_wire(WaitRequest{wait.remaining_ms()}), wait_options(wait, 0, interrupt)));
  return Status::ok();
}

Result<std::string> Client::upgrade(const std::string& program, const Interrupt& interrupt) {
  ASSIGN_OR_RETURN(UpgradeReply reply, request_reply<UpgradeReply>(MessageType::kUpgrade, UpgradeRequest{program},
                                                                   wait_options(0, interrupt)));
  return std::move(reply.version);
}

Status Client::shutdown(const Interrupt& interrupt) {
  RETURN_IF_ERROR(call(MessageType::kShutdown, to_wire(Empty{}), wait_options(0, interrupt)));
  return Status::ok();
}

}  // namespace entrepot
