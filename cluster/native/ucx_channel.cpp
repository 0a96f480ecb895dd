#include "ucx_channel.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace entrepot::ucx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr ucp_tag_t kWholeTag = ~ucp_tag_t{0};
// How long what a peer has sent may take after its socket has ended: they take different ways.
constexpr std::chrono::milliseconds kLastBytes{200};

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) throw std::runtime_error(std::string(what) + ": " + ucs_status_string(status));
}

// One for the process: it finds the devices, which takes a while.
ucp_context_h context() {
  static const ucp_context_h made = [] {
    ucp_config_t* config = nullptr;
    check(ucp_config_read(nullptr, nullptr, &config), "UCX's settings cannot be read");
    ucp_params_t params = {};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    params.mt_workers_shared = 1;
    params.name = "entrepot-gateway";
    ucp_context_h opened = nullptr;
    const ucs_status_t status = ucp_init(&params, config, &opened);
    ucp_config_release(config);
    check(status, "UCX cannot be used");
    return opened;
  }();
  return made;
}

// UCX calls it when an endpoint fails; requests on it fail too, which is where it is noticed.
void on_endpoint_error(void* /*arg*/, ucp_ep_h /*endpoint*/, ucs_status_t /*status*/) {}

std::uint64_t total_of(std::span<const Range> ranges) {
  std::uint64_t total = 0;
  for (const Range& range : ranges)
    total += range.size();
  return total;
}

template <class Byte>
std::vector<ucp_dt_iov_t> iov_of(std::span<const std::span<Byte>> ranges) {
  std::vector<ucp_dt_iov_t> iov;
  iov.reserve(ranges.size());
  for (const std::span<Byte>& range : ranges) {
    if (!range.empty()) iov.push_back({const_cast<std::byte*>(range.data()), range.size()});
  }
  return iov;
}

ucp_request_param_t params_for(std::span<const ucp_dt_iov_t> iov) {
  ucp_request_param_t params = {};
  if (iov.size() != 1) {
    params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    params.datatype = ucp_dt_make_iov();
  }
  return params;
}

}  // namespace

Channel::Channel(int socket, std::uint32_t limit_ms) : socket_(socket), limit_ms_(limit_ms) {
  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // by mutex_
  check(ucp_worker_create(context(), &params, &worker_), "UCX cannot open a worker");
  try {
    check(ucp_worker_get_efd(worker_, &event_fd_), "UCX has no descriptor to wait on");
    ucp_address_t* address = nullptr;
    std::size_t length = 0;
    check(ucp_worker_get_address(worker_, &address, &length), "UCX has no address");
    address_.assign(reinterpret_cast<const char*>(address), length);
    ucp_worker_release_address(worker_, address);
  } catch (...) {
    ucp_worker_destroy(worker_);
    throw;
  }
}

Channel::~Channel() { close(); }

void Channel::connect(const std::string& address, std::uint64_t send_tag, std::uint64_t receive_tag) {
  const Lock lock(mutex_);
  ucp_ep_params_t params = {};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &on_endpoint_error;
  check(ucp_ep_create(worker_, &params, &endpoint_), "UCX cannot connect");
  send_tag_ = send_tag;
  receive_tag_ = receive_tag;
}

int Channel::send(std::span<const ConstRange> ranges) {
  const std::vector<ucp_dt_iov_t> iov = iov_of<const std::byte>(ranges);
  if (iov.empty()) return 0;
  Lock lock(mutex_);
  if (ended_) return ECONNRESET;
  const ucp_request_param_t params = params_for(iov);
  const bool whole = iov.size() == 1;
  ucs_status_ptr_t const request =
      ucp_tag_send_nbx(endpoint_, whole ? iov[0].buffer : static_cast<const void*>(iov.data()),
                       whole ? iov[0].length : iov.size(), send_tag_, &params);
  sending_ = true;
  const int error = finish(lock, request, limit_ms_);
  sending_ = false;
  return error;
}

int Channel::receive(std::span<const Range> ranges) {
  Lock lock(mutex_);
  std::vector<Range> pending(ranges.begin(), ranges.end());
  std::size_t at = 0;
  while (at < pending.size()) {
    Range& first = pending[at];
    if (first.empty()) {
      ++at;
      continue;
    }
    if (stash_used_ < stash_.size()) {
      const std::size_t length = std::min(first.size(), stash_.size() - stash_used_);
      std::memcpy(first.data(), stash_.data() + stash_used_, length);
      stash_used_ += length;
      first = first.subspan(length);
      continue;
    }
    ucp_tag_message_h message = nullptr;
    std::uint64_t length = 0;
    int error = drive(lock, limit_ms_, [&] { return (message = probe(true, length)) != nullptr; });
    if (error != 0) return end(error);
    const std::span<const Range> left(pending.data() + at, pending.size() - at);
    if (length == total_of(left)) return receive_message(lock, message, length, left);
    if (length > kMaxMessage) return end(EBADMSG);
    stash_.resize(length);
    stash_used_ = length;  // nothing of it can be handed out before it is complete
    const Range whole(stash_);
    error = receive_message(lock, message, length, {&whole, 1});
    if (error != 0) return error;
    stash_used_ = 0;
  }
  return 0;
}

int Channel::receive_message(Lock& lock, ucp_tag_message_h message, std::uint64_t length,
                             std::span<const Range> ranges) {
  const std::vector<ucp_dt_iov_t> iov = iov_of<std::byte>(ranges);
  const ucp_request_param_t params = params_for(iov);
  const bool whole = iov.size() == 1;
  ucs_status_ptr_t const request =
      ucp_tag_msg_recv_nbx(worker_, whole ? iov[0].buffer : const_cast<ucp_dt_iov_t*>(iov.data()),
                           whole ? length : iov.size(), message, &params);
  return finish(lock, request, limit_ms_);
}

