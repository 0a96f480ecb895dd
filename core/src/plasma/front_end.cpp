#include "plasma/front_end.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/text.h"
#include "net/frame_socket.h"
#include "net/protocol.h"
#include "os/clock.h"
#include "os/files.h"
#include "os/log.h"
#include "os/process.h"
#include "os/socket.h"

namespace entrepot::plasma {
namespace {

constexpr int kBacklog = 1024;
constexpr std::uint64_t kAcceptAgainNs = 100'000'000;
constexpr std::uint64_t kStoreLookNs = 1'000'000'000;
constexpr std::uint64_t kMessageBytes = 64U << 20;            // beyond the objects that a message may contain
constexpr std::uint64_t kShortMessageBytes = 64U << 10;       // without a look at how much has come from all together
constexpr std::uint64_t kMaxMessageBytes = (1ULL << 31) - 1;  // FlatBuffers' own limit

}  // namespace

Result<std::unique_ptr<FrontEnd>> FrontEnd::start(const Options& options, int threads) {
  RETURN_IF_ERROR(os::check_folder_safe(os::folder_of(options.socket_path)));
  ASSIGN_OR_RETURN(os::Poller poller, os::Poller::create());
  ASSIGN_OR_RETURN(UniqueFd signals, os::create_signal_fd({SIGTERM, SIGINT}));
  ASSIGN_OR_RETURN(auto arena, Arena::connect({options.store_path, options.capacity_bytes, options.isolate}));
  ASSIGN_OR_RETURN(auto worker, StoreWorker::start(threads));
  Sockets sockets;
  ASSIGN_OR_RETURN(sockets.listening, os::listen_unix(options.socket_path, kBacklog));
  ASSIGN_OR_RETURN(sockets.file, os::open_path(options.socket_path));
  sockets.signals = std::move(signals);
  std::unique_ptr<FrontEnd> front_end(
      new FrontEnd(options, std::move(poller), std::move(sockets), std::move(arena), std::move(worker)));
  RETURN_IF_ERROR(front_end->watch_all());
  return front_end;
}

FrontEnd::FrontEnd(const Options& options, os::Poller poller, Sockets sockets, std::unique_ptr<Arena> arena,
                   std::unique_ptr<StoreWorker> worker)
    : options_(options),
      loop_(std::move(poller)),
      listening_(std::move(sockets.listening)),
      socket_file_(std::move(sockets.file)),
      signals_(std::move(sockets.signals)),
      arena_(std::move(arena)),
      table_(options.capacity_bytes),
      notifications_(loop_),
      worker_(std::move(worker)),
      objects_(table_, *arena_, notifications_, *worker_, options.strict),
      gets_({loop_, objects_, *worker_, [this](ClientKey key) { return channel(key); },
             [this](ClientChannel& client) { go_on(client); }}),
      requests_({objects_, gets_, *worker_, notifications_, [this](ClientKey key) { return channel(key); },
                 [this](ClientChannel& client) { go_on(client); }}) {}

FrontEnd::~FrontEnd() {
  arena_->interrupt();
  worker_.reset();                                                        // its jobs refer to the rest
  if (!os::is_file_at(socket_file_.get(), options_.socket_path)) return;  // another front end's, or gone
  if (const Status removed = os::remove_file(options_.socket_path); !removed.is_ok()) {
    log_warning("cannot remove ", options_.socket_path, ": ", removed.to_string());
  }
}

Status FrontEnd::watch_all() {
  ASSIGN_OR_RETURN(listening_watch_,
                   loop_.watch(listening_.get(), Interest::kRead, [this](const os::Ready&) { accept_all(); }));
  ASSIGN_OR_RETURN(signals_watch_, loop_.watch(signals_.get(), Interest::kRead, [this](const os::Ready&) {
    const auto signal = os::read_signal(signals_.get());
    if (signal.is_ok() && *signal != 0) ends_ = true;
  }));
  ASSIGN_OR_RETURN(worker_watch_, loop_.watch(worker_->event_fd(), Interest::kRead,
                                              [this](const os::Ready&) { worker_->complete(); }));
  accept_timer_ = loop_.timer([this](std::uint64_t) {
    const Status watched = listening_watch_.change(Interest::kRead);
    if (!watched.is_ok()) log_error("cannot accept Plasma clients: ", watched.to_string());
  });
  store_timer_ = loop_.timer([this](std::uint64_t now) { look_at_store(now); });
  store_timer_.arm(os::monotonic_ns() + kStoreLookNs);
  return Status::ok();
}

// A store that ends while nobody asks for anything is noticed, too, and that a silent daemon answers again.
void FrontEnd::look_at_store(std::uint64_t now_ns) {
  store_timer_.arm(now_ns + kStoreLookNs);
  if (is_reconnecting_ || (arena_->is_connected() && !arena_->is_silent())) return;
  is_reconnecting_ = true;
  worker_->run(Lane::kAnswers, [this]() -> StoreWorker::Completion {
    return [this, reconnected = arena_->reconnect()] {
      is_reconnecting_ = false;
      if (reconnected.is_ok()) return;
      log_warning("the store does not answer: ", reconnected.to_string());
      is_store_gone_ = reconnected.code() == Code::kStoreUnavailable;
    };
  });
}

Status FrontEnd::run() {
  while (!ends_)
    RETURN_IF_ERROR(turn());
  return Status::ok();
}

Status FrontEnd::turn() {
  RETURN_IF_ERROR(loop_.dispatch());
  loop_.run_due();
  while (keeps_much_)
    limit_kept();
  if (!is_store_gone_) return Status::ok();
  return Status(Code::kStoreUnavailable,
                concat("the store at ", options_.store_path, " has ended, and what Plasma clients hold with it"));
}

void FrontEnd::accept_all() {
  while (true) {
    auto accepted = os::accept_unix(listening_.get());
    if (!accepted.is_ok()) {
      // Out of descriptors: the next one would fail too.
      if (!std::exchange(cannot_accept_, true)) {
        log_warning("no further Plasma client can be accepted: ", accepted.status().to_string());
      }
      static_cast<void>(listening_watch_.change(Interest::kHangup).is_ok());
      accept_timer_.arm(os::monotonic_ns() + kAcceptAgainNs);
      return;
    }
    if (!accepted->valid()) {  // with a descriptor to spare, without which it fails even if nobody waits
      if (std::exchange(cannot_accept_, false)) log_info("Plasma clients are accepted again");
      return;
    }
    const auto peer = os::peer_credentials(accepted->get());
    if (!peer.is_ok() || peer->uid != os::current_uid()) {
      log_warning("a Plasma client of another user was refused");
      continue;
    }
    const ClientKey key = next_key_++;
    const int socket = accepted->get();
    auto client =
        std::make_unique<ClientChannel>(key, accepted.take(), concat("process ", peer->pid), max_body_bytes());
    auto watch = loop_.watch(socket, Interest::kRead, [this, key](const os::Ready& ready) { on_event(key, ready); });
    if (!watch.is_ok()) {
      log_warning("cannot serve a Plasma client: ", watch.status().to_string());
      continue;
    }
    client->set_watch(watch.take());
    clients_.emplace(key, std::move(client));
  }
}

void FrontEnd::on_event(ClientKey key, const os::Ready& ready) {
  ClientChannel& client = *clients_.at(key);
  if (client.is_busy() || client.is_sending()) {
    if (ready.hangup) return remove(key);
    if (client.is_sending()) return go_on(client);
    return;
  }
  const Result<bool> read = client.reader().read(client.socket());
  if (!read.is_ok()) {
    if (read.code() == Code::kInvalidArgument) return cut_off(client, read.status());
    return remove(key);
  }
  if (!*read) return remove(key);
  loop_.expect_event();  // Plasma's calls are a few requests each
  if (client.reader().buffered_bytes() > kShortMessageBytes) keeps_much_ = true;
  go_on(client);
  if (channel(key) == nullptr) return;
  if (const Status taken = client.reader().take_left(client.socket()); !taken.is_ok()) cut_off(client, taken);
}

void FrontEnd::limit_kept() {
  if (!std::exchange(keeps_much_, false)) return;
  const auto kept_for = [](ClientChannel& client) { return client.reader().buffered_bytes() + client.unsent_bytes(); };
  std::uint64_t bytes = 0;
  ClientChannel* largest = nullptr;
  for (const auto& [key, client] : clients_) {
    bytes += kept_for(*client);
    if (largest == nullptr || kept_for(*client) > kept_for(*largest)) largest = client.get();
  }
  if (bytes <= max_body_bytes()) return;
  keeps_much_ = true;  // one may not be enough
  cut_off(*largest, Status(Code::kInvalidArgument,
                           concat(format_bytes(bytes), " of messages that could not be handled yet, and of replies ",
                                  "that are not read, wait, of which it has ", format_bytes(kept_for(*largest)))));
}

void FrontEnd::go_on(ClientChannel& client) {
  client.set_busy(false);
  if (client.is_served()) return;
  const ClientKey key = client.key();
  client.set_served(true);
  const Status served = serve(client);
  if (channel(key) == nullptr) return;
  client.set_served(false);
  if (!served.is_ok()) return cut_off(client, served);
  settle(client);
}

Status FrontEnd::serve(ClientChannel& client) {
  const ClientKey key = client.key();
  while (true) {
    if (!client.flush()) {
      remove(key);
      return Status::ok();
    }
    if (client.is_busy() || client.is_sending()) return Status::ok();
    if (auto socket = client.reader().take_descriptor()) RETURN_IF_ERROR(requests_.subscribe(*std::move(socket)));
    std::optional<Message> message = client.reader().take();
    if (!message) return client.reader().parse();
    if (message->type == MessageType::kDisconnect) {
      remove(key);
      return Status::ok();
    }
    RETURN_IF_ERROR(requests_.handle(client, *std::move(message)));
    if (channel(key) == nullptr) return Status::ok();
  }
}

void FrontEnd::settle(ClientChannel& client) {
  if (client.unsent_bytes() > kShortMessageBytes) keeps_much_ = true;
  if (const Status watched = client.update_watch(); !watched.is_ok()) cut_off(client, watched);
}

void FrontEnd::cut_off(ClientChannel& client, const Status& reason) {
  log_warning("a Plasma client, ", client.label(), ", is cut off: ", reason.message());
  if (const auto request = client.reader().entrepot_request()) refuse_entrepot(client, *request);
  remove(client.key());
}

// Without an answer it would try again, because a store's connections also end when its daemon is restarted.
void FrontEnd::refuse_entrepot(ClientChannel& client, std::uint64_t request) const {
  ErrorBody body;
  body.code = Code::kInvalidArgument;
  body.message = concat(options_.socket_path, " is a socket for Plasma clients, served by entrepot-plasma-store: ",
                        "connect to its store, unix://", options_.store_path);
  client.send(frame_bytes(entrepot::MessageType::kError, request, to_wire(body), 0));
  static_cast<void>(client.flush());  // its socket is empty, or it is gone
}

void FrontEnd::remove(ClientKey key) {
  const auto match = clients_.find(key);
  if (match == clients_.end()) return;
  const auto client = std::move(match->second);
  clients_.erase(match);
  // If that fails, the peer is told that the connection was reset, which says the same.
  static_cast<void>(client->reader().take_left(client->socket()).is_ok());
  gets_.client_gone(key);
  objects_.client_gone(*client);
}

ClientChannel* FrontEnd::channel(ClientKey key) {
  const auto match = clients_.find(key);
  return match == clients_.end() ? nullptr : match->second.get();
}

std::uint64_t FrontEnd::max_body_bytes() const {
  return std::min(options_.capacity_bytes + kMessageBytes, kMaxMessageBytes);
}

}  // namespace entrepot::plasma
