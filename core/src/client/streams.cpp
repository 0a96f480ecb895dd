#include "client/streams.h"

#include <span>

#include "base/text.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kEndMsOfStreams = 1'000;
constexpr std::uint16_t kChunkDeadlineSinceMinor = 9;

// Options for a request that says that something has ended; none if that is so anyway, because the connection is gone.
std::optional<CallOptions> closing_options(Rpc& rpc) {
  CallOptions options;
  options.deadline = os::Deadline::after_ms(kEndMsOfStreams);
  options.only_on = rpc.current_connection();
  if (!options.only_on || options.only_on->broken()) return std::nullopt;
  return options;
}

ChunkPlace withdraw(Rpc& rpc, std::uint64_t writer, const IdBytes& id) {
  const auto options = closing_options(rpc);
  if (!options) return ChunkPlace::kNotInStream;
  const auto withdrawn =
      rpc.request_reply<WithdrawChunkReply>(MessageType::kWithdrawChunk, WithdrawChunkRequest{writer, id}, *options);
  if (withdrawn.code() == Code::kStreamLost) return ChunkPlace::kNotInStream;  // with its stream's chunks
  if (!withdrawn.is_ok()) {
    const bool has_deadline = options->only_on->protocol_minor() >= kChunkDeadlineSinceMinor;
    return has_deadline ? ChunkPlace::kUnknown : ChunkPlace::kUndecided;
  }
  return withdrawn->appended != 0 ? ChunkPlace::kInStream : ChunkPlace::kNotInStream;
}

}  // namespace

Result<OpenStreamReply> open_stream(Rpc& rpc, const OpenStreamRequest& request, const Interrupt& interrupt) {
  return rpc.request_reply<OpenStreamReply>(MessageType::kOpenStream, request, wait_options(0, interrupt));
}

Status remove_stream(Rpc& rpc, std::uint32_t session, const std::string& name, const Interrupt& interrupt) {
  RETURN_IF_ERROR(
      rpc.call(MessageType::kRemoveStream, to_wire(RemoveStreamRequest{session, name}), wait_options(0, interrupt)));
  return Status::ok();
}

Result<StreamStateReply> stream_state(Rpc& rpc, std::uint64_t stream, const Interrupt& interrupt) {
  return rpc.request_reply<StreamStateReply>(MessageType::kStreamState, StreamStateRequest{stream},
                                             wait_options(0, interrupt));
}

Result<std::uint64_t> open_stream_writer(Rpc& rpc, std::uint64_t stream, const IdBytes& next,
                                         const Interrupt& interrupt) {
  ASSIGN_OR_RETURN(
      const OpenStreamWriterReply opened,
      rpc.request_reply<OpenStreamWriterReply>(MessageType::kOpenStreamWriter, OpenStreamWriterRequest{stream, next},
                                               wait_options(0, interrupt)));
  return opened.writer;
}

AppendOutcome append_chunk(Rpc& rpc, std::uint64_t writer, const IdBytes& id, const IdBytes& next, const Wait& wait,
                           const Interrupt& interrupt) {
  const CallOptions options = wait_options(wait, 0, interrupt);
  const auto appended = rpc.request_reply<AppendChunkReply>(
      MessageType::kAppendChunk, AppendChunkRequest{writer, id, wait.remaining_ms(), next, options.deadline.at_ns()},
      options);
  if (appended.is_ok()) return {Status::ok(), ChunkPlace::kInStream};
  if (appended.code() != Code::kTimeout) return {appended.status(), ChunkPlace::kNotInStream};
  // Also after an interrupt, or if the daemon is late: then the request may still wait, or just have been served.
  return {appended.status(), withdraw(rpc, writer, id)};
}

ChunkPlace give_up_chunk(Client& client, const ChunkPut& chunk, const IdBytes& id, const Status& why) {
  ChunkPlace place = ChunkPlace::kNotInStream;
  if (!chunk.sent) return place;                            // nor sealed
  if (why.code() == Code::kStoreUnavailable) return place;  // the daemon deletes it with the connection
  if (why.code() == Code::kTimeout) place = withdraw(client, chunk.writer, id);
  if (place == ChunkPlace::kNotInStream) static_cast<void>(client.remove(std::span(&id, 1), {}).is_ok());
  return place;
}

Status chunk_error(const Status& why, ChunkPlace place) {
  switch (place) {
    case ChunkPlace::kNotInStream:
    case ChunkPlace::kInStream:
      return why;
    case ChunkPlace::kUnknown:
      return {
          why.code(),
          concat(why.message(),
                 "; whether the chunk was appended is not known: it will not be from now on, but the daemon may have "
                 "appended it just before it stopped responding, so if you put it again, readers may get it twice"),
          why.retryable()};
    case ChunkPlace::kUndecided:
      break;
  }
  return {
      why.code(),
      concat(why.message(), "; whether the chunk is appended is not known: the daemon, which speaks a protocol before ",
             kProtocolMajor, ".", kChunkDeadlineSinceMinor,
             ", may also append it when it responds again, so if you put it again, readers may get it twice"),
      why.retryable()};
}

Status close_stream_writer(Rpc& rpc, std::uint64_t writer, const Interrupt& interrupt) {
  RETURN_IF_ERROR(rpc.call(MessageType::kCloseStreamWriter, to_wire(CloseStreamWriterRequest{writer, 0, {}}),
                           wait_options(0, interrupt)));
  return Status::ok();
}

void abort_stream_writer(Rpc& rpc, std::uint64_t writer, const std::string& reason) {
  if (const auto options = closing_options(rpc)) {
    static_cast<void>(
        rpc.call(MessageType::kCloseStreamWriter, to_wire(CloseStreamWriterRequest{writer, 1, reason}), *options)
            .is_ok());
  }
}

Result<OpenStreamReaderReply> open_stream_reader(Rpc& rpc, std::uint64_t stream, const std::string& group, bool late,
                                                 const Interrupt& interrupt) {
  return rpc.request_reply<OpenStreamReaderReply>(
      MessageType::kOpenStreamReader, OpenStreamReaderRequest{stream, group, static_cast<std::uint8_t>(late ? 1 : 0)},
      wait_options(0, interrupt));
}

Result<NextChunkReply> next_chunk(Rpc& rpc, std::uint64_t reader, std::optional<std::uint64_t> done, const Wait& wait,
                                  const Interrupt& interrupt) {
  return rpc.request_reply<NextChunkReply>(MessageType::kNextChunk,
                                           NextChunkRequest{reader, done.value_or(kNoChunk), wait.remaining_ms()},
                                           wait_options(wait, 0, interrupt));
}

Status chunk_done(Rpc& rpc, std::uint64_t reader, std::uint64_t position, const Interrupt& interrupt) {
  RETURN_IF_ERROR(
      rpc.call(MessageType::kChunkDone, to_wire(ChunkDoneRequest{reader, position}), wait_options(0, interrupt)));
  return Status::ok();
}

void close_stream_reader(Rpc& rpc, std::uint64_t reader) {
  if (const auto options = closing_options(rpc)) {
    static_cast<void>(
        rpc.call(MessageType::kCloseStreamReader, to_wire(CloseStreamReaderRequest{reader}), *options).is_ok());
  }
}

}  // namespace entrepot
