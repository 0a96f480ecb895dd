// Arbitrary bytes and descriptors on a socket, in arbitrary pieces: FrameSocket must yield whole frames or an error,
// own every descriptor received, and every message type must decode or reject each body.
#include "fuzz/fuzz_input.h"
#include "net/frame_socket.h"
#include "os/memfd.h"
#include "os/socket.h"

namespace entrepot::fuzz {
namespace {

// A body that decodes must be unchanged by another round of encoding and decoding.
template <class Body>
void read_body(const Bytes& bytes) {
  Body body;
  if (!from_wire(bytes, body)) return;
  const Bytes once = to_wire(body);
  Body again;
  require(from_wire(once, again), "what was read can be written and read");
  require(to_wire(again) == once, "what was read is the same after it was written");
}

template <class... Bodies>
void read_as(const Bytes& bytes) {
  (read_body<Bodies>(bytes), ...);
}

void read_as_all(const Bytes& bytes) {
  read_as<ErrorBody, Hello, HelloReply, LeaseRequest, LeaseReply, UnleaseRequest, ReserveRequest, ReservationRequest,
          ReservationReply, SegmentRequest, SegmentReply, SealRequest, SealReply, LookupRequest, LookupReply,
          DeleteRequest, DeleteGenerationsRequest, DeleteReply, EvictRequest, EvictReply, OpenSessionRequest,
          OpenSessionReply, CloseSessionRequest, RemoveSessionRequest, RemoveUnusedRequest, RemoveUnusedReply,
          DefineSetRequest, DefineSetReply, ListSetsRequest, HintRequest, ConsumedRequest, PerObjectReply, NameRequest,
          NameReply, ListRequest, InfoRequest, JsonReply, WaitRequest, ForkReply, Empty>(bytes);
  read_as<OpenStreamRequest, OpenStreamReply, RemoveStreamRequest, StreamStateRequest, StreamStateReply,
          OpenStreamWriterRequest, OpenStreamWriterReply, CloseStreamWriterRequest, AppendChunkRequest,
          AppendChunkReply, WithdrawChunkRequest, WithdrawChunkReply, OpenStreamReaderRequest, OpenStreamReaderReply,
          CloseStreamReaderRequest, NextChunkRequest, NextChunkReply, ChunkDoneRequest>(bytes);
}

// Input as a stream of pieces, each with a head of two bytes (number of bytes / 4, number of descriptors) and its
// bytes.
void run(FuzzInput input) {
  auto pair = os::socket_pair(os::SocketKind::kStream);
  require(pair.is_ok(), "a socket pair can be made");
  require(os::set_nonblocking(pair->second.get(), true).is_ok(), "a socket can be non-blocking");
  static const UniqueFd shown = os::create_memfd("fuzz", 4096).take();
  FrameSocket frames(std::move(pair->second));
  std::uint64_t sent_fds = 0;
  std::uint64_t got_fds = 0;
  while (!input.empty()) {
    const std::size_t bytes = std::size_t{input.byte()} * 4 + 1;
    const std::size_t fds = input.byte() % (os::kMaxFdsPerMessage + 1);
    const auto piece = input.take(bytes);
    if (piece.empty()) break;
    const std::vector<int> descriptors(fds, shown.get());
    const auto sent = os::send_some(pair->first.get(), piece, descriptors);
    if (!sent.is_ok() || sent->bytes == 0) break;
    sent_fds += fds;
    FrameSocket::Incoming incoming;
    do {
      incoming = frames.receive();
      for (const Frame& frame : incoming.frames) {
        require(frame.header.magic == kFrameMagic, "a frame begins with its magic number");
        require(frame.body.size() == frame.header.body_bytes, "a frame's body has the length that it says");
        require(frame.fds.size() == frame.header.fd_count, "a frame has the descriptors that it says");
        got_fds += frame.fds.size();
        require(got_fds <= sent_fds, "no descriptor comes from nowhere");
        read_as_all(frame.body);
      }
    } while (incoming.more);
    if (!incoming.status.is_ok()) {
      require(!incoming.status.message().empty(), "an error says what is wrong");
      return;
    }
  }
}

template <class Body>
void add_seed(std::vector<Bytes>& all, MessageType type, const Body& body, std::size_t fds = 0) {
  const Bytes frame = frame_bytes(type, all.size(), to_wire(body), fds);
  Bytes input;
  for (std::size_t at = 0; at < frame.size();) {
    const std::size_t wanted = std::min<std::size_t>((frame.size() - at + 2) / 4, 255);
    const std::size_t piece = std::min(frame.size() - at, wanted * 4 + 1);
    input.push_back(static_cast<std::uint8_t>(wanted));
    input.push_back(static_cast<std::uint8_t>(at == 0 ? fds : 0));
    input.insert(input.end(), frame.begin() + static_cast<std::ptrdiff_t>(at),
                 frame.begin() + static_cast<std::ptrdiff_t>(at + piece));
    at += piece;
  }
  all.push_back(input);
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  Hello hello;
  hello.label = "seed";
  hello.leases = {{1, 1, 64, 128}};
  add_seed(all, MessageType::kHello, hello, 1);
  SealObject object;
  object.blobs = {{1, 64, 128}};
  object.buffers = {{kNewBlob, 0, 0, 128}, {kInlineBlob, 0, 0, 3}};
  object.tree = "tree";
  object.payload = "abc";
  object.name = "orders";
  add_seed(all, MessageType::kSeal, SealRequest{{object, object}});
  add_seed(all, MessageType::kLookup, LookupRequest{{IdBytes{1}, IdBytes{2}}, 5, 5});
  add_seed(all, MessageType::kDeleteGenerations, DeleteGenerationsRequest{{{IdBytes{1}, 1}, {IdBytes{2}, 7}}});
  add_seed(all, MessageType::kLease, LeaseRequest{64, 4096, 0});
  add_seed(all, MessageType::kOpenSession, OpenSessionRequest{"scope", "run", 1, 60, 1 << 20, 10, 2});
  add_seed(all, MessageType::kHint, HintRequest{{IdBytes{1}}, 15, -3, 1, 2, 500'000'000});
  add_seed(all, MessageType::kConsumed, ConsumedRequest{{IdBytes{1}}, "task"});
  add_seed(all, MessageType::kList, ListRequest{1, 1, "a*", 0, 10});
  add_seed(all, MessageType::kSegment, SegmentRequest{1, 0}, 3);
  return all;
}

}  // namespace entrepot::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  entrepot::fuzz::run(entrepot::fuzz::FuzzInput(data, size));
  return 0;
}
