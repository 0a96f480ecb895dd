// The front end for Plasma clients as a whole, with a real store behind it: several clients send requests in any order,
// well-formed or not, come and go, and another client of the store puts, deletes and spills objects of the same names.
//
// After each turn of the loop, table and connections must agree. If no client sends anything while it waits for a
// reply, the state of every object is known, and each sealed one must be there at the end, for everybody.
#include <poll.h>

#include <algorithm>
#include <array>
#include <memory>

#include "fuzz/plasma_invariants.h"
#include "fuzz/plasma_requests.h"
#include "fuzz/plasma_store.h"
#include "os/log.h"
#include "os/socket.h"

namespace entrepot::fuzz {
namespace {

using plasma::MessageType;

constexpr std::size_t kMaxPeers = 4;
constexpr std::uint8_t kIds = 6;
constexpr std::uint64_t kArenaBytes = 256U << 10;
constexpr int kMaxSteps = 200;
constexpr int kMaxPauses = 1;
constexpr int kPauseMs = 6;  // longer than the front end waits between two looks into the store's directory
constexpr int kMaxTurns = 500;
constexpr std::size_t kFloodRequests = 1600;  // whose replies do not fit into a socket
IdBytes numbered(std::uint8_t number) {
  IdBytes id{};
  id[0] = 'f';
  id[19] = static_cast<std::uint8_t>(number % kIds);
  return id;
}

// What is known about an object. `kUnsure`: its deletion was asked for while somebody held it.
enum class State : std::uint8_t { kAbsent, kCreating, kSealed, kUnsure };

class Session {
 public:
  explicit Session(FuzzInput& input) : input_(input) {
    const std::uint8_t how = input_.byte();
    pipelines_ = (how & 1U) != 0;
    sends_nonsense_ = (how & 2U) != 0;
    options_.strict = (how & 4U) != 0;
    options_.isolate = (how & 8U) != 0;
    options_.capacity_bytes = kArenaBytes;
    options_.store_path = store_process().path();
    options_.socket_path = store_process().folder().path("plasma.sock");
    front_end_ = plasma::FrontEnd::start(options_, 0).take();
  }

  void run() {
    for (int step = 0; step < kMaxSteps && !input_.empty(); ++step) {
      one_step();
      check();
    }
    end();
  }

 private:
  // ---- steps

  void connect() {
    if (peers_.size() >= kMaxPeers) return;
    peers_.emplace_back(os::connect_unix(options_.socket_path, os::Deadline::after_ms(1000)).take());
    (void)os::set_nonblocking(peers_.back().socket(), true).is_ok();
    send(peers_.back(), connect_request());
  }

  void one_step() {
    const std::uint8_t op = input_.byte();
    if (peers_.empty()) connect();
    if (peers_.empty()) return;
    PlasmaPeer& peer = peers_[op / 32 % peers_.size()];
    const bool is_of_store = op % 32 >= 24;
    if (!pipelines_ && !is_of_store && op % 32 > 2 && (peer.waits() || !peer.reads)) return turn();
    if (is_of_store) {
      act_in_store(op % 32);
    } else {
      act(peer, op % 32);
    }
    if (!pipelines_ || (input_.byte() & 1U) == 0) turns();
  }

  void act(PlasmaPeer& peer, int op) {
    switch (op) {
      case 0:
        return connect();
      case 1:
        return forget(peer);
      case 2:  // says that it goes
        peer.may_be_cut_off = true;
        peer.send(plasma_message(MessageType::kDisconnect, {}), std::nullopt);
        return forget(peer);
      case 3:
      case 4:
      case 5:
        return create(peer);
      case 6:
      case 7:
      case 8:
        return seal_one(peer);
      case 9:
        return abort(peer);
      case 10:
      case 11:
      case 12:
        return get(peer);
      case 13:
      case 14:
        return release(peer);
      case 15:
        return remove(peer);
      case 16:
        return send(peer, contains_request(numbered(input_.byte())));
      case 17:
        return send(peer, list_request());
      case 18:
        return send(peer, evict_request(size()));
      case 19:
        return send(peer, refresh_request(some_ids()));
      case 20:
        return create_and_seal(peer);
      case 21:
        return send(peer, options_request(static_cast<std::int64_t>(size() * 2)));
      case 22:
        return subscribe(peer);
      default:
        return misbehave(peer);
    }
  }

