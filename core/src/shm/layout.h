// Layout of the control memory: what daemon, keeper and clients share. docs/formats/control-memory.md is its prose.
//
// Every region is one memfd of fixed, mostly virtual size (sparse: only what is used has pages). Only the daemon writes
// regions; clients map root, slots, blobs, index and records through read-only descriptors. Structs hold offsets and
// numbers, never pointers. A change of any struct changes kLayoutVersion or kAbiStamp, and a mismatch is refused.
//
// Publication rule: fields first, state word last (release). Whoever adopts the memory after a crash therefore trusts
// an entry only if its word says so and its checksum fits; everything else (free lists, counts, the index) is derived
// anew.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/id.h"
#include "shm/locality.h"

namespace entrepot {

inline constexpr std::uint32_t kLayoutVersion = 4;
inline constexpr std::uint64_t kRegionMagic = 0x3154'4f50'4552'544eULL;
inline constexpr std::uint64_t kPinTableMagic = 0x3154'4e49'5045'4e31ULL;
inline constexpr std::uint32_t kRecordMagic = 0x3152'4f45U;  // "EOR1"

// Capacities are virtual reservations, not memory.
inline constexpr std::uint32_t kMaxSlots = 1U << 24;
inline constexpr std::uint32_t kMaxBlobs = 1U << 24;
inline constexpr std::uint32_t kMaxSegments = 1U << 16;
inline constexpr std::uint32_t kMaxClients = 1U << 12;
inline constexpr std::uint32_t kMaxSessions = 1U << 16;
inline constexpr std::uint32_t kMaxNames = 1U << 20;
inline constexpr std::uint32_t kMaxSets = 1U << 16;
inline constexpr std::uint32_t kMaxConsumptions = 1U << 22;
inline constexpr std::uint32_t kMaxPinsPerClient = 1U << 17;
inline constexpr std::uint32_t kIndexMaxLog2 = 25;
inline constexpr std::uint32_t kIndexMinLog2 = 10;
inline constexpr std::uint64_t kRecordArenaBytes = 1ULL << 36;  // 64 GiB of addresses for records and small payloads
inline constexpr std::uint64_t kRecordAlign = 64;
inline constexpr std::uint64_t kBlobAlign = 64;
inline constexpr std::uint64_t kOwnPagesBytes = 64U << 10;   // a blob of this size or more owns its pages
inline constexpr std::uint64_t kInlineMaxBytes = 16U << 10;  // payloads to this size live in the record itself
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
};

// ---- state words -------------------------------------------------------------------------------------------------
// bits 0-7 state | 8-15 memory kind | 16-31 flags | 32-63 generation
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

inline constexpr std::uint16_t kRetiredFlag = 1;  // in a word's flags, with state free

// Objects (slots). free -> unsealed -> sealed -> deleting -> free (generation + 1).
// A slot whose last possible generation (2^32 - 1) ended stays free with kRetiredFlag and is never used again; blobs,
// segments and the other tables do the same.
// sealed --mark--> evicting --pinned--> sealed
//                      \--unpinned--> spilled (some of its blobs are in cold storage only) --all loaded--> sealed
// evicting --unpinned, can be made again--> dropped (a note alone: no record, no blobs, not in the index) --sealed
// anew, deleted, or its session ends--> free
//
// `evicting` lasts for one scan of the pins; nobody reads anything of an object in that state. `deleting` is unlinked
// from the index but may still be pinned. loading, remote and stream belong to later capabilities; their numbers are
// fixed now so that the format stays.
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

// Blobs, see shm/blobs.h; counted across the objects that share them (count is derived).
enum class BlobState : std::uint8_t { kFree = 0, kSealed = 2, kEvicting = 3, kSpilled = 4, kLoading = 5, kLost = 7 };

// Segments (see shm/segment.h). absent: no memfd behind the entry.
enum class SegmentState : std::uint8_t {
  kAbsent = 0,
  kProvisioning = 1,
  kFree = 2,         // warm or cold, holds nothing, nobody may write it
  kLeased = 3,       // one live client may write it
  kReturned = 4,     // no writer; still holds something sealed
  kQuarantined = 5,  // after a restart: its writer has neither reconnected nor died
};

enum class MemoryKind : std::uint8_t { kUnknown = 0, kSmallPages = 1, kHugePages = 2, kCold = 3 };

enum class EntryState : std::uint8_t { kFree = 0, kLive = 2, kDead = 3 };  // sessions, names, clients

