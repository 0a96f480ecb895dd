// The front end for Plasma clients as a whole, with a real store behind it: several clients send requests in any order,
// well-formed or not, come and go, and another client of the store puts, deletes and spills objects of the same names.
//
// After each turn of the loop, table and connections must agree. If no client sends anything while it waits for a
// reply, the state of every object is known, and each sealed one must be there at the end, for everybody.
#include <poll.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "client/client.h"
#include "daemon/store_process.h"
#include "fuzz/plasma_peer.h"
#include "os/log.h"
#include "os/socket.h"
#include "plasma/front_end.h"

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
// Packed trees; see docs/plasma.md.
constexpr std::string_view kPlasmaTree(
    "\x92\x01\x95\xad"
    "plasma.Object\x01\x81\xa6"
    "source\xa6"
    "plasma\x92\x00\x01\x90",
    37);
constexpr std::string_view kBytesTree("\x92\x01\x95\xacpython.bytes\x01\xc0\x91\x00\x90", 21);

IdBytes numbered(std::uint8_t number) {
  IdBytes id{};
  id[0] = 'f';
  id[19] = static_cast<std::uint8_t>(number % kIds);
  return id;
}

// The store of all inputs; each leaves it empty.
testing::StoreProcess& store_process() {
  static const testing::Scratch spill;
  static testing::StoreProcess store({"--size=64MiB", "--warm-bytes=0", "--idle-exit=120", "--spill-quota=256MiB",
                                      "--spill-reserve=0", "--spill-path=" + spill.path()});
  return store;
}

