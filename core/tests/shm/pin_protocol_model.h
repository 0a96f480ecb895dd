// Model of the pin protocol (shm/pins.h) on a machine whose processors delay their stores (x86-TSO), and an exhaustive
// search of its interleavings. Each step is one memory operation of one process, or the arrival of its oldest delayed
// store.
//
// Variables: the slot's word W, the bytes M, and for each reader its table's mark H and one pin P. A read sees the
// process's own delayed stores first; an exchange waits until there are none and acts on memory directly.
//
// The bytes are an object's payload, which ends when the object is deleted, or its record, which outlives the payload's
// stay in memory and ends when the object is dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace entrepot::model {

// The protocol, and the steps that can be disabled.
struct Protocol {
  bool record = false;                   // M is the record: read while sealed or spilled; evicted, loaded, dropped
  bool reader_refuses_evicting = true;   // false: a record is also read while its object is evicting
  bool reader_exchanges_pin = true;      // false: a plain store, which may be delayed
  bool reader_rechecks = true;           // false: trusts its first look at the word
  bool reader_raises_mark_first = true;  // false: only after the second look
  bool daemon_exchanges_word = true;     // false: a plain store
  bool daemon_marks_before_scan = true;  // false: scans the pins first
  int readers = 1;                       // at most 2
  int attempts = 2;                      // gets per reader
  int lives = 2;                         // deletes by the daemon, each followed by a new object in the same memory
};

struct Exploration {
  std::size_t states = 0;
  std::size_t bad_reads = 0;           // transitions in which a reader sees the payload of another generation
  std::size_t good_reads = 0;          // transitions in which it sees the right payload
  std::size_t frees = 0;               // transitions in which the daemon frees memory
  std::size_t ends = 0;                // states in which every process is done
  std::size_t stuck = 0;               // states in which some process is not done but no step is possible
  bool complete = true;                // false: stopped at the limit of states
  std::vector<std::string> first_bad;  // steps to the first bad read
};

[[nodiscard]] Exploration explore(const Protocol& protocol, std::size_t max_states = 20'000'000);

}  // namespace entrepot::model
