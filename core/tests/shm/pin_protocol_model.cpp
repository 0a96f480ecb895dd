#include "pin_protocol_model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace entrepot::model {

namespace {

constexpr int kMaxReaders = 2;
constexpr int kProcesses = kMaxReaders + 1;
constexpr int kDaemon = kMaxReaders;
constexpr int kMaxDelayed = 4;

enum Variable : std::uint8_t { kWord = 0, kPayload = 1, kMark0 = 2, kPin0 = 4, kVariables = 6 };

// W: generation * 4 + state. M: the generation whose bytes are stored, 0 while they are being overwritten.
enum WordState : std::uint8_t { kGone = 0, kSealed = 1, kEvicting = 2, kSpilled = 3 };
constexpr std::uint8_t word_of(int life, WordState state) { return static_cast<std::uint8_t>(life * 4 + state); }
constexpr std::uint8_t sealed(int life) { return word_of(life, kSealed); }
constexpr std::uint8_t unsealed(int life) { return word_of(life, kGone); }
constexpr int life_of(std::uint8_t word) { return word / 4; }
constexpr WordState state_of(std::uint8_t word) { return static_cast<WordState>(word % 4); }

enum ReaderStep : std::uint8_t { kLook, kRaise, kPin, kLateRaise, kRecheck, kRead, kReadAgain, kUnpin, kReaderDone };
enum DaemonStep : std::uint8_t {
  kMark,
  kScan,
  kFree,
  kOverwrite,
  kRefill,
  kPublish,
  kKeep,   // record only: the object is pinned
  kLeave,  // not pinned: the object is dropped, or its payload is evicted
  kLoad,   // and reloaded
  kDaemonDone
};

struct Store {
  std::uint8_t variable = 0;
  std::uint8_t value = 0;
};

// No padding: states are compared and hashed as raw memory.
struct State {
  std::array<std::uint8_t, kVariables> memory{};
  std::array<std::uint8_t, kProcesses> delayed{};  // number of delayed stores
  std::array<std::array<Store, kMaxDelayed>, kProcesses> buffer{};
  std::array<std::uint8_t, kMaxReaders> reader{};    // ReaderStep
  std::array<std::uint8_t, kMaxReaders> life{};      // generation that the reader saw in W
  std::array<std::uint8_t, kMaxReaders> attempts{};  // remaining
  std::uint8_t daemon = kMark;
  std::uint8_t daemon_life = 1;
  std::uint8_t lives = 0;    // remaining
  std::uint8_t scanned = 0;  // next reader whose table is scanned; the high bit is set if its mark was seen
  std::uint8_t marked = 0;   // the word of this generation was changed (if the scan comes first)

  bool operator==(const State& other) const { return std::memcmp(this, &other, sizeof(State)) == 0; }
};
static_assert(std::has_unique_object_representations_v<State>);

struct StateHash {
  std::size_t operator()(const State& state) const {
    return std::hash<std::string_view>{}({reinterpret_cast<const char*>(&state), sizeof(State)});
  }
};

class Explorer {
 public:
  explicit Explorer(const Protocol& protocol) : protocol_(protocol) {}

  Exploration run(std::size_t max_states) {
    State start;
    start.memory[kWord] = sealed(1);
    start.memory[kPayload] = 1;
    start.lives = static_cast<std::uint8_t>(protocol_.lives);
    for (int i = 0; i < kMaxReaders; ++i) {
      const bool present = i < protocol_.readers;
      start.reader[index(i)] = present ? kLook : kReaderDone;
      start.attempts[index(i)] = static_cast<std::uint8_t>(protocol_.attempts);
    }
    visit(start, nullptr, "start");
    while (!queue_.empty() && seen_.size() <= max_states) {
      current_ = queue_.front();
      queue_.pop_front();
      expand(current_->first);
    }
    result_.complete = queue_.empty();
    result_.states = seen_.size();
    return result_;
  }

 private:
  struct Origin {
    const std::pair<const State, Origin>* from = nullptr;
    const char* step = "";
    std::int8_t process = -1;
  };
  using Node = std::pair<const State, Origin>;

  static constexpr std::size_t index(int i) { return static_cast<std::size_t>(i); }

  void visit(const State& state, const Node* from, const char* step, int process = -1) {
    const auto [node, fresh] = seen_.try_emplace(state, Origin{from, step, static_cast<std::int8_t>(process)});
    if (fresh) queue_.push_back(&*node);
  }
  void next(const State& state, const char* step, int process) {
    ++successors_;
    visit(state, current_, step, process);
  }