int Channel::wait_readable(std::uint32_t timeout_ms) {
  Lock lock(mutex_);
  if (stash_used_ < stash_.size()) return 0;
  std::uint64_t length = 0;
  const int error = drive(lock, timeout_ms, [&] { return probe(false, length) != nullptr; });
  if (error == EAGAIN) return ETIMEDOUT;
  return error == 0 ? 0 : end(error);
}

void Channel::flush(std::uint32_t timeout_ms) {
  Lock lock(mutex_);
  if (ended_ || endpoint_ == nullptr) return;
  ucp_request_param_t params = {};
  // How it ends does not matter: the channel is closed next.
  [[maybe_unused]] const int error = finish(lock, ucp_ep_flush_nbx(endpoint_, &params), timeout_ms);
}

bool Channel::has_room() {
  const Lock lock(mutex_);
  return !sending_;
}

bool Channel::is_quiet() {
  const Lock lock(mutex_);
  if (ended_ || stash_used_ < stash_.size() || socket_ended()) return false;
  while (ucp_worker_progress(worker_) != 0) {
  }
  std::uint64_t length = 0;
  return probe(false, length) == nullptr;
}

void Channel::interrupt() {
  const Lock lock(mutex_);
  ended_ = true;
  if (worker_ != nullptr && sleeping_ > 0) static_cast<void>(ucp_worker_signal(worker_));
}

void Channel::close() {
  Lock lock(mutex_);
  ended_ = true;
  if (worker_ == nullptr) return;
  while (sleeping_ > 0) {
    static_cast<void>(ucp_worker_signal(worker_));
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
  if (endpoint_ != nullptr) {
    ucp_request_param_t params = {};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    ucs_status_ptr_t const request = ucp_ep_close_nbx(endpoint_, &params);
    if (UCS_PTR_IS_PTR(request)) {
      const Clock::time_point limit = Clock::now() + std::chrono::seconds(1);
      while (ucp_request_check_status(request) == UCS_INPROGRESS && Clock::now() < limit)
        ucp_worker_progress(worker_);
      ucp_request_free(request);
    }
    endpoint_ = nullptr;
  }
  ucp_worker_destroy(worker_);
  worker_ = nullptr;
}

template <class IsDone>
int Channel::drive(Lock& lock, std::uint32_t limit_ms, const IsDone& is_done) {
  Clock::time_point limit = Clock::now() + std::chrono::milliseconds(limit_ms);
  bool socket_open = true;
  while (true) {
    if (is_done()) {
      // What this thread has moved may be what another one sleeps for.
      if (sleeping_ > 0) static_cast<void>(ucp_worker_signal(worker_));
      return 0;
    }
    if (ended_) return ECONNRESET;
    if (ucp_worker_progress(worker_) != 0) {
      limit = Clock::now() + std::chrono::milliseconds(limit_ms);
      continue;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - Clock::now()).count();
    if (left <= 0) return socket_open ? EAGAIN : ECONNRESET;
    if (!sleep(lock, static_cast<std::uint32_t>(left), socket_open) && socket_open) {
      socket_open = false;
      limit = std::min(limit, Clock::now() + kLastBytes);
    }
  }
}

bool Channel::sleep(Lock& lock, std::uint32_t timeout_ms, bool socket_open) {
  const ucs_status_t armed = ucp_worker_arm(worker_);
  if (armed == UCS_ERR_BUSY) return true;
  if (armed != UCS_OK) return false;
  // poll() ignores negative descriptors.
  std::array<pollfd, 2> events = {pollfd{event_fd_, POLLIN, 0}, pollfd{socket_open ? socket_ : -1, POLLRDHUP, 0}};
  ++sleeping_;
  lock.unlock();
  const int count = ::poll(events.data(), events.size(), static_cast<int>(timeout_ms) + 1);
  lock.lock();
  --sleeping_;
  return count <= 0 || events[1].revents == 0;
}

int Channel::finish(Lock& lock, ucs_status_ptr_t request, std::uint32_t limit_ms) {
  if (request == nullptr) return 0;
  if (UCS_PTR_IS_ERR(request)) return end(ECONNRESET);
  ucs_status_t status = UCS_INPROGRESS;
  const int error =
      drive(lock, limit_ms, [&] { return (status = ucp_request_check_status(request)) != UCS_INPROGRESS; });
  if (error != 0) {
    // The request may still name the caller's memory. UCX touches it only while the worker makes progress, which it
    // never will again.
    ucp_request_cancel(worker_, request);
    ucp_request_free(request);
    return end(error);
  }
  ucp_request_free(request);
  return status == UCS_OK ? 0 : end(ECONNRESET);
}

ucp_tag_message_h Channel::probe(bool remove, std::uint64_t& length) {
  ucp_tag_recv_info_t info = {};
  ucp_tag_message_h const message = ucp_tag_probe_nb(worker_, receive_tag_, kWholeTag, remove ? 1 : 0, &info);
  length = info.length;
  return message;
}

bool Channel::socket_ended() const {
  pollfd event = {socket_, POLLRDHUP, 0};
  return ::poll(&event, 1, 0) != 0;
}

int Channel::end(int error) {
  ended_ = true;
  if (sleeping_ > 0) static_cast<void>(ucp_worker_signal(worker_));
  return error;
}

}  // namespace entrepot::ucx
