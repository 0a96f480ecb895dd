// Put: reference what is already in the store, copy the rest once, seal.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/text.h"
#include "client/call_deadline.h"
#include "client/client.h"
#include "client/copy.h"
#include "client/put_plan.h"
#include "os/clock.h"
#include "os/memfd.h"

namespace entrepot {
namespace {

constexpr std::uint64_t kTrimBlobBytes = 1U << 20;  // a larger blob is not kept for less than half of it
constexpr std::uint64_t kBatchBytes = 8U << 20;     // limit of trees and inline payloads in one Seal
constexpr std::uint64_t kMaxRecordBytes = kMaxBodyBytes / 2;

}  // namespace

std::vector<PutResult> Client::put(std::span<const PutItem> items, std::uint32_t wait_ms, const Interrupt& interrupt) {
  std::vector<PutResult> results(items.size());
  std::vector<PutPlan> plan;
  plan.reserve(items.size());
  std::uint64_t more = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const PutItem& item = items[i];
    if (!item.fresh_id && !item.replace) {
      auto existing = pinned_->find(item.id, views_, 0, interrupt);
      if (existing.is_ok() && *existing) {
        results[i] = existing_result(item, **existing, interrupt);
        continue;
      }
    }
    PutPlan& next = plan.emplace_back();
    next.index = i;
    next.item = &item;
    plan_put(item, next);
    more += next.copy_bytes;
  }
  std::vector<PutPlan> filled;
  filled.reserve(plan.size());
  const Wait room(CallDeadline::bounded_ms(wait_ms));  // for all of them together
  Status unanswered;
  for (PutPlan& next : plan) {
    more -= next.copy_bytes;
    Status status = unanswered.is_ok() ? plan_and_fill(*next.item, next, more, room, interrupt) : unanswered;
    if (status.code() == Code::kTimeout) unanswered = status;  // a daemon that is stopped answers no other lease either
    if (status.is_ok()) {
      filled.push_back(std::move(next));
      continue;
    }
    abandon(next);
    results[next.index].status = std::move(status);
  }
  seal_plans(filled, results, interrupt);
  return_unneeded_leases(interrupt);
  return results;
}

void Client::plan_put(const PutItem& item, PutPlan& plan) {
  static_cast<ObjectSpec&>(plan.seal) = item;
  plan.seal.buffers.resize(item.buffers.size());
  plan.shared.assign(item.buffers.size(), 0);
  std::uint64_t total = 0;
  for (const SourceBuffer& buffer : item.buffers)
    total += buffer.length;
  if (total <= kInlineMaxBytes) return;  // small enough that copying costs nothing
  if (!plan.part_of.empty()) use_parts(item, plan);

  std::unordered_map<std::uint64_t, std::uint64_t> used;  // bytes by (blob, generation)
  std::vector<std::uint64_t> blob_bytes(item.buffers.size(), 0);
  for (std::size_t i = 0; i < item.buffers.size(); ++i) {
    const SourceBuffer& buffer = item.buffers[i];
    if (buffer.length == 0 || plan.shared[i] != 0) continue;
    const auto range = pinned_->locate(buffer.data, buffer.length);
    if (!range) continue;
    plan.shared[i] = 1;
    plan.seal.buffers[i] = {range->blob, range->generation, range->offset, buffer.length};
    blob_bytes[i] = range->blob_length;
    used[PinWord::make(range->blob, range->generation)] += buffer.length;
  }
  plan_values(item, plan);
  for (std::size_t i = 0; i < item.buffers.size(); ++i) {
    if (plan.is_in_value(i)) continue;
    if (plan.shared[i] != 0) {
      const SealBuffer& at = plan.seal.buffers[i];
      if ((at.blob & kNewBlob) != 0 || blob_bytes[i] <= kTrimBlobBytes ||
          used[PinWord::make(at.blob, at.generation)] >= blob_bytes[i] / 2)
        continue;
      plan.shared[i] = 0;  // a slice that would keep a much larger parent alive
    }
    plan.copy_bytes += round_up(item.buffers[i].length, kBlobAlign);
  }
}

