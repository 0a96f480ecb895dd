// Store report: what the store holds and why, as JSON; and who holds its memory, for errors.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "shm/control.h"
#include "store/gateway/gateway_calls.h"
#include "store/memory/surplus_memory.h"
#include "store/object/object_parts.h"
#include "store/object/object_recovery.h"
#include "store/paging/pager.h"
#include "store/pending_requests.h"
#include "store/reservations.h"
#include "store/session/client_table.h"
#include "store/stream/stream_table.h"
#include "store/types.h"

namespace entrepot {

struct AdoptionReport {
  ObjectAdoption objects;
  std::uint32_t lost_segments = 0;
  std::uint32_t damaged_entries = 0;
};

struct DaemonStatus {  // facts that only the process around the store knows
  std::uint32_t pid = 0;
  std::uint32_t keeper_pid = 0;
  std::string program;  // path
  std::uint64_t log_lines_dropped = 0;
  std::uint64_t keeper_log_lines_dropped = 0;
};

class JsonWriter;

// Reads only; every text is written anew. Guarded by the daemon's thread.
class StoreReport {
 public:
  struct Sources {  // all must outlive it
    const ControlMemory& memory;
    const Clock& clock;
    const StoreOptions& options;
    const MemoryBudget& budget;
    const RecordArena& records;
    const SessionTable& sessions;
    const LocalitySetTable& sets;
    const NameTable& names;
    const ClientTable& clients;
    const PinScanner& pins;
    const SegmentPool& pool;
    const SurplusMemory& surplus;
    const ObjectParts& parts;
    const Pager& pager;
    const PendingRequests& pending;
    const Reservations& reservations;
    const StreamTable& streams;
    const GatewayCalls& gateway;
    const AdoptionReport& adoption;
  };
  explicit StoreReport(const Sources& sources) : from_(sources), started_ns_(sources.clock.monotonic_ns()) {}

  [[nodiscard]] std::string status_json(const DaemonStatus& daemon_status) const;
  [[nodiscard]] std::string sessions_json() const;
  [[nodiscard]] Result<std::string> sets_json(std::uint32_t session) const;  // its handle

  // Who holds memory, what was tried to obtain some, and what to do: the end of every StoreFull error.
  [[nodiscard]] std::string describe_holders(const Remedies& remedies) const;
  // Who has reserved how much, and who waits: part of an error.
  [[nodiscard]] std::string describe_reservations() const;
  [[nodiscard]] bool recovered_from_crash() const;

 private:
  void write_budget(JsonWriter& json) const;
  void write_reservations(JsonWriter& json) const;
  void write_streams(JsonWriter& json) const;
  void write_gateway(JsonWriter& json) const;

  Sources from_;
  std::uint64_t started_ns_;  // of this daemon
};

}  // namespace entrepot
