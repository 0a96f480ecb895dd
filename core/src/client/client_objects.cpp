// Get and delete: the directory first, then the daemon.
#include <algorithm>
#include <unordered_set>

#include "base/text.h"
#include "client/client.h"
#include "client/gateway.h"
#include "os/clock.h"

namespace entrepot {
namespace {

constexpr int kGetTries = 64;
constexpr std::uint32_t kAskAgainMs = 2'000;  // whether there is a gateway

}  // namespace

Result<std::vector<std::shared_ptr<SealedObject>>> Client::get(std::span<const IdBytes> ids, const Wait& wait,
                                                               const Interrupt& interrupt, Reach reach) {
  RETURN_IF_ERROR(connection());
  std::vector<std::shared_ptr<SealedObject>> objects(ids.size());
  std::unordered_set<IdBytes, IdHash> asked;  // about these, the gateway has answered
  bool probed = false;                        // whether a lookup has said if there is a gateway
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ASSIGN_OR_RETURN(objects[i], pinned_->find(ids[i], views_, wait, interrupt, ids.subspan(i)));
    if (!objects[i]) missing.push_back(i);
  }
  if (missing.empty()) return objects;
  const os::Deadline loads_end = os::Deadline::after_ms(options_.load_ms);
  for (int tries = 0; !missing.empty(); ++tries) {
    LookupRequest request;
    const std::size_t batch = std::min<std::size_t>(missing.size(), kMaxBatch);
    for (std::size_t i = 0; i < batch; ++i)
      request.ids.push_back(ids[missing[i]]);
    request.timeout_ms = wait.remaining_ms();
    const bool asks = reach == Reach::kCluster && !asked.contains(request.ids.front()) &&
                      (!probed || wait.ms == 0 || request.timeout_ms > 0);
    // A call to the gateway waits for a seal here, too. A gateway may come, or come back, while this waits.
    if (asks) request.timeout_ms = probed ? std::min(request.timeout_ms, kAskAgainMs) : 0;
    probed = true;
    // 0 would leave objects on disk. A get without a limit asks again as long as they are being read; that there is no
    // memory for them, it hears after room_ms, as a put does: what this process holds itself would never be released.
    request.load_ms = wait.ms == 0 ? std::min(options_.load_ms, options_.room_ms)
                                   : std::clamp<std::uint32_t>(wait.remaining_ms(), 1, options_.load_ms);
    ASSIGN_OR_RETURN(
        const LookupReply reply,
        request_reply<LookupReply>(MessageType::kLookup, request, wait_options(wait, options_.load_ms, interrupt)));
    if (reply.results.size() != batch) return Status(Code::kInternal, "the daemon's response to a lookup is too short");
    if (asks) {
      bool is_missing = false;
      std::vector<IdBytes> elsewhere;
      for (std::size_t i = 0; i < batch; ++i) {
        if (reply.results[i].code != Code::kObjectNotFound) continue;
        is_missing = true;
        if (reply.results[i].presence == kGatewayServes) elsewhere.push_back(request.ids[i]);
      }
      if (!elsewhere.empty()) {
        ASSIGN_OR_RETURN(const bool answered, fetch(elsewhere, wait, interrupt));
        if (answered) asked.insert(elsewhere.begin(), elsewhere.end());
      }
      if (!elsewhere.empty() || (is_missing && wait.remaining_ms() > 0)) {
        --tries;  // nothing was replaced or evicted
        continue;
      }
    }
    std::vector<std::size_t> remaining(missing.begin() + static_cast<std::ptrdiff_t>(batch), missing.end());
    for (std::size_t i = 0; i < batch; ++i) {
      const LookupResult& lookup = reply.results[i];
      const IdBytes& id = ids[missing[i]];
      if (lookup.code == Code::kObjectNotFound && wait.remaining_ms() > 0) {  // deleted while it was being reloaded
        remaining.push_back(missing[i]);
        continue;
      }
      if (lookup.code == Code::kTimeout && wait.ms == 0) {  // it is being read
        if (loads_end.passed()) {
          return Status(
              Code::kTimeout,
              concat("object ", to_hex(id), " is on disk: it was not reloaded within ", options_.load_ms, " ms"), true);
        }
        remaining.push_back(missing[i]);
        --tries;
        continue;
      }
      if (lookup.code != Code::kOk) return lookup_error(id, lookup, wait.ms);
      if (lookup.presence == kResident) {
        ASSIGN_OR_RETURN(objects[missing[i]], pinned_->at(lookup.slot, lookup.generation, id, views_, wait, interrupt));
      } else if (batch > 1) {
        // All are being reloaded by now. Waiting one by one pins each before the next can evict it.
        ASSIGN_OR_RETURN(auto loaded, get(std::span(&id, 1), wait, interrupt));
        objects[missing[i]] = std::move(loaded[0]);
      }
      if (!objects[missing[i]]) remaining.push_back(missing[i]);  // replaced, deleted or evicted meanwhile
    }
    missing = std::move(remaining);
    if (!missing.empty() && tries >= kGetTries) {
      return Status(
          Code::kTimeout,
          concat("object ", to_hex(ids[missing.front()]), " was replaced or evicted faster than ", "it could be read"),
          true);
    }
  }
  return objects;
}

