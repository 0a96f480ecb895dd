#include "daemon/gateway_requests.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/utf8.h"

namespace entrepot {
namespace {

constexpr std::size_t kLabelBytes = 200;
constexpr std::size_t kOperationBytes = 100;

}  // namespace

bool GatewayRequests::is_within_limit(Request& request, std::string_view payload) {
  if (payload.size() <= kMaxCallBytes) return true;
  request.refuse(Status(Code::kInvalidArgument, concat("a call to the gateway has at most ", kMaxCallBytes,
                                                       " bytes of payload, not ", payload.size())));
  return false;
}

void GatewayRequests::serve(Request& request) {
  ServeGatewayRequest body;
  if (!request.read(body) || !request.is_text("gateway's label", body.label)) return;
  request.answer(store_.serve_gateway(request.owner(), to_utf8(body.label, kLabelBytes)));
}

void GatewayRequests::call(Request& request) {
  CallGatewayRequest body;
  if (!request.read(body) || !request.within_batch(body.ids.size()) || !is_within_limit(request, body.payload)) return;
  if (body.operation.empty() || body.operation.size() > kOperationBytes) {
    return request.answer(Status(Code::kInvalidArgument, concat("the operation of a call has 1 to ", kOperationBytes,
                                                                " bytes, not ", body.operation.size())));
  }
  const std::optional<HeldRequest> held = request.hold(request.holding_cost());
  if (!held) return;
  CallSpec spec{std::move(body.operation), std::move(body.ids), std::move(body.payload)};
  store_.call_gateway(request.origin(), std::move(spec), body.timeout_ms,
                      [held = *held](const Result<std::string>& payload) {
                        if (!payload.is_ok()) return held.refuse(payload.status());
                        held.reply(CallGatewayReply{*payload});
                      });
}

void GatewayRequests::next(Request& request) {
  NextCallsRequest body;
  if (!request.read(body)) return;
  const std::optional<HeldRequest> held = request.hold();
  if (!held) return;
  store_.gateway().next(
      request.owner(), body.max_calls, body.timeout_ms,
      [held = *held](const std::vector<CallToAnswer>& calls) {
        NextCallsReply reply;
        for (const CallToAnswer& call : calls) {
          reply.calls.push_back({call.number, call.spec->operation, call.spec->ids, call.spec->payload,
                                 static_cast<std::uint32_t>(call.remaining_ms)});
        }
        held.reply(reply);
      },
      [held = *held](const Status& why) { held.refuse(why); });
}

void GatewayRequests::answer(Request& request) {
  AnswerCallRequest body;
  if (!request.read(body) || !is_within_limit(request, body.payload)) return;
  const std::uint64_t number = body.number;
  if (body.code == Code::kOk) {
    return request.answer(store_.gateway().answer(request.owner(), number, std::move(body.payload)));
  }
  request.answer(store_.gateway().answer(request.owner(), number, Status(body.code, std::move(body.message))));
}

}  // namespace entrepot