// ---- region header -----------------------------------------------------------------------------------------------
struct alignas(64) RegionHeader {
  std::uint64_t magic;
  std::uint32_t layout_version;
  RegionKind kind;
  std::uint64_t abi_stamp;  // kAbiStamp of the writer
  InstanceId instance;
  std::uint64_t capacity;  // entries, or bytes for records
  std::uint64_t reserved;
  std::uint32_t reserved2;
  std::uint32_t crc;  // CRC-32C of all before it
};
static_assert(sizeof(RegionHeader) == 64);
inline constexpr std::size_t kRegionHeaderBytes = 4096;  // entries begin on a page of their own

// Follows the header in the same page; not covered by its checksum because it changes.
struct alignas(64) RegionMarks {
  std::atomic<std::uint64_t> ensured_bytes;  // of the entries: below it there are pages
  std::atomic<std::uint32_t> high_water;     // entries below it have pages (tables that Root has no mark for)
  std::array<std::uint8_t, 52> reserved;
};
static_assert(sizeof(RegionMarks) == 64);

// Bits of Root.memory_wanted.
inline constexpr std::uint32_t kReleasesWanted = 1;  // a pin that goes should be told by kReleased
inline constexpr std::uint32_t kLeasesWanted = 2;    // somebody waits for memory: idle leases should be given back

// Bits of Root.flags.
inline constexpr std::uint32_t kRootFollowsKilled = 1;  // keeper and daemon of an earlier store here died together
// A daemon without cold storage went on though objects were on disk alone; the next one that has it brings them back.
inline constexpr std::uint32_t kRootLeftOnDisk = 1U << 16;

// ---- root --------------------------------------------------------------------------------------------------------
// One page. Atomics are written by the daemon, read by clients.
struct Root {
  std::atomic<std::uint64_t> index_word;       // see IndexWord
  std::atomic<std::uint32_t> memory_wanted;    // of the bits below
  std::atomic<std::uint32_t> incarnation;      // +1 each time a daemon takes over
  std::atomic<std::uint32_t> slot_high_water;  // slots below it have pages
  std::atomic<std::uint32_t> blob_high_water;  // blobs below it have pages
  std::atomic<std::uint32_t> segment_high_water;
  std::atomic<std::uint32_t> flags;              // of the bits above
  std::atomic<std::uint64_t> record_high_water;  // bytes of the record arena that have pages
  std::atomic<std::uint64_t> capacity_bytes;
  std::atomic<std::uint64_t> generation_seed;
  std::uint64_t created_unix_ns;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

// index_word: bits 0-7 log2 of the table's entries | bit 8 area (0 or 1) | 16-63 version. The table of 2^k entries in
// area a starts at entry a * 2^(kIndexMaxLog2 + 1) + 2^k, so every size has a place of its own: growing needs neither a
// new descriptor nor a remap, and a reader that still probes the old table sees at worst a miss, which it confirms.
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

// Index entry: low 32 bits slot + 1 (0 empty, 0xffffffff tombstone), high 32 bits tag. Linear probing.
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
  std::uint64_t record_offset;  // in the record arena, multiple of kRecordAlign
  std::uint32_t record_bytes;
  std::uint32_t crc;  // CRC-32C over id, session, record_offset, record_bytes, payload_bytes, sealed_at, generation
  std::uint64_t payload_bytes;  // sum of the buffers' lengths
  std::uint64_t sealed_unix_ns;
  std::uint32_t locality_set;        // index + 1; 0: the session's default one
  std::uint32_t creator;             // client index, for people
  std::uint64_t spill_location;      // 1: the manifest of cold storage lists it
  std::atomic<std::uint64_t> hints;  // see SlotHints
  std::array<std::uint8_t, 32> reserved;
};
static_assert(sizeof(Slot) == 128);

