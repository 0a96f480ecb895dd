// Encryption of what is spilled: AES-256-GCM by the machine's libcrypto, loaded when a key is given, as the libraries
// that pack are: nothing is linked, and nothing is needed where nobody asks for it.
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
using SpillKeyId = std::array<std::uint8_t, 16>;  // of a hash of the key: says which it is, and not what
using SpillNonce = std::array<std::uint8_t, 12>;
using SpillTag = std::array<std::uint8_t, 16>;

// A block of the file that comes `index` blocks after the one with nonce `first`.
[[nodiscard]] SpillNonce nonce_after(const SpillNonce& first, std::uint32_t index);

// Any thread.
class SpillCipher {
 public:
  // kStoreUnavailable names the library that is missing, and the package that has it.
  [[nodiscard]] static Result<std::shared_ptr<SpillCipher>> open(const SpillKey& key);
  virtual ~SpillCipher() = default;

  [[nodiscard]] const SpillKeyId& key_id() const { return key_id_; }

  // The first of `count` nonces that this key has not had: 8 random bytes, drawn when the daemon starts and again when
  // the counter behind them is used up, and the counter (4 bytes, little-endian).
  [[nodiscard]] SpillNonce take_nonces(std::uint32_t count);

  // `to` may be `from`. Not ok only where the library fails.
  [[nodiscard]] virtual Status seal(const SpillNonce& nonce, std::span<const std::byte> associated,
                                    const std::byte* from, std::uint64_t bytes, std::byte* to, SpillTag& tag) const = 0;
  // Whether it is what was sealed. Where it is not, `to` has bytes that nobody may use.
  [[nodiscard]] virtual bool unseal(const SpillNonce& nonce, std::span<const std::byte> associated, const SpillTag& tag,
                                    const std::byte* from, std::uint64_t bytes, std::byte* to) const = 0;

 protected:
  SpillCipher();
  SpillKeyId key_id_{};

 private:
  std::mutex mutex_;
  std::uint64_t prefix_;       // guarded by mutex_
  std::uint64_t counter_ = 0;  // guarded by mutex_; of this prefix, at most 2^32
};

}  // namespace entrepot
