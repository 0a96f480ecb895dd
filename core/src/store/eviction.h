// Who leaves memory first. Pure: no I/O, no clock of its own; it is told what became resident, what was read and what
// has a copy on disk, and names victims. docs/eviction.md is the model in prose.
//
//   absent --admit--> unread --touch--> read --forget--> absent
//                       \--forget--> absent
//
// beside that an object is dirty or clean (a whole copy is on disk), dead or needed, pinned by the user or not, and can
// be made again or not.
// Objects of one set, state, priority and price of making them again (in powers of two) stand in one list in the order
// of their last use; joining and leaving one
// takes a logarithm of its length. victims() looks at one end of every list, and takes a logarithm of the number of
// lists and of their length for each victim. 60 bytes an object, those of its place in the table of slots included.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/access_pattern.h"
#include "store/eviction_cost.h"
#include "store/use_order.h"

namespace entrepot {

struct Explanation {
  bool known = false;          // is it resident with blobs at all?
  std::string text;            // one or two sentences
  std::uint64_t rank = 0;      // so many objects go before it; `rank_is_least`: that many at least
  bool rank_is_least = false;  // it was looked at no further
  std::uint64_t bytes_before = 0;
  double cost = 0;                      // nanoseconds of I/O a second and mebibyte: what leaving is expected to cost
  double write_cost = 0;                // the part for writing it
  double read_cost = 0;                 // the part for reading it back
  double idle_seconds = 0;              // since its last use
  double reads_a_second = 0;            // that are expected
  double interval_seconds = 0;          // expected time until the next read; 0: none is expected
  Reading reading = Reading::kUnknown;  // as declared or inferred
  bool inferred = false;
  bool clean = false;
  bool dead = false;
  bool pinned = false;
  bool was_read = false;
  double recompute_seconds = 0;  // 0: it cannot be made again
  double recompute_cost = 0;     // as `cost`, if it is dropped
  bool drops = false;            // it leaves by being dropped
};

// Guarded by the daemon's thread. Slots that were not admitted are ignored by everything but admit().
class EvictionPolicy {
 public:
  explicit EvictionPolicy(Replacement everywhere = Replacement::kDataAware);

  // The object became resident: sealed, or loaded again (it counts as unread until it is touched). `order`: its place
  // in the order of sealing, e.g. its slot's generation; 0: after all that came before.
  void admit(std::uint32_t slot, std::uint32_t set, std::uint64_t bytes, std::uint64_t now_ns, std::uint32_t order = 0);
  void forget(std::uint32_t slot);  // it ended, or is resident no longer
  // It was read, by whom (a client; scans of several readers are told apart).
  void touch(std::uint32_t slot, std::uint64_t now_ns, std::uint32_t reader = 0);
  void set_clean(std::uint32_t slot, bool clean);
  void set_pinned(std::uint32_t slot, bool pinned);            // by the user: never a victim
  void set_dead(std::uint32_t slot, bool dead);                // nobody needs it: first, and without being written
  void set_priority(std::uint32_t slot, int priority);         // its own, beside its set's
  void set_recompute(std::uint32_t slot, std::uint16_t code);  // RecomputeCode: it may be dropped and made again
  void move(std::uint32_t slot, std::uint32_t set);            // to another set

  // Set 0 is the default; an unknown set has the attributes of the default one.
  void define(std::uint32_t set, const SetAttributes& attributes);
  void undefine(std::uint32_t set);  // its session ended, say
  [[nodiscard]] SetAttributes attributes(std::uint32_t set) const;
  void set_costs(const EvictionCosts& costs) { costs_ = costs; }
  // As measured, for the choice between writing an object and dropping it.
  void set_measured(const EvictionCosts& costs) { measured_ = costs; }
  void choose(Replacement everywhere) { everywhere_ = everywhere; }  // kLru, kMru: for all sets, to compare

  // Who should go, in order, until their bytes reach `bytes` or nobody is left. Changes nothing.
  [[nodiscard]] std::vector<std::uint32_t> victims(std::uint64_t bytes, std::uint64_t now_ns,
                                                   const std::function<bool(std::uint32_t)>& allowed) const;

  [[nodiscard]] Explanation explain(std::uint32_t slot, std::uint64_t now_ns) const;
  [[nodiscard]] Reading reading(std::uint32_t set) const;  // as declared or inferred

  [[nodiscard]] bool is_admitted(std::uint32_t slot) const { return find(slot) != kNone; }
  [[nodiscard]] bool is_clean(std::uint32_t slot) const;
  [[nodiscard]] bool is_dead(std::uint32_t slot) const;
  // Whether it can be made again, and that is expected to cost less than writing it and reading it back.
  [[nodiscard]] bool is_cheaper_dropped(std::uint32_t slot, std::uint64_t now_ns) const;
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  static constexpr std::uint32_t kNone = 0xffff'ffffU;

  struct Node {
    std::uint64_t bytes = 0;
    std::uint64_t admitted_ns = 0;
    std::uint64_t touched_ns = 0;  // last use: admission, or the last touch
    std::uint64_t used = 0;        // a count of uses, by which lists are ordered
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
  using Order = UseOrder<Node>;
  struct List {
    std::int8_t priority = 0;
    bool clean = false;
    bool was_read = false;
    std::int8_t price = 0;
    Order order;
  };
  struct Set {
    SetAttributes attributes;
    bool defined = false;  // else those of set 0 count
    bool ending = false;   // undefined: forgotten with its last member
    std::uint32_t members = 0;
    std::uint64_t first_ns = 0;
    AccessPattern pattern;
    std::vector<List> lists;  // one for each state that members have had
  };
  // Node of a slot: a table of pages, because slots are dense where there are any.
  class SlotMap {
   public:
    [[nodiscard]] std::uint32_t find(std::uint32_t slot) const;
    void put(std::uint32_t slot, std::uint32_t node);

   private:
    static constexpr std::uint32_t kPage = 1024;
    std::vector<std::unique_ptr<std::array<std::uint32_t, kPage>>> pages_;
  };
  class Ranking;  // the walk through all lists, cheapest first

  [[nodiscard]] std::uint32_t find(std::uint32_t slot) const { return by_slot_.find(slot); }
  [[nodiscard]] static std::int8_t price_of(const Node& node);
  [[nodiscard]] List& list_of(const Node& node);
  void join(std::uint32_t node);
  void leave(std::uint32_t node);
  template <class Change>
  void change(std::uint32_t slot, Change&& apply);
  [[nodiscard]] const SetAttributes& attributes_of(const Set& set) const;
  [[nodiscard]] Reading reading_of(const Set& set) const;
  [[nodiscard]] CostInput input_of(const Set& set, const Node& node, std::uint64_t now_ns) const;
  [[nodiscard]] CostTerms cost_of(const Set& set, const Node& node, std::uint64_t now_ns) const;
  void drop_if_unused(std::uint32_t set);

  Replacement everywhere_;
  EvictionCosts costs_;
  EvictionCosts measured_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> free_nodes_;
  SlotMap by_slot_;
  std::unordered_map<std::uint32_t, Set> sets_;
  Order dead_;
  std::uint64_t uses_ = 0;
  std::uint32_t last_order_ = 0;
  std::size_t size_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace entrepot