  void act_in_store(int op) {
    const IdBytes id = numbered(input_.byte());
    switch (op) {
      case 24:
      case 25:
        if (other_.put(id, size(), op == 24)) sealed(id);
        return;
      case 26:
        other_.remove({id});
        if (states_[id] == State::kCreating) return;
        states_[id] = State::kUnsure;  // Plasma clients may hold it
        doomed_.erase(id);             // what is put from now on is not to be deleted
        return;
      case 27:
      case 28:
        return other_.evict(id);
      case 29:
        return other_.pin(id);
      case 30:
        return other_.unpin_all();
      default:
        if (pauses_++ < kMaxPauses) ::poll(nullptr, 0, kPauseMs);
    }
  }

  std::uint64_t size() {
    const std::uint8_t how = input_.byte();
    return how < 128 ? std::uint64_t{how} * 16 : std::uint64_t{how - 127U} * 1500;
  }

  Ids some_ids() {
    Ids ids(1 + input_.byte() % 3);
    for (IdBytes& id : ids)
      id = numbered(input_.byte());
    return ids;
  }

  static void send(PlasmaPeer& peer, const PlasmaRequest& request) { peer.send(request.bytes, request.reply); }

  void create(PlasmaPeer& peer) {
    const IdBytes id = numbered(input_.byte());
    const std::uint64_t data_bytes = size();
    const std::uint64_t metadata_bytes = input_.byte() % 40;
    const bool may_evict = metadata_bytes % 4 != 3;
    send(peer, create_request(id, data_bytes, metadata_bytes, may_evict, metadata_bytes == 39 ? 1 : 0));
  }

  // One that it has created, or if it has none and may send nonsense, any.
  std::optional<IdBytes> own(PlasmaPeer& peer) {
    const std::uint8_t which = input_.byte();
    if (!peer.created.empty()) return std::next(peer.created.begin(), which % peer.created.size())->first;
    if (!sends_nonsense_) return std::nullopt;
    peer.may_be_cut_off = true;
    return numbered(which);
  }

  void seal_one(PlasmaPeer& peer) {
    const auto id = own(peer);
    if (!id) return;
    if (peer.created.contains(*id)) {
      if (!peer.write(*id)) return;
      peer.created.erase(*id);
    } else if (pipelines_ && peer.waits()) {
      return;  // it could be created by then, and empty
    }
    send(peer, seal_request(*id));
  }

  void abort(PlasmaPeer& peer) {
    const auto id = own(peer);
    if (!id) return;
    peer.created.erase(*id);
    send(peer, abort_request(*id));
  }

  void get(PlasmaPeer& peer) {
    constexpr std::array<std::int64_t, 4> kTimeouts = {0, 0, 2, -1};
    const Ids ids = some_ids();
    const std::int64_t timeout_ms = kTimeouts[input_.byte() % kTimeouts.size()];
    peer.wanted = ids;
    send(peer, get_request(ids, timeout_ms));
  }

  void release(PlasmaPeer& peer) {
    IdBytes id = numbered(input_.byte());
    if (!peer.held.empty()) id = *std::next(peer.held.begin(), id[19] % peer.held.size());
    if (!peer.held.contains(id)) {
      if (!sends_nonsense_) return;
      peer.may_be_cut_off = true;
    }
    peer.held.erase(id);
    send(peer, release_request(id));
  }

  void remove(PlasmaPeer& peer) {
    const Ids ids = some_ids();
    send(peer, delete_request(ids));
  }

  void create_and_seal(PlasmaPeer& peer) {
    const Ids ids = some_ids();
    Strings data;
    Strings metadata;
    for (const IdBytes& id : ids) {
      const std::uint64_t data_bytes = size();
      const std::uint64_t metadata_bytes = input_.byte() % 40;
      const Bytes content = content_of(id, data_bytes, metadata_bytes);
      const auto middle = content.begin() + static_cast<std::ptrdiff_t>(data_bytes);
      data.emplace_back(content.begin(), middle);
      metadata.emplace_back(middle, content.end());
    }
    sealing_ = ids;
    send(peer, create_and_seal_request(ids, data, metadata));
  }

