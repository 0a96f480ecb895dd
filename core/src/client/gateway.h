// Calls to the store's gateway, through which this store's clients reach other stores; and the gateway's own side.
//
// All functions are thread-safe. See net/gateway_messages.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "client/rpc.h"

namespace entrepot {

// A gateway says by itself when it gives up, so this only bounds it.
inline constexpr std::uint32_t kMaxCallMs = 3'600'000;

// Returns the gateway's answer; empty, if `ids` are given and all of them are sealed in this store first. With a timeout:
// kTimeout. kStoreUnavailable: the store has no gateway, or it does not respond. kVersionMismatch: the daemon is too old.
[[nodiscard]] Result<std::string> call_gateway(Rpc& rpc, const std::string& operation, std::span<const IdBytes> ids,
                                               const std::string& payload, const Wait& wait,
                                               const Interrupt& interrupt);

// This process's connection becomes the store's gateway, or with an empty label stops being it. kObjectExists: the store
// has another one.
[[nodiscard]] Status serve_gateway(Rpc& rpc, const std::string& label, const Interrupt& interrupt);
// Waits for calls for up to `timeout_ms`, at most 2 s; possibly none. kAccessDenied: this connection is not the gateway,
// as after a reconnect.
[[nodiscard]] Result<std::vector<GatewayCall>> next_calls(Rpc& rpc, std::uint32_t max_calls, std::uint32_t timeout_ms,
                                                          const Interrupt& interrupt);
// A failure is passed on to the caller, as long as it is waiting.
[[nodiscard]] Status answer_call(Rpc& rpc, std::uint64_t number, const Result<std::string>& payload,
                                 const Interrupt& interrupt);

}  // namespace entrepot
