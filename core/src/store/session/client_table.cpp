#include "store/session/client_table.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "store/sync_point.h"

namespace entrepot {
namespace {

std::uint32_t client_crc(const ClientEntry& entry, std::uint32_t generation) {
  return Crc32c()
      .add(entry.token)
      .add(entry.connected_unix_ns)
      .add(entry.pid)
      .add(entry.uid)
      .add(entry.pin_capacity)
      .add_bytes(entry.label.data(), entry.label.size())
      .add(entry.forked)
      .add(generation)
      .value();
}

}  // namespace

ClientTable::ClientTable(ControlMemory& memory)
    : table_(memory.region(RegionKind::kClients), memory.region(RegionKind::kClients).marks().high_water) {}

std::uint32_t ClientTable::adopt() {
  std::uint32_t damaged = 0;
  table_.adopt([&](std::uint32_t index, ClientEntry& entry) {
    if (entry.crc != client_crc(entry, Word::generation(table_.word(index)))) {
      // Its identity is unknown, but it exists until its liveness ends, and may pin anything.
      ++damaged;
      ClientState unknown;
      unknown.identity.label = "damaged entry";
      unknown.quarantined = true;
      states_[index] = std::move(unknown);
      return true;
    }
    ClientState state;
    state.token = entry.token;
    state.connected_unix_ns = entry.connected_unix_ns;
    const std::string_view label(entry.label.data(), entry.label.size());
    state.identity = {entry.pid, entry.uid, entry.pin_capacity, std::string(label.substr(0, label.find(char{0}))),
                      entry.forked != 0};
    state.quarantined = true;
    states_[index] = std::move(state);
    return true;
  });
  return damaged;
}

void ClientTable::publish(std::uint32_t client, std::uint64_t token, const ClientIdentity& identity,
                          std::uint64_t now_unix_ns) {
  ClientEntry& entry = table_.at(client);
  entry.token = token;
  entry.connected_unix_ns = now_unix_ns;
  entry.pid = identity.pid;
  entry.uid = identity.uid;
  entry.pin_capacity = identity.pin_capacity;
  entry.forked = identity.forked ? 1 : 0;
  entry.label = {};
  std::memcpy(entry.label.data(), identity.label.data(), std::min(identity.label.size(), kLabelMaxBytes));
  entry.crc = client_crc(entry, table_.next_generation(client));
  ENTREPOT_SYNC_POINT("client.fields");
  table_.publish(client, static_cast<std::uint8_t>(EntryState::kLive));
  ENTREPOT_SYNC_POINT("client.published");
  ClientState state;
  state.token = token;
  state.identity = identity;
  state.connected_unix_ns = now_unix_ns;
  state.connected = true;
  states_[client] = std::move(state);
}

void ClientTable::remove(std::uint32_t client) {
  if (states_.erase(client) != 0) table_.free(client);
}

ClientState* ClientTable::find(std::uint32_t client) {
  const auto it = states_.find(client);
  return it == states_.end() ? nullptr : &it->second;
}

const ClientState* ClientTable::find(std::uint32_t client) const {
  const auto it = states_.find(client);
  return it == states_.end() ? nullptr : &it->second;
}

std::uint32_t ClientTable::generation(std::uint32_t client) const {
  return states_.contains(client) ? Word::generation(table_.word(client)) : 0;
}

std::string ClientTable::describe(std::uint32_t client) const {
  const ClientState* state = find(client);
  if (state == nullptr) return concat("client ", client, " (gone)");
  return concat("client ", client, " (", state->identity.label.empty() ? "no label" : state->identity.label,
                state->identity.pid == 0 ? ", unknown process" : concat(", process ", state->identity.pid),
                state->connected ? ")" : ", not connected)");
}

std::size_t ClientTable::connected() const {
  return static_cast<std::size_t>(
      std::count_if(states_.begin(), states_.end(), [](const auto& entry) { return entry.second.connected; }));
}

}  // namespace entrepot
