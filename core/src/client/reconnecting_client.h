// ReconnectingClient: access to whichever store is at an address; survives the death of a store.
//
//   attachment 0 ──its Client is lost, a request needs the store──▶ attachment 1 ──▶ ...        close() ──▶ closed
//
// An attachment is a Client, connected to one instance of the store, and a number. A dead store is noticed only when a
// request fails; until then the dead store's memory can still be read, and values already returned stay readable for
// good, because they hold that memory. The request is then repeated with the next attachment; its store has nothing
// from the old one, so the request cannot take effect twice. State that only the dead store had is not available in the
// next: such requests fail with kInstanceLost (unsealed blobs, locality sets by number) or kObjectLost (objects).
// Sessions are reopened by name when they are used.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/lost_objects.h"
#include "client/object_builder.h"
#include "client/shared_attempt.h"

namespace entrepot {

class ReconnectingClient : public ForkWatcher {
 public:
  struct Attachment {
    std::shared_ptr<Client> client;
    std::uint32_t number = 0;  // 0 for the first
  };
  using AttachmentPtr = std::shared_ptr<const Attachment>;

  // The replacement of a store by another one, to be reported to the user.
  struct StoreReplacement {
    InstanceId before{};
    InstanceId after{};
    std::uint64_t objects = 0;  // number of objects in the previous store
  };
  struct Hooks {
    // Starts the store if it is not running. If unset, the store is not started here.
    std::function<Status()> start;
    // Called once for each new attachment whose store is another instance, by the thread that made it.
    std::function<void(const StoreReplacement&)> replaced;
  };

  [[nodiscard]] static Result<std::shared_ptr<ReconnectingClient>> connect(const ConnectOptions& options, Hooks hooks,
                                                                           const Interrupt& interrupt);

  [[nodiscard]] AttachmentPtr attachment() const;
  void close();
  [[nodiscard]] bool closed() const;

  // Returns the result of `work`, which uses the store through an Attachment's Client and returns a Status, Result,
  // PutResult or several of these. If that attachment turns out to have ended, `work` is called again with the next
  // one; `attachment` is then that one. Does not wait for a store beyond `limit`.
  template <class Work>
  auto run(AttachmentPtr& attachment, os::Deadline limit, const Interrupt& interrupt, Work&& work)
      -> std::invoke_result_t<Work&, const Attachment&> {
    for (int tries = 0;; ++tries) {
      auto done = work(*attachment);
      const Status* const failure = failure_of(done);
      if (failure == nullptr || failure->code() != Code::kStoreUnavailable) return done;
      Status reattached = tries < kTries ? reattach(attachment, *failure, limit, interrupt) : *failure;
      if (reattached.is_ok()) continue;
      fail(done, reattached);
      return done;
    }
  }
  template <class Work>
  auto run(const Interrupt& interrupt, Work&& work) {
    AttachmentPtr current = attachment();
    return run(current, os::Deadline::never(), interrupt, std::forward<Work>(work));
  }

  // --- sessions and locality sets: handles combine a store's number with the attachment that assigned it
  [[nodiscard]] static constexpr std::uint64_t handle(const Attachment& attachment, std::uint32_t number) {
    return number == 0 ? 0 : (std::uint64_t{attachment.number} << 32) | number;
  }
  [[nodiscard]] Result<std::uint64_t> open_session(const Attachment& attachment, const std::string& scope,
                                                   const std::string& session,
                                                   const std::optional<Client::SessionLimits>& limits,
                                                   std::optional<bool> deletes_consumed, const Interrupt& interrupt);
  void close_session(const std::string& scope, const std::string& session);
  void forget_session(const std::string& scope, const std::string& session);  // after it was removed
  // Returns the session's number in this attachment; opens the session if necessary.
  [[nodiscard]] Result<std::uint32_t> session_number(const Attachment& attachment, std::uint64_t session,
                                                     const Interrupt& interrupt) {
    if ((session >> 32) == attachment.number || session == 0) return static_cast<std::uint32_t>(session);
    return reopen_session(attachment, session, interrupt);
  }
  // kInstanceLost for a set of an earlier attachment.
  [[nodiscard]] static Result<std::uint32_t> set_number(const Attachment& attachment, std::uint64_t set);

