#include "client/reconnecting_client.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "client/call_deadline.h"

namespace entrepot {
namespace {

// Timeout if nobody listens, for a store started on demand: nobody else will start it.
constexpr std::uint64_t kOnDemandNoListenerMs = 50;

Status closed_status() { return {Code::kStoreUnavailable, "this store was closed by close(): connect again"}; }

}  // namespace

Result<std::shared_ptr<ReconnectingClient>> ReconnectingClient::connect(const ConnectOptions& options, Hooks hooks,
                                                                        const Interrupt& interrupt) {
  ConnectOptions options_copy = options;
  if (hooks.start) options_copy.no_listener_ms = kOnDemandNoListenerMs;
  std::shared_ptr<ReconnectingClient> reconnecting(new ReconnectingClient(std::move(options_copy), std::move(hooks)));
  ASSIGN_OR_RETURN(auto client, Client::connect(reconnecting->options_, interrupt));
  reconnecting->attachment_ = std::make_shared<Attachment>(Attachment{std::move(client), 0});
  watch_forks(reconnecting);
  return reconnecting;
}

ReconnectingClient::AttachmentPtr ReconnectingClient::attachment() const {
  const std::lock_guard lock(mutex_);
  return attachment_;
}

void ReconnectingClient::close() {
  AttachmentPtr last;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;  // from here on there is no next attachment
    last = attachment_;
  }
  last->client->close();
}

bool ReconnectingClient::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

// --- attachments -----------------------------------------------------------------------------------------------------

Status ReconnectingClient::reattach(AttachmentPtr& attachment, const Status& failure, os::Deadline limit,
                                    const Interrupt& interrupt) {
  limit = CallDeadline::bounded(limit);
  RETURN_IF_ERROR(
      reattaching_.run(interrupt, limit, [&] { return reattach_in_turn(attachment, failure, limit, interrupt); }));
  // The previous attachment may hold the last reference to its client, which is then destroyed here: not under the
  // mutex.
  attachment = this->attachment();
  return Status::ok();
}

Status ReconnectingClient::reattach_in_turn(const AttachmentPtr& ended, const Status& failure, os::Deadline limit,
                                            const Interrupt& interrupt) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return closed_status();
    if (attachment_ != ended) return Status::ok();  // another thread was faster
  }
  if (!ended->client->lost()) {
    // Nobody listened, or not in time. With a start hook, the store is started and the same client is used again; it
    // then turns out to be lost, or finds its own store after all.
    if (!hooks_.start) return failure;
    return hooks_.start();
  }
  Result<std::shared_ptr<Client>> client = failure;
  for (int tries = 0; tries < kTries && !client.is_ok(); ++tries) {
    if (hooks_.start) RETURN_IF_ERROR(hooks_.start());
    ConnectOptions options = options_;
    options.connect_ms = std::min(options.connect_ms, limit.remaining_ns() / 1'000'000U);
    client = Client::connect(options, interrupt);
    if (!client.is_ok() && (!hooks_.start || client.code() != Code::kStoreUnavailable)) return client.status();
  }
  if (!client.is_ok()) return client.status();
  StoreReplacement replacement;
  replacement.before = ended->client->server().instance;
  replacement.after = (*client)->server().instance;
  std::vector<std::uint64_t> lost;
  if (replacement.before != replacement.after) lost = ended->client->fingerprints();
  replacement.objects = lost.size();
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return closed_status();
    lost_objects_.add(std::move(lost));
    attachment_ = std::make_shared<Attachment>(Attachment{client.take(), ended->number + 1});
  }
  if (hooks_.replaced && replacement.before != replacement.after) hooks_.replaced(replacement);
  return Status::ok();
}

// ---- objects ----

std::vector<PutResult> ReconnectingClient::put(const Attachment& attachment, std::span<PutItem> items,
                                               std::uint32_t wait_ms, const Interrupt& interrupt) {
  const Status resolved = resolve_handles(attachment, items, interrupt);
  if (!resolved.is_ok()) return std::vector<PutResult>(items.size(), PutResult{.status = resolved});
  std::vector<PutResult> results = attachment.client->put(items, wait_ms, interrupt);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].status.is_ok()) note_found(attachment, std::span(&items[i].id, 1));
  }
  return results;
}

PutResult ReconnectingClient::seal(const Attachment& attachment, WritableBlob& blob, PutItem& item,
                                   const Interrupt& interrupt) {
  Status ready = check_blob(attachment, blob);
  if (ready.is_ok()) ready = resolve_handles(attachment, std::span(&item, 1), interrupt);
  if (!ready.is_ok()) return {.status = std::move(ready)};
  PutResult result = attachment.client->seal(blob, item, interrupt);
  if (result.status.is_ok()) note_found(attachment, std::span(&item.id, 1));
  return result;
}

