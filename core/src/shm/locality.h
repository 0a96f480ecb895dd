// Locality sets: groups of objects that are used in the same way, and the attributes that describe it. The numbers are
// part of the control memory's and the socket's formats.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace entrepot {

// When an object is written to disk: when memory is short, or as soon as it is sealed.
enum class Durability : std::uint8_t { kWriteBack = 0, kWriteThrough = 1 };

// How the set is read. Unknown: inferred from the reads.
enum class ReadPattern : std::uint8_t { kUnknown = 0, kOnce = 1, kSequential = 2, kLoopSequential = 3, kRandom = 4 };

// How the set is written: all at once, appended to, or replaced in places.
enum class WritePattern : std::uint8_t { kOnce = 0, kAppend = 1, kRandom = 2 };

// How long the objects are needed: until their session ends, until `consumers` have consumed each, or forever.
enum class Lifetime : std::uint8_t { kJob = 0, kConsumers = 1, kForever = 2 };

// What is happening to the set at present, if the user declares it.
enum class Operation : std::uint8_t { kNone = 0, kReading = 1, kWriting = 2 };

// Which objects of the set are evicted first.
enum class Replacement : std::uint8_t { kDataAware = 0, kLru = 1, kMru = 2 };

inline constexpr int kMinPriority = -8;
inline constexpr int kMaxPriority = 8;

struct SetAttributes {
  Durability durability = Durability::kWriteBack;
  ReadPattern reading = ReadPattern::kUnknown;
  WritePattern writing = WritePattern::kOnce;
  Lifetime lifetime = Lifetime::kJob;
  Operation operation = Operation::kNone;
  Replacement replacement = Replacement::kDataAware;
  std::int8_t priority = 0;     // kMinPriority to kMaxPriority; a step makes eviction four times as costly
  std::uint32_t consumers = 0;  // with Lifetime::kConsumers: consumers per object, unless the put gives a number
  bool operator==(const SetAttributes&) const = default;

  // Bits 0-3: durability, 4-7: reading, 8-11: writing, 12-15: lifetime, 16-19: operation, 20-23: replacement, 24-31:
  // priority (signed), 32-63: consumers.
  [[nodiscard]] constexpr std::uint64_t pack() const {
    const auto field = [](auto value, int at) { return static_cast<std::uint64_t>(value) << at; };
    return field(durability, 0) | field(reading, 4) | field(writing, 8) | field(lifetime, 12) | field(operation, 16) |
           field(replacement, 20) | field(static_cast<std::uint8_t>(priority), 24) | field(consumers, 32);
  }
  // Invalid numbers become the defaults.
  [[nodiscard]] static constexpr SetAttributes unpack(std::uint64_t word) {
    const auto field = [word](int at, std::uint64_t max_value) {
      const std::uint64_t value = (word >> at) & 0xfU;
      return static_cast<std::uint8_t>(value <= max_value ? value : 0);
    };
    SetAttributes result;
    result.durability = static_cast<Durability>(field(0, 1));
    result.reading = static_cast<ReadPattern>(field(4, 4));
    result.writing = static_cast<WritePattern>(field(8, 2));
    result.lifetime = static_cast<Lifetime>(field(12, 2));
    result.operation = static_cast<Operation>(field(16, 2));
    result.replacement = static_cast<Replacement>(field(20, 2));
    const auto priority = static_cast<std::int8_t>(static_cast<std::uint8_t>((word >> 24) & 0xffU));
    result.priority = priority >= kMinPriority && priority <= kMaxPriority ? priority : std::int8_t{0};
    result.consumers = static_cast<std::uint32_t>(word >> 32);
    return result;
  }
};

// Recompute cost in 16 bits, so that it fits into a word that changes by one store. 0: cannot be recomputed, as far as
// declared; otherwise (code - 1) / 1024 is log2 of the cost in microseconds, in steps of 0.07 %.
struct RecomputeCode {
  static constexpr std::uint64_t kNotRecomputableNs = ~0ULL;
  static constexpr double kSteps = 1024;

  [[nodiscard]] static std::uint16_t of_ns(std::uint64_t ns) {
    if (ns == kNotRecomputableNs) return 0;
    const double microseconds = std::max(static_cast<double>(ns) * 1e-3, 1.0);
    return static_cast<std::uint16_t>(std::min(1 + std::round(kSteps * std::log2(microseconds)), 65535.0));
  }
  [[nodiscard]] static double seconds(std::uint16_t code) {  // of a nonzero code
    return std::exp2((code - 1) / kSteps) * 1e-6;
  }
};

// Bits of the attributes that a request sets; the others keep their values.
enum SetField : std::uint8_t {
  kSetDurability = 1,
  kSetReading = 2,
  kSetWriting = 4,
  kSetLifetime = 8,  // and consumers
  kSetOperation = 16,
  kSetReplacement = 32,
  kSetPriority = 64,
};

struct SetChange {
  std::uint8_t fields = 0;  // of SetField
  SetAttributes attributes;

  [[nodiscard]] constexpr SetAttributes apply(SetAttributes to) const {
    if ((fields & kSetDurability) != 0) to.durability = attributes.durability;
    if ((fields & kSetReading) != 0) to.reading = attributes.reading;
    if ((fields & kSetWriting) != 0) to.writing = attributes.writing;
    if ((fields & kSetLifetime) != 0) {
      to.lifetime = attributes.lifetime;
      to.consumers = attributes.consumers;
    }
    if ((fields & kSetOperation) != 0) to.operation = attributes.operation;
    if ((fields & kSetReplacement) != 0) to.replacement = attributes.replacement;
    if ((fields & kSetPriority) != 0) to.priority = attributes.priority;
    return to;
  }
};

}  // namespace entrepot