Status Client::fill(const PutItem& item, PutPlan& plan, std::uint64_t more, const Wait& room,
                    const Interrupt& interrupt) {
  if (item.tree.size() > kMaxRecordBytes || item.buffers.size() > (1U << 20)) {
    return {Code::kInvalidArgument,
            concat("the value's metadata (", format_bytes(item.tree.size()), ", ", item.buffers.size(),
                   " buffers) is too large for one object: put its parts ", "as separate objects")};
  }
  SealObject& seal = plan.seal;
  std::uint64_t inline_total = 0;
  for (std::size_t i = 0; i < item.buffers.size(); ++i) {
    if (plan.is_copied(i)) inline_total += item.buffers[i].length;
  }
  if (inline_total <= kInlineMaxBytes) {
    seal.payload.reserve(inline_total);
    for (std::size_t i = 0; i < item.buffers.size(); ++i) {
      if (!plan.is_copied(i)) continue;
      const SourceBuffer& buffer = item.buffers[i];
      seal.buffers[i] = {kInlineBlob, 0, seal.payload.size(), buffer.length};
      if (buffer.length != 0) seal.payload.append(static_cast<const char*>(buffer.data), buffer.length);
    }
    return Status::ok();
  }
  // Small buffers share one blob; a buffer that appears twice (same address) is stored once.
  const std::uint64_t page = os::page_bytes();
  std::uint64_t packed = 0;
  std::unordered_map<const void*, std::size_t> first_at;
  for (std::size_t i = 0; i < item.buffers.size(); ++i) {
    const SourceBuffer& buffer = item.buffers[i];
    if (plan.is_copied(i) && buffer.length < kOwnPagesBytes) packed += round_up(buffer.length, kBlobAlign);
  }
  std::uint64_t left = plan.copy_bytes + more;
  const std::uint64_t answer_ms = item.chunk != nullptr && room.ms != 0 ? kGraceMs : kAnswerMs;
  std::byte* pack = nullptr;
  std::uint32_t pack_blob = 0;
  std::uint64_t packed_at = 0;
  const auto add_blob = [&](std::uint64_t length, bool own_pages) -> Result<LeasedRange> {
    const std::uint64_t reserve = own_pages ? round_up(length, page) : round_up(length, kBlobAlign);
    left -= std::min(left, length);
    ASSIGN_OR_RETURN(LeasedRange range, leases_.allocate(reserve, own_pages ? page : kBlobAlign, left,
                                                         room.remaining_ms(), interrupt, answer_ms));
    seal.blobs.push_back({range.segment(), range.offset, length});
    plan.ranges.push_back(range);
    return range;
  };
  if (packed > 0) {
    pack_blob = static_cast<std::uint32_t>(seal.blobs.size());
    ASSIGN_OR_RETURN(const LeasedRange range, add_blob(packed, packed >= kOwnPagesBytes));
    pack = range.data();
  }
  for (std::size_t i = 0; i < item.buffers.size(); ++i) {
    if (!plan.is_copied(i)) continue;
    const SourceBuffer& buffer = item.buffers[i];
    if (buffer.length == 0) {
      seal.buffers[i] = {kInlineBlob, 0, 0, 0};
      continue;
    }
    if (buffer.length < kOwnPagesBytes) {
      copy_payload(pack + packed_at, buffer.data, buffer.length);
      seal.buffers[i] = {kNewBlob | pack_blob, 0, packed_at, buffer.length};
      packed_at += round_up(buffer.length, kBlobAlign);
      continue;
    }
    if (const auto [existing, is_new] = first_at.emplace(buffer.data, i);
        !is_new && item.buffers[existing->second].length == buffer.length) {
      seal.buffers[i] = seal.buffers[existing->second];
      continue;
    }
    const auto blob = static_cast<std::uint32_t>(seal.blobs.size());
    ASSIGN_OR_RETURN(const LeasedRange range, add_blob(buffer.length, true));
    range.fill(buffer.data, buffer.length);
    seal.buffers[i] = {kNewBlob | blob, 0, 0, buffer.length};
    if (interrupt.requested()) return interrupted_status();
  }
  return Status::ok();
}

void Client::use_parts(const PutItem& item, PutPlan& plan) {
  for (std::size_t i = 0; i < item.buffers.size(); ++i) {
    if (plan.part_of[i] == PutPlan::kNoPart) continue;
    const WritableBlob& part = *plan.parts[plan.part_of[i]];
    std::uint32_t& blob = plan.blob_of_part[plan.part_of[i]];
    if (blob == PutPlan::kNoPart) {
      blob = static_cast<std::uint32_t>(plan.seal.blobs.size());
      plan.seal.blobs.push_back({part.range_->segment(), part.range_->offset, part.bytes_});
    }
    const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(item.buffers[i].data) - part.data_);
    plan.seal.buffers[i] = {kNewBlob | blob, 0, offset, item.buffers[i].length};
    plan.shared[i] = 1;
  }
}

void Client::abandon(const PutPlan& plan) {
  for (const LeasedRange& range : plan.ranges)
    leases_.give_back(range);
  finish_values(plan, true);
}

void Client::seal_plans(std::span<PutPlan> plan, std::vector<PutResult>& results, const Interrupt& interrupt) {
  std::vector<PutPlan*> batch;
  std::uint64_t bytes = 0;
  bool keep_sealing = true;
  const auto flush = [&] {
    if (!batch.empty()) keep_sealing = seal_batch(batch, results, interrupt);
    batch.clear();
    bytes = 0;
  };
  for (PutPlan& next : plan) {
    if (!keep_sealing) {
      abandon(next);
      results[next.index].status = Status(Code::kStoreUnavailable,
                                          "skipped because an earlier object of the same "
                                          "request could not be sealed",
                                          true);
      continue;
    }
    const std::uint64_t size = next.seal.tree.size() + next.seal.payload.size() + 24 * next.seal.buffers.size() + 128;
    if (!batch.empty() && (bytes + size > kBatchBytes || batch.size() >= kMaxBatch)) flush();
    batch.push_back(&next);
    bytes += size;
  }
  if (keep_sealing) flush();
}

