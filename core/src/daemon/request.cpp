#include "daemon/request.h"

#include "base/utf8.h"

namespace entrepot {

namespace {

constexpr std::size_t kShownTextBytes = 60;

}  // namespace

void HeldRequest::refuse(const Status& status) const {
  connections_->end_wait(owner_, cost_);
  connections_->refuse(owner_, number_, status);
}

void HeldRequest::answer(const Status& status) const {
  if (!status.is_ok()) return refuse(status);
  reply(Empty{});
}

void HeldRequest::answer(const Result<NameOutcome>& name) const {
  if (!name.is_ok()) return refuse(name.status());
  reply(NameReply{name->id, name->generation});
}

void Request::refuse_malformed() {
  refuse(Status(Code::kInvalidArgument, concat("a request of type ", type(), " is malformed")));
  connections_.mark_closing(connection_);
}

bool Request::within_batch(std::size_t count) {
  if (count <= kMaxBatch) return true;
  refuse(Status(Code::kInvalidArgument,
                concat(count, " objects in one request exceed the limit of ", kMaxBatch, ": split the request")));
  return false;
}

bool Request::is_text(std::string_view what, std::string_view text) {
  const Status sound = check_text(what, text);
  if (!sound.is_ok()) refuse(sound);
  return sound.is_ok();
}

Status Request::check_text(std::string_view what, std::string_view text) {
  const std::size_t end = utf8_valid_length(text);
  if (end == text.size()) return Status::ok();
  return Status(Code::kInvalidArgument,
                concat("the ", what, " '", to_utf8(text, kShownTextBytes), "' is not UTF-8: byte ", end, " is ",
                       static_cast<std::uint8_t>(text[end]), ", which cannot start a character; encode it as UTF-8"));
}

std::optional<HeldRequest> Request::hold(std::uint64_t cost) {
  if (const Status room = connections_.begin_wait(connection_, cost); !room.is_ok()) {
    refuse(room);
    return std::nullopt;
  }
  return HeldRequest(connections_, owner(), number(), cost);
}

std::optional<HeldRequest> Request::try_hold(std::uint64_t cost) {
  if (!connections_.begin_wait(connection_, cost).is_ok()) return std::nullopt;
  return HeldRequest(connections_, owner(), number(), cost);
}

void Request::answer(const Status& status) {
  if (status.is_ok()) {
    reply(Empty{});
  } else {
    refuse(status);
  }
}

void Request::answer(const Result<std::string>& json) {
  if (json.is_ok()) {
    reply(JsonReply{*json});
  } else {
    refuse(json.status());
  }
}

void Request::answer(const Result<NameOutcome>& name) {
  if (name.is_ok()) {
    reply(NameReply{name->id, name->generation});
  } else {
    refuse(name.status());
  }
}

}  // namespace entrepot
