// The daemon's request dispatch: arbitrary frames, and well-formed requests with arbitrary contents, from several
// connections, while memory is provided or refused, disks fail, time passes and clients die. When all are gone, nothing
// may be in use.
#include <poll.h>

#include <deque>

#include "daemon/client_service.h"
#include "daemon/test_keeper.h"
#include "fuzz/fuzz_store.h"
#include "os/memfd.h"
#include "os/process.h"

namespace entrepot::fuzz {
namespace {

using testing::numbered_id;

// Fills a message from the input, mostly with values that mean something, such as known handles.
class Filler {
 public:
  Filler(FuzzInput& input, const std::deque<std::uint64_t>& numbers) : input_(input), numbers_(numbers) {}
  template <class... Ts>
  void operator()(Ts&... values) {
    (fill(values), ...);
  }
  template <class... Ts>
  void appended(Ts&... values) {
    (fill(values), ...);
  }

 private:
  template <WireNumber T>
  void fill(T& value) {
    const std::uint8_t how = input_.byte();
    std::uint64_t number = how & 0x1fU;
    if (how >= 0xe0) {
      number = input_.number<std::uint64_t>();
    } else if (how >= 0x80 && !numbers_.empty()) {
      number = numbers_[how % numbers_.size()];
    } else if (how >= 0x40) {
      number = std::uint64_t{how & 0x3fU} << (how & 0x17U);
    }
    value = static_cast<T>(number);
  }
  void fill(std::string& value) {
    const std::uint8_t how = input_.byte();
    if (how < 0xc0) {
      value = how % 4 == 0 ? "" : std::string(1, static_cast<char>('a' + how % 4));
    } else {
      const auto bytes = input_.take(how == 0xff ? 400 : how & 0x1fU);
      value.assign(bytes.begin(), bytes.end());
    }
  }
  void fill(IdBytes& value) { value = numbered_id(input_.byte() % 8); }
  template <class T>
  void fill(std::vector<T>& values) {
    values.resize(input_.byte() % 4);
    for (T& value : values)
      fill(value);
  }
  template <class T>
    requires requires(T& t, Filler& f) { t.fields(f); }
  void fill(T& value) {
    value.fields(*this);
  }

  FuzzInput& input_;
  const std::deque<std::uint64_t>& numbers_;
};

// Gives each segment a descriptor, so that leases and mappings are answered as by the daemon.
class HeldSource : public testing::FakeSource {
 public:
  explicit HeldSource(KeeperLink& link) : link_(link) {}
  void provision(std::uint32_t segment, std::uint32_t generation, std::uint64_t bytes, bool urgent) override {
    auto fd = os::create_memfd("fuzz-segment", bytes);
    require(fd.is_ok(), "a memfd can be made");
    link_.hold(segment_tag(segment, generation), fd.take());
    FakeSource::provision(segment, generation, bytes, urgent);
  }
  void drop(std::uint32_t segment, std::uint32_t generation) override {
    link_.drop(segment_tag(segment, generation));
    FakeSource::drop(segment, generation);
  }

 private:
  KeeperLink& link_;
};

class Session {
 public:
  explicit Session(FuzzInput& input)
      : input_(input), loop_(os::Poller::create().take()), link_(loop_, keeper_.take_daemon_end(), {}) {
    world_.store.reset();
    held_.store = &store_;
    require(store_.start_fresh().is_ok(), "an empty store starts");
  }

  void run() {
    connect(true);
    for (int step = 0; step < 400 && !input_.empty(); ++step) {
      one_step();
      run_pending();
    }
    end();
  }

 private:
  struct Peer {
    UniqueFd socket;
    std::uint64_t owner = 0;
    std::vector<UniqueFd> fds;
    Bytes came;  // answers received, not split into frames yet
  };

  void connect(bool greet) {
    if (peers_.size() >= 6) return;
    auto pair = os::socket_pair(os::SocketKind::kStream).take();
    require(os::set_nonblocking(pair.second.get(), true).is_ok(), "a socket can be non-blocking");
    const Connection* connection =
        connections_.add(std::move(pair.second), {static_cast<std::uint32_t>(os::current_pid()), os::current_uid(), 0});
    require(connection != nullptr, "a connection can be watched");
    peers_.push_back({std::move(pair.first), connection->owner(), {}, {}});
    if (greet) send_message(peers_.back(), MessageType::kHello, Hello{}, 0);
  }

