// Encrypted copies: every byte is restored, no plaintext is on disk, and changed or moved data is rejected.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/crc32c.h"
#include "base/text.h"
#include "os/files.h"
#include "spill/key.h"
#include "spill/spill_harness.h"

namespace entrepot::testing {
namespace {

SpillKey key_of(std::uint8_t seed) {
  SpillKey key{};
  for (std::size_t i = 0; i < key.size(); ++i)
    key[i] = static_cast<std::uint8_t>(seed + 3 * i);
  return key;
}

std::shared_ptr<SpillCipher> cipher_of(std::uint8_t seed) {
  auto cipher = SpillCipher::open(key_of(seed));
  EXPECT_TRUE(cipher.is_ok()) << cipher.status().to_string();
  return cipher.is_ok() ? cipher.take() : nullptr;
}

class SpillEncryption : public SpillCopies {
 protected:
  void SetUp() override {
    store.options.packing = GetParam();
    store.options.cipher = cipher_of(1);
    store.must_open();
  }
  void remember(std::uint8_t number, const BlobLocation& from, SpillLocation location) {
    SpilledObject object;
    object.id = {number};
    object.generation = 1;
    object.names = {"a name that nobody shall read"};
    object.blobs = {{{number, 1}, from.length, location}};
    store.files->remember(object);
  }
};

TEST_P(SpillEncryption, EveryByteComesBackAndNoneOfThemIsOnDisk) {
  std::uint32_t number = 1;
  for (const std::uint64_t length : {1, 4096, 100'000, (1 << 20), (1 << 20) + 1, (4 << 20) + 1, (9 << 20) + 4097}) {
    for (const std::uint64_t offset : {0, 64}) {
      const BlobLocation from = place(length, offset);
      store.segments.fill_text(from, number);
      const auto location = store.spill({number, 7}, from);
      ASSERT_TRUE(location.is_ok()) << location.status().to_string();
      expect_loads({number, 7}, *location, from, offset);
      const std::string on_disk = *os::read_file(store.spill_paths().front(), 64ULL << 20);
      if (length >= 4096) {
        const std::string payload = store.segments.bytes(from).substr(1000, 24);
        EXPECT_EQ(on_disk.find(payload), std::string::npos) << length;
      }
      store.files->release({number++, 7}, *location, length);
      EXPECT_EQ(store.files->stats().used_bytes, 0U);
    }
  }
  EXPECT_EQ(store.files->stats().key_id, to_hex(cipher_of(1)->key_id()));
}

TEST_P(SpillEncryption, DamageIsSeenInEveryPage) {
  const BlobLocation from = place(2 * kMiB + 100);
  store.segments.fill_text(from, 1);
  const auto location = store.spill({3, 1}, from);
  ASSERT_TRUE(location.is_ok());
  const SpillPosition at = position_in(*location);
  const std::string path = store.spill_paths().front();
  const std::uint64_t stored = store.files->stats().stored_bytes;
  for (std::uint64_t byte = 0; byte < header_bytes(from.length, true) + stored; byte += kSpillPage) {
    flip_byte(path, at.offset + byte);
    EXPECT_EQ(store.load({3, 1}, *location, place(from.length)).code(), Code::kCorruptData) << "at " << byte;
    flip_byte(path, at.offset + byte);
  }
  expect_loads({3, 1}, *location, from);
}

// Someone who can write to the disk can fix the checksums, but not the tags.
TEST_P(SpillEncryption, WhatSomebodyChangedWithItsChecksumsIsNotTaken) {
  const std::uint64_t length = 2 * kMiB;
  const BlobLocation from = place(length);
  store.segments.fill(from, 1);  // incompressible, so that the blocks keep their places
  const auto location = store.spill({3, 1}, from);
  ASSERT_TRUE(location.is_ok());
  const SpillPosition at = position_in(*location);
  const std::string path = store.spill_paths().front();
  const std::string original = *os::read_file(path, 64ULL << 20);
  const std::uint64_t head = header_bytes(length, true);
  const auto forge = [&](const auto& change) {
    std::string text = original;
    std::span<std::byte> bytes(reinterpret_cast<std::byte*>(text.data()) + at.offset, head + length);
    auto header = decode_header(bytes.first(head), length, true);
    ASSERT_TRUE(header.is_ok());
    change(*header, bytes.subspan(head));
    for (std::size_t block = 0; block < 2; ++block)
      header->block_crcs[block] = crc32c(bytes.data() + head + block * kSpillBlockBytes, kSpillBlockBytes);
    encode_header(*header, bytes.first(head));
    std::ofstream(path, std::ios::binary | std::ios::in) << text;
    EXPECT_EQ(store.load({3, 1}, *location, place(length)).code(), Code::kCorruptData);
  };
  forge([](SpillHeader&, std::span<std::byte> payload) { payload[5] ^= std::byte{1}; });
  forge([](SpillHeader& header, std::span<std::byte> payload) {  // swaps two blocks
    std::swap_ranges(payload.begin(), payload.begin() + kSpillBlockBytes, payload.begin() + kSpillBlockBytes);
    std::swap(header.seal->tags[0], header.seal->tags[1]);
  });
  forge([](SpillHeader& header, std::span<std::byte>) { header.seal->first_nonce[0] ^= 1; });
  forge([](SpillHeader& header, std::span<std::byte>) { header.seal->tags[1][3] ^= 1; });
  forge([](SpillHeader& header, std::span<std::byte>) { header.seal->key_id[0] ^= 1; });
  std::ofstream(path, std::ios::binary | std::ios::in) << original;
  expect_loads({3, 1}, *location, from);
}

// A copy of another blob, with its header rewritten to name the requested blob.
TEST_P(SpillEncryption, ACopyInAnothersPlaceIsNotTaken) {
  const std::uint64_t length = kMiB;
  const BlobLocation first = place(length);
  const BlobLocation second = place(length);
  store.segments.fill(first, 1);
  store.segments.fill(second, 2);
  const auto a = store.spill({1, 1}, first);
  const auto b = store.spill({2, 1}, second);
  ASSERT_TRUE(a.is_ok() && b.is_ok());
  ASSERT_EQ(position_in(*a).file, position_in(*b).file);
  const std::string path = store.spill_paths().front();
  std::string text = *os::read_file(path, 64ULL << 20);
  const std::uint64_t bytes = extent_bytes(length, true);
  text.replace(position_in(*a).offset, bytes, text.substr(position_in(*b).offset, bytes));
  const std::span<std::byte> head(reinterpret_cast<std::byte*>(text.data()) + position_in(*a).offset,
                                  header_bytes(length, true));
  auto header = decode_header(head, length, true);
  ASSERT_TRUE(header.is_ok());
  header->identity.key = {1, 1};
  encode_header(*header, head);
  std::ofstream(path, std::ios::binary | std::ios::in) << text;
  EXPECT_EQ(store.load({1, 1}, *a, place(length)).code(), Code::kCorruptData);
  expect_loads({2, 1}, *b, second);
}

TEST_P(SpillEncryption, WhoeverFollowsWithTheKeyTakesThemOver) {
  const BlobLocation from = place(5 * kMiB + 7);
  store.segments.fill_text(from, 5);
  const auto location = store.spill({1, 1}, from);
  ASSERT_TRUE(location.is_ok());
  remember(1, from, *location);
  store.settle_manifest();
  const std::string manifest = *os::read_file(store.subfolder() + "/manifest");
  EXPECT_EQ(manifest.find("nobody shall read"), std::string::npos);
  const std::uint64_t before = store.files->stats().used_bytes;
  store.die();
  store.options.cipher = cipher_of(1);
  store.must_open();
  ASSERT_TRUE(store.files->adopt({1, 1}, *location, from.length).is_ok());
  store.files->adopt_end();
  EXPECT_EQ(store.files->stats().used_bytes, before);
  expect_loads({1, 1}, *location, from);
}

TEST_P(SpillEncryption, AnotherKeyOrNoneIsRefusedAndNothingIsTouched) {
  const BlobLocation from = place(kMiB);
  store.segments.fill_text(from, 5);
  const auto location = store.spill({1, 1}, from);
  ASSERT_TRUE(location.is_ok());
  remember(1, from, *location);
  store.settle_manifest();
  const std::string path = store.subfolder() + "/manifest";
  const std::string manifest = *os::read_file(path);
  store.die();
  for (const auto& cipher : {cipher_of(2), std::shared_ptr<SpillCipher>()}) {
    store.options.cipher = cipher;
    const Status refused = store.open();
    EXPECT_EQ(refused.code(), Code::kAccessDenied) << refused.to_string();
    EXPECT_NE(refused.message().find(to_hex(cipher_of(1)->key_id())), std::string::npos) << refused.message();
    EXPECT_EQ(*os::read_file(path), manifest);
  }
  store.options.cipher = cipher_of(1);
  store.must_open();
  ASSERT_TRUE(store.files->adopt({1, 1}, *location, from.length).is_ok());
  store.files->adopt_end();
  expect_loads({1, 1}, *location, from);
}

TEST_P(SpillEncryption, AKeyForWhatIsNotEncryptedIsRefused) {
  store.die();
  store.options.cipher = nullptr;
  store.must_open();
  const BlobLocation from = place(kMiB);
  store.segments.fill_text(from, 5);
  const auto location = store.spill({1, 1}, from);
  ASSERT_TRUE(location.is_ok());
  remember(1, from, *location);
  store.settle_manifest();
  store.die();
  store.options.cipher = cipher_of(1);
  EXPECT_EQ(store.open().code(), Code::kAccessDenied);
}

std::string named(const ::testing::TestParamInfo<SpillPacking>& info) {
  return info.param.codec == SpillCodec::kNone ? "AsItIs" : info.param.codec == SpillCodec::kLz4 ? "Lz4" : "Zstd";
}

INSTANTIATE_TEST_SUITE_P(All, SpillEncryption,
                         ::testing::Values(SpillPacking{}, SpillPacking{SpillCodec::kLz4, 0},
                                           SpillPacking{SpillCodec::kZstd, 1}),
                         named);

TEST(SpillCipher, NoNonceComesTwice) {
  std::set<SpillNonce> seen;
  for (int life = 0; life < 3; ++life) {
    const auto cipher = cipher_of(1);
    for (std::uint32_t i = 0; i < 500; ++i) {
      const std::uint32_t count = 1 + i % 4;
      const SpillNonce first = cipher->take_nonces(count);
      for (std::uint32_t j = 0; j < count; ++j)
        EXPECT_TRUE(seen.insert(nonce_after(first, j)).second);
    }
    // Where the counter ends, a new prefix starts.
    const SpillNonce last = cipher->take_nonces(UINT32_MAX - 1250);
    const SpillNonce next = cipher->take_nonces(2);
    EXPECT_NE(std::string(last.begin(), last.begin() + 8), std::string(next.begin(), next.begin() + 8));
  }
}

// NIST's first AES-256-GCM test vector with data: key, nonce and 16 bytes of zeros.
TEST(SpillCipher, IsAes256Gcm) {
  const auto opened = SpillCipher::open(SpillKey{});
  ASSERT_TRUE(opened.is_ok());
  const std::array<std::byte, 16> zeros{};
  std::array<std::byte, 16> out{};
  SpillTag tag{};
  ASSERT_TRUE((*opened)->seal(SpillNonce{}, {}, zeros.data(), zeros.size(), out.data(), tag).is_ok());
  EXPECT_EQ(to_hex({reinterpret_cast<const std::uint8_t*>(out.data()), out.size()}),
            "cea7403d4d606b6e074ec5d3baf39d18");
  EXPECT_EQ(to_hex(tag), "d0d1c8a799996bf0265b98b5d48ab919");
}

TEST(SpillKeys, AreBytesOrDigits) {
  const std::string digits = to_hex(key_of(9));
  EXPECT_EQ(*parse_key(digits), key_of(9));
  EXPECT_EQ(*parse_key(digits + " \n"), key_of(9));
  const SpillKey raw = key_of(200);
  EXPECT_EQ(*parse_key({reinterpret_cast<const char*>(raw.data()), raw.size()}), raw);
  for (const std::string& bad : {std::string(), digits.substr(1), digits + "0", "g" + digits.substr(1),
                                 std::string(31, 'x'), std::string(33, 'x')}) {
    const auto key = parse_key(bad);
    EXPECT_EQ(key.code(), Code::kInvalidArgument) << bad.size();
    if (bad.size() > 4) {
      EXPECT_EQ(key.status().message().find(bad.substr(0, 8)), std::string::npos);
    }
  }
}

TEST(SpillKeys, OfAFileThatOthersMayReadIsRefused) {
  const Scratch folder;
  const std::string path = folder.path("key");
  std::ofstream(path) << to_hex(key_of(1)) << "\n";
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  ASSERT_TRUE(key_from_file(path).is_ok());
  for (const mode_t mode : {0640, 0604, 0620, 0660, 0644}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_EQ(key_from_file(path).code(), Code::kAccessDenied) << mode;
  }
  EXPECT_EQ(key_from_file(folder.path("")).code(), Code::kAccessDenied);
  EXPECT_EQ(key_from_file(folder.path("none")).code(), Code::kStoreUnavailable);
}

TEST(SpillKeys, OfACommandThatPrintsOne) {
  const std::string digits = to_hex(key_of(1));
  EXPECT_EQ(*key_from_command(concat("echo ", digits), 10'000), key_of(1));
  EXPECT_EQ(*key_from_command(concat("printf %s ", digits, "; exit 0"), 10'000), key_of(1));
  const auto failed = key_from_command(concat("echo ", digits, "; exit 3"), 10'000);
  EXPECT_EQ(failed.code(), Code::kInvalidArgument);
  EXPECT_NE(failed.status().message().find("exit status 3"), std::string::npos) << failed.status().message();
  EXPECT_EQ(failed.status().message().find(digits), std::string::npos);
  for (const char* const bad : {"echo rubbish", "true", "head -c 100000 /dev/zero", "(", "no-such-program-here"})
    EXPECT_EQ(key_from_command(bad, 10'000).code(), Code::kInvalidArgument) << bad;
  EXPECT_EQ(key_from_command("sleep 1000", 50).code(), Code::kTimeout);
}

}  // namespace
}  // namespace entrepot::testing