PutResult ReconnectingClient::seal_parts(const Attachment& attachment,
                                         std::span<const std::shared_ptr<WritableBlob>> blobs, PutItem& item,
                                         const Interrupt& interrupt) {
  Status ready = resolve_handles(attachment, std::span(&item, 1), interrupt);
  for (const auto& blob : blobs) {
    if (ready.is_ok()) ready = check_blob(attachment, *blob);
  }
  if (!ready.is_ok()) return {.status = std::move(ready)};
  PutResult result = attachment.client->seal_parts(blobs, item, interrupt);
  if (result.status.is_ok()) note_found(attachment, std::span(&item.id, 1));
  return result;
}

PutResult ReconnectingClient::seal(const Attachment& attachment, ObjectBuilder& builder, PutItem& item,
                                   std::uint32_t wait_ms, const Interrupt& interrupt) {
  Status ready = check_builder(attachment, builder);
  if (ready.is_ok()) ready = resolve_handles(attachment, std::span(&item, 1), interrupt);
  if (!ready.is_ok()) return {.status = std::move(ready)};
  PutResult result = attachment.client->seal(builder, item, wait_ms, interrupt);
  if (result.status.is_ok()) note_found(attachment, std::span(&item.id, 1));
  return result;
}

Result<IdBytes> ReconnectingClient::resolve_name(const Attachment& attachment, std::uint64_t session,
                                                 const std::string& name, const Wait& wait,
                                                 const Interrupt& interrupt) {
  ASSIGN_OR_RETURN(const std::uint32_t number, session_number(attachment, session, interrupt));
  Result<IdBytes> resolved = attachment.client->resolve_name(number, name, wait, interrupt);
  if (resolved.is_ok()) note_found(attachment, std::span(&*resolved, 1));
  return resolved;
}

Result<std::vector<std::shared_ptr<SealedObject>>> ReconnectingClient::get(const Attachment& attachment,
                                                                           std::span<const IdBytes> ids,
                                                                           const Wait& wait, const Interrupt& interrupt,
                                                                           Reach reach) {
  if (wait.ms > 0) RETURN_IF_ERROR(check_not_lost(attachment, ids, interrupt));
  auto objects = attachment.client->get(ids, wait, interrupt, reach);
  if (objects.is_ok()) note_found(attachment, ids);
  return objects;
}

Status ReconnectingClient::check_not_lost(const Attachment& attachment, std::span<const IdBytes> ids,
                                          const Interrupt& interrupt) {
  if (attachment.number == 0) return Status::ok();  // no store has died
  std::vector<IdBytes> suspects;
  {
    const std::lock_guard lock(mutex_);
    if (lost_objects_.empty()) return Status::ok();
    std::ranges::copy_if(ids, std::back_inserter(suspects),
                         [&](const IdBytes& id) { return lost_objects_.contains(PinnedSet::fingerprint(id)); });
  }
  if (suspects.empty()) return Status::ok();
  ASSIGN_OR_RETURN(const std::vector<bool> existing, attachment.client->exist(suspects, interrupt));
  std::optional<IdBytes> lost;
  for (std::size_t i = 0; i < suspects.size(); ++i) {
    if (existing[i]) {
      note_found(attachment, std::span(&suspects[i], 1));
    } else if (!lost) {
      lost = suspects[i];
    }
  }
  if (!lost) return Status::ok();
  return {Code::kObjectLost,
          concat("object ", to_hex(*lost), " was lost with the previous store at ", options_.path,
                 ": its processes ended, and another store now runs there; recompute it, or load its checkpoint")};
}

void ReconnectingClient::note_found(const Attachment& attachment, std::span<const IdBytes> ids) {
  if (attachment.number == 0) return;  // no store has died
  const std::lock_guard lock(mutex_);
  if (lost_objects_.empty() || attachment_->number != attachment.number) return;
  for (const IdBytes& id : ids)
    lost_objects_.note_found(PinnedSet::fingerprint(id));
}

const Status* ReconnectingClient::failure_of(const std::vector<PutResult>& results) {
  for (const PutResult& result : results) {
    if (result.status.code() == Code::kStoreUnavailable) return &result.status;
  }
  return nullptr;
}

void ReconnectingClient::fail(std::vector<PutResult>& done, const Status& why) {
  for (PutResult& result : done) {
    if (result.status.code() == Code::kStoreUnavailable) result.status = why;
  }
}

void ReconnectingClient::after_fork_in_child() {
  reattaching_.after_fork_in_child();
  for (auto& [name, open] : sessions_) {
    open.inherited += std::exchange(open.users, 0);
    open.open_count = 0;
  }
  mutex_.unlock();
}

// --- sessions and locality sets --------------------------------------------------------------------------------------