  // --- objects: Client's methods of the same names, except that
  //   - the items' handles are resolved: `session` and `locality_set` become numbers of this attachment;
  //   - a blob created in an earlier attachment fails with kInstanceLost;
  //   - if an object that was found in the store is missing later, it was not lost with an earlier store
  [[nodiscard]] std::vector<PutResult> put(const Attachment& attachment, std::span<PutItem> items,
                                           std::uint32_t wait_ms, const Interrupt& interrupt);
  [[nodiscard]] PutResult seal(const Attachment& attachment, WritableBlob& blob, PutItem& item,
                               const Interrupt& interrupt);
  [[nodiscard]] PutResult seal_parts(const Attachment& attachment, std::span<const std::shared_ptr<WritableBlob>> blobs,
                                     PutItem& item, const Interrupt& interrupt);
  // A builder of an earlier attachment fails with kInstanceLost.
  [[nodiscard]] static Status check_builder(const Attachment& attachment, const ObjectBuilder& builder);
  [[nodiscard]] PutResult seal(const Attachment& attachment, ObjectBuilder& builder, PutItem& item,
                               std::uint32_t wait_ms, const Interrupt& interrupt);
  // `session` is a handle. A name refers to a sealed object.
  [[nodiscard]] Result<IdBytes> resolve_name(const Attachment& attachment, std::uint64_t session,
                                             const std::string& name, const Wait& wait, const Interrupt& interrupt);
  // Client::get, except that it does not wait for objects that were in a store that is gone and are in no other:
  // kObjectLost at once.
  [[nodiscard]] Result<std::vector<std::shared_ptr<SealedObject>>> get(const Attachment& attachment,
                                                                       std::span<const IdBytes> ids, const Wait& wait,
                                                                       const Interrupt& interrupt,
                                                                       Reach reach = Reach::kStore);
  // kObjectLost if one of these objects was in a store that is gone, and is in no other.
  [[nodiscard]] Status check_not_lost(const Attachment& attachment, std::span<const IdBytes> ids,
                                      const Interrupt& interrupt);

  // --- ForkWatcher
  void before_fork() override { mutex_.lock(); }
  void after_fork_in_parent() override { mutex_.unlock(); }
  void after_fork_in_child() override;

 private:
  static constexpr int kTries = 3;
  struct OpenSession {
    std::uint32_t users = 0;
    std::uint32_t inherited = 0;                  // users at a fork, in the child: it is not open for them
    std::optional<Client::SessionLimits> limits;  // as last set
    std::optional<bool> deletes_consumed;
    std::uint32_t attachment = 0;        // the one that `number` belongs to
    std::uint32_t number = 0;            // 0: not open
    std::uint32_t open_count = 0;        // number of opens in that attachment's Client
    std::vector<std::uint64_t> handles;  // handles returned to callers
  };
  using SessionName = std::pair<std::string, std::string>;  // scope, name

  // Objects seen in the store: if they are missing later, they were not lost with an earlier store.
  void note_found(const Attachment& attachment, std::span<const IdBytes> ids);
  [[nodiscard]] Status resolve_handles(const Attachment& attachment, std::span<PutItem> items,
                                       const Interrupt& interrupt);
  [[nodiscard]] static Status check_blob(const Attachment& attachment, const WritableBlob& blob);

  ReconnectingClient(ConnectOptions options, Hooks hooks) : options_(std::move(options)), hooks_(std::move(hooks)) {}
  [[nodiscard]] Status reattach(AttachmentPtr& attachment, const Status& failure, os::Deadline limit,
                                const Interrupt& interrupt);
  [[nodiscard]] Status reattach_in_turn(const AttachmentPtr& ended, const Status& failure, os::Deadline limit,
                                        const Interrupt& interrupt);
  [[nodiscard]] Result<std::uint32_t> reopen_session(const Attachment& attachment, std::uint64_t session,
                                                     const Interrupt& interrupt);

  static const Status* failure_of(const Status& status) { return status.is_ok() ? nullptr : &status; }
  static const Status* failure_of(const PutResult& result) { return failure_of(result.status); }
  template <class T>
  static const Status* failure_of(const Result<T>& result) {
    return failure_of(result.status());
  }
  // First of those that failed because the store was unreachable, if any: the others' results went with the store.
  static const Status* failure_of(const std::vector<PutResult>& results);
  static void fail(Status& done, const Status& why) { done = why; }
  static void fail(PutResult& done, const Status& why) { done.status = why; }
  template <class T>
  static void fail(Result<T>& done, const Status& why) {
    done = Result<T>(why);
  }
  static void fail(std::vector<PutResult>& done, const Status& why);

  const ConnectOptions options_;
  const Hooks hooks_;
  SharedAttempt reattaching_;

  mutable std::mutex mutex_;                              // never held during a request to the store
  AttachmentPtr attachment_;                              // guarded by mutex_
  bool closed_ = false;                                   // guarded by mutex_
  std::map<SessionName, OpenSession> sessions_;           // guarded by mutex_
  std::unordered_map<std::uint64_t, SessionName> names_;  // guarded by mutex_; of sessions_, by handle
  LostObjects lost_objects_;                              // guarded by mutex_
};

}  // namespace entrepot