// What a user says about one object. Not in the checksum: it changes, and by one store. bits 0-7 priority, signed |
// 8 pinned by its user | 9 dead: all its consumers have had it | 10 made again: it was dropped once, and is not a
// second time | 16-31 RecomputeCode: what making it again takes | 32-63 consumers, 0: nobody counts them.
struct SlotHints {
  std::int8_t priority = 0;
  bool pinned = false;
  bool dead = false;
  std::uint32_t consumers = 0;
  bool made_again = false;
  std::uint16_t recompute = 0;
  [[nodiscard]] static constexpr SlotHints of(std::uint64_t word) {
    SlotHints hints;
    hints.priority = static_cast<std::int8_t>(static_cast<std::uint8_t>(word & 0xffU));
    hints.pinned = (word & 0x100U) != 0;
    hints.dead = (word & 0x200U) != 0;
    hints.made_again = (word & 0x400U) != 0;
    hints.recompute = static_cast<std::uint16_t>((word >> 16) & 0xffffU);
    hints.consumers = static_cast<std::uint32_t>(word >> 32);
    return hints;
  }
  [[nodiscard]] constexpr std::uint64_t word() const {
    return (static_cast<std::uint64_t>(consumers) << 32) | (static_cast<std::uint64_t>(recompute) << 16) |
           (made_again ? 0x400U : 0U) | (dead ? 0x200U : 0U) | (pinned ? 0x100U : 0U) |
           static_cast<std::uint8_t>(priority);
  }
  // What the pager may count on: nothing of what was dropped before, so that two values that do not fit side by side
  // are not made again in turn for ever.
  [[nodiscard]] constexpr std::uint16_t may_drop() const { return made_again ? std::uint16_t{0} : recompute; }
};

// ---- blobs --------------------------------------------------------------------------------------------------------
struct alignas(64) Blob {
  std::atomic<std::uint64_t> word;
  std::uint64_t offset;  // in the segment
  std::uint64_t length;
  std::uint32_t segment;
  std::uint32_t crc;                 // CRC-32C over offset, length, segment, segment_generation, generation
  std::uint64_t spill_location;      // of its copy in cold storage, with check bits of its own; 0: none
  std::uint64_t checksum;            // of the payload, where something computed it; 0 otherwise
  std::uint32_t segment_generation;  // a reader whose mapping of the segment is of another generation maps it anew
  std::array<std::uint8_t, 12> reserved;
};
static_assert(sizeof(Blob) == 64);

// ---- records: metadata trees, and the payload of small objects ------------------------------------------------------
// [RecordHeader][BufferRef x buffer_count][BlobRef x blob_count][tree bytes][padding to 64][inline payload]
struct RecordHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t flags;
  std::uint32_t crc;  // CRC-32C of the record from `total_bytes` on, inline payload included
  std::uint32_t total_bytes;
  std::uint32_t buffer_count;
  std::uint32_t blob_count;    // distinct blobs the object counts on
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
  std::uint32_t blob;        // kInlineBlob: the bytes are at inline_offset + offset of the record
  std::uint32_t generation;  // of the blob
  std::uint64_t offset;      // in the blob (or the inline payload)
  std::uint64_t length;
};
static_assert(sizeof(BufferRef) == 24);

struct BlobRef {
  std::uint32_t blob;
  std::uint32_t generation;
};
static_assert(sizeof(BlobRef) == 8);

// ---- segments -------------------------------------------------------------------------------------------------------
struct alignas(64) Segment {
  std::atomic<std::uint64_t> word;
  std::uint64_t bytes;
  std::uint64_t writer_token;  // token of the client that holds (or last held) the lease; 0 none
  std::uint32_t writer;        // its index in the client table
  std::uint32_t crc;           // CRC-32C over bytes and generation
  // Outside of it the writer has no lease: bits 0-23 first, 24-47 end, in units of kLeaseUnit; 48-63 of their CRC-32C
  // with the generation. Written before a lease is answered. 0: it has none.
  std::atomic<std::uint64_t> leases;
  std::array<std::uint8_t, 24> reserved;
};
static_assert(sizeof(Segment) == 64);
inline constexpr std::uint64_t kLeaseUnit = 64U << 10;

// ---- sessions, names, clients: the daemon's own, clients never map them
// -----------------------------------------------
inline constexpr std::size_t kScopeMaxBytes = 160;
inline constexpr std::size_t kSessionMaxBytes = 240;
inline constexpr std::size_t kNameMaxBytes = 255;
inline constexpr std::size_t kLabelMaxBytes = 48;

