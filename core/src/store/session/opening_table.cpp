#include "store/session/opening_table.h"

#include "base/crc32c.h"
#include "store/sync_point.h"

namespace entrepot {
namespace {

std::uint32_t opening_crc(const Opening& entry, std::uint32_t generation) {
  return Crc32c()
      .add(entry.client)
      .add(entry.client_generation)
      .add(entry.session)
      .add(entry.session_generation)
      .add(generation)
      .value();
}

}  // namespace

OpeningTable::OpeningTable(ControlMemory& memory)
    : table_(memory.region(RegionKind::kOpenings), memory.region(RegionKind::kOpenings).marks().high_water) {}

std::uint32_t OpeningTable::adopt(const ClientTable& clients, SessionTable& sessions) {
  std::uint32_t damaged = 0;
  table_.adopt([&](std::uint32_t index, const Opening& entry) {
    if (entry.crc != opening_crc(entry, Word::generation(table_.word(index)))) {
      ++damaged;
      return false;
    }
    if (clients.generation(entry.client) != entry.client_generation) return false;
    if (!sessions.is_live(entry.session) || sessions.generation(entry.session) != entry.session_generation)
      return false;
    if (find(entry.client, entry.session) != kNoEntry) {
      ++damaged;
      return false;
    }
    link(index);
    sessions.add_opener(entry.session);
    return true;
  });
  return damaged;
}

Result<bool> OpeningTable::add(std::uint32_t client, std::uint32_t client_generation, std::uint32_t session,
                               std::uint32_t session_generation) {
  if (find(client, session) != kNoEntry) return false;
  ASSIGN_OR_RETURN(const std::uint32_t index, table_.allocate());
  Opening& entry = table_.at(index);
  entry.client = client;
  entry.client_generation = client_generation;
  entry.session = session;
  entry.session_generation = session_generation;
  entry.reserved = 0;
  entry.crc = opening_crc(entry, table_.next_generation(index));
  ENTREPOT_SYNC_POINT("opening.fields");
  table_.publish(index, static_cast<std::uint8_t>(EntryState::kLive));
  ENTREPOT_SYNC_POINT("opening.published");
  link(index);
  return true;
}

void OpeningTable::link(std::uint32_t index) {
  of_client_.add(table_.at(index).client, index);
  of_session_.add(table_.at(index).session, index);
}

void OpeningTable::end(std::uint32_t index) {
  of_client_.remove(table_.at(index).client, index);
  of_session_.remove(table_.at(index).session, index);
  table_.free(index);
}

std::uint32_t OpeningTable::find(std::uint32_t client, std::uint32_t session) const {
  std::uint32_t index = of_client_.first(client);
  while (index != kNoEntry && table_.at(index).session != session)
    index = of_client_.next(index);
  return index;
}

bool OpeningTable::remove(std::uint32_t client, std::uint32_t session) {
  const std::uint32_t index = find(client, session);
  if (index == kNoEntry) return false;
  end(index);
  return true;
}

std::vector<std::uint32_t> OpeningTable::remove_client(std::uint32_t client) {
  std::vector<std::uint32_t> sessions;
  while (of_client_.first(client) != kNoEntry) {
    const std::uint32_t index = of_client_.first(client);
    sessions.push_back(table_.at(index).session);
    end(index);
  }
  return sessions;
}

void OpeningTable::remove_session(std::uint32_t session) {
  while (of_session_.first(session) != kNoEntry)
    end(of_session_.first(session));
}

}  // namespace entrepot
