// ObjectBuilder: memory of the store for one object, obtained part by part and published by one seal.
//
//              ┌──failed before it was sent (no memory, a wrong buffer)──┐
//              ▼                                                         │
//   open ──Client::seal──▶ sealing ──sealed, or refused by the daemon──▶ ended
//     └──give_up, destroyed──▶ ended          (what was not sealed goes back to the store)
//   In a forked child every call is refused, whatever the state: only the parent can seal its parts.
//
// Thread-safe: parts can be obtained and filled by several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "client/client.h"

namespace entrepot {

// Parts of one object. Fewer than the blobs that an object can have, because a seal may add some.
inline constexpr std::size_t kMaxParts = 1U << 15;

class ObjectBuilder {
 public:
  // Bytes that are in the store already. `memory` keeps a copy's part; null: they are in a sealed object.
  struct Stored {
    SourceBuffer bytes;
    std::shared_ptr<const WritableBlob> memory;
  };

  explicit ObjectBuilder(std::shared_ptr<Client> client);
  ~ObjectBuilder();
  ObjectBuilder(const ObjectBuilder&) = delete;
  ObjectBuilder& operator=(const ObjectBuilder&) = delete;
  ObjectBuilder(ObjectBuilder&&) = delete;
  ObjectBuilder& operator=(ObjectBuilder&&) = delete;

  // A part for the caller to write until the seal, which makes its pages read-only here.
  [[nodiscard]] Result<std::shared_ptr<WritableBlob>> allocate(std::uint64_t bytes, std::uint32_t wait_ms,
                                                               const Interrupt& interrupt);
  // Copies bytes into the store. With kReference, those that lie in a sealed object pinned by this process are returned
  // as they are: the caller keeps that object pinned until the seal.
  enum class Sealed : std::uint8_t { kCopy, kReference };
  [[nodiscard]] Result<std::vector<Stored>> store(std::span<const SourceBuffer> buffers, Sealed sealed,
                                                  std::uint32_t wait_ms, const Interrupt& interrupt);
  // Keeps an object pinned until the seal.
  [[nodiscard]] Status keep(std::shared_ptr<SealedObject> object);
  // Returns the memory. Nothing happens if it was sealed.
  void give_up();

  [[nodiscard]] bool is_open() const;
  [[nodiscard]] bool is_of(const Client& client) const { return client_.get() == &client; }

 private:
  friend class Client;
  enum class State : std::uint8_t { kOpen, kSealing, kEnded };
  using Parts = std::vector<std::shared_ptr<WritableBlob>>;

  [[nodiscard]] bool is_orphan() const;
  [[nodiscard]] Status check_open() const;  // requires mutex_, unless is_orphan()
  [[nodiscard]] Status add(std::span<const std::shared_ptr<WritableBlob>> parts);
  [[nodiscard]] Result<std::shared_ptr<WritableBlob>> create_unexposed(std::uint64_t bytes, std::uint32_t wait_ms,
                                                                       const Interrupt& interrupt);
  [[nodiscard]] Result<Stored> copy_small(const SourceBuffer& buffer, std::uint32_t wait_ms,
                                          const Interrupt& interrupt);
  [[nodiscard]] Status begin_seal(Parts& parts);
  void reopen(Parts parts);
  void end();

  const std::shared_ptr<Client> client_;
  const std::uint32_t forks_;                        // of the client when this was created
  mutable std::mutex mutex_;                         // never held during a request to the store
  State state_ = State::kOpen;                       // guarded by mutex_
  Parts parts_;                                      // guarded by mutex_; empty unless open
  std::vector<std::shared_ptr<SealedObject>> kept_;  // guarded by mutex_
  std::shared_ptr<WritableBlob> pack_;               // guarded by mutex_: the last part that small copies share
  std::uint64_t pack_used_ = 0;                      // guarded by mutex_
};

}  // namespace entrepot
