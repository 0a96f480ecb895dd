#include "client/gateway.h"

namespace entrepot {
Result<std::string> call_gateway(Rpc& rpc, const std::string& operation, std::span<const IdBytes> ids,
                                 const std::string& payload, const Wait& wait, const Interrupt& interrupt) {
  CallGatewayRequest request;
  request.operation = operation;
  request.ids.assign(ids.begin(), ids.end());
  request.payload = payload;
  request.timeout_ms = wait.ms == 0 ? kMaxCallMs : wait.remaining_ms();
  ASSIGN_OR_RETURN(CallGatewayReply reply,
                   rpc.request_reply<CallGatewayReply>(MessageType::kCallGateway, request,
                                                       wait_options(wait, kMaxCallMs, interrupt)));
  return std::move(reply.payload);
}

Status serve_gateway(Rpc& rpc, const std::string& label, const Interrupt& interrupt) {
  RETURN_IF_ERROR(
      rpc.call(MessageType::kServeGateway, to_wire(ServeGatewayRequest{label}), wait_options(0, interrupt)));
  return Status::ok();
}

Result<std::vector<GatewayCall>> next_calls(Rpc& rpc, std::uint32_t max_calls, std::uint32_t timeout_ms,
                                            const Interrupt& interrupt) {
  ASSIGN_OR_RETURN(NextCallsReply reply,
                   rpc.request_reply<NextCallsReply>(MessageType::kNextCalls, NextCallsRequest{max_calls, timeout_ms},
                                                     wait_options(timeout_ms, interrupt)));
  return std::move(reply.calls);
}

Status answer_call(Rpc& rpc, std::uint64_t number, const Result<std::string>& payload, const Interrupt& interrupt) {
  AnswerCallRequest request;
  request.number = number;
  request.code = payload.code();
  if (payload.is_ok()) {
    request.payload = *payload;
  } else {
    request.message = payload.status().message();
  }
  RETURN_IF_ERROR(rpc.call(MessageType::kAnswerCall, to_wire(request), wait_options(0, interrupt)));
  return Status::ok();
}

}  // namespace entrepot