Result<SealReply> Client::send_seal(std::span<PutPlan*> batch, const Interrupt& interrupt) {
  ChunkPut* const chunk = batch.front()->item->chunk;
  if (chunk != nullptr) {
    const CallOptions until = answer_options(Wait(chunk->wait_ms), interrupt);
    chunk->sent = true;
    ASSIGN_OR_RETURN(PutChunkReply put, request_reply<PutChunkReply>(
                                            MessageType::kPutChunk,
                                            PutChunkRequest{chunk->writer, chunk->next, std::move(batch.front()->seal),
                                                            until.deadline.at_ns()},
                                            until));
    chunk->appended = put.appended != 0;
    SealReply reply;
    reply.results.push_back(std::move(put.sealed));
    return reply;
  }
  CallOptions options;
  options.interrupt = interrupt;
  SealRequest request;
  request.objects.reserve(batch.size());
  for (PutPlan* next : batch)
    request.objects.push_back(std::move(next->seal));
  return request_reply<SealReply>(MessageType::kSeal, request, options);
}

bool Client::seal_batch(std::span<PutPlan*> batch, std::vector<PutResult>& results, const Interrupt& interrupt) {
  Result<SealReply> reply = send_seal(batch, interrupt);
  if (reply.is_ok() && reply->results.size() != batch.size()) {
    reply = Status(Code::kInternal, "the daemon's response to a seal is too short");
  }
  if (!reply.is_ok()) {
    // It may have been sealed anyway (broken connection, interrupt), so these ranges must not be written again.
    for (PutPlan* next : batch) {
      for (const LeasedRange& range : next->ranges)
        leases_.sealed(range);
      finish_values(*next, false);
      results[next->index].status = reply.status();
    }
    return false;
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const SealResult& sealed = reply->results[i];
    PutResult& result = results[batch[i]->index];
    // After a failure too, if only what follows the seal failed: its name, or the record of it on disk.
    const bool is_sealed = sealed.code == Code::kOk || sealed.generation != 0;
    finish_values(*batch[i], true);
    for (const LeasedRange& range : batch[i]->ranges) {
      if (is_sealed && sealed.code != Code::kObjectExists) {
        leases_.sealed(range);
      } else if (sealed.code != Code::kObjectExists) {
        leases_.give_back(range);
      }
    }
    if (sealed.code == Code::kObjectExists) {
      result = resolve_existing(*batch[i]->item, sealed, interrupt);
      // After a reconnect, the existing object may be this very one, sealed by the request sent before; its blobs are
      // then in these ranges. Only the segments' addresses would tell, so if the content is the same, the ranges are
      // not written again.
      for (const LeasedRange& range : batch[i]->ranges) {
        if (result.existed) {
          leases_.sealed(range);
        } else {
          leases_.give_back(range);
        }
      }
      continue;
    }
    result.slot = sealed.slot;
    result.generation = sealed.generation;
    if (sealed.code != Code::kOk) result.status = Status(sealed.code, sealed.message);
  }
  return true;
}

PutResult Client::resolve_existing(const PutItem& item, const SealResult& sealed, const Interrupt& interrupt) {
  PutResult result;
  const Status refusal(sealed.code, sealed.message);
  auto other = pinned_->at(sealed.slot, sealed.generation, item.id, views_, 0, interrupt);
  if (other.is_ok() && !*other) {
    // It is on disk, or not an object with this ID: the name is taken, or the object was deleted meanwhile.
    auto existing = get(std::span(&item.id, 1), 0, interrupt);
    if (existing.is_ok() && (*existing)[0]->generation() == sealed.generation) *other = (*existing)[0];
  }
  if (!other.is_ok() || !*other) {
    result.status = refusal;
    return result;
  }
  return existing_result(item, **other, interrupt);
}

PutResult Client::existing_result(const PutItem& item, const SealedObject& object, const Interrupt& interrupt) {
  PutResult result;
  result.slot = object.slot();
  result.generation = object.generation();
  bool same = object.tree() == item.tree && object.buffers().size() == item.buffers.size();
  for (std::size_t i = 0; same && i < item.buffers.size(); ++i) {
    const BufferView& theirs = object.buffers()[i];
    const SourceBuffer& ours = item.buffers[i];
    same = theirs.length == ours.length &&
           (ours.length == 0 || theirs.data == ours.data || std::memcmp(theirs.data, ours.data, ours.length) == 0);
  }
  if (!same) {
    result.status = Status(Code::kObjectExists,
                           concat("object ", to_hex(item.id), " is already sealed with different content (generation ",
                                  object.generation(),
                                  "): sealed objects never change; put it under another ID, or "
                                  "with replace=True"));
    return result;
  }
  result.existed = true;
  if (!item.name.empty()) result.status = bind_name(item.session, item.name, item.id, item.replace, interrupt);
  return result;
}

void Client::return_unneeded_leases(const Interrupt& interrupt) {
  last_put_ns_.store(os::monotonic_ns(), std::memory_order_relaxed);
  if (!leases_.has_idle()) return;
  if (pinned_->control().leases_wanted()) {
    leases_.return_idle(interrupt);
  } else {
    start_idle_lease_timer();
  }
}

}  // namespace entrepot
