// Eviction policy: decides which objects leave memory first. Pure: no I/O and no clock of its own. The pager reports
// which objects become resident, are read, and have a copy on disk, and names victims. docs/eviction.md describes the
// model.
//
//   absent --admit--> unread --touch--> read --forget--> absent
//                       \--forget--> absent
//
// Independently, an object is dirty or clean (has a complete copy on disk), dead or needed, pinned by the user or not,
// and recomputable or not.
//
// Objects of the same set, state, priority and recompute cost (in powers of two) form one list in LRU order; insertion
// and removal take logarithmic time in its length. victims() looks at one end of every list, and takes logarithmic time
// in the number of lists and their length for each victim. 60 bytes per object, including its entry in the slot table.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/eviction/access_pattern.h"
#include "store/eviction/eviction_cost.h"
#include "store/eviction/lru_list.h"

namespace entrepot {

struct Explanation {
  bool is_resident = false;          // whether it is resident and has blobs
  std::string text;                  // one or two sentences
  std::uint64_t rank = 0;            // number of objects that leave before it; a lower bound if `rank_is_lower_bound`
  bool rank_is_lower_bound = false;  // the search stopped here
  std::uint64_t bytes_before = 0;
  double cost = 0;                              // expected cost of evicting it: nanoseconds of I/O per second per MiB
  double write_cost = 0;                        // of `cost`: writing it
  double read_cost = 0;                         // of `cost`: reading it back
  double idle_seconds = 0;                      // since its last use
  double reads_a_second = 0;                    // expected
  double interval_seconds = 0;                  // expected time until the next read; 0: none expected
  ReadPattern reading = ReadPattern::kUnknown;  // declared or inferred
  bool inferred = false;
  bool clean = false;
  bool dead = false;
  bool pinned = false;
  bool was_read = false;
  double recompute_seconds = 0;  // 0: not recomputable
  double recompute_cost = 0;     // as `cost`, if it is dropped
  bool would_drop = false;       // it would be dropped
};

// Guarded by the daemon's thread. Slots that were not admitted are ignored by everything except admit().
class EvictionPolicy {
 public:
  explicit EvictionPolicy(Replacement global_replacement = Replacement::kDataAware);

  // The object became resident: sealed or reloaded (it counts as unread until it is touched). `order`: its position in
  // the order of sealing, e.g. its slot's generation; 0: after everything admitted before.
  void admit(std::uint32_t slot, std::uint32_t set, std::uint64_t bytes, std::uint64_t now_ns, std::uint32_t order = 0);
  void forget(std::uint32_t slot);  // it ended, or is no longer resident
  // The object was read by `reader` (a client; scans of different readers are distinguished).
  void touch(std::uint32_t slot, std::uint64_t now_ns, std::uint32_t reader = 0);
  void set_clean(std::uint32_t slot, bool clean);
  void set_pinned(std::uint32_t slot, bool pinned);            // by the user: never a victim
  void set_dead(std::uint32_t slot, bool dead);                // no longer needed: first victim, and never written
  void set_priority(std::uint32_t slot, int priority);         // its own, added to its set's
  void set_recompute(std::uint32_t slot, std::uint16_t code);  // RecomputeCode: it may be dropped and recomputed
  void move(std::uint32_t slot, std::uint32_t set);            // to another set

  // Set 0 is the default; an unknown set has the default set's attributes.
  void define(std::uint32_t set, const SetAttributes& attributes);
  void undefine(std::uint32_t set);  // e.g. because its session ended
  [[nodiscard]] SetAttributes attributes(std::uint32_t set) const;
  void set_costs(const EvictionCosts& costs) { costs_ = costs; }
  // Measured costs, used to choose between writing an object and dropping it.
  void set_measured(const EvictionCosts& costs) { measured_ = costs; }
  // kLru, kMru: for all sets, for comparison.
  void set_global_replacement(Replacement global_replacement) { global_replacement_ = global_replacement; }