  void subscribe(PlasmaPeer& peer) {
    auto pair = os::socket_pair(os::SocketKind::kStream).take();
    peer.send(plasma_message(MessageType::kSubscribeRequest, {}), std::nullopt);
    const int descriptor = pair.first.get();
    peer.send(Bytes(1, 0), std::nullopt, std::span(&descriptor, 1));
    if (subscriptions_.size() < 2) subscriptions_.push_back(std::move(pair.second));  // the others end at once
  }

  void misbehave(PlasmaPeer& peer) {
    const std::uint8_t how = input_.byte();
    if (how % 4 == 0) {  // reads nothing for a while, or reads again
      peer.reads = !peer.reads;
      return;
    }
    if (how % 4 == 1) {
      if (floods_++ > 0) return;
      Bytes flood;
      for (std::size_t i = 0; i < kFloodRequests; ++i)
        append(flood, plasma_message(MessageType::kDebugStringRequest, {}));
      if (!pipelines_) return;
      return peer.send_many(flood, MessageType::kDebugStringReply, kFloodRequests);
    }
    const auto bytes = input_.take(input_.byte());
    if (!sends_nonsense_) return;
    peer.may_be_cut_off = true;
    if (how % 4 == 2) return peer.send(Bytes(bytes.begin(), bytes.end()), std::nullopt);
    // Not what could create an object with other bytes than its name demands.
    constexpr std::array<MessageType, 8> kTypes = {MessageType::kSealRequest,     MessageType::kGetRequest,
                                                   MessageType::kReleaseRequest,  MessageType::kDeleteRequest,
                                                   MessageType::kContainsRequest, MessageType::kSetOptionsRequest,
                                                   MessageType::kAbortRequest,    static_cast<MessageType>(99)};
    peer.send(plasma_message(kTypes[input_.byte() % kTypes.size()], bytes), std::nullopt);
  }

  // ---- turns of the loop, and what comes back

  void turn() {
    front_end_->skip_wait();
    require(front_end_->turn().is_ok(), "the loop runs");
    for (PlasmaPeer& peer : peers_) {
      while (auto reply = peer.receive())
        take(peer, *reply);
    }
    std::erase_if(peers_, [&](const PlasmaPeer& peer) {
      if (!peer.is_connected()) lose_created(peer);
      return !peer.is_connected();
    });
    std::array<std::uint8_t, 4096> notifications{};
    for (const UniqueFd& subscription : subscriptions_) {
      std::vector<UniqueFd> none;
      pollfd ready{subscription.get(), POLLIN, 0};
      if (::poll(&ready, 1, 0) > 0) (void)os::receive_some(subscription.get(), notifications, none).is_ok();
    }
  }

  // Until the front end has done what it can without waiting.
  void turns() {
    for (int i = 0; i < 4; ++i)
      turn();
  }

  void forget(PlasmaPeer& peer) {
    lose_created(peer);
    peer.hang_up();
    turns();
  }

  void lose_created(const PlasmaPeer& peer) {
    for (const auto& [id, place] : peer.created)
      if (states_[id] == State::kCreating) states_[id] = State::kAbsent;
  }

  void put(const IdBytes& id) {  // as a whole, under an ID that was free
    doomed_.erase(id);
    sealed(id);
  }
  void sealed(const IdBytes& id) { states_[id] = doomed_.contains(id) ? State::kUnsure : State::kSealed; }