// Asks the gateway for objects that are not here; whether it has answered. That does not mean that they are here now.
Result<bool> Client::fetch(std::span<const IdBytes> ids, const Wait& wait, const Interrupt& interrupt) {
  const Status fetched = call_gateway(*this, "fetch", ids, wait.ms > 0 ? "wait" : "", wait, interrupt).status();
  const Code code = fetched.code();
  if (fetched.is_ok()) return true;
  if (interrupt.requested()) return fetched;
  const bool is_unknown = code == Code::kObjectNotFound || code == Code::kStoreUnavailable ||
                          code == Code::kDirectoryUnavailable || (code == Code::kTimeout && wait.ms > 0);
  if (!is_unknown) return fetched;
  if (wait.ms > 0) return code != Code::kStoreUnavailable;  // it may still be sealed here in time
  return Status(Code::kObjectNotFound, concat("object ", to_hex(ids.front()), " is not in the store at ", options_.path,
                                              ", and could not be fetched from another one: ", fetched.message()));
}

Result<ObjectTree> Client::tree(const IdBytes& id, const Interrupt& interrupt) {
  RETURN_IF_ERROR(connection());
  for (int tries = 0; tries <= kGetTries; ++tries) {
    ASSIGN_OR_RETURN(auto result, pinned_->tree(id));
    if (result) return *std::move(result);
    LookupRequest request;
    request.ids.push_back(id);  // load_ms stays 0: do not reload it
    ASSIGN_OR_RETURN(const LookupReply reply,
                     request_reply<LookupReply>(MessageType::kLookup, request, wait_options(0, interrupt)));
    if (reply.results.size() != 1) return Status(Code::kInternal, "the daemon's response to a lookup is too short");
    const LookupResult& lookup = reply.results[0];
    if (lookup.code != Code::kOk) return lookup_error(id, lookup, 0);
    ASSIGN_OR_RETURN(result, pinned_->tree_at(lookup.slot, lookup.generation, id));
    if (result) return *std::move(result);
  }
  return Status(Code::kTimeout, concat("object ", to_hex(id), " was replaced faster than it could be looked up"), true);
}

Status Client::lookup_error(const IdBytes& id, const LookupResult& result, std::uint32_t wait_ms) const {
  if (result.code == Code::kObjectLost || result.code == Code::kCorruptData) {
    return {Code::kObjectLost, concat("the data of object ", to_hex(id), " is no longer in this store",
                                      result.message.empty() ? "" : ", because ", result.message,
                                      ": recompute it, or load its checkpoint")};
  }
  if (result.code == Code::kObjectDropped) {
    return {Code::kObjectDropped,
            concat("object ", to_hex(id), " was dropped: ", result.message,
                   ". Rerun the task that produces it; with a policy (ENTREPOT_POLICY), this is done automatically")};
  }
  if (result.code != Code::kObjectNotFound) {
    return {result.code, concat("object ", to_hex(id), " is on disk: ", result.message), true};
  }
  if (wait_ms > 0) {
    return {Code::kTimeout, concat("object ", to_hex(id), " was not sealed within ", wait_ms, " ms"), true};
  }
  return {Code::kObjectNotFound,
          concat("no object ", to_hex(id), " is sealed in the store at ", options_.path,
                 ": it was never put there, was deleted, or its session has ended", result.message.empty() ? "" : ", ",
                 result.message, " (to wait for an object that is still being written, pass a timeout to get)")};
}

Result<std::optional<std::uint32_t>> Client::generation_of(const IdBytes& id, const Interrupt& interrupt) {
  RETURN_IF_ERROR(connection());
  if (const auto generation = pinned_->generation_of(id)) return generation;
  LookupRequest request;
  request.ids.push_back(id);
  ASSIGN_OR_RETURN(const LookupReply reply,
                   request_reply<LookupReply>(MessageType::kLookup, request, wait_options(0, interrupt)));
  if (reply.results.size() == 1 && reply.results[0].code == Code::kOk) {
    return std::optional(reply.results[0].generation);
  }
  return std::optional<std::uint32_t>();
}

