#include "client/lost_objects.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace entrepot {

void LostObjects::add(std::vector<std::uint64_t> fingerprints) {
  for (std::uint64_t& fingerprint : fingerprints)
    fingerprint &= ~kFoundAgain;
  std::ranges::sort(fingerprints);
  fingerprints.erase(std::unique(fingerprints.begin(), fingerprints.end()), fingerprints.end());
  if (fingerprints.empty()) return;
  fingerprints.shrink_to_fit();
  size_ += fingerprints.size();
  stores_.push_back(std::move(fingerprints));
  while (size_ > limit_) {
    std::vector<std::uint64_t>& oldest = stores_.front();
    const std::size_t excess = std::min(size_ - limit_, oldest.size());
    oldest.resize(oldest.size() - excess);
    oldest.shrink_to_fit();
    size_ -= excess;
    if (oldest.empty()) stores_.pop_front();
  }
  if (stores_.size() <= kLists) return;
  std::vector<std::uint64_t> merged;
  merged.reserve(stores_[0].size() + stores_[1].size());
  std::ranges::set_union(stores_[0], stores_[1], std::back_inserter(merged));
  size_ = size_ + merged.size() - stores_[0].size() - stores_[1].size();
  stores_.pop_front();
  stores_.front() = std::move(merged);
}

bool LostObjects::contains(std::uint64_t fingerprint) const {
  // The newest store decides: what was found again in one store may have been lost with the next.
  const std::uint64_t lost = fingerprint & ~kFoundAgain;
  for (auto store = stores_.rbegin(); store != stores_.rend(); ++store) {
    const auto at = std::ranges::lower_bound(*store, lost);
    if (at != store->end() && (*at & ~kFoundAgain) == lost) return *at == lost;
  }
  return false;
}

void LostObjects::note_found(std::uint64_t fingerprint) {
  const std::uint64_t lost = fingerprint & ~kFoundAgain;
  for (std::vector<std::uint64_t>& store : stores_) {
    const auto at = std::ranges::lower_bound(store, lost);
    if (at != store.end() && *at == lost) *at |= kFoundAgain;
  }
}

}  // namespace entrepot