Result<std::uint64_t> ReconnectingClient::open_session(const Attachment& attachment, const std::string& scope,
                                                       const std::string& session,
                                                       const std::optional<Client::SessionLimits>& limits,
                                                       std::optional<bool> deletes_consumed,
                                                       const Interrupt& interrupt) {
  ASSIGN_OR_RETURN(const std::uint32_t number,
                   attachment.client->open_session(scope, session, limits, interrupt, deletes_consumed));
  const std::uint64_t session_handle = handle(attachment, number);
  const std::lock_guard lock(mutex_);
  OpenSession& open = sessions_[{scope, session}];
  open.users += 1;
  if (limits) open.limits = limits;
  if (deletes_consumed) open.deletes_consumed = deletes_consumed;
  if (open.attachment != attachment.number || open.number != number) {
    open.attachment = attachment.number;
    open.number = number;
    open.open_count = 0;
  }
  open.open_count += 1;
  if (names_.try_emplace(session_handle, scope, session).second) open.handles.push_back(session_handle);
  return session_handle;
}

void ReconnectingClient::close_session(const std::string& scope, const std::string& session) {
  OpenSession open;
  AttachmentPtr current;
  {
    const std::lock_guard lock(mutex_);
    const auto match = sessions_.find({scope, session});
    if (match == sessions_.end()) return;
    OpenSession& entry = match->second;
    // In the child of a fork, it is not known which user is closing; most likely one that has opened it there.
    (entry.users > 0 ? entry.users : entry.inherited) -= 1;
    if (entry.users > 0) return;
    open = entry;
    entry.open_count = 0;
    current = attachment_;
    if (entry.inherited == 0) {
      sessions_.erase(match);
      for (const std::uint64_t handle : open.handles)
        names_.erase(handle);
    }
  }
  if (open.attachment != current->number) return;  // it was open in a store that is gone
  for (std::uint32_t i = 0; i < open.open_count; ++i)
    current->client->close_session(scope, session);
}

void ReconnectingClient::forget_session(const std::string& scope, const std::string& session) {
  const std::lock_guard lock(mutex_);
  const auto match = sessions_.find({scope, session});
  if (match == sessions_.end()) return;
  for (const std::uint64_t handle : match->second.handles)
    names_.erase(handle);
  sessions_.erase(match);
}

Result<std::uint32_t> ReconnectingClient::reopen_session(const Attachment& attachment, std::uint64_t session,
                                                         const Interrupt& interrupt) {
  SessionName name;
  OpenSession open;
  {
    const std::lock_guard lock(mutex_);
    const auto name_entry = names_.find(session);
    if (name_entry == names_.end()) {
      return Status(Code::kInstanceLost, concat("session number ", session & 0xffff'ffffU,
                                                " belonged to a store that no longer exists, and is no longer ",
                                                "open: open the session again"));
    }
    name = name_entry->second;
    open = sessions_[name];
  }
  if (open.attachment == attachment.number) return open.number;
  ASSIGN_OR_RETURN(const std::uint32_t number, attachment.client->open_session(name.first, name.second, open.limits,
                                                                               interrupt, open.deletes_consumed));
  const std::lock_guard lock(mutex_);
  const auto match = sessions_.find(name);
  if (match == sessions_.end()) return number;  // closed meanwhile
  if (match->second.attachment != attachment.number) {
    match->second.attachment = attachment.number;
    match->second.number = number;
    match->second.open_count = 0;
  }
  match->second.open_count += 1;
  return number;
}

Result<std::uint32_t> ReconnectingClient::set_number(const Attachment& attachment, std::uint64_t set) {
  if (set == 0 || (set >> 32) == attachment.number) return static_cast<std::uint32_t>(set);
  return Status(Code::kInstanceLost, concat("locality set number ", set & 0xffff'ffffU,
                                            " belonged to a store that no longer exists: define it again"));
}

Status ReconnectingClient::check_blob(const Attachment& attachment, const WritableBlob& blob) {
  if (blob.is_of(*attachment.client) || blob.is_orphan()) return Status::ok();
  return {Code::kInstanceLost,
          "this blob was being written in a store that no longer exists, and cannot be sealed in another one: create "
          "another blob and write it again"};
}

Status ReconnectingClient::check_builder(const Attachment& attachment, const ObjectBuilder& builder) {
  if (builder.is_of(*attachment.client)) return Status::ok();
  return {
      Code::kInstanceLost,
      "this object was being built in a store that no longer exists, and cannot be continued in another one: create "
      "another builder and start again"};
}

Status ReconnectingClient::resolve_handles(const Attachment& attachment, std::span<PutItem> items,
                                           const Interrupt& interrupt) {
  for (PutItem& item : items) {
    ASSIGN_OR_RETURN(item.session, session_number(attachment, item.session_handle, interrupt));
    ASSIGN_OR_RETURN(item.locality_set, set_number(attachment, item.set_handle));
  }
  return Status::ok();
}

}  // namespace entrepot