Result<std::vector<std::optional<std::uint32_t>>> Client::generations_of(std::span<const IdBytes> ids,
                                                                         const Interrupt& interrupt) {
  RETURN_IF_ERROR(connection());
  std::vector<std::optional<std::uint32_t>> generations(ids.size());
  std::vector<std::size_t> unknown;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    generations[i] = pinned_->generation_of(ids[i]);
    if (!generations[i]) unknown.push_back(i);
  }
  for (std::size_t done = 0; done < unknown.size(); done += kMaxBatch) {
    const auto part = std::span(unknown).subspan(done, std::min<std::size_t>(kMaxBatch, unknown.size() - done));
    LookupRequest request;
    for (const std::size_t i : part)
      request.ids.push_back(ids[i]);
    ASSIGN_OR_RETURN(const LookupReply reply,
                     request_reply<LookupReply>(MessageType::kLookup, request, wait_options(0, interrupt)));
    if (reply.results.size() != part.size()) {
      return Status(Code::kInternal, "the daemon's response to a lookup is too short");
    }
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (reply.results[i].code == Code::kOk) generations[part[i]] = reply.results[i].generation;
    }
  }
  return generations;
}

Result<std::vector<bool>> Client::exist(std::span<const IdBytes> ids, const Interrupt& interrupt,
                                        std::optional<os::Deadline> deadline) {
  RETURN_IF_ERROR(connection());
  std::vector<bool> existing(ids.size());
  std::vector<std::size_t> unknown;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    existing[i] = pinned_->generation_of(ids[i]).has_value();
    if (!existing[i]) unknown.push_back(i);
  }
  for (std::size_t done = 0; done < unknown.size(); done += kMaxBatch) {
    const auto part = std::span(unknown).subspan(done, std::min<std::size_t>(kMaxBatch, unknown.size() - done));
    LookupRequest request;
    for (const std::size_t i : part)
      request.ids.push_back(ids[i]);
    ASSIGN_OR_RETURN(const LookupReply reply,
                     request_reply<LookupReply>(MessageType::kLookup, request, answer_options(deadline, interrupt)));
    if (reply.results.size() != part.size()) {
      return Status(Code::kInternal, "the daemon's response to a lookup is too short");
    }
    for (std::size_t i = 0; i < part.size(); ++i)
      existing[part[i]] = reply.results[i].code != Code::kObjectNotFound;
  }
  return existing;
}

Result<std::vector<std::uint8_t>> Client::remove(std::span<const IdBytes> ids, const Interrupt& interrupt,
                                                 std::optional<os::Deadline> deadline) {
  std::vector<std::uint8_t> deleted;
  for (std::size_t done = 0; done < ids.size(); done += kMaxBatch) {
    const auto part = ids.subspan(done, std::min<std::size_t>(kMaxBatch, ids.size() - done));
    DeleteRequest request;
    request.ids.assign(part.begin(), part.end());
    ASSIGN_OR_RETURN(const DeleteReply reply,
                     request_reply<DeleteReply>(MessageType::kDelete, request, answer_options(deadline, interrupt)));
    if (reply.deleted.size() != part.size())
      return Status(Code::kInternal, "the daemon's response to a delete is too short");
    deleted.insert(deleted.end(), reply.deleted.begin(), reply.deleted.end());
  }
  return deleted;
}

Result<std::vector<std::uint8_t>> Client::remove_generations(std::span<const ObjectGeneration> objects,
                                                             const Interrupt& interrupt,
                                                             std::optional<os::Deadline> deadline) {
  std::vector<std::uint8_t> deleted;
  for (std::size_t done = 0; done < objects.size(); done += kMaxBatch) {
    const auto part = objects.subspan(done, std::min<std::size_t>(kMaxBatch, objects.size() - done));
    DeleteGenerationsRequest request;
    request.objects.assign(part.begin(), part.end());
    ASSIGN_OR_RETURN(const DeleteReply reply, request_reply<DeleteReply>(MessageType::kDeleteGenerations, request,
                                                                         answer_options(deadline, interrupt)));
    if (reply.deleted.size() != part.size())
      return Status(Code::kInternal, "the daemon's response to a delete is too short");
    deleted.insert(deleted.end(), reply.deleted.begin(), reply.deleted.end());
  }
  return deleted;
}

}  // namespace entrepot
