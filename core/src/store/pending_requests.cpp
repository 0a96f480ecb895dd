#include "store/pending_requests.h"

#include <algorithm>

namespace entrepot {

namespace {

template <class Request>
std::optional<Request> take_overdue(WaitList<Request>& list, std::uint64_t now_ns) {
  const auto overdue = list.overdue(now_ns);
  return overdue ? std::optional<Request>(list.take(*overdue)) : std::nullopt;
}

}  // namespace

void PendingRequests::add(PendingLookup request) {
  const Lookups::Iterator it = lookups_.add(std::move(request));
  for (const IdBytes& id : it->missing)
    lookups_by_id_.emplace(id, it);
}

PendingLookup PendingRequests::take_lookup(Lookups::Iterator it) {
  for (const IdBytes& id : it->missing) {
    const auto [first, last] = lookups_by_id_.equal_range(id);
    for (auto entry = first; entry != last; ++entry) {
      if (entry->second == it) {
        lookups_by_id_.erase(entry);
        break;
      }
    }
  }
  return lookups_.take(it);
}

std::vector<PendingLookup> PendingRequests::sealed(const IdBytes& id) {
  std::vector<Lookups::Iterator> ready;
  const auto [first, last] = lookups_by_id_.equal_range(id);
  for (auto entry = first; entry != last; ++entry) {
    entry->second->missing.erase(id);
    if (entry->second->missing.empty()) ready.push_back(entry->second);
  }
  lookups_by_id_.erase(first, last);
  std::vector<PendingLookup> result;
  result.reserve(ready.size());
  for (const Lookups::Iterator& it : ready)
    result.push_back(take_lookup(it));
  return result;
}

std::vector<PendingNameResolution> PendingRequests::named(std::uint32_t session, std::string_view name) {
  return names_.take_if([&](const auto& request) { return request.session == session && request.name == name; });
}

std::vector<PendingNameResolution> PendingRequests::of_session(std::uint32_t session) {
  return names_.take_if([&](const auto& request) { return request.session == session; });
}

std::vector<PendingProvision> PendingRequests::take_provisions() {
  return provisions_.take_if([](const auto&) { return true; });
}

std::vector<PendingRecord> PendingRequests::recorded(std::uint64_t written) {
  return records_.take_if([&](const auto& request) { return request.record <= written; });
}

std::optional<PendingLookup> PendingRequests::overdue_lookup(std::uint64_t now_ns) {
  const auto overdue = lookups_.overdue(now_ns);
  return overdue ? std::optional<PendingLookup>(take_lookup(*overdue)) : std::nullopt;
}

std::optional<PendingNameResolution> PendingRequests::overdue_name(std::uint64_t now_ns) {
  return take_overdue(names_, now_ns);
}

std::optional<PendingLease> PendingRequests::overdue_lease(std::uint64_t now_ns) {
  return take_overdue(leases_, now_ns);
}

std::optional<PendingProvision> PendingRequests::overdue_provision(std::uint64_t now_ns) {
  return take_overdue(provisions_, now_ns);
}

std::optional<PendingRoom> PendingRequests::overdue_room(std::uint64_t now_ns) { return take_overdue(rooms_, now_ns); }

std::optional<PendingRecord> PendingRequests::overdue_record(std::uint64_t now_ns) {
  return take_overdue(records_, now_ns);
}

std::uint64_t PendingRequests::next_deadline_ns() const {
  return std::min({lookups_.next_deadline_ns(), names_.next_deadline_ns(), leases_.next_deadline_ns(),
                   provisions_.next_deadline_ns(), rooms_.next_deadline_ns(), records_.next_deadline_ns()});
}

std::vector<PendingLease> PendingRequests::cancel(std::uint64_t owner) {
  const auto is_of_owner = [&](const auto& request) { return request.origin.owner == owner; };
  for (Lookups::Iterator it = lookups_.begin(); it != lookups_.end();) {
    const Lookups::Iterator next = std::next(it);
    if (is_of_owner(*it)) static_cast<void>(take_lookup(it));
    it = next;
  }
  static_cast<void>(names_.take_if(is_of_owner));
  static_cast<void>(provisions_.take_if(is_of_owner));
  static_cast<void>(rooms_.take_if(is_of_owner));
  static_cast<void>(records_.take_if(is_of_owner));
  return leases_.take_if(is_of_owner);
}

}  // namespace entrepot
