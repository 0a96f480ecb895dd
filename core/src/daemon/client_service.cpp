#include "daemon/client_service.h"

#include <optional>
#include <utility>

#include "base/text.h"
#include "daemon/room_wait.h"
#include "os/log.h"
#include "os/process.h"

namespace entrepot {

ClientService::ClientService(const Parts& parts, std::function<void()> stop)
    : parts_(parts),
      stop_(std::move(stop)),
      objects_(parts.store, parts.segments),
      sessions_(parts.store),
      streams_(parts.store),
      gateway_(parts.store) {
  parts_.connections.on_frame([this](Connection& connection, Frame& frame) { handle(connection, frame); });
}

void ClientService::handle(Connection& connection, Frame& frame) {
  if (!connection.client()) return parts_.registry.hello(connection, frame);
  if (frame.header.type == MessageType::kFork) return parts_.registry.fork(connection, frame.header.request);
  if (frame.header.type == MessageType::kOpenRings) {
    return parts_.connections.open_rings(connection, frame.header.request);
  }
  Request request(parts_.connections, connection, frame);
  serve(request);
}

void ClientService::serve(Request& request) {
  switch (request.type()) {
    case MessageType::kLease:
    case MessageType::kLeaseIsolated:
      return objects_.lease(request);
    case MessageType::kUnlease:
      return objects_.unlease(request);
    case MessageType::kReserve:
      return objects_.reserve(request);
    case MessageType::kReservation:
      return objects_.reservation(request);
    case MessageType::kSegment:
      return objects_.segment(request);
    case MessageType::kSeal:
      return objects_.seal(request);
    case MessageType::kLookup:
      return objects_.lookup(request);
    case MessageType::kDelete:
      return objects_.remove(request);
    case MessageType::kDeleteGenerations:
      return objects_.remove_generations(request);
    case MessageType::kEvict:
      return objects_.evict(request);
    case MessageType::kHint:
      return objects_.hint(request);
    case MessageType::kConsumed:
      return objects_.consumed(request);
    case MessageType::kList:
      return objects_.list(request);
    case MessageType::kInfo:
      return objects_.info(request);
    case MessageType::kWaitProvisioned:
      return objects_.wait_provisioned(request);
    case MessageType::kReleased:
      return parts_.store.rescan_pins();
    case MessageType::kOpenSession:
      return sessions_.open_session(request);
    case MessageType::kCloseSession:
      return sessions_.close_session(request);
    case MessageType::kRemoveSession:
      return sessions_.remove_session(request);
    case MessageType::kRemoveUnused:
      return sessions_.remove_unused(request);
    case MessageType::kListSessions:
      return request.reply(JsonReply{parts_.store.sessions_json()});
    case MessageType::kDefineSet:
      return sessions_.define_set(request);
    case MessageType::kListSets:
      return sessions_.list_sets(request);
    case MessageType::kBindName:
      return sessions_.bind_name(request);
    case MessageType::kResolveName:
      return sessions_.resolve_name(request);
    case MessageType::kUnbindName:
      return sessions_.unbind_name(request);
    case MessageType::kOpenStream:
      return streams_.open_stream(request);
    case MessageType::kRemoveStream:
      return streams_.remove_stream(request);
    case MessageType::kStreamState:
      return streams_.stream_state(request);
    case MessageType::kOpenStreamWriter:
      return streams_.open_writer(request);
    case MessageType::kCloseStreamWriter:
      return streams_.close_writer(request);
    case MessageType::kAppendChunk:
      return streams_.append(request);
    case MessageType::kPutChunk:
      return streams_.put_chunk(request);
    case MessageType::kWithdrawChunk:
      return streams_.withdraw(request);
    case MessageType::kOpenStreamReader:
      return streams_.open_reader(request);
    case MessageType::kCloseStreamReader:
      return streams_.close_reader(request);
    case MessageType::kNextChunk:
      return streams_.next(request);
    case MessageType::kChunkDone:
      return streams_.chunk_done(request);
    case MessageType::kServeGateway:
      return gateway_.serve(request);
    case MessageType::kCallGateway:
      return gateway_.call(request);
    case MessageType::kNextCalls:
      return gateway_.next(request);
    case MessageType::kAnswerCall:
      return gateway_.answer(request);
    case MessageType::kStatus:
      return request.reply(JsonReply{parts_.store.status_json(daemon_status())});
    case MessageType::kGrowPins:
      return grow_pins(request);
    case MessageType::kShutdown:
      request.answer(Status::ok());
      return stop_();
    case MessageType::kUpgrade:
      return upgrade(request);
    case MessageType::kRingFilled:  // without rings
    case MessageType::kSocketFilled:
    case MessageType::kOpenRings:
    case MessageType::kFork:
    case MessageType::kHello:
    case MessageType::kReply:
    case MessageType::kError:
      break;
  }
  request.refuse(Status(Code::kInvalidArgument,
                        concat("unexpected message type ", request.type(), ": is the client newer than this daemon?")));
}

void ClientService::grow_pins(Request& request) {
  GrowPinsRequest body;
  if (!request.read(body)) return;
  serve_when_room(parts_.store, request, [this, client = request.client(), pins = body.pins](auto& to, bool last) {
    const Result<std::uint32_t> reserved_pins = parts_.registry.grow_pins(client, pins);
    if (awaits_room(parts_.store, reserved_pins.code(), last)) return false;
    if (reserved_pins.is_ok()) {
      to.reply(GrowPinsReply{*reserved_pins});
    } else {
      to.answer(reserved_pins.status());
    }
    return true;
  });
}

void ClientService::upgrade(Request& request) {
  UpgradeRequest body;
  if (!request.read(body)) return;
  const std::optional<HeldRequest> held = request.hold();
  if (!held) return;
  parts_.upgrader.upgrade(body.program, [held = *held](const Result<std::string>& version) {
    if (!version.is_ok()) return held.refuse(version.status());
    held.reply(UpgradeReply{*version});
  });
}

DaemonStatus ClientService::daemon_status() const {
  const Result<std::string> program = os::self_executable();
  return {static_cast<std::uint32_t>(os::current_pid()), parts_.link.keeper_pid(), program.is_ok() ? *program : "",
          log_lines_dropped(), parts_.link.keeper_log_lines_dropped()};
}

}  // namespace entrepot