struct alignas(64) Session {
  std::atomic<std::uint64_t> word;
  std::uint64_t created_unix_ns;
  std::atomic<std::uint64_t> last_used_unix_ns;
  std::uint64_t ttl_seconds;  // after the last use; 0: for ever
  std::uint64_t limit_bytes;  // 0: none
  std::uint64_t limit_objects;
  std::uint32_t crc;  // CRC-32C over created, ttl, limits, scope, name, generation
  std::uint16_t scope_bytes;
  std::uint16_t name_bytes;
  std::array<char, kScopeMaxBytes> scope;
  std::array<char, kSessionMaxBytes> name;
  std::array<std::uint8_t, 48> reserved;
  std::atomic<std::uint32_t> flags;  // of the bits below; not in the checksum
  std::uint32_t reserved2;
};
static_assert(sizeof(Session) == 512);
inline constexpr std::uint32_t kSessionDeletesConsumed = 1;  // an object whose last consumer had it is deleted at once

struct alignas(64) Name {
  std::atomic<std::uint64_t> word;
  std::uint64_t version;  // the higher of two live entries for one name wins: a rebinding that a crash cut in two
  std::uint32_t session;
  std::uint32_t slot_generation;
  IdBytes id;
  std::uint32_t crc;  // CRC-32C over version, session, id, text, generation
  std::uint16_t text_bytes;
  std::array<char, kNameMaxBytes> text;
  std::array<std::uint8_t, 15> reserved;
};
static_assert(sizeof(Name) == 320);

// A locality set of a session.
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

// One consumer has had one object: so that a consumer that is run again does not count twice.
struct alignas(32) Consumption {
  std::atomic<std::uint64_t> word;
  std::uint64_t consumer;  // hash of the key that it gave
  std::uint32_t slot;
  std::uint32_t slot_generation;
  std::uint32_t crc;  // CRC-32C over consumer, slot, slot_generation, generation
  std::uint32_t reserved;
};
static_assert(sizeof(Consumption) == 32);

struct alignas(64) ClientEntry {
  std::atomic<std::uint64_t> word;
  std::uint64_t token;  // random; proves a reconnect together with the pin table's descriptor
  std::uint64_t connected_unix_ns;
  std::uint32_t pid;  // as the kernel gave it; for people, never for decisions
  std::uint32_t uid;
  std::uint32_t pin_capacity;
  std::uint32_t crc;
  std::array<char, kLabelMaxBytes> label;
  std::uint32_t forked;  // 1: registered by its parent, for the child of a fork
  std::array<std::uint8_t, 36> reserved;
};
static_assert(sizeof(ClientEntry) == 128);

// ---- pin table: one memfd a client, written by that client (and cleared by the daemon when it died)
// -------------------- A pin is slot + 1 in the low half and the generation in the high half; 0 is no pin. The daemon
// takes what it reads as a reason *not* to free, never as an address: garbage in it keeps memory, and cannot corrupt
// any.
struct alignas(64) PinTableHeader {
  std::uint64_t magic;
  std::uint32_t layout_version;
  std::uint32_t capacity;
  std::atomic<std::uint32_t> high_water;  // pins at or above it are 0; the daemon bounds it by capacity
  std::atomic<std::uint32_t> accesses;    // how many gets were noted: the next goes to entry accesses % kAccessRing
  std::array<std::uint8_t, 40> reserved;
};
static_assert(sizeof(PinTableHeader) == 64);
// Behind the header: the last gets of objects with blobs, as pin words, for eviction. A hint: entries may be lost or
// garbage, and nothing depends on them but the order in which objects leave memory. Behind the ring: the pins, as many
// as the memory reaches that the daemon has given the table, which is this much at first and grows on request.
inline constexpr std::uint32_t kAccessRing = 512;
inline constexpr std::uint64_t kPinTableFirstBytes = 12U << 10;
struct Pin {
  static constexpr std::uint64_t make(std::uint32_t slot, std::uint32_t generation) {
    return (static_cast<std::uint64_t>(generation) << 32) | (slot + 1U);
  }
};

// What a build takes the formats to be, computed from their definitions (cmake/EntrepotStamps.cmake): the control
// memory in the high half, the socket's messages in the low one. Versions decide what fits together; the stamp catches
// the change that nobody raised a version for.
inline constexpr std::uint64_t kAbiStamp =
    (static_cast<std::uint64_t>(ENTREPOT_LAYOUT_STAMP) << 32) | ENTREPOT_PROTOCOL_STAMP;
struct AbiStamp {
  static constexpr std::uint32_t layout(std::uint64_t stamp) { return static_cast<std::uint32_t>(stamp >> 32); }
  static constexpr std::uint32_t protocol(std::uint64_t stamp) { return static_cast<std::uint32_t>(stamp); }
};

}  // namespace entrepot
