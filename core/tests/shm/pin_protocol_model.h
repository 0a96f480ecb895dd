// A model of the pin protocol (shm/pins.h) on a machine whose processors delay their stores (x86-TSO), and a search of
// all its interleavings. Every step is one memory operation of one process, or the arrival of its oldest delayed store.
//
// Variables: the slot's word W, the bytes M, and for each reader its table's mark H and one pin P. A read sees the
// process' own delayed stores first; an exchange waits until it has none and acts on memory at once.
//
// The bytes are an object's payload, which ends when the object is deleted, or its record, which outlives the payload's
// stay in memory and ends when the object is dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace entrepot::model {

// The protocol, and what can be taken away from it.
struct Protocol {
  bool record = false;                   // M is the record: read while sealed or spilled; evicted, loaded, dropped
  bool reader_refuses_evicting = true;   // false: a record is read while its object is evicting too
  bool reader_exchanges_pin = true;      // false: a plain store, which may be delayed
  bool reader_rechecks = true;           // false: trusts its first look at the word
  bool reader_raises_mark_first = true;  // false: only after the second look
  bool daemon_exchanges_word = true;     // false: a plain store
  bool daemon_marks_before_scan = true;  // false: looks at the pins first
  int readers = 1;                       // at most 2
  int attempts = 2;                      // gets of each reader
  int lives = 2;                         // deletes by the daemon, with a new object in the same memory after each
};

struct Exploration {
  std::size_t states = 0;
  std::size_t bad_reads = 0;           // transitions in which a reader sees the payload of another life
  std::size_t good_reads = 0;          // transitions in which it sees the right one
  std::size_t frees = 0;               // transitions in which the daemon frees
  std::size_t ends = 0;                // states in which everybody is done
  std::size_t stuck = 0;               // states in which somebody is not done and nothing can happen
  bool complete = true;                // false: more states than the limit
  std::vector<std::string> first_bad;  // the steps to the first bad read
};

[[nodiscard]] Exploration explore(const Protocol& protocol, std::size_t max_states = 20'000'000);

}  // namespace entrepot::model