  void take(PlasmaPeer& peer, const PlasmaPeer::Reply& reply) {
    switch (reply.type) {
      case MessageType::kCreateReply: {
        const auto& created = plasma_reply<wire::CreateReply>(reply.body);
        if (created.error() != wire::Error::Ok) return;
        const IdBytes id = id_of(*created.object_id());
        require(!is_exact() || states_[id] != State::kCreating, "one client at a time creates an object");
        require(!is_exact() || options_.strict || states_[id] != State::kSealed, "a sealed object stays");
        states_[id] = State::kCreating;
        doomed_.erase(id);
        peer.created[id] = *created.place();
        return;
      }
      case MessageType::kSealReply: {
        const auto& answer = plasma_reply<wire::SealReply>(reply.body);
        const IdBytes id = id_of(*answer.object_id());
        if (answer.error() == wire::Error::Ok) {
          sealed(id);
          peer.held.insert(id);
        } else if (is_exact()) {
          states_[id] = State::kUnsure;
          peer.may_be_cut_off = true;  // it has lost count of what it has created
        }
        return;
      }
      case MessageType::kCreateAndSealReply:
        if (plasma_reply<wire::CreateAndSealReply>(reply.body).error() == wire::Error::Ok) put(sealing_[0]);
        return;
      case MessageType::kCreateAndSealBatchReply:
        for (const IdBytes& id : sealing_) {
          if (plasma_reply<wire::CreateAndSealBatchReply>(reply.body).error() == wire::Error::Ok) {
            put(id);
          } else if (states_[id] == State::kAbsent) {
            states_[id] = State::kUnsure;  // some may have been sealed before it failed
          }
        }
        return;
      case MessageType::kAbortReply: {
        State& state = states_[id_of(*plasma_reply<wire::AbortReply>(reply.body).object_id())];
        if (state == State::kCreating) state = State::kAbsent;  // else others have put it meanwhile
        return;
      }
      case MessageType::kGetReply:
        return take_objects(peer, plasma_reply<wire::GetReply>(reply.body));
      case MessageType::kDeleteReply: {
        const auto& deleted = plasma_reply<wire::DeleteReply>(reply.body);
        for (std::uint32_t i = 0; i < deleted.object_ids()->size(); ++i)
          deletion_answered(id_of(*deleted.object_ids()->Get(i)), static_cast<wire::Error>(deleted.errors()->Get(i)));
        return;
      }
      case MessageType::kContainsReply: {
        const auto& answer = plasma_reply<wire::ContainsReply>(reply.body);
        const State state = states_[id_of(*answer.object_id())];
        if (!is_exact() || state == State::kUnsure) return;
        require(answer.has_object() || options_.strict || state != State::kSealed, "a sealed object is there");
        require(!answer.has_object() || state == State::kSealed, "what nobody sealed is not there");
        return;
      }
      default:
        return;
    }
  }

  void take_objects(PlasmaPeer& peer, const wire::GetReply& got) {
    peer.wanted.clear();
    std::set<IdBytes> taken;
    for (std::uint32_t i = 0; i < got.object_ids()->size(); ++i) {
      const IdBytes id = id_of(*got.object_ids()->Get(i));
      const wire::Place& place = *got.places()->Get(i);
      if (place.data_size() == UINT64_MAX) continue;
      peer.check(id, place);
      if (taken.insert(id).second && !peer.held.contains(id)) peer.held.insert(id);
    }
  }

  void deletion_answered(const IdBytes& id, wire::Error error) {
    State& state = states_[id];
    if (error == wire::Error::Ok) {
      state = State::kAbsent;
    } else if (error == wire::Error::ObjectNonexistent) {
      require(!is_exact() || options_.strict || state != State::kSealed, "a sealed object can be deleted");
      state = State::kAbsent;
    } else {
      doomed_.insert(id);
      if (state == State::kSealed) state = State::kUnsure;
    }
  }

  // Whether `states_` is exact, because everything happens one after the other.
  [[nodiscard]] bool is_exact() const { return !pipelines_ && !sends_nonsense_; }

  // ---- what must hold

  void check() {
    check_front_end(*front_end_);
    for (const PlasmaPeer& peer : peers_) {
      if (!is_exact() || peer.wanted.empty() || !peer.reads) continue;
      require(!are_in_arena(*front_end_, peer.wanted), "a get ends when all that it wants is there");
    }
  }