// What is known about an object. `kUnsure`: its deletion was asked for while somebody held it.
enum class Known : std::uint8_t { kAbsent, kCreating, kSealed, kUnsure };

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
    ConnectOptions connect;
    connect.path = options_.store_path;
    connect.label = "fuzz";
    connect.version = ENTREPOT_VERSION;
    other_ = Client::connect(connect, {}).take();
    session_ = other_->open_session("default", "", std::nullopt, {}).take();
  }

  void run() {
    for (int step = 0; step < kMaxSteps && !input_.empty(); ++step) {
      one_step();
      check_table();
    }
    end();
  }

 private:
  // ---- steps

  void connect() {
    if (peers_.size() >= kMaxPeers) return;
    peers_.emplace_back(os::connect_unix(options_.socket_path, os::Deadline::after_ms(1000)).take());
    (void)os::set_nonblocking(peers_.back().socket(), true).is_ok();
    send(peers_.back(), MessageType::kConnectRequest, MessageType::kConnectReply,
         [](auto& builder) { return wire::CreateConnectRequest(builder); });
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
      case 16: {
        const IdBytes id = numbered(input_.byte());
        return send(peer, MessageType::kContainsRequest, MessageType::kContainsReply, [&](auto& builder) {
          return wire::CreateContainsRequest(builder, builder.CreateString(text_of(id)));
        });
      }
      case 17:
        return send(peer, MessageType::kListRequest, MessageType::kListReply,
                    [](auto& builder) { return wire::CreateListRequest(builder); });
      case 18: {
        const std::uint64_t bytes = size();
        return send(peer, MessageType::kEvictRequest, MessageType::kEvictReply,
                    [&](auto& builder) { return wire::CreateEvictRequest(builder, bytes); });
      }
      case 19: {
        const Strings ids = texts_of(some_ids());
        return send(peer, MessageType::kRefreshLruRequest, MessageType::kRefreshLruReply, [&](auto& builder) {
          return wire::CreateRefreshLruRequest(builder, builder.CreateVectorOfStrings(ids));
        });
      }
      case 20:
        return create_and_seal(peer);
      case 21: {
        const auto quota = static_cast<std::int64_t>(size() * 2);
        return send(peer, MessageType::kSetOptionsRequest, MessageType::kSetOptionsReply, [&](auto& builder) {
          return wire::CreateSetOptionsRequest(builder, builder.CreateString("fuzz"), quota);
        });
      }
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
      case 25: {
        std::uint64_t data_bytes = size();
        const bool is_plasma = op == 24;
        const Bytes content = content_of(id, data_bytes, 0);
        PutItem item;
        item.id = id;
        item.session = session_;
        item.tree = is_plasma ? kPlasmaTree : kBytesTree;
        item.buffers = {{content.data(), content.size()}};
        if (is_plasma) item.buffers.push_back({content.data(), 0});
        const PutResult result = other_->put(std::span(&item, 1), 1000, {})[0];
        if (result.status.is_ok()) known_[id] = Known::kSealed;
        return;
      }
      case 26: {
        require(other_->remove(std::span(&id, 1), {}).is_ok(), "an object of the store can be deleted");
        if (known_[id] != Known::kCreating) known_[id] = Known::kUnsure;  // Plasma clients may hold it
        return;
      }
      case 27:
      case 28:
        require(other_->evict(std::span(&id, 1), {}).is_ok(), "the store can be asked to spill an object");
        return;
      case 29: {
        auto got = other_->get(std::span(&id, 1), 0, {});
        if (got.is_ok()) pinned_.push_back(std::move((*got)[0]));
        return;
      }
      case 30:
        return pinned_.clear();
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

  template <class Make>
  void send(PlasmaPeer& peer, MessageType type, std::optional<MessageType> reply, Make make) {
    peer.send(plasma_message(type, make), reply);
  }

  void create(PlasmaPeer& peer) {
    const IdBytes id = numbered(input_.byte());
    const std::uint64_t data_bytes = size();
    const std::uint64_t metadata_bytes = input_.byte() % 40;
    const bool may_evict = metadata_bytes % 4 != 3;
    send(peer, MessageType::kCreateRequest, MessageType::kCreateReply, [&](auto& builder) {
      return wire::CreateCreateRequest(builder, builder.CreateString(text_of(id)), may_evict, data_bytes,
                                       metadata_bytes, metadata_bytes == 39 ? 1 : 0);
    });
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
    send(peer, MessageType::kSealRequest, MessageType::kSealReply, [&](auto& builder) {
      const auto text = builder.CreateString(text_of(*id));
      return wire::CreateSealRequest(builder, text, builder.CreateString("digest--"));
    });
  }

  void abort(PlasmaPeer& peer) {
    const auto id = own(peer);
    if (!id) return;
    peer.created.erase(*id);
    send(peer, MessageType::kAbortRequest, MessageType::kAbortReply,
         [&](auto& builder) { return wire::CreateAbortRequest(builder, builder.CreateString(text_of(*id))); });
  }

  void get(PlasmaPeer& peer) {
    constexpr std::array<std::int64_t, 4> kTimeouts = {0, 0, 2, -1};
    const Ids ids = some_ids();
    const std::int64_t timeout_ms = kTimeouts[input_.byte() % kTimeouts.size()];
    peer.wanted = ids;
    send(peer, MessageType::kGetRequest, MessageType::kGetReply, [&](auto& builder) {
      return wire::CreateGetRequest(builder, builder.CreateVectorOfStrings(texts_of(ids)), timeout_ms);
    });
  }

  void release(PlasmaPeer& peer) {
    IdBytes id = numbered(input_.byte());
    if (!peer.held.empty()) id = *std::next(peer.held.begin(), id[19] % peer.held.size());
    if (!peer.held.contains(id)) {
      if (!sends_nonsense_) return;
      peer.may_be_cut_off = true;
    }
    peer.held.erase(id);
    send(peer, MessageType::kReleaseRequest, std::nullopt,
         [&](auto& builder) { return wire::CreateReleaseRequest(builder, builder.CreateString(text_of(id))); });
  }

  void remove(PlasmaPeer& peer) {
    const Ids ids = some_ids();
    send(peer, MessageType::kDeleteRequest, MessageType::kDeleteReply, [&](auto& builder) {
      const auto texts = builder.CreateVectorOfStrings(texts_of(ids));
      return wire::CreateDeleteRequest(builder, static_cast<std::int32_t>(ids.size()), texts);
    });
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
    if (ids.size() == 1) {
      return send(peer, MessageType::kCreateAndSealRequest, MessageType::kCreateAndSealReply, [&](auto& builder) {
        const auto id = builder.CreateString(text_of(ids[0]));
        const auto bytes = builder.CreateString(data[0]);
        const auto more = builder.CreateString(metadata[0]);
        return wire::CreateCreateAndSealRequest(builder, id, true, bytes, more, builder.CreateString("digest--"));
      });
    }
    const Strings digests(ids.size(), "digest--");
    send(peer, MessageType::kCreateAndSealBatchRequest, MessageType::kCreateAndSealBatchReply, [&](auto& builder) {
      const auto texts = builder.CreateVectorOfStrings(texts_of(ids));
      const auto bytes = builder.CreateVectorOfStrings(data);
      const auto more = builder.CreateVectorOfStrings(metadata);
      return wire::CreateCreateAndSealBatchRequest(builder, texts, true, bytes, more,
                                                   builder.CreateVectorOfStrings(digests));
    });
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
      if (known_[id] == Known::kCreating) known_[id] = Known::kAbsent;
  }

  void sealed(const IdBytes& id) { known_[id] = Known::kSealed; }

  void take(PlasmaPeer& peer, const PlasmaPeer::Reply& reply) {
    switch (reply.type) {
      case MessageType::kCreateReply: {
        const auto& created = plasma_reply<wire::CreateReply>(reply.body);
        if (created.error() != wire::Error::Ok) return;
        const IdBytes id = id_of(*created.object_id());
        require(!is_exact() || known_[id] != Known::kCreating, "one client at a time creates an object");
        require(!is_exact() || options_.strict || known_[id] != Known::kSealed, "a sealed object stays");
        known_[id] = Known::kCreating;
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
          known_[id] = Known::kUnsure;
          peer.may_be_cut_off = true;  // it has lost count of what it has created
        }
        return;
      }
      case MessageType::kCreateAndSealReply:
        if (plasma_reply<wire::CreateAndSealReply>(reply.body).error() == wire::Error::Ok) sealed(sealing_[0]);
        return;
      case MessageType::kCreateAndSealBatchReply:
        for (const IdBytes& id : sealing_) {
          if (plasma_reply<wire::CreateAndSealBatchReply>(reply.body).error() == wire::Error::Ok) {
            sealed(id);
          } else if (known_[id] == Known::kAbsent) {
            known_[id] = Known::kUnsure;  // some may have been sealed before it failed
          }
        }
        return;
      case MessageType::kAbortReply:
        known_[id_of(*plasma_reply<wire::AbortReply>(reply.body).object_id())] = Known::kAbsent;
        return;
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
        const Known known = known_[id_of(*answer.object_id())];
        if (!is_exact() || known == Known::kUnsure) return;
        require(answer.has_object() || options_.strict || known != Known::kSealed, "a sealed object is there");
        require(!answer.has_object() || known == Known::kSealed, "what nobody sealed is not there");
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
    Known& known = known_[id];
    if (error == wire::Error::Ok) {
      known = Known::kAbsent;
    } else if (error == wire::Error::ObjectNonexistent) {
      require(!is_exact() || options_.strict || known != Known::kSealed, "a sealed object can be deleted");
      known = Known::kAbsent;
    } else if (known == Known::kSealed) {
      known = Known::kUnsure;
    }
  }

  // Whether `known_` is exact, because everything happens one after the other.
  [[nodiscard]] bool is_exact() const { return !pipelines_ && !sends_nonsense_; }

  // ---- what must hold

  void check_table() {
    const plasma::ObjectTable& table = front_end_->table();
    const auto& clients = front_end_->clients();
    std::uint64_t bytes = 0;
    std::size_t unheld = 0;
    for (const auto& [id, object] : table.all()) {
      bytes += object.bytes();
      for (const plasma::ClientKey holder : object.holders) {
        const auto client = clients.find(holder);
        require(client != clients.end(), "nothing is held by a client that is gone");
        require(client->second->held.contains(id), "who holds an object knows it");
      }
      if (!object.is_sealed) {
        require(object.creator == 0 || object.holders.contains(object.creator), "a creator holds what it creates");
        continue;
      }
      require(object.extent.memory != nullptr || (object.bytes() == 0 && object.holders.empty()),
              "what is sealed has memory");
      if (!object.holders.empty()) {
        require(!object.is_in_place || object.bytes() == 0 || object.extent.pin != nullptr, "what is held is pinned");
        continue;
      }
      ++unheld;
      require(object.extent.pin == nullptr, "what nobody holds is not pinned");
      require((object.extent.memory == nullptr) == (object.bytes() == 0), "what has no bytes leases none");
      require(object.is_in_place || object.bytes() == 0, "a copy that nobody holds is gone");
      require(!object.is_deletion_wanted, "what is to be deleted goes with its last holder");
    }
    require(bytes == table.used_bytes() && bytes <= table.capacity_bytes(), "every byte of the arena is accounted for");
    const auto order = table.oldest(std::numeric_limits<std::uint64_t>::max());
    require(order.size() == unheld && std::set<IdBytes>(order.begin(), order.end()).size() == unheld,
            "what nobody holds, and nothing else, can be evicted");
    for (const PlasmaPeer& peer : peers_) {
      if (!is_exact() || peer.wanted.empty() || !peer.reads) continue;
      const bool is_all_there = std::ranges::all_of(peer.wanted, [&](const IdBytes& id) {
        const auto object = table.all().find(id);
        return object != table.all().end() && object->second.is_sealed;
      });
      require(!is_all_there, "a get ends when all that it wants is there");
    }
    for (const auto& [key, client] : clients) {
      for (const IdBytes& id : client->held) {
        const auto object = table.all().find(id);
        require(object != table.all().end() && object->second.holders.contains(key), "what a client holds is there");
      }
    }
  }

  void end() {
    pinned_.clear();
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
    check_table();
    for (const auto& [id, object] : front_end_->table().all())
      require(object.is_sealed && object.holders.empty(), "nobody holds or creates anything any more");
    if (is_exact() && !options_.strict) check_all_there();
    peers_.clear();
    front_end_.reset();
    Ids ids;
    for (std::uint8_t i = 0; i < kIds; ++i)
      ids.push_back(numbered(i));
    require(other_->remove(ids, {}).is_ok(), "all objects can be deleted");
    const std::string status = other_->status({}).take();
    require(testing::json_number(status, "objects") == 0, "nothing is left in the store");
    other_->close();
    if (++inputs_ % kInputsPerLeakCheck == 0) check_no_leak();
  }

  void check_all_there() {
    for (const auto& [id, known] : known_) {
      if (known != Known::kSealed) continue;
      connect();
      PlasmaPeer& peer = peers_.back();
      send(peer, MessageType::kGetRequest, MessageType::kGetReply, [&](auto& builder) {
        return wire::CreateGetRequest(builder, builder.CreateVectorOfStrings(texts_of({id})), -1);
      });
      for (int i = 0; i < kMaxTurns && peers_.back().held.empty(); ++i)
        turn();
      require(peers_.back().held.contains(id), "a Plasma client gets every sealed object");
      const auto got = other_->get(std::span(&id, 1), 0, {});
      require(got.is_ok(), "every other client gets every sealed object");
      const auto contents = plasma::contents_of(*(*got)[0]);
      require(contents.has_value(), "it is an object that was put here");
      Bytes bytes = bytes_of(contents->data.data(), contents->data.size());
      append(bytes, bytes_of(contents->metadata.data(), contents->metadata.size()));
      require(bytes == content_of(id, contents->data.size(), contents->metadata.size()), "with its bytes");
      peers_.clear();
      turns();
    }
  }

  // Memory and pins of front ends that ended return to the store.
  static void check_no_leak() {
    testing::RawClient client = store_process().client();
    std::string status;
    const bool is_clean = testing::eventually([&] {
      status = client.status();
      const auto is_none = [&](const char* key) { return testing::json_number(status, key) == 0; };
      return is_none("blobs") && is_none("pinned_bytes") && is_none("leased_bytes") && is_none("deferred_frees");
    });
    if (!is_clean) std::fputs(status.c_str(), stderr);
    require(is_clean, "front ends that ended leave nothing behind");
  }

  static constexpr std::uint64_t kInputsPerLeakCheck = 100;
  static inline std::uint64_t inputs_ = 0;

  FuzzInput& input_;
  plasma::Options options_;
  std::unique_ptr<plasma::FrontEnd> front_end_;
  std::shared_ptr<Client> other_;  // of the store
  std::uint32_t session_ = 0;
  std::vector<std::shared_ptr<SealedObject>> pinned_;  // by the other client
  std::vector<UniqueFd> subscriptions_;
  std::deque<PlasmaPeer> peers_;
  std::map<IdBytes, Known> known_;
  Ids sealing_;  // by the request that was sent last
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
