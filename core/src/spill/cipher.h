// Encryption of spilled data: AES-256-GCM from the machine's libcrypto, loaded when a key is given. Like the
// compression libraries it is not linked, and not needed unless it is used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "base/status.h"

namespace entrepot {

inline constexpr std::size_t kSpillKeyBytes = 32;
using SpillKey = std::array<std::uint8_t, kSpillKeyBytes>;
using SpillKeyId = std::array<std::uint8_t, 16>;  // from a hash of the key: identifies it without revealing it
using SpillNonce = std::array<std::uint8_t, 12>;
using SpillTag = std::array<std::uint8_t, 16>;

// Nonce of the block that comes `index` blocks after the one with nonce `first`.
[[nodiscard]] SpillNonce nonce_after(const SpillNonce& first, std::uint32_t index);

// Usable from any thread.
class SpillCipher {
 public:
  // kStoreUnavailable names the missing library, and the package that provides it.
  [[nodiscard]] static Result<std::shared_ptr<SpillCipher>> open(const SpillKey& key);
  virtual ~SpillCipher() = default;

  [[nodiscard]] const SpillKeyId& key_id() const { return key_id_; }

  // Returns the first of `count` nonces not yet used with this key: 8 random bytes, drawn at daemon start and again
  // when the counter is exhausted, followed by the counter (4 bytes, little-endian).
  [[nodiscard]] SpillNonce take_nonces(std::uint32_t count);

  // `to` may equal `from`. Fails only if the library fails.
  [[nodiscard]] virtual Status seal(const SpillNonce& nonce, std::span<const std::byte> associated,
                                    const std::byte* from, std::uint64_t bytes, std::byte* to, SpillTag& tag) const = 0;
  // Whether the bytes are what was sealed. If not, the contents of `to` must not be used.
  [[nodiscard]] virtual bool unseal(const SpillNonce& nonce, std::span<const std::byte> associated, const SpillTag& tag,
                                    const std::byte* from, std::uint64_t bytes, std::byte* to) const = 0;

 protected:
  SpillCipher();
  SpillKeyId key_id_{};

 private:
  std::mutex mutex_;
  std::uint64_t prefix_;       // guarded by mutex_
  std::uint64_t counter_ = 0;  // guarded by mutex_; for this prefix, at most 2^32
};

}  // namespace entrepot