  void one_step() {
    const std::uint8_t op = input_.byte();
    if (peers_.empty()) connect(true);
    Peer& peer = peers_[op / 32 % peers_.size()];
    switch (op % 32) {
      case 0:
        return connect(false);
      case 1:
        return connect(true);
      case 2:  // disconnects
        peer.socket.reset();
        return serve();
      case 3:  // dies
        if (Connection* connection = connections_.find(peer.owner); connection != nullptr && connection->client())
          registry_.client_died(*connection->client());
        return;
      case 4:
        world_.clock.advance_ms(input_.number<std::uint16_t>());
        return store_.tick();
      case 5:
        held_.at_once = (input_.byte() & 1U) != 0;
        held_.failure = (input_.byte() & 3U) == 1 ? Status(Code::kStoreFull, "no memory", true) : Status::ok();
        return held_.finish_all();
      case 6: {
        const std::uint8_t how = input_.byte();
        world_.spill.at_once = (how & 1U) != 0;
        world_.spill.write_failure = (how & 6U) == 2 ? Status(Code::kStoreFull, "disk full", true) : Status::ok();
        world_.spill.read_failure = (how & 24U) == 8 ? Status(Code::kCorruptData, "bad disk") : Status::ok();
        return world_.spill.finish_all();
      }
      case 7: {  // arbitrary bytes
        const auto bytes = input_.take(input_.byte());
        (void)os::send_some(peer.socket.get(), bytes);
        return serve();
      }
      case 8: {  // a whole frame with an arbitrary body
        const auto type = static_cast<MessageType>(input_.byte() % 64);
        const std::size_t fds = input_.byte() % 4;
        const auto body = input_.take(input_.byte());
        return send_frame(peer, frame_bytes(type, next_++, body, fds), input_.byte() % 4 == 0 ? 0 : fds);
      }
      case 9:
        return send(peer, MessageType::kHello, Hello{});
      case 10:
        return send_frame(peer, frame_bytes(MessageType::kFork, next_++, {}, 0), 0);
      case 11:
        return send_frame(peer, frame_bytes(MessageType::kStatus, next_++, {}, 0), 0);
      case 12:
      case 13:
        return send(peer, MessageType::kLease, LeaseRequest{});
      case 14:
        return send(peer, MessageType::kUnlease, UnleaseRequest{});
      case 15:
      case 16:
      case 17:
        return send(peer, MessageType::kSeal, SealRequest{});
      case 18:
        return send(peer, MessageType::kLookup, LookupRequest{});
      case 19:
        return send(peer, MessageType::kDelete, DeleteRequest{});
      case 20:
        return send(peer, MessageType::kEvict, EvictRequest{});
      case 21:
      case 22:
        return send(peer, MessageType::kOpenSession, OpenSessionRequest{});
      case 23:
        return send(peer, MessageType::kCloseSession, CloseSessionRequest{});
      case 24:
        return send(peer, MessageType::kRemoveSession, RemoveSessionRequest{});
      case 25:
        return send(peer, MessageType::kDefineSet, DefineSetRequest{});
      case 26:
        return send(peer, MessageType::kHint, HintRequest{});
      case 27:
        return send(peer, MessageType::kConsumed, ConsumedRequest{});
      case 28:
        return send(peer, static_cast<MessageType>(30 + input_.byte() % 3), NameRequest{});
      case 29:
        return send(peer, MessageType::kList, ListRequest{});
      case 30:
        return send(peer, MessageType::kInfo, InfoRequest{});
      default: {
        const int which = input_.byte() % 20;
        if (which == 19) return send(peer, MessageType::kDeleteGenerations, DeleteGenerationsRequest{});
        if (which >= 15) return send_about_gateway(peer, which - 15);
        return which < 3 ? send_about_memory(peer, which) : send_about_streams(peer, which);
      }
    }
  }

  void send_about_streams(Peer& peer, int which) {
    switch (which) {
      case 3:
        return send(peer, MessageType::kOpenStream, OpenStreamRequest{});
      case 4:
        return send(peer, MessageType::kOpenStreamWriter, OpenStreamWriterRequest{});
      case 5:
        return send(peer, MessageType::kOpenStreamReader, OpenStreamReaderRequest{});
      case 6:
      case 7:
        return send(peer, MessageType::kPutChunk, PutChunkRequest{});
      case 8:
        return send(peer, MessageType::kAppendChunk, AppendChunkRequest{});
      case 9:
        return send(peer, MessageType::kWithdrawChunk, WithdrawChunkRequest{});
      case 10:
        return send(peer, MessageType::kNextChunk, NextChunkRequest{});
      case 11:
        return send(peer, MessageType::kChunkDone, ChunkDoneRequest{});
      case 12:
        return send(peer, MessageType::kCloseStreamWriter, CloseStreamWriterRequest{});
      case 13:
        return send(peer, MessageType::kCloseStreamReader, CloseStreamReaderRequest{});
      default:
        if (input_.byte() % 2 == 0) return send(peer, MessageType::kStreamState, StreamStateRequest{});
        return send(peer, MessageType::kRemoveStream, RemoveStreamRequest{});
    }
  }

