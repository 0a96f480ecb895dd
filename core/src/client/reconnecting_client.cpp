#include "client/reconnecting_client.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"

namespace entrepot {
namespace {

// Timeout if nobody listens, for a store started on demand: nobody else will start it.
constexpr std::uint64_t kOwnNobodyMs = 50;
constexpr std::size_t kMostGone = 4U << 20;  // limit of remembered objects of dead stores, at 8 bytes each

Status closed_status() { return {Code::kStoreUnavailable, "this store was closed by close(): connect again"}; }

}  // namespace

Result<std::shared_ptr<ReconnectingClient>> ReconnectingClient::connect(const ConnectOptions& options, Hooks hooks,
                                                                        const Interrupt& interrupt) {
  ConnectOptions wanted = options;
  if (hooks.start) wanted.nobody_ms = kOwnNobodyMs;
  std::shared_ptr<ReconnectingClient> made(new ReconnectingClient(std::move(wanted), std::move(hooks)));
  ASSIGN_OR_RETURN(auto client, Client::connect(made->options_, interrupt));
  made->life_ = std::make_shared<Life>(Life{std::move(client), 0});
  watch_forks(made);
  return made;
}

ReconnectingClient::LifePtr ReconnectingClient::life() const {
  const std::lock_guard lock(mutex_);
  return life_;
}

void ReconnectingClient::close() {
  LifePtr last;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;  // from here on there is no next life
    last = life_;
  }
  last->client->close();
}

bool ReconnectingClient::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

// --- lives -----------------------------------------------------------------------------------------------------------

Status ReconnectingClient::renew(LifePtr& life, const Status& failure, os::Deadline limit, const Interrupt& interrupt) {
  RETURN_IF_ERROR(renewing_.run(interrupt, limit, [&] { return renew_in_turn(life, failure, limit, interrupt); }));
  // The previous life may hold the last reference to its client, which is then destroyed here: not under the mutex.
  life = this->life();
  return Status::ok();
}

Status ReconnectingClient::renew_in_turn(const LifePtr& over, const Status& failure, os::Deadline limit,
                                         const Interrupt& interrupt) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return closed_status();
    if (life_ != over) return Status::ok();  // another thread was faster
  }
  if (!over->client->lost()) {
    // Nobody listened, or not in time. With a start hook, the store is started and the same client is used again; it
    // then turns out to be lost, or finds its own store after all.
    if (!hooks_.start) return failure;
    return hooks_.start();
  }
  Result<std::shared_ptr<Client>> made = failure;
  for (int tries = 0; tries < kTries && !made.is_ok(); ++tries) {
    if (hooks_.start) RETURN_IF_ERROR(hooks_.start());
    ConnectOptions options = options_;
    options.connect_ms = std::min(options.connect_ms, limit.remaining_ns() / 1'000'000U);
    made = Client::connect(options, interrupt);
    if (!made.is_ok() && (!hooks_.start || made.code() != Code::kStoreUnavailable)) return made.status();
  }
  if (!made.is_ok()) return made.status();
  Succession said;
  said.before = over->client->server().instance;
  said.after = (*made)->server().instance;
  std::vector<std::uint64_t> gone;
  if (said.before != said.after) gone = over->client->fingerprints();
  said.objects = gone.size();
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return closed_status();
    remember(std::move(gone));
    life_ = std::make_shared<Life>(Life{made.take(), over->number + 1});
  }
  if (hooks_.succeeded && said.before != said.after) hooks_.succeeded(said);
  return Status::ok();
}

void ReconnectingClient::remember(std::vector<std::uint64_t> gone) {
  if (gone.size() > kMostGone) gone.resize(kMostGone);
  if (gone_.size() + gone.size() > kMostGone) gone_.clear();  // forget older losses
  std::vector<std::uint64_t> all;
  all.reserve(gone_.size() + gone.size());
  std::ranges::set_union(gone_, gone, std::back_inserter(all));
  gone_ = std::move(all);
}

