#include "daemon/stream_requests.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/utf8.h"
#include "daemon/sealing.h"

namespace entrepot {
namespace {

constexpr std::size_t kReasonBytes = 1000;  // of a writer that gives up

std::uint64_t deadline_of(std::uint64_t sent) { return sent == 0 ? StreamTable::kNever : sent; }

}  // namespace

void StreamRequests::open_stream(Request& request) {
  OpenStreamRequest body;
  if (!request.read(body) || !request.is_text("stream's name", body.name)) return;
  const auto is_text = [&](const std::string& group) { return request.is_text("group's name", group); };
  if (!std::all_of(body.groups.begin(), body.groups.end(), is_text)) return;
  if (body.how > kNewStream || body.keeps > 2) {
    return request.answer(Status(Code::kInvalidArgument, "the stream is to be opened in a way that is unknown here"));
  }
  StreamSpec spec{body.capacity, body.writers, std::nullopt, std::move(body.groups), body.capacity_bytes};
  if (body.keeps != 0) spec.keeps = body.keeps == 1;
  const auto opened = store_.open_stream(body.session, body.name, static_cast<StreamOpening>(body.how), spec);
  if (!opened.is_ok()) return request.answer(opened.status());
  request.reply(OpenStreamReply{opened->number, opened->capacity, opened->writers,
                                static_cast<std::uint8_t>(opened->keeps ? 1 : 0),
                                static_cast<std::uint8_t>(opened->created ? 1 : 0), opened->capacity_bytes});
}

void StreamRequests::remove_stream(Request& request) {
  RemoveStreamRequest body;
  if (request.read(body)) request.answer(store_.remove_stream(body.session, body.name));
}

void StreamRequests::stream_state(Request& request) {
  StreamStateRequest body;
  if (!request.read(body)) return;
  const auto stream_found = store_.streams().find(body.stream);
  if (!stream_found.is_ok()) return request.answer(stream_found.status());
  const Stream& stream = **stream_found;
  if (const Status state = stream.check(); !state.is_ok()) return request.answer(state);
  request.reply(StreamStateReply{static_cast<std::uint8_t>(stream.state() == Stream::State::kEnded ? 1 : 0),
                                 stream.appended(), stream.size()});
}

void StreamRequests::open_writer(Request& request) {
  OpenStreamWriterRequest body;
  if (!request.read(body)) return;
  const auto opened = store_.streams().open_writer(request.origin(), body.stream, body.next);
  if (!opened.is_ok()) return request.answer(opened.status());
  request.reply(OpenStreamWriterReply{*opened});
}

void StreamRequests::close_writer(Request& request) {
  CloseStreamWriterRequest body;
  if (!request.read(body)) return;
  request.answer(store_.streams().close_writer(request.origin(), body.writer, body.aborts != 0,
                                               to_utf8(body.reason, kReasonBytes)));
}

void StreamRequests::append(Request& request) {
  AppendChunkRequest body;
  if (!request.read(body)) return;
  const std::optional<HeldRequest> held = request.hold();
  if (!held) return;
  store_.streams().append(
      request.origin(), body.writer, body.id, body.next, body.timeout_ms,
      [held = *held](const Result<std::uint64_t>& appended) {
        if (!appended.is_ok()) return held.refuse(appended.status());
        held.reply(AppendChunkReply{*appended});
      },
      deadline_of(body.deadline_ns));
}

void StreamRequests::put_chunk(Request& request) {
  PutChunkRequest body;
  if (!request.read(body)) return;
  std::vector<SealObject> objects;
  objects.push_back(std::move(body.object));
  const IdBytes id = objects.front().id;
  seal_objects(store_, request, std::move(objects),
               [this, origin = request.origin(), writer = body.writer, next = body.next, id,
                deadline_ns = deadline_of(body.deadline_ns)](auto& to, std::vector<SealResult> results) {
                 PutChunkReply reply{std::move(results.front())};
                 if (reply.sealed.code == Code::kOk) {
                   // Only now: a seal may have waited for room in tables, and the daemon may have been stopped.
                   if (const Status in_time = store_.streams().check_in_time(origin, writer, id, deadline_ns);
                       !in_time.is_ok()) {
                     reply.sealed.code = in_time.code();
                     reply.sealed.message = in_time.message();
                   } else if (const auto position = store_.streams().append_at_once(origin, writer, id, next)) {
                     reply.appended = 1;
                     reply.position = *position;
                   }
                 }
                 to.reply(reply);
               });
}

void StreamRequests::withdraw(Request& request) {
  WithdrawChunkRequest body;
  if (!request.read(body)) return;
  const auto appended = store_.streams().withdraw(request.origin(), body.writer, body.id);
  if (!appended.is_ok()) return request.answer(appended.status());
  request.reply(WithdrawChunkReply{static_cast<std::uint8_t>(*appended ? 1 : 0)});
}

void StreamRequests::open_reader(Request& request) {
  OpenStreamReaderRequest body;
  if (!request.read(body) || !request.is_text("group's name", body.group)) return;
  if (const Status named = NameTable::check(body.group); !named.is_ok()) {
    return request.answer(named.with_context("a group of readers"));
  }
  const auto opened = store_.streams().open_reader(request.origin(), body.stream, body.group, body.late != 0);
  if (!opened.is_ok()) return request.answer(opened.status());
  request.reply(OpenStreamReaderReply{opened->number, opened->missed});
}

void StreamRequests::close_reader(Request& request) {
  CloseStreamReaderRequest body;
  if (request.read(body)) request.answer(store_.streams().close_reader(request.origin(), body.reader));
}

void StreamRequests::next(Request& request) {
  NextChunkRequest body;
  if (!request.read(body)) return;
  const std::optional<HeldRequest> held = request.hold();
  if (!held) return;
  const auto done = body.done == kNoChunk ? std::nullopt : std::optional(body.done);
  store_.streams().next(request.origin(), body.reader, done, body.timeout_ms,
                        [held = *held](const Result<NextChunk>& next) {
                          if (!next.is_ok()) return held.refuse(next.status());
                          held.reply(NextChunkReply{static_cast<std::uint8_t>(next->ended ? 1 : 0), next->position,
                                                    next->id, static_cast<std::uint8_t>(next->again ? 1 : 0)});
                        });
}

void StreamRequests::chunk_done(Request& request) {
  ChunkDoneRequest body;
  if (request.read(body)) request.answer(store_.streams().chunk_done(request.origin(), body.reader, body.done));
}

}  // namespace entrepot
