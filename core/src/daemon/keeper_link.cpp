#include "daemon/keeper_link.h"

#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "os/clock.h"
#include "os/process.h"
#include "os/socket.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kTakeOverMs = 20'000;
constexpr std::uint64_t kAnswerMs = 5'000;
constexpr int kChannelInChild = 3;

}  // namespace

Status KeeperLink::take_over() {
  const auto deadline = os::Deadline::after_ms(kTakeOverMs);
  while (true) {
    ASSIGN_OR_RETURN(ReceivedMessage received, receive_keeper_message(channel_.get(), deadline));
    if (received.message.verb == KeeperVerb::kRestored) {
      keeper_pid_ = static_cast<std::uint32_t>(received.message.number);
      return Status::ok();
    }
    if (received.message.verb != KeeperVerb::kRestore || !received.fd.valid()) {
      return Status(Code::kInternal,
                    concat("the keeper sent verb ", received.message.verb, " instead of what it holds"));
    }
    held_.insert_or_assign(received.message.tag(), std::move(received.fd));
  }
}

Status KeeperLink::hold(const HeldTag& tag, UniqueFd fd) {
  const int number = fd.get();
  held_.insert_or_assign(tag, std::move(fd));
  if (!channel_.valid()) return Status::ok();  // alone: nobody can hold it; the next keeper gets it
  const Status held = hold_once(tag, number);
  if (!held.is_ok()) keeper_is_gone(held);  // the new keeper gets all, this one included
  return Status::ok();
}

void KeeperLink::drop(const HeldTag& tag) {
  if (held_.erase(tag) == 0 || !channel_.valid()) return;
  const Status sent = send_keeper_message(channel_.get(), keeper_message(KeeperVerb::kDrop, tag), -1,
                                          os::Deadline::after_ms(kAnswerMs));
  if (!sent.is_ok()) keeper_is_gone(sent);
}

int KeeperLink::fd(const HeldTag& tag) const {
  const auto found = held_.find(tag);
  return found == held_.end() ? -1 : found->second.get();
}

void KeeperLink::on_readable() {
  if (!channel_.valid()) return;
  auto received = receive_keeper_message(channel_.get(), os::Deadline::after_ms(0));
  if (received.is_ok()) {
    log_error("the keeper sent verb ", received->message.verb, " although nothing was asked");
    return;
  }
  if (received.code() != Code::kTimeout) keeper_is_gone(received.status());
}

void KeeperLink::restart_if_alone() {
  if (channel_.valid()) return;
  if (const Status started = start_keeper(); !started.is_ok()) {
    channel_.reset();
    log_error("no keeper can be started, so the store dies with this daemon: ", started.to_string());
  }
}

void KeeperLink::goodbye() {
  if (!channel_.valid()) return;
  const Status sent =
      send_keeper_message(channel_.get(), keeper_message(KeeperVerb::kGoodbye), -1, os::Deadline::after_ms(kAnswerMs));
  if (!sent.is_ok()) log_warning("the keeper did not hear that the store ends: ", sent.to_string());
}

Status KeeperLink::upgrade(const UniqueFd& program) {
  if (!channel_.valid()) {
    return Status(Code::kStoreUnavailable, "the store has no keeper just now, which would take over: try again");
  }
  const auto deadline = os::Deadline::after_ms(kAnswerMs);
  Status heard = send_keeper_message(channel_.get(), keeper_message(KeeperVerb::kUpgrade), program.get(), deadline);
  if (heard.is_ok()) heard = receive_keeper_message(channel_.get(), deadline).status();
  if (!heard.is_ok()) keeper_is_gone(heard);
  return heard;
}

Status KeeperLink::hold_once(const HeldTag& tag, int fd) {
  const auto deadline = os::Deadline::after_ms(kAnswerMs);
  RETURN_IF_ERROR(send_keeper_message(channel_.get(), keeper_message(KeeperVerb::kHold, tag), fd, deadline));
  ASSIGN_OR_RETURN(const ReceivedMessage answer, receive_keeper_message(channel_.get(), deadline));
  if (answer.message.verb != KeeperVerb::kAck || answer.message.tag() != tag) {
    return Status(Code::kInternal, concat("the keeper answered with verb ", answer.message.verb));
  }
  return Status::ok();
}

Status KeeperLink::start_keeper() {
  ASSIGN_OR_RETURN(auto pair, os::socket_pair(os::SocketKind::kSeqPacket));
  os::SpawnOptions spawn;
  spawn.program = "/proc/self/exe";
  spawn.argv = {"entrepotd", "--role=keeper", concat("--daemon-fd=", kChannelInChild),
                concat("--daemon-pid=", os::current_pid())};
  spawn.argv.insert(spawn.argv.end(), keeper_arguments_.begin(), keeper_arguments_.end());
  spawn.fds = {{pair.second.get(), kChannelInChild}};
  spawn.new_session = true;
  ASSIGN_OR_RETURN(const os::Child child, os::spawn(spawn));
  channel_ = std::move(pair.first);
  keeper_number_ += 1;
  pair.second.reset();
  keeper_pid_ = static_cast<std::uint32_t>(child.pid);
  ASSIGN_OR_RETURN(const ReceivedMessage ready,
                   receive_keeper_message(channel_.get(), os::Deadline::after_ms(kAnswerMs)));
  if (ready.message.verb != KeeperVerb::kRestored) {
    return Status(Code::kInternal, concat("the new keeper began with verb ", ready.message.verb));
  }
  for (const auto& [tag, fd] : held_)
    RETURN_IF_ERROR(hold_once(tag, fd.get()));
  RETURN_IF_ERROR(send_keeper_message(channel_.get(), keeper_message(KeeperVerb::kRestored), -1,
                                      os::Deadline::after_ms(kAnswerMs)));
  log_info("keeper ", keeper_pid_, " started, holds ", held_.size(), " descriptors");
  return Status::ok();
}

void KeeperLink::keeper_is_gone(const Status& why) {
  log_warning("keeper ", keeper_pid_, " is gone (", why.message(), "); starting another");
  channel_.reset();
  keeper_pid_ = 0;
  while (os::reap()) {  // it is our child if an earlier daemon's death or its own made us start it
  }
  restart_if_alone();
}

}  // namespace entrepot