Status ReconnectingClient::refuse_lost(std::span<const IdBytes> ids) const {
  const std::lock_guard lock(mutex_);
  if (gone_.empty()) return Status::ok();
  for (const IdBytes& id : ids) {
    if (!std::ranges::binary_search(gone_, PinnedSet::fingerprint(id))) continue;
    // With several objects, another may be the missing one, and this one may have been recomputed since.
    if (ids.size() > 1 && life_->client->peek_generation(id)) continue;
    return {
        Code::kObjectLost,
        concat("object ", to_hex(id), " went with the store that was at ", options_.path,
               " before: its processes ended, and another store is there now; make it anew, or load its checkpoint")};
  }
  return Status::ok();
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
  renewing_.after_fork_in_child();
  mutex_.unlock();
}

// --- sessions and locality sets --------------------------------------------------------------------------------------

Result<std::uint64_t> ReconnectingClient::open_session(const Life& life, const std::string& scope,
                                                       const std::string& session,
                                                       const std::optional<Client::SessionLimits>& limits,
                                                       std::optional<bool> deletes_consumed,
                                                       const Interrupt& interrupt) {
  ASSIGN_OR_RETURN(const std::uint32_t number,
                   life.client->open_session(scope, session, limits, interrupt, deletes_consumed));
  const std::uint64_t made = handle(life, number);
  const std::lock_guard lock(mutex_);
  OpenSession& open = sessions_[{scope, session}];
  open.users += 1;
  if (limits) open.limits = limits;
  if (deletes_consumed) open.deletes_consumed = deletes_consumed;
  if (open.life != life.number || open.number != number) {
    open.life = life.number;
    open.number = number;
    open.times = 0;
  }
  open.times += 1;
  if (names_.try_emplace(made, scope, session).second) open.handles.push_back(made);
  return made;
}

void ReconnectingClient::close_session(const std::string& scope, const std::string& session) {
  OpenSession open;
  LifePtr current;
  {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find({scope, session});
    if (found == sessions_.end() || --found->second.users > 0) return;
    open = std::move(found->second);
    sessions_.erase(found);
    for (const std::uint64_t handle : open.handles)
      names_.erase(handle);
    current = life_;
  }
  if (open.life != current->number) return;  // it was open in a store that is gone
  for (std::uint32_t i = 0; i < open.times; ++i)
    current->client->close_session(scope, session);
}

void ReconnectingClient::forget_session(const std::string& scope, const std::string& session) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find({scope, session});
  if (found == sessions_.end()) return;
  for (const std::uint64_t handle : found->second.handles)
    names_.erase(handle);
  sessions_.erase(found);
}

Result<std::uint32_t> ReconnectingClient::reopened(const Life& life, std::uint64_t session,
                                                   const Interrupt& interrupt) {
  SessionName name;
  OpenSession open;
  {
    const std::lock_guard lock(mutex_);
    const auto known = names_.find(session);
    if (known == names_.end()) {
      return Status(Code::kInstanceLost,
                    concat("session number ", session & 0xffff'ffffU, " was of a store that is gone, and is not open ",
                           "any more: open the session again"));
    }
    name = known->second;
    open = sessions_[name];
  }
  if (open.life == life.number) return open.number;
  ASSIGN_OR_RETURN(const std::uint32_t number,
                   life.client->open_session(name.first, name.second, open.limits, interrupt, open.deletes_consumed));
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(name);
  if (found == sessions_.end()) return number;  // closed meanwhile
  if (found->second.life != life.number) {
    found->second.life = life.number;
    found->second.number = number;
    found->second.times = 0;
  }
  found->second.times += 1;
  return number;
}

Result<std::uint32_t> ReconnectingClient::set_number(const Life& life, std::uint64_t set) {
  if (set == 0 || (set >> 32) == life.number) return static_cast<std::uint32_t>(set);
  return Status(Code::kInstanceLost,
                concat("locality set number ", set & 0xffff'ffffU, " was of a store that is gone: make it again"));
}

Status ReconnectingClient::check_blob(const Life& life, const WritableBlob& blob) {
  if (blob.is_of(*life.client) || blob.is_orphan()) return Status::ok();
  return {Code::kInstanceLost,
          "this blob was being written in a store that is gone, and its bytes cannot be sealed in another one: create "
          "another blob, and write it again"};
}

Status ReconnectingClient::aim(const Life& life, std::span<PutItem> items, const Interrupt& interrupt) {
  for (PutItem& item : items) {
    ASSIGN_OR_RETURN(item.session, session_number(life, item.session_handle, interrupt));
    ASSIGN_OR_RETURN(item.locality_set, set_number(life, item.set_handle));
  }
  return Status::ok();
}

}  // namespace entrepot
