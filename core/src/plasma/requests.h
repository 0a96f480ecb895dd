// Requests: what each message of a Plasma client does. Codes and answers are Plasma's; docs/plasma.md lists where this
// differs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "plasma/arena_objects.h"
#include "plasma/get_requests.h"
#include "plasma/messages.h"
#include "plasma/store_worker.h"

namespace entrepot::plasma {

// The code of a seal that failed.
[[nodiscard]] inline Error error_of(const Status& status) {
  return status.code() == Code::kObjectExists ? Error::kObjectExists : Error::kOutOfMemory;
}

// Guarded by the front end's thread.
class Requests {
 public:
  struct Parts {
    ArenaObjects& objects;
    GetRequests& gets;
    StoreWorker& worker;
    Notifications& notifications;
    std::function<ClientChannel*(ClientKey)> channel;  // null: it is gone
    std::function<void(ClientChannel&)> answered;      // the channel may go on
  };
  explicit Requests(Parts parts) : parts_(std::move(parts)) {}

  // kInvalidArgument: the client breaks the protocol, and is to be cut off.
  [[nodiscard]] Status handle(ClientChannel& client, Message message);
  [[nodiscard]] Status subscribe(UniqueFd socket);

 private:
  // Objects that are created and sealed by one message, while it is worked on.
  struct Batch {
    std::vector<std::uint8_t> body;  // to which the request's views point
    CreateAndSealRequest request;
    bool is_batch = false;
  };

  [[nodiscard]] Status create(ClientChannel& client, const CreateRequest& request);
  void created(ClientKey client, const IdBytes& id, const Result<Extent>& extent);
  // --- whole_objects.cpp
  [[nodiscard]] Status create_and_seal(ClientChannel& client, Batch batch);
  void publish(ClientChannel& client, std::shared_ptr<const Batch> batch, std::vector<Extent> extents);
  static void publish_rest(Arena& arena, const Batch& batch, const std::vector<Extent>& extents,
                           std::vector<Published>& published, Patience patience);
  void end_batch(ClientChannel& client, const Batch& batch, const std::vector<Extent>& extents,
                 const std::vector<Published>& published);
  void drop(ClientChannel& client, const Batch& batch, std::size_t count);

  // --- requests.cpp
  [[nodiscard]] Status seal(ClientChannel& client, SealRequest request);
  void end_seal(ClientChannel& client, Object& object, const SealRequest& request, Published published);
  [[nodiscard]] Status abort(ClientChannel& client, const IdBytes& id);
  struct Deletion {
    std::vector<IdBytes> ids;
    std::vector<Error> errors;   // by ID, of those that are not to be deleted now
    std::vector<Doomed> doomed;  // the others
  };
  void remove(ClientChannel& client, std::vector<IdBytes> ids);
  static void end_deletion(ClientChannel& client, const Deletion& deletion, const Result<std::vector<bool>>& removed);
  void contains(ClientChannel& client, const IdBytes& id);
  void list(ClientChannel& client);
  void set_options(ClientChannel& client, const SetOptionsRequest& request);

  // Adds an unsealed object of the client, which holds it, without memory yet. An error: it cannot be.
  [[nodiscard]] Error reserve(ClientChannel& client, const IdBytes& id, std::uint64_t data_bytes,
                              std::uint64_t metadata_bytes, bool may_evict);

  Parts parts_;
};

}  // namespace entrepot::plasma