  // ---- machine
  static std::uint8_t read(const State& state, int process, std::uint8_t variable) {
    const auto& buffer = state.buffer[index(process)];
    for (int i = state.delayed[index(process)]; i-- > 0;) {
      if (buffer[index(i)].variable == variable) return buffer[index(i)].value;
    }
    return state.memory[variable];
  }
  static bool can_store(const State& state, int process) { return state.delayed[index(process)] < kMaxDelayed; }
  static void store(State& state, int process, std::uint8_t variable, std::uint8_t value) {
    state.buffer[index(process)][state.delayed[index(process)]++] = {variable, value};
  }
  static bool drained(const State& state, int process) { return state.delayed[index(process)] == 0; }
  static void arrive(State& state, int process) {
    auto& buffer = state.buffer[index(process)];
    state.memory[buffer[0].variable] = buffer[0].value;
    std::copy(buffer.begin() + 1, buffer.end(), buffer.begin());
    buffer.back() = {};
    --state.delayed[index(process)];
  }

  void expand(const State& state) {
    successors_ = 0;
    for (int process = 0; process < kProcesses; ++process) {
      if (drained(state, process)) continue;
      State after = state;
      arrive(after, process);
      next(after, "delayed store arrives", process);
    }
    for (int reader = 0; reader < protocol_.readers; ++reader)
      step_reader(state, reader);
    step_daemon(state);
    bool done = state.daemon == kDaemonDone;
    for (const std::uint8_t step : state.reader)
      done = done && step == kReaderDone;
    if (done) ++result_.ends;
    if (successors_ == 0 && !done) ++result_.stuck;
  }

  // ---- reader
  void finish_attempt(State& state, int reader) const {
    state.life[index(reader)] = 0;
    state.reader[index(reader)] = --state.attempts[index(reader)] == 0 ? kReaderDone : kLook;
  }

  [[nodiscard]] bool may_read(std::uint8_t word) const {
    const WordState state = state_of(word);
    if (state == kSealed) return true;
    return protocol_.record && (state == kSpilled || (state == kEvicting && !protocol_.reader_refuses_evicting));
  }
  [[nodiscard]] std::uint8_t before_read() const { return protocol_.reader_raises_mark_first ? kRead : kLateRaise; }
  [[nodiscard]] std::uint8_t after_pin() const {
    return protocol_.reader_rechecks ? std::uint8_t{kRecheck} : before_read();
  }

  void step_reader(const State& state, int reader) {
    State after = state;
    std::uint8_t& step = after.reader[index(reader)];
    const std::uint8_t life = state.life[index(reader)];
    const auto mark = static_cast<std::uint8_t>(kMark0 + reader);
    const auto pin = static_cast<std::uint8_t>(kPin0 + reader);
    switch (step) {
      case kLook: {
        const std::uint8_t word = read(state, reader, kWord);
        if (may_read(word)) {
          after.life[index(reader)] = static_cast<std::uint8_t>(life_of(word));
          step = protocol_.reader_raises_mark_first ? kRaise : kPin;
        } else {
          finish_attempt(after, reader);
        }
        return next(after, "looks at the word", reader);
      }
      case kRaise:
      case kLateRaise: {
        const std::uint8_t following = step == kRaise ? kPin : kRead;
        if (read(state, reader, mark) == 0) {
          if (!drained(state, reader)) return;
          after.memory[mark] = 1;
        }
        step = following;
        return next(after, "raises the mark", reader);
      }
      case kPin:
        if (protocol_.reader_exchanges_pin) {
          if (!drained(state, reader)) return;
          after.memory[pin] = life;
        } else {
          if (!can_store(state, reader)) return;
          store(after, reader, pin, life);
        }
        step = after_pin();
        return next(after, "pins", reader);
      case kRecheck: {
        const std::uint8_t word = read(state, reader, kWord);
        step = may_read(word) && life_of(word) == life ? before_read() : std::uint8_t{kUnpin};
        return next(after, "looks at the word again", reader);
      }
      case kRead:
      case kReadAgain: {
        const bool good = read(state, reader, kPayload) == life;
        ++(good ? result_.good_reads : result_.bad_reads);
        if (!good && result_.first_bad.empty()) tell(reader);
        step = step == kRead ? kReadAgain : kUnpin;
        return next(after, "reads the bytes", reader);
      }
      case kUnpin:
        if (!can_store(state, reader)) return;
        store(after, reader, pin, 0);
        finish_attempt(after, reader);
        return next(after, "unpins", reader);
      default:
        return;
    }
  }

