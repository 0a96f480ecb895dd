// Messages about streams (since 1.6): chunks that running writers pass to running readers.
//
// A writer or a reader is a number that the daemon assigned to one connection; it ends with the connection, and means
// nothing to the next daemon, which answers kStreamLost. Numbers start at a random one, so that no old one is met again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"
#include "net/frame.h"
#include "net/object_messages.h"

namespace entrepot {

// OpenStream: the stream of this name in the session. 0: it must exist; 1: it is created if it does not; 2: it is created,
// and one that exists fails, for its writers and readers.
inline constexpr std::uint8_t kExistingStream = 0;
inline constexpr std::uint8_t kAnyStream = 1;
inline constexpr std::uint8_t kNewStream = 2;
struct OpenStreamRequest {
  std::uint32_t session = 0;
  std::string name;
  std::uint8_t how = kExistingStream;
  // Of a new one. One that exists must have the same; 0 and no groups: as it has them.
  std::uint32_t capacity = 0;  // chunks
  std::uint32_t writers = 0;   // how many must close before the stream has ended
  std::uint8_t keeps = 0;      // 1: consumed chunks stay in the store; 2: they are deleted; 0: unspecified
  std::vector<std::string> groups;
  std::uint64_t capacity_bytes = 0;  // since 1.7; 0: unlimited, or as the stream has it
  template <class V>
  void fields(V& v) {
    v(session, name, how, capacity, writers, keeps, groups);
    v.appended(capacity_bytes);
  }
};
struct OpenStreamReply {
  std::uint64_t stream = 0;
  std::uint32_t capacity = 0;
  std::uint32_t writers = 0;
  std::uint8_t keeps = 0;
  std::uint8_t created = 0;
  std::uint64_t capacity_bytes = 0;  // since 1.7; 0: unlimited
  template <class V>
  void fields(V& v) {
    v(stream, capacity, writers, keeps, created);
    v.appended(capacity_bytes);
  }
};
// RemoveStream: fails it for its writers and readers, and deletes the chunks that are in it.
struct RemoveStreamRequest {
  std::uint32_t session = 0;
  std::string name;
  template <class V>
  void fields(V& v) {
    v(session, name);
  }
};
// StreamState: kOk while the stream is open or ended, kStreamFailed with the reason, kStreamLost.
struct StreamStateRequest {
  std::uint64_t stream = 0;
  template <class V>
  void fields(V& v) {
    v(stream);
  }
};
struct StreamStateReply {
  std::uint8_t ended = 0;       // all its writers have closed
  std::uint64_t appended = 0;   // chunks so far
  std::uint64_t in_stream = 0;  // chunks that not every group has consumed
  template <class V>
  void fields(V& v) {
    v(ended, appended, in_stream);
  }
};

// `next`: the ID under which the writer is going to seal its first chunk; all zero: unknown. If the writer ends before it
// appends that, the object is deleted.
struct OpenStreamWriterRequest {
  std::uint64_t stream = 0;
  IdBytes next{};
  template <class V>
  void fields(V& v) {
    v(stream, next);
  }
};
struct OpenStreamWriterReply {
  std::uint64_t writer = 0;
  template <class V>
  void fields(V& v) {
    v(writer);
  }
};
// CloseStreamWriter: it has written everything; or, with `aborts`, it has not, and the stream fails with the reason.
struct CloseStreamWriterRequest {
  std::uint64_t writer = 0;
  std::uint8_t aborts = 0;
  std::string reason;
  template <class V>
  void fields(V& v) {
    v(writer, aborts, reason);
  }
};
// AppendChunk: a sealed object becomes the stream's next chunk, once there is room, for up to timeout_ms; then kTimeout.
// The stream deletes it when every group has consumed it, and also if it does not become a chunk. `next`: as above, of the
// chunk after it. `deadline_ns` (since 1.9): when its caller gives up, by the host's CLOCK_MONOTONIC; 0: none. From then on
// it is not appended, even if the daemon was stopped in between and there is room.
struct AppendChunkRequest {
  std::uint64_t writer = 0;
  IdBytes id{};
  std::uint32_t timeout_ms = 0;
  IdBytes next{};
  std::uint64_t deadline_ns = 0;
  template <class V>
  void fields(V& v) {
    v(writer, id, timeout_ms, next);
    v.appended(deadline_ns);
  }
};
struct AppendChunkReply {
  std::uint64_t position = 0;  // in the stream, from 0
  template <class V>
  void fields(V& v) {
    v(position);
  }
};
// PutChunk (since 1.7): Seal of one object, and AppendChunk in the same step unless it would have to wait, or be refused.
// What was sealed and not appended is appended by AppendChunk, which waits, or says why it cannot. After `deadline_ns`
// (since 1.9; as above), what is sealed is deleted instead, and the seal's result is kTimeout.
struct PutChunkRequest {
  std::uint64_t writer = 0;
  IdBytes next{};  // as above
  SealObject object;
  std::uint64_t deadline_ns = 0;
  template <class V>
  void fields(V& v) {
    v(writer, next, object);
    v.appended(deadline_ns);
  }
};
struct PutChunkReply {
  SealResult sealed;
  std::uint8_t appended = 0;
  std::uint64_t position = 0;  // of a chunk that was appended
  template <class V>
  void fields(V& v) {
    v(sealed, appended, position);
  }
};
// WithdrawChunk: ends the writer's append that waits, if one does; whether the object is or was a chunk. If not, it is
// deleted, also one that is sealed later.
struct WithdrawChunkRequest {
  std::uint64_t writer = 0;
  IdBytes id{};
  template <class V>
  void fields(V& v) {
    v(writer, id);
  }
};
struct WithdrawChunkReply {
  std::uint8_t appended = 0;
  template <class V>
  void fields(V& v) {
    v(appended);
  }
};

struct OpenStreamReaderRequest {
  std::uint64_t stream = 0;
  std::string group;
  std::uint8_t late = 0;  // 1: a new group may have missed chunks
  template <class V>
  void fields(V& v) {
    v(stream, group, late);
  }
};
struct OpenStreamReaderReply {
  std::uint64_t reader = 0;
  std::uint64_t missed = 0;  // chunks that were consumed and deleted before the group came
  template <class V>
  void fields(V& v) {
    v(reader, missed);
  }
};
// CloseStreamReader: what it still has in hand goes back to its group.
struct CloseStreamReaderRequest {
  std::uint64_t reader = 0;
  template <class V>
  void fields(V& v) {
    v(reader);
  }
};
// NextChunk: the next one of the group, waiting for up to timeout_ms, then kTimeout. A reader has one chunk in hand at a
// time: as long as it does not report that as done, it is given the same one.
inline constexpr std::uint64_t kNoChunk = ~0ULL;
struct NextChunkRequest {
  std::uint64_t reader = 0;
  std::uint64_t done = kNoChunk;  // position of the chunk that the reader has consumed
  std::uint32_t timeout_ms = 0;
  template <class V>
  void fields(V& v) {
    v(reader, done, timeout_ms);
  }
};
struct NextChunkReply {
  std::uint8_t ended =
      0;  // 1: there is no further chunk for this group, and none that another reader of it could return
  std::uint64_t position = 0;
  IdBytes id{};
  std::uint8_t redelivered = 0;  // 1: another reader had it, or this one, and did not report it as done
  template <class V>
  void fields(V& v) {
    v(ended, position, id, redelivered);
  }
};
// ChunkDone: reports a chunk as consumed without asking for the next one. Again: no effect.
struct ChunkDoneRequest {
  std::uint64_t reader = 0;
  std::uint64_t done = kNoChunk;
  template <class V>
  void fields(V& v) {
    v(reader, done);
  }
};

}  // namespace entrepot
