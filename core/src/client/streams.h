// Streams: chunks that running writers pass to running readers, through one store; see docs/streams.md.
//
// A stream, a writer and a reader are numbers that the daemon assigned to this process's connection. With the connection
// they end: every call then fails with kStreamLost. The child of a fork opens its own. All functions are thread-safe, but
// a writer or reader serves one caller at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/id.h"
#include "base/status.h"
#include "client/client.h"
#include "client/rpc.h"

namespace entrepot {

// kVersionMismatch: the daemon is too old for what is requested. kObjectNotFound: there is none, and it is not to be created.
[[nodiscard]] Result<OpenStreamReply> open_stream(Rpc& rpc, const OpenStreamRequest& request,
                                                  const Interrupt& interrupt);
[[nodiscard]] Status remove_stream(Rpc& rpc, std::uint32_t session, const std::string& name,
                                   const Interrupt& interrupt);
// kStreamFailed with the reason; kStreamLost.
[[nodiscard]] Result<StreamStateReply> stream_state(Rpc& rpc, std::uint64_t stream, const Interrupt& interrupt);

// `next`: the ID under which the writer is going to seal its next chunk; all zero: unknown. The object is deleted if the
// writer ends, or its process dies, before it has appended it.
[[nodiscard]] Result<std::uint64_t> open_stream_writer(Rpc& rpc, std::uint64_t stream, const IdBytes& next,
                                                       const Interrupt& interrupt);
// kUnknown: the daemon did not answer in time. It does not append the chunk any more, but may have done so before; a daemon
// older than protocol 1.9 may also append it when it runs again, which is kUndecided.
enum class ChunkPlace : std::uint8_t { kNotInStream, kInStream, kUnknown, kUndecided };
// `place` of a failed append says whether the stream took the object nevertheless: it does if the caller stopped waiting
// too late, and that is not known if the daemon does not answer. An object that it did not take is deleted, except for
// kInvalidArgument and kStreamLost.
struct AppendOutcome {
  Status status;
  ChunkPlace place = ChunkPlace::kNotInStream;
};
// After a put of `chunk` failed with `why`: makes sure that its object is not appended from now on, and deletes it.
// kInStream: it was appended before. If that is not known, the object is the stream's.
[[nodiscard]] ChunkPlace give_up_chunk(Client& client, const ChunkPut& chunk, const IdBytes& id, const Status& why);
// The error of a put or an append that failed with `why`: it says so if the chunk may be in the stream nevertheless.
[[nodiscard]] Status chunk_error(const Status& why, ChunkPlace place);
// Appends a sealed object, waiting for room. kTimeout, kStreamFailed, kStreamLost.
[[nodiscard]] AppendOutcome append_chunk(Rpc& rpc, std::uint64_t writer, const IdBytes& id, const IdBytes& next,
                                         const Wait& wait, const Interrupt& interrupt);
// The writer has written everything. kStreamFailed: others have not.
[[nodiscard]] Status close_stream_writer(Rpc& rpc, std::uint64_t writer, const Interrupt& interrupt);
// The writer gives up: the stream fails. Never waits for a reconnect: with the connection the writer is gone anyway.
void abort_stream_writer(Rpc& rpc, std::uint64_t writer, const std::string& reason);

[[nodiscard]] Result<OpenStreamReaderReply> open_stream_reader(Rpc& rpc, std::uint64_t stream, const std::string& group,
                                                               bool late, const Interrupt& interrupt);
// The next chunk of the reader's group, after `done`, the one that it has consumed. It is neither deleted nor given to
// another reader before this one reports it as done, or ends. kTimeout, kStreamFailed, kStreamLost.
[[nodiscard]] Result<NextChunkReply> next_chunk(Rpc& rpc, std::uint64_t reader, std::optional<std::uint64_t> done,
                                                const Wait& wait, const Interrupt& interrupt);
[[nodiscard]] Status chunk_done(Rpc& rpc, std::uint64_t reader, std::uint64_t position, const Interrupt& interrupt);
// What it has in hand goes back to its group. Never waits for a reconnect.
void close_stream_reader(Rpc& rpc, std::uint64_t reader);

}  // namespace entrepot