  void send_about_gateway(Peer& peer, int which) {
    if (which == 0) return send(peer, MessageType::kServeGateway, ServeGatewayRequest{});
    if (which == 1) return send(peer, MessageType::kCallGateway, CallGatewayRequest{});
    if (which == 2) return send(peer, MessageType::kNextCalls, NextCallsRequest{});
    send(peer, MessageType::kAnswerCall, AnswerCallRequest{});
  }

  void send_about_memory(Peer& peer, int which) {
    if (which == 0) return send(peer, MessageType::kSegment, SegmentRequest{});
    if (which == 1) return send(peer, MessageType::kReserve, ReserveRequest{});
    send(peer, MessageType::kReservation, ReservationRequest{});
  }
  template <class Body>
  void send(Peer& peer, MessageType type, Body body) {
    Filler filler(input_, numbers_);
    filler(body);
    send_message(peer, type, body, input_.byte() % 64 == 63 ? 1 : 0);
  }
  template <class Body>
  void send_message(Peer& peer, MessageType type, const Body& body, std::size_t fds) {
    send_frame(peer, frame_bytes(type, next_++, to_wire(body), fds), fds);
  }
  void send_frame(Peer& peer, const Bytes& frame, std::size_t fds) {
    std::vector<int> shown(fds, link_.fd({DescriptorKind::kPinTable, 0}));
    if (!shown.empty() && shown.front() < 0) shown.clear();
    if (peer.socket.valid()) (void)os::send_some(peer.socket.get(), frame, shown);
    serve();
  }

  // A turn of the event loop, as Server::run() makes it.
  void serve() {
    loop_.skip_wait();
    require(loop_.dispatch().is_ok(), "the loop runs");
    connections_.read_more();
    loop_.run_due();
  }

  void run_pending() {
    store_.run_pending();
    if (!world_.spill.waiting.empty() || world_.spill.at_once) store_.take_spill_completions();
    for (Peer& peer : peers_)
      read_answers(peer);
    std::erase_if(peers_, [&](const Peer& peer) { return connections_.find(peer.owner) == nullptr; });
    keeper_.receive();
  }

  void learn(std::uint64_t number) {
    numbers_.push_front(number);
    if (numbers_.size() > 32) numbers_.pop_back();
  }
  void read_answers(Peer& peer) {
    if (!peer.socket.valid()) return;
    Bytes buffer(64U << 10);
    std::vector<UniqueFd> fds;
    pollfd ready{peer.socket.get(), POLLIN, 0};
    while (::poll(&ready, 1, 0) > 0) {
      const auto got = os::receive_some(peer.socket.get(), buffer, fds);
      if (!got.is_ok() || got->closed || got->bytes == 0) break;
      peer.came.insert(peer.came.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(got->bytes));
    }
    for (UniqueFd& fd : fds)
      if (peer.fds.size() < 64) peer.fds.push_back(std::move(fd));
    while (peer.came.size() >= sizeof(FrameHeader)) {
      FrameHeader header{};
      std::memcpy(&header, peer.came.data(), sizeof(header));
      require(header.magic == kFrameMagic, "the daemon answers with frames");
      if (peer.came.size() < sizeof(header) + header.body_bytes) return;
      const auto body = std::span(peer.came).subspan(sizeof(header), header.body_bytes);
      if (header.type == MessageType::kReply) {
        FuzzInput numbers(body.data(), body.size());
        for (int i = 0; i < 3 && numbers.remaining() >= 4; ++i)  // handles come first in every answer
          learn(numbers.number<std::uint32_t>());
        if (body.size() >= 8) learn(FuzzInput(body.data(), body.size()).number<std::uint64_t>());  // of a stream's end
        LeaseReply lease;
        if (body.size() == 33 && from_wire(body, lease)) {
          learn(lease.offset);
          learn(lease.length);
        }
      } else {
        ErrorBody error;
        require(header.type == MessageType::kError && from_wire(body, error), "the daemon answers or refuses");
        require(error.code != Code::kOk && !error.message.empty(), "a refusal says why");
      }
      peer.came.erase(peer.came.begin(),
                      peer.came.begin() + static_cast<std::ptrdiff_t>(sizeof(header) + header.body_bytes));
    }
  }

  void end() {
    for (const Peer& peer : peers_)
      connections_.close(peer.owner);
    std::vector<std::uint32_t> clients;
    for (const auto& [client, state] : store_.clients().all())
      clients.push_back(client);
    for (const std::uint32_t client : clients)
      registry_.client_died(client);
    world_.store.reset(&store_);  // borrowed: require_no_leak() is a member of FuzzStore
    held_.at_once = true;
    held_.failure = Status::ok();
    held_.finish_all();
    world_.require_no_leak();
    (void)world_.store.release();
    for (const auto& [tag, fd] : link_.all())
      require(tag.kind == DescriptorKind::kSegment, "no descriptor of a dead client is held");
    require(connections_.is_empty(), "no connection is left");
  }

