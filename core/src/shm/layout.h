// Layout of the control memory shared by daemon, keeper and clients; specified in docs/formats/control-memory.md.
//
// Every region is one memfd of fixed, mostly virtual size (sparse: only used parts have pages). Only the daemon writes
// regions; clients map root, slots, blobs, index and records through read-only descriptors. Structs hold offsets and
// numbers, never pointers. A change of any struct changes kLayoutVersion or kAbiStamp; on a mismatch the memory is
// refused.
//
// Publication rule: fields first, state word last (release). After a crash, an entry is trusted only if its word says
// that it is live and its checksum matches; everything else (free lists, counts, the index) is derived again.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/id.h"
#include "shm/locality.h"

namespace entrepot {

inline constexpr std::uint32_t kLayoutVersion = 6;
inline constexpr std::uint64_t kRegionMagic = 0x3154'4f50'4552'544eULL;
inline constexpr std::uint64_t kPinTableMagic = 0x3154'4e49'5045'4e31ULL;
inline constexpr std::uint32_t kRecordMagic = 0x3152'4f45U;  // "EOR1"

// Capacities reserve virtual addresses, not memory.
inline constexpr std::uint32_t kMaxSlots = 1U << 24;
inline constexpr std::uint32_t kMaxBlobs = 1U << 24;
inline constexpr std::uint32_t kMaxSegments = 1U << 16;
inline constexpr std::uint32_t kMaxClients = 1U << 12;
inline constexpr std::uint32_t kMaxSessions = 1U << 16;
inline constexpr std::uint32_t kMaxNames = 1U << 20;
inline constexpr std::uint32_t kMaxSets = 1U << 16;
inline constexpr std::uint32_t kMaxConsumptions = 1U << 22;
inline constexpr std::uint32_t kMaxOpenings = 1U << 18;
inline constexpr std::uint32_t kMaxPinsPerClient = 1U << 17;
inline constexpr std::uint32_t kIndexMaxLog2 = 25;
inline constexpr std::uint32_t kIndexMinLog2 = 10;
inline constexpr std::uint64_t kRecordArenaBytes = 1ULL << 36;  // 64 GiB of addresses for records and inline payloads
inline constexpr std::uint64_t kRecordAlign = 64;
inline constexpr std::uint64_t kBlobAlign = 64;
inline constexpr std::uint64_t kOwnPagesBytes = 64U << 10;   // a blob of at least this size owns its pages
inline constexpr std::uint64_t kInlineMaxBytes = 16U << 10;  // payloads up to this size are stored in the record
inline constexpr std::uint64_t kSegmentAlign = 2U << 20;

enum class RegionKind : std::uint32_t {
  kRoot = 1,
  kSlots = 2,
  kBlobs = 3,
  kIndex = 4,
  kRecords = 5,
  kSegments = 6,
  kSessions = 7,
  kNames = 8,
  kClients = 9,
  kSets = 10,
  kConsumptions = 11,
  kOpenings = 12,
};

// ---- state words -------------------------------------------------------------------------------------------------
// Bits 0-7: state, 8-15: memory kind, 16-31: flags, 32-63: generation.
struct Word {
  static constexpr std::uint64_t make(std::uint32_t generation, std::uint8_t state, std::uint8_t kind = 0,
                                      std::uint16_t flags = 0) {
    return (static_cast<std::uint64_t>(generation) << 32) | (static_cast<std::uint64_t>(flags) << 16) |
           (static_cast<std::uint64_t>(kind) << 8) | state;
  }
  static constexpr std::uint8_t state(std::uint64_t word) { return static_cast<std::uint8_t>(word & 0xffU); }
  static constexpr std::uint8_t kind(std::uint64_t word) { return static_cast<std::uint8_t>((word >> 8) & 0xffU); }
  static constexpr std::uint16_t flags(std::uint64_t word) {
    return static_cast<std::uint16_t>((word >> 16) & 0xffffU);
  }
  static constexpr std::uint32_t generation(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
};

inline constexpr std::uint16_t kRetiredFlag = 1;  // in the flags of a word whose state is free

// State of an object's slot.
//
//   free ──seal──▶ sealed ──delete, replace──▶ deleting ──last pin gone──▶ free (generation + 1)
//
//   sealed ──evict, drop──▶ evicting ──pinned──▶ sealed
//                             ├─not pinned, evict──▶ spilled ──all blobs loaded──▶ sealed
//                             └─not pinned, drop───▶ dropped ──sealed again, deleted, session ended──▶ free
//
// A slot whose last possible generation (2^32 - 1) has ended stays free with kRetiredFlag and is never used again; the
// same holds for blobs, segments and the other tables.
//
// `evicting` lasts for one scan of the pins; no reader may start reading any part of an object in that state.
// `spilled`: some of the object's blobs are on disk only. `dropped`: a marker without record and blobs, not in the
// index, for an object that can be recomputed. `deleting`: removed from the index, but may still be pinned. `lost`:
// wrong checksum, until nobody pins it. Reserved, to keep the format stable: `unsealed`, `loading`, `remote`, `stream`.
enum class ObjectState : std::uint8_t {
  kFree = 0,
  kUnsealed = 1,
  kSealed = 2,
  kEvicting = 3,
  kSpilled = 4,
  kLoading = 5,
  kRemote = 6,
  kLost = 7,
  kStream = 8,
  kDeleting = 9,
  kDropped = 10,
};

// State of a blob; see shm/blobs.h. Reference counts are derived, not stored.
enum class BlobState : std::uint8_t { kFree = 0, kSealed = 2, kEvicting = 3, kSpilled = 4, kLoading = 5, kLost = 7 };

// State of a segment; see shm/segment_table.h. absent: no memfd behind the entry.
enum class SegmentState : std::uint8_t {
  kAbsent = 0,
  kProvisioning = 1,
  kFree = 2,         // warm or cold, holds nothing, nobody may write to it
  kLeased = 3,       // one live client may write to it
  kReturned = 4,     // no writer; still holds sealed data
  kQuarantined = 5,  // after a restart: its writer has neither reconnected nor died
};

enum class MemoryKind : std::uint8_t { kUnknown = 0, kSmallPages = 1, kHugePages = 2, kCold = 3 };

enum class EntryState : std::uint8_t { kFree = 0, kLive = 2, kDead = 3 };  // sessions, names, clients

// ---- region header -----------------------------------------------------------------------------------------------
struct alignas(64) RegionHeader {
  std::uint64_t magic;
  std::uint32_t layout_version;
  RegionKind kind;
  std::uint64_t abi_stamp;  // the writer's kAbiStamp
  InstanceId instance;
  std::uint64_t capacity;  // in entries; in bytes for the records region
  std::uint64_t reserved;
  std::uint32_t reserved2;
  std::uint32_t crc;  // CRC-32C of all fields above
};
static_assert(sizeof(RegionHeader) == 64);
inline constexpr std::size_t kRegionHeaderBytes = 4096;  // entries begin on their own page

// Follows the header in the same page. Not covered by its checksum, because it changes.
struct alignas(64) RegionMarks {
  std::atomic<std::uint64_t> ensured_bytes;  // entry bytes below this have pages
  std::atomic<std::uint32_t> high_water;     // entries below this have pages (tables without a mark in Root)
  std::array<std::uint8_t, 52> reserved;
};
static_assert(sizeof(RegionMarks) == 64);

// Bits of Root.memory_wanted.
inline constexpr std::uint32_t kReleasesWanted = 1;  // clients report removed pins with kReleased
inline constexpr std::uint32_t kLeasesWanted = 2;    // memory is short: clients should return idle leases

// Bits of Root.flags.
inline constexpr std::uint32_t kRootRecoveredFromCrash = 1;  // keeper and daemon of an earlier store here died together
// Objects were on disk only while a daemon ran without a spill directory; the next daemon that has one restores them.
inline constexpr std::uint32_t kRootLeftOnDisk = 1U << 16;
// A gateway to other stores served the store, and has not withdrawn: after a restart of the daemon it comes back.
inline constexpr std::uint32_t kRootHasGateway = 1U << 17;

// ---- root --------------------------------------------------------------------------------------------------------
// One page. Atomics are written by the daemon and read by clients.
struct Root {
  std::atomic<std::uint64_t> index_word;       // see IndexWord
  std::atomic<std::uint32_t> memory_wanted;    // kReleasesWanted, kLeasesWanted
  std::atomic<std::uint32_t> incarnation;      // incremented each time a daemon takes over
  std::atomic<std::uint32_t> slot_high_water;  // slots below it have pages
  std::atomic<std::uint32_t> blob_high_water;  // blobs below it have pages
  std::atomic<std::uint32_t> segment_high_water;
  std::atomic<std::uint32_t> flags;              // kRoot...
  std::atomic<std::uint64_t> record_high_water;  // bytes of the record arena that have pages
  std::atomic<std::uint64_t> capacity_bytes;
  std::atomic<std::uint64_t> generation_seed;
  std::uint64_t created_unix_ns;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

// Bits 0-7: log2 of the table's number of entries, 8: area (0 or 1), 16-63: version. The table of 2^k entries in area a
// starts at entry a * 2^(kIndexMaxLog2 + 1) + 2^k, so every size has its own place: growing needs neither a new
// descriptor nor a remap, and a reader that still probes the old table sees at worst a miss, which it confirms.
struct IndexWord {
  static constexpr std::uint64_t make(std::uint32_t log2, std::uint32_t area, std::uint64_t version) {
    return (version << 16) | (static_cast<std::uint64_t>(area) << 8) | log2;
  }
  static constexpr std::uint32_t log2(std::uint64_t word) { return static_cast<std::uint32_t>(word & 0xffU); }
  static constexpr std::uint32_t area(std::uint64_t word) { return static_cast<std::uint32_t>((word >> 8) & 1U); }
  static constexpr std::uint64_t first_entry(std::uint64_t word) {
    return (static_cast<std::uint64_t>(area(word)) << (kIndexMaxLog2 + 1)) + (1ULL << log2(word));
  }
};
inline constexpr std::uint64_t kIndexEntries = 4ULL << kIndexMaxLog2;

// Low 32 bits: slot + 1 (0: empty, 0xffffffff: tombstone); high 32 bits: tag. Linear probing.
struct IndexEntry {
  static constexpr std::uint32_t kTombstone = 0xffff'ffffU;
  static constexpr std::uint64_t make(std::uint32_t slot, std::uint32_t tag) {
    return (static_cast<std::uint64_t>(tag) << 32) | (slot + 1U);
  }
  static constexpr std::uint32_t slot_plus_one(std::uint64_t entry) { return static_cast<std::uint32_t>(entry); }
  static constexpr std::uint32_t tag(std::uint64_t entry) { return static_cast<std::uint32_t>(entry >> 32); }
};

// ---- slots: the directory -----------------------------------------------------------------------------------------
struct alignas(64) Slot {
  std::atomic<std::uint64_t> word;
  IdBytes id;
  std::uint32_t session;
  std::uint64_t record_offset;  // in the record arena, a multiple of kRecordAlign
  std::uint32_t record_bytes;
  std::uint32_t crc;  // CRC-32C over id, session, record_offset, record_bytes, payload_bytes, sealed_at, generation
  std::uint64_t payload_bytes;  // sum of the buffers' lengths
  std::uint64_t sealed_unix_ns;
  std::uint32_t locality_set;        // index + 1; 0: the session's default set
  std::uint32_t creator;             // client index, informational
  std::uint64_t spill_location;      // 1: listed in the spill manifest
  std::atomic<std::uint64_t> hints;  // see SlotHints
  std::array<std::uint8_t, 32> reserved;
};
static_assert(sizeof(Slot) == 128);

// User hints about one object. Not covered by the checksum, because they change by a single store. Bits 0-7: priority
// (signed), 8: kept by its user, 9: dead (all its consumers are done), 10: recomputed (was dropped once, and is not
// dropped again), 16-31: RecomputeCode, the cost of recomputing it, 32-63: number of consumers, 0: not counted.
struct SlotHints {
  std::int8_t priority = 0;
  bool pinned = false;
  bool dead = false;
  std::uint32_t consumers = 0;
  bool recomputed = false;
  std::uint16_t recompute = 0;
  [[nodiscard]] static constexpr SlotHints of(std::uint64_t word) {
    SlotHints hints;
    hints.priority = static_cast<std::int8_t>(static_cast<std::uint8_t>(word & 0xffU));
    hints.pinned = (word & 0x100U) != 0;
    hints.dead = (word & 0x200U) != 0;
    hints.recomputed = (word & 0x400U) != 0;
    hints.recompute = static_cast<std::uint16_t>((word >> 16) & 0xffffU);
    hints.consumers = static_cast<std::uint32_t>(word >> 32);
    return hints;
  }
  [[nodiscard]] constexpr std::uint64_t word() const {
    return (static_cast<std::uint64_t>(consumers) << 32) | (static_cast<std::uint64_t>(recompute) << 16) |
           (recomputed ? 0x400U : 0U) | (dead ? 0x200U : 0U) | (pinned ? 0x100U : 0U) |
           static_cast<std::uint8_t>(priority);
  }
  // The recompute cost that the pager may use. 0 for objects dropped before, so that two values that do not fit in
  // memory together are not recomputed in turn forever.
  [[nodiscard]] constexpr std::uint16_t drop_recompute_code() const {
    return recomputed ? std::uint16_t{0} : recompute;
  }
};

// ---- blobs --------------------------------------------------------------------------------------------------------
struct alignas(64) Blob {
  std::atomic<std::uint64_t> word;
  std::uint64_t offset;  // within the segment
  std::uint64_t length;
  std::uint32_t segment;
  std::uint32_t crc;                 // CRC-32C over offset, length, segment, segment_generation, generation
  std::uint64_t spill_location;      // of its copy on disk, with its own check bits; 0: none
  std::uint64_t checksum;            // of the payload if it was computed, else 0
  std::uint32_t segment_generation;  // readers with a mapping of another generation remap
  std::array<std::uint8_t, 12> reserved;
};
static_assert(sizeof(Blob) == 64);

// ---- records: metadata trees, and the payload of small objects ------------------------------------------------------
// [RecordHeader][BufferRef x buffer_count][RecordBlob x blob_count][tree bytes][padding to 64][inline payload]
struct RecordHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t flags;
  std::uint32_t crc;  // CRC-32C of the record from `total_bytes` on, including the inline payload
  std::uint32_t total_bytes;
  std::uint32_t buffer_count;
  std::uint32_t blob_count;    // distinct blobs that the object references
  std::uint32_t member_count;  // component objects; 0 in version 1
  std::uint32_t tree_offset;   // from the start of the record
  std::uint32_t tree_bytes;
  std::uint32_t inline_offset;  // from the start of the record
  std::uint32_t inline_bytes;
  std::uint32_t reserved;
};
static_assert(sizeof(RecordHeader) == 48);
inline constexpr std::uint16_t kRecordVersion = 1;
inline constexpr std::uint32_t kInlineBlob = 0xffff'ffffU;

struct BufferRef {
  std::uint32_t blob;        // kInlineBlob: the bytes are at inline_offset + offset in the record
  std::uint32_t generation;  // of the blob
  std::uint64_t offset;      // within the blob (or the inline payload)
  std::uint64_t length;
};
static_assert(sizeof(BufferRef) == 24);

struct RecordBlob {
  std::uint32_t blob;
  std::uint32_t generation;
};
static_assert(sizeof(RecordBlob) == 8);

// ---- segments -------------------------------------------------------------------------------------------------------
struct alignas(64) Segment {
  std::atomic<std::uint64_t> word;
  std::uint64_t bytes;
  std::uint64_t writer_token;  // of the client that holds (or last held) the lease; 0: none
  std::uint32_t writer;        // that client's index in the client table
  std::uint32_t crc;           // CRC-32C over bytes and generation
  // Bounds of the writer's leases; outside of them it has none. Bits 0-23: first, 24-47: end, in units of kLeaseUnit;
  // 48-63: of their CRC-32C with the generation. Written before a lease is answered. 0: no leases.
  std::atomic<std::uint64_t> leases;
  std::array<std::uint8_t, 24> reserved;
};
static_assert(sizeof(Segment) == 64);
inline constexpr std::uint64_t kLeaseUnit = 64U << 10;
// In the flags of its word, for as long as it exists: it was leased as an isolated segment.
inline constexpr std::uint16_t kIsolatedFlag = 2;

// ---- sessions, names, clients: private to the daemon, never mapped by clients --------------------------------------
inline constexpr std::size_t kScopeMaxBytes = 160;
inline constexpr std::size_t kSessionMaxBytes = 240;
inline constexpr std::size_t kNameMaxBytes = 255;
inline constexpr std::size_t kLabelMaxBytes = 48;

struct alignas(64) Session {
  std::atomic<std::uint64_t> word;
  std::uint64_t created_unix_ns;
  std::atomic<std::uint64_t> last_used_unix_ns;
  std::uint64_t ttl_seconds;  // after the last use; 0: never expires
  std::uint64_t limit_bytes;  // 0: none
  std::uint64_t limit_objects;
  std::uint32_t crc;  // CRC-32C over created, ttl, limits, scope, name, generation
  std::uint16_t scope_bytes;
  std::uint16_t name_bytes;
  std::array<char, kScopeMaxBytes> scope;
  std::array<char, kSessionMaxBytes> name;
  std::array<std::uint8_t, 48> reserved;
  std::atomic<std::uint32_t> flags;  // kSessionDeletesConsumed; not in the checksum
  std::uint32_t reserved2;
};
static_assert(sizeof(Session) == 512);
inline constexpr std::uint32_t kSessionDeletesConsumed = 1;  // delete an object as soon as its last consumer is done

struct alignas(64) Name {
  std::atomic<std::uint64_t> word;
  std::uint64_t version;  // of two live entries with one name, the higher wins (crash while rebinding)
  std::uint32_t session;
  std::uint32_t slot_generation;
  IdBytes id;
  std::uint32_t crc;  // CRC-32C over version, session, id, text, generation
  std::uint16_t text_bytes;
  std::array<char, kNameMaxBytes> text;
  std::array<std::uint8_t, 15> reserved;
};
static_assert(sizeof(Name) == 320);

// A session's locality set.
struct alignas(64) LocalitySet {
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint64_t> attributes;  // packed; changes by one store, so it is not in the checksum
  std::uint32_t session;
  std::uint32_t session_generation;
  std::uint32_t crc;  // CRC-32C over session, its generation, name, generation
  std::uint16_t name_bytes;
  std::array<char, kNameMaxBytes> name;  // empty: the session's default set
  std::array<std::uint8_t, 35> reserved;
};
static_assert(sizeof(LocalitySet) == 320);

// Records that one consumer has consumed one object, so that a consumer that is run again does not count twice.
struct alignas(32) Consumption {
  std::atomic<std::uint64_t> word;
  std::uint64_t consumer;  // hash of its key
  std::uint32_t slot;
  std::uint32_t slot_generation;
  std::uint32_t crc;  // CRC-32C over consumer, slot, slot_generation, generation
  std::uint32_t reserved;
};
static_assert(sizeof(Consumption) == 32);

struct alignas(64) ClientEntry {
  std::atomic<std::uint64_t> word;
  std::uint64_t token;  // random; together with the pin table's descriptor, authenticates a reconnect
  std::uint64_t connected_unix_ns;
  std::uint32_t pid;  // from the kernel; informational, never used for decisions
  std::uint32_t uid;
  std::uint32_t pin_capacity;
  std::uint32_t crc;
  std::array<char, kLabelMaxBytes> label;
  std::uint32_t forked;  // 1: registered by its parent for a forked child
  std::array<std::uint8_t, 36> reserved;
};
static_assert(sizeof(ClientEntry) == 128);

// Records that a client has a session open.
struct alignas(32) Opening {
  std::atomic<std::uint64_t> word;
  std::uint32_t client;
  std::uint32_t client_generation;
  std::uint32_t session;
  std::uint32_t session_generation;
  std::uint32_t crc;  // CRC-32C over the four fields above and the generation
  std::uint32_t reserved;
};
static_assert(sizeof(Opening) == 32);

// ---- pin tables ----------------------------------------------------------------------------------------------------
// One memfd per client, written by that client only. A pin is slot + 1 in the low half and the generation in the high
// half; 0 is no pin. To the daemon a pin is only a reason *not* to free, never an address: garbage in the table retains
// memory but cannot corrupt any.
struct alignas(64) PinTableHeader {
  std::uint64_t magic;
  std::uint32_t layout_version;
  std::uint32_t capacity;
  std::atomic<std::uint32_t> high_water;  // pins at or above this are 0; the daemon bounds it by the capacity
  std::atomic<std::uint32_t> accesses;    // number of gets noted; the next goes to entry accesses % kAccessRing
  std::array<std::uint8_t, 40> reserved;
};
static_assert(sizeof(PinTableHeader) == 64);
// After the header: a ring of the last gets of objects with blobs, as pin words, for eviction. It is a hint: entries
// may be lost or garbage, and only the order of eviction depends on them. After the ring: the pins, as many as fit in
// the memory that the daemon has reserved for the table, initially kPinTableFirstBytes and grown on request.
inline constexpr std::uint32_t kAccessRing = 512;
inline constexpr std::uint64_t kPinTableFirstBytes = 12U << 10;
struct PinWord {
  static constexpr std::uint64_t make(std::uint32_t slot, std::uint32_t generation) {
    return (static_cast<std::uint64_t>(generation) << 32) | (slot + 1U);
  }
};

// Stamp of the formats, computed from their definitions (cmake/EntrepotStamps.cmake): control memory in the high half,
// socket messages in the low half. Versions decide compatibility; the stamp catches a change without a new version.
inline constexpr std::uint64_t kAbiStamp =
    (static_cast<std::uint64_t>(ENTREPOT_LAYOUT_STAMP) << 32) | ENTREPOT_PROTOCOL_STAMP;
struct AbiStamp {
  static constexpr std::uint32_t layout(std::uint64_t stamp) { return static_cast<std::uint32_t>(stamp >> 32); }
  static constexpr std::uint32_t protocol(std::uint64_t stamp) { return static_cast<std::uint32_t>(stamp); }
};

}  // namespace entrepot
