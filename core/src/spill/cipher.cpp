#include "spill/cipher.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/text.h"
#include "os/library.h"
#include "os/random.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kMaxCounter = 1ULL << 32;
constexpr std::string_view kKeyIdPrefix = "entrepot spill key";  // so that the ID is not a hash of the key alone

Status unusable(std::string_view what) {
  return {Code::kStoreUnavailable,
          concat(what,
                 "; encryption needs OpenSSL's libcrypto.so.3 (Debian's libssl3) or libcrypto.so.1.1: install it, "
                 "or spill without --spill-key-file and --spill-key-command")};
}

// Uses functions of OpenSSL 1.1 and 3 that are stable within those versions.
class LibcryptoCipher final : public SpillCipher {
 public:
  static Result<std::shared_ptr<SpillCipher>> open(const SpillKey& key) {
    auto library = os::Library::open("libcrypto.so.3");
    if (!library.is_ok()) {
      const Status first = library.status();
      library = os::Library::open("libcrypto.so.1.1");
      if (!library.is_ok()) return unusable(first.message());
    }
    std::shared_ptr<LibcryptoCipher> cipher(new LibcryptoCipher);
    cipher->library_ = library.take();
    if (!cipher->take_functions()) return unusable("libcrypto lacks a function of OpenSSL 1.1 and 3");
    cipher->key_ = key;
    RETURN_IF_ERROR(cipher->name_key());
    return std::shared_ptr<SpillCipher>(std::move(cipher));
  }
  ~LibcryptoCipher() override {
    if (cleanse_ != nullptr) cleanse_(key_.data(), key_.size());
  }

  Status seal(const SpillNonce& nonce, std::span<const std::byte> associated, const std::byte* from,
              std::uint64_t bytes, std::byte* to, SpillTag& tag) const override {
    const Context context(*this);
    int moved = 0;
    const bool done = context.get() != nullptr && bytes <= INT32_MAX &&
                      begin_seal_(context.get(), aes_256_gcm_(), nullptr, key_.data(), nonce.data()) == 1 &&
                      seal_(context.get(), nullptr, &moved, raw(associated.data()), as_int(associated.size())) == 1 &&
                      seal_(context.get(), raw(to), &moved, raw(from), as_int(bytes)) == 1 && moved == as_int(bytes) &&
                      end_seal_(context.get(), raw(to) + bytes, &moved) == 1 &&
                      control_(context.get(), kGetTag, as_int(tag.size()), tag.data()) == 1;
    if (done) return Status::ok();
    return {Code::kInternal, concat("libcrypto could not encrypt ", bytes, " bytes")};
  }

  bool unseal(const SpillNonce& nonce, std::span<const std::byte> associated, const SpillTag& tag,
              const std::byte* from, std::uint64_t bytes, std::byte* to) const override {
    const Context context(*this);
    SpillTag expected = tag;  // the library takes a non-const pointer
    int moved = 0;
    return context.get() != nullptr && bytes <= INT32_MAX &&
           begin_unseal_(context.get(), aes_256_gcm_(), nullptr, key_.data(), nonce.data()) == 1 &&
           unseal_(context.get(), nullptr, &moved, raw(associated.data()), as_int(associated.size())) == 1 &&
           unseal_(context.get(), raw(to), &moved, raw(from), as_int(bytes)) == 1 && moved == as_int(bytes) &&
           control_(context.get(), kSetTag, as_int(expected.size()), expected.data()) == 1 &&
           end_unseal_(context.get(), raw(to) + bytes, &moved) == 1;
  }

 private:
  using Make = void*();
  using Free = void(void*);
  using Algorithm = const void*();
  using Begin = int(void*, const void*, void*, const std::uint8_t*, const std::uint8_t*);
  using Move = int(void*, std::uint8_t*, int*, const std::uint8_t*, int);
  using End = int(void*, std::uint8_t*, int*);
  using Control = int(void*, int, int, void*);
  using Digest = std::uint8_t*(const std::uint8_t*, std::size_t, std::uint8_t*);
  using Cleanse = void(void*, std::size_t);
  static constexpr int kGetTag = 0x10;  // EVP_CTRL_AEAD_GET_TAG
  static constexpr int kSetTag = 0x11;  // EVP_CTRL_AEAD_SET_TAG