  FuzzInput& input_;
  FuzzStore world_;
  DaemonConfig config_;
  testing::TestKeeper keeper_;
  EventLoop loop_;
  KeeperLink link_;
  HeldSource held_{link_};
  Provisioner provisioner_;
  SegmentFiles segments_{link_, provisioner_};
  Store store_{world_.memory, held_, world_.clock, world_.options, &world_.spill};
  Connections connections_{loop_, store_.budget()};
  ClientRegistry registry_{loop_, connections_, link_, world_.memory, store_};
  Upgrader upgrader_{link_, config_, [] {}};
  ClientService service_{{connections_, registry_, upgrader_, store_, segments_, link_}, [] {}};
  std::vector<Peer> peers_;
  std::deque<std::uint64_t> numbers_;
  std::uint64_t next_ = 1;
};

}  // namespace

// A stream with a writer and a reader, and a chunk that is sealed, appended, given out and consumed. `session`: place of
// the session among the numbers learned. 0x80 + n is the one that was learned n numbers ago, once 32 are known.
Bytes stream_steps(std::uint8_t session) {
  const Bytes all_ones(9, 0xff);  // the largest number
  const auto place = [](int ago) { return static_cast<std::uint8_t>(0x80 + ago); };
  Bytes input(10, 11);  // so many requests for the status that 32 numbers are known
  append(input, {21, 1, 1, 0, 0, 0, 0, 2, 1});
  append(input, {31, 3, place(session), 1, 1, 2, 1, 2, 0, 0, 1});  // OpenStream
  append(input, {31, 4, place(0), 3, 1});                          // OpenStreamWriter: stream, next ID
  append(input, {31, 6, place(0), 4, 3, place(session + 7), 0, 0, 0, 1, 0, 0, 0, 0});  // PutChunk: writer, next, object
  append(input, all_ones);                                                             // no pin
  append(input, {0, 1});                                                               // no deadline
  append(input, {31, 8, place(4), 3, 10, 4, 0, 1});  // AppendChunk: writer, ID, timeout, next ID, no deadline
  append(input, {31, 5, place(7), 1, 1, 1});         // OpenStreamReader: stream, group, late
  append(input, {31, 10, place(0)});                 // NextChunk: reader,
  append(input, all_ones);                           // nothing is done,
  append(input, {10, 1});                            // timeout
  append(input, {31, 10, place(4), 0, 0, 1});        // NextChunk: the first one is done
  append(input, {31, 11, place(4), 0, 1});           // ChunkDone
  append(input, {31, 9, place(12), 4, 1});           // WithdrawChunk: writer, ID
  append(input, {31, 14, 0, place(15), 1});          // StreamState
  append(input, {31, 12, place(16), 0, 0, 1});       // CloseStreamWriter
  append(input, {31, 13, place(8), 1});              // CloseStreamReader
  append(input, {31, 14, 1, place(session), 1, 1});  // RemoveStream, of another session
  return input;
}

// Steps whose bytes the filler turns into a lease, a session, sealed objects and what follows.
std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  const Bytes open = {21, 1, 1, 0, 0, 0, 0, 2};
  const Bytes lease = {12, 0x50, 0x51, 0, 1};
  for (std::uint8_t number = 0x80; number < 0x98; ++number) {
    Bytes input;
    append(input, open);
    append(input, lease);
    // One object: id, session, replace, no blobs, no buffers, tree, payload, name, set, consumers
    append(input, {15, 1, 1, number, 1, 0, 0, 1, 2, 3, 0, 1, 1});
    append(input, {15, 1, 2, number, 0, 1, number, static_cast<std::uint8_t>(number + 1), 0x50, 0, 1, 2, 3, 0, 0, 1});
    append(input, {18, 1, 1, 10, 0, 1});
    append(input, {20, 2, 1, 2, 1});
    append(input, {27, 1, 1, 1, 1});
    append(input, {30, 1, 1});
    append(input, {25, number, 0, 1, 3, 0, 1});
    append(input, {26, 1, 1, 3, 1, 1, 0, 1});
    append(input, {28, 0, number, 1, 1, 1, 0, 1});
    append(input, {29, number, 1, 0, 0, 10, 1});
    append(input, {31, 19, 2, 1, number, 2, static_cast<std::uint8_t>(number + 1), 1});  // DeleteGenerations
    append(input, {10, 1, 42, 4, 0xff, 0x7f, 3, 19, 1, 1, 1});
    all.push_back(input);
  }
  for (std::uint8_t session = 0; session < 4; ++session)
    all.push_back(stream_steps(session));
  return all;
}

}  // namespace entrepot::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  entrepot::fuzz::FuzzInput input(data, size);
  entrepot::fuzz::Session(input).run();
  return 0;
}