  void end() {
    other_.unpin_all();
    for (PlasmaPeer& peer : peers_) {
      lose_created(peer);
      peer.hang_up();
    }
    peers_.clear();
    for (int i = 0; i < kMaxTurns && !front_end_->clients().empty(); ++i)
      turn();
    require(front_end_->clients().empty(), "a client that hung up is gone");
    for (int i = 0; i < 4; ++i)
      turn();  // what was being fetched for it
    check();
    for (const auto& [id, object] : front_end_->table().all())
      require(object.is_sealed && object.holders.empty(), "nobody holds or creates anything any more");
    if (is_exact() && !options_.strict) check_all_there();
    peers_.clear();
    front_end_.reset();
    Ids ids;
    for (std::uint8_t i = 0; i < kIds; ++i)
      ids.push_back(numbered(i));
    other_.remove(ids);
    other_.check_empty();
    if (++inputs_ % kInputsPerLeakCheck == 0) check_no_leak();
  }

  void check_all_there() {
    for (const auto& [id, state] : states_) {
      if (state != State::kSealed) continue;
      connect();
      PlasmaPeer& peer = peers_.back();
      send(peer, get_request({id}, -1));
      for (int i = 0; i < kMaxTurns && peers_.back().held.empty(); ++i)
        turn();
      require(peers_.back().held.contains(id), "a Plasma client gets every sealed object");
      other_.check_content(id);
      peers_.clear();
      turns();
    }
  }

  static constexpr std::uint64_t kInputsPerLeakCheck = 100;
  static inline std::uint64_t inputs_ = 0;

  FuzzInput& input_;
  plasma::Options options_;
  std::unique_ptr<plasma::FrontEnd> front_end_;
  StoreClient other_;
  std::vector<UniqueFd> subscriptions_;
  std::deque<PlasmaPeer> peers_;
  std::map<IdBytes, State> states_;
  std::set<IdBytes> doomed_;  // held, and to be deleted when they no longer are
  Ids sealing_;               // by the request that was sent last
  bool pipelines_ = false;
  bool sends_nonsense_ = false;
  int pauses_ = 0;
  int floods_ = 0;
};

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (std::uint8_t how = 0; how < 16; ++how) {
    const bool pipelines = (how & 1U) != 0;
    Bytes input = {how};
    // A step of the peer with this number; whether it is followed by a turn is a byte more.
    const auto step = [&](std::uint8_t peer, const Bytes& bytes) {
      input.push_back(static_cast<std::uint8_t>(peer * 32 + bytes[0]));
      input.insert(input.end(), bytes.begin() + 1, bytes.end());
      if (pipelines) input.push_back(how & 2U);
    };
    step(0, {0});
    step(0, {0});
    step(0, {3, 1, 200, 5});               // create
    step(1, {10, 0, 1, 3});                // another waits for it
    step(0, {6, 0});                       // seal
    step(0, {22});                         // subscribe
    step(0, {20, 1, 2, 3, 60, 4, 90, 8});  // a batch of two
    step(1, {13, 0});                      // release
    step(1, {20, 0, 4, 255, 1});           // a large one
    step(0, {24, 5, 100});                 // other clients of the store
    step(0, {25, 0, 140});
    step(0, {27, 5});
    step(0, {10, 2, 5, 0, 4, 1});  // get with copies and reads from disk
    step(0, {31, 0});
    step(0, {16, 1});
    step(1, {15, 1, 1, 5});  // delete one that is held, and one that is not
    step(0, {29, 2});
    step(0, {21, 40});  // quota
    step(0, {3, 3, 250, 0});
    step(0, {4, 1, 250, 3});
    step(0, {9, 0});
    step(0, {18, 200});
    step(0, {19, 1, 2, 3});
    step(0, {17});
    step(0, {23, 0});
    step(0, {23, 1});
    step(0, {23, 0});
    step(1, {23, 2, 3, 1, 2, 3});
    step(1, {23, 3, 2, 9, 9, 4});
    step(0, {26, 1});
    step(0, {30, 0});
    step(1, {2});
    step(0, {1});
    all.push_back(input);
  }
  return all;
}

}  // namespace entrepot::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool is_quiet = [] {
    GTEST_FLAG_SET(break_on_failure, true);
    entrepot::set_log_level(entrepot::LogLevel::kOff);
    return true;
  }();
  (void)is_quiet;
  entrepot::fuzz::FuzzInput input(data, size);
  entrepot::fuzz::Session(input).run();
  return 0;
}