  // One per block: creating it takes a microsecond, encrypting a block some hundreds.
  class Context {
   public:
    explicit Context(const LibcryptoCipher& cipher) : cipher_(cipher), context_(cipher.make_()) {}
    ~Context() { cipher_.free_(context_); }
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    Context(Context&&) = delete;
    Context& operator=(Context&&) = delete;
    [[nodiscard]] void* get() const { return context_; }

   private:
    const LibcryptoCipher& cipher_;
    void* context_;
  };

  static const std::uint8_t* raw(const std::byte* bytes) { return reinterpret_cast<const std::uint8_t*>(bytes); }
  static std::uint8_t* raw(std::byte* bytes) { return reinterpret_cast<std::uint8_t*>(bytes); }
  static int as_int(std::uint64_t bytes) { return static_cast<int>(bytes); }

  [[nodiscard]] bool take_functions() {
    const auto take = [this](auto*& function, const char* name) {
      function = library_->function<std::remove_reference_t<decltype(*function)>>(name);
      return function != nullptr;
    };
    return take(make_, "EVP_CIPHER_CTX_new") && take(free_, "EVP_CIPHER_CTX_free") &&
           take(aes_256_gcm_, "EVP_aes_256_gcm") && take(begin_seal_, "EVP_EncryptInit_ex") &&
           take(seal_, "EVP_EncryptUpdate") && take(end_seal_, "EVP_EncryptFinal_ex") &&
           take(begin_unseal_, "EVP_DecryptInit_ex") && take(unseal_, "EVP_DecryptUpdate") &&
           take(end_unseal_, "EVP_DecryptFinal_ex") && take(control_, "EVP_CIPHER_CTX_ctrl") &&
           take(sha256_, "SHA256") && take(cleanse_, "OPENSSL_cleanse");
  }
  [[nodiscard]] Status name_key() {
    std::array<std::uint8_t, kKeyIdPrefix.size() + kSpillKeyBytes> text{};
    std::memcpy(text.data(), kKeyIdPrefix.data(), kKeyIdPrefix.size());
    std::memcpy(text.data() + kKeyIdPrefix.size(), key_.data(), key_.size());
    std::array<std::uint8_t, 32> digest{};
    const bool done = sha256_(text.data(), text.size(), digest.data()) != nullptr;
    cleanse_(text.data(), text.size());
    if (!done) return {Code::kInternal, "libcrypto could not hash the key"};
    std::copy_n(digest.begin(), key_id_.size(), key_id_.begin());
    return Status::ok();
  }

  std::shared_ptr<const os::Library> library_;
  SpillKey key_{};
  Make* make_ = nullptr;
  Free* free_ = nullptr;
  Algorithm* aes_256_gcm_ = nullptr;
  Begin* begin_seal_ = nullptr;
  Move* seal_ = nullptr;
  End* end_seal_ = nullptr;
  Begin* begin_unseal_ = nullptr;
  Move* unseal_ = nullptr;
  End* end_unseal_ = nullptr;
  Control* control_ = nullptr;
  Digest* sha256_ = nullptr;
  Cleanse* cleanse_ = nullptr;
};

}  // namespace

SpillNonce nonce_after(const SpillNonce& first, std::uint32_t index) {
  SpillNonce nonce = first;
  std::uint32_t counter = 0;
  std::memcpy(&counter, first.data() + 8, sizeof(counter));
  counter += index;
  std::memcpy(nonce.data() + 8, &counter, sizeof(counter));
  return nonce;
}

SpillCipher::SpillCipher() : prefix_(os::random_u64()) {}

Result<std::shared_ptr<SpillCipher>> SpillCipher::open(const SpillKey& key) { return LibcryptoCipher::open(key); }

SpillNonce SpillCipher::take_nonces(std::uint32_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (counter_ + count > kMaxCounter) {
    prefix_ = os::random_u64();
    counter_ = 0;
  }
  SpillNonce nonce{};
  const auto counter = static_cast<std::uint32_t>(counter_);
  std::memcpy(nonce.data(), &prefix_, sizeof(prefix_));
  std::memcpy(nonce.data() + sizeof(prefix_), &counter, sizeof(counter));
  counter_ += count;
  return nonce;
}

}  // namespace entrepot