  // Victims in order, until their bytes reach `bytes` or none are left. Changes nothing.
  [[nodiscard]] std::vector<std::uint32_t> victims(std::uint64_t bytes, std::uint64_t now_ns,
                                                   const std::function<bool(std::uint32_t)>& allowed) const;

  [[nodiscard]] Explanation explain(std::uint32_t slot, std::uint64_t now_ns) const;
  [[nodiscard]] ReadPattern reading(std::uint32_t set) const;  // declared or inferred

  [[nodiscard]] bool is_admitted(std::uint32_t slot) const { return find(slot) != kNone; }
  [[nodiscard]] bool is_clean(std::uint32_t slot) const;
  [[nodiscard]] bool is_dead(std::uint32_t slot) const;
  // Whether it is recomputable, and recomputing is expected to cost less than writing it and reading it back.
  [[nodiscard]] bool is_cheaper_to_drop(std::uint32_t slot, std::uint64_t now_ns) const;
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  static constexpr std::uint32_t kNone = 0xffff'ffffU;

  struct Node {
    std::uint64_t bytes = 0;
    std::uint64_t admitted_ns = 0;
    std::uint64_t touched_ns = 0;  // last use: admission or last touch
    std::uint64_t used = 0;        // use counter, by which lists are ordered
    std::uint32_t slot = kNone;
    std::uint32_t set = 0;
    std::uint32_t left = kNone;
    std::uint32_t right = kNone;
    std::uint32_t order = 0;
    std::uint16_t recompute = 0;
    std::int8_t priority = 0;
    bool clean : 1 = false;
    bool dead : 1 = false;
    bool pinned : 1 = false;
    bool was_read : 1 = false;
  };
  using Lru = LruList<Node>;
  struct List {
    std::int8_t priority = 0;
    bool clean = false;
    bool was_read = false;
    std::int8_t recompute_bucket = 0;
    Lru order;
  };
  struct Set {
    SetAttributes attributes;
    bool defined = false;  // if not, those of set 0 apply
    bool ending = false;   // undefined: removed with its last member
    std::uint32_t members = 0;
    std::uint64_t first_ns = 0;
    AccessPattern pattern;
    std::vector<List> lists;  // one for each state its members have had
  };
  // Maps slots to nodes: a table of pages, because the slots in use are dense.
  class SlotMap {
   public:
    [[nodiscard]] std::uint32_t find(std::uint32_t slot) const;
    void put(std::uint32_t slot, std::uint32_t node);

   private:
    static constexpr std::uint32_t kPage = 1024;
    std::vector<std::unique_ptr<std::array<std::uint32_t, kPage>>> pages_;
  };
  class Ranking;  // iterates over all lists, cheapest first

  [[nodiscard]] std::uint32_t find(std::uint32_t slot) const { return by_slot_.find(slot); }
  [[nodiscard]] static std::int8_t recompute_bucket_of(const Node& node);
  [[nodiscard]] List& list_of(const Node& node);
  void link(std::uint32_t node);
  void unlink(std::uint32_t node);
  template <class Change>
  void change(std::uint32_t slot, Change&& apply);
  [[nodiscard]] const SetAttributes& attributes_of(const Set& set) const;
  [[nodiscard]] ReadPattern reading_of(const Set& set) const;
  [[nodiscard]] CostInput input_of(const Set& set, const Node& node, std::uint64_t now_ns) const;
  [[nodiscard]] CostTerms cost_of(const Set& set, const Node& node, std::uint64_t now_ns) const;
  void drop_if_unused(std::uint32_t set);

  Replacement global_replacement_;
  EvictionCosts costs_;
  EvictionCosts measured_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> free_nodes_;
  SlotMap by_slot_;
  std::unordered_map<std::uint32_t, Set> sets_;
  Lru dead_;
  std::uint64_t uses_ = 0;
  std::uint32_t last_order_ = 0;
  std::size_t size_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace entrepot