  // ---- daemon
  void step_daemon(const State& state) {
    if (state.daemon == kDaemonDone) return;
    if (state.daemon == kMark && !protocol_.daemon_marks_before_scan && state.marked == 0) {
      // Scans first, and marks if no pin was found.
      State after = state;
      after.marked = 1;
      after.daemon = kScan;
      return next(after, "begins", kDaemon);
    }
    State after = state;
    switch (state.daemon) {
      case kMark: {
        const std::uint8_t marked = word_of(state.daemon_life, protocol_.record ? kEvicting : kGone);
        if (protocol_.daemon_exchanges_word) {
          if (!drained(state, kDaemon)) return;
          after.memory[kWord] = marked;
        } else {
          if (!can_store(state, kDaemon)) return;
          store(after, kDaemon, kWord, marked);
        }
        after.daemon = protocol_.daemon_marks_before_scan ? kScan : kFree;
        return next(after, "changes the word", kDaemon);
      }
      case kScan:
        return scan(state);
      case kKeep:
        if (!drained(state, kDaemon)) return;
        after.memory[kWord] = sealed(state.daemon_life);
        after.daemon = kMark;
        return next(after, "lets it be", kDaemon);
      case kLeave:
        if (!drained(state, kDaemon)) return;
        after.memory[kWord] = word_of(state.daemon_life, kSpilled);
        after.daemon = kLoad;
        next(after, "lets the payload go", kDaemon);
        after.memory[kWord] = unsealed(state.daemon_life);
        after.daemon = kOverwrite;
        ++result_.frees;
        return next(after, "drops the object", kDaemon);
      case kLoad:
        if (!drained(state, kDaemon)) return;
        after.memory[kWord] = sealed(state.daemon_life);
        after.daemon = kMark;
        return next(after, "loads the payload", kDaemon);
      case kFree:
        if (!drained(state, kDaemon)) return;
        after.memory[kWord] = unsealed(state.daemon_life + 1);
        after.daemon = kOverwrite;
        ++result_.frees;
        return next(after, "frees", kDaemon);
      case kOverwrite:
        if (!can_store(state, kDaemon)) return;
        store(after, kDaemon, kPayload, 0);
        after.daemon = kRefill;
        return next(after, "lets the memory be overwritten", kDaemon);
      case kRefill:
        if (!can_store(state, kDaemon)) return;
        store(after, kDaemon, kPayload, static_cast<std::uint8_t>(state.daemon_life + 1));
        after.daemon = kPublish;
        return next(after, "lets new bytes be written", kDaemon);
      case kPublish:
        if (!can_store(state, kDaemon)) return;
        store(after, kDaemon, kWord, sealed(state.daemon_life + 1));
        ++after.daemon_life;
        after.marked = 0;
        after.daemon = --after.lives == 0 ? kDaemonDone : kMark;
        return next(after, "publishes a new object there", kDaemon);
      default:
        return;
    }
  }

  // One read per step: the table's mark, then its pin if the mark says that there may be one.
  void scan(const State& state) {
    State after = state;
    const int reader = state.scanned & 0x7f;
    if (reader == protocol_.readers) {
      after.scanned = 0;
      after.daemon = !protocol_.daemon_marks_before_scan ? kMark : protocol_.record ? kLeave : kFree;
      return next(after, "found nobody", kDaemon);
    }
    if ((state.scanned & 0x80) == 0) {
      const bool raised = read(state, kDaemon, static_cast<std::uint8_t>(kMark0 + reader)) != 0;
      after.scanned = raised ? static_cast<std::uint8_t>(reader | 0x80) : static_cast<std::uint8_t>(reader + 1);
      return next(after, "reads a mark", kDaemon);
    }
    const bool pinned = read(state, kDaemon, static_cast<std::uint8_t>(kPin0 + reader)) == state.daemon_life;
    after.scanned = pinned ? std::uint8_t{0} : static_cast<std::uint8_t>(reader + 1);  // pinned: rescan from the start
    if (pinned && protocol_.record) after.daemon = kKeep;
    return next(after, "reads a pin", kDaemon);
  }

  void tell(int reader) {
    std::vector<std::string> steps = {"reader " + std::to_string(reader) + " reads the bytes of another life"};
    for (const Node* node = current_; node != nullptr; node = node->second.from) {
      const int process = node->second.process;
      const std::string who = process < 0          ? ""
                              : process == kDaemon ? "daemon "
                                                   : "reader " + std::to_string(process) + " ";
      steps.push_back(who + node->second.step);
    }
    std::reverse(steps.begin(), steps.end());
    result_.first_bad = std::move(steps);
  }

  Protocol protocol_;
  Exploration result_;
  std::unordered_map<State, Origin, StateHash> seen_;  // node-based: pointers to entries stay valid
  std::deque<const Node*> queue_;  // breadth first, so that the first bad read takes the fewest steps
  const Node* current_ = nullptr;
  std::size_t successors_ = 0;
};

}  // namespace

Exploration explore(const Protocol& protocol, std::size_t max_states) { return Explorer(protocol).run(max_states); }

}  // namespace entrepot::model
