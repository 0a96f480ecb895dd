// Requests that create and seal objects by one message, which contains their bytes.
#include <utility>

#include "base/text.h"
#include "client/copy.h"
#include "os/clock.h"
#include "os/log.h"
#include "plasma/requests.h"

namespace entrepot::plasma {
namespace {

constexpr std::size_t kSealedHere = 64;  // objects of one message; more are sealed by another thread than the loop's

void fill(std::byte* to, const WholeObject& object) {
  copy_payload(to, object.data.data(), object.data.size());
  copy_payload(to + object.data.size(), object.metadata.data(), object.metadata.size());
}

}  // namespace

Status Requests::create_and_seal(ClientChannel& client, Batch batch) {
  const auto& wanted = batch.request.objects;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const WholeObject& object = wanted[i];
    const Error error =
        reserve(client, object.id, object.data.size(), object.metadata.size(), batch.request.evict_if_full);
    if (error == Error::kOk) {
      bytes += object.data.size() + object.metadata.size();
      continue;
    }
    drop(client, batch, i);
    client.send(batch.is_batch ? create_and_seal_batch_reply(error) : create_and_seal_reply(error));
    return Status::ok();
  }
  client.set_busy(true);
  std::vector<Extent> extents;
  while (bytes <= kCopiedHereBytes && extents.size() < wanted.size()) {
    const WholeObject& object = wanted[extents.size()];
    auto extent = parts_.objects.arena().lease_at_hand(object.data.size() + object.metadata.size());
    if (!extent) break;
    fill(parts_.objects.arena().address(*extent), object);
    extents.push_back(*std::move(extent));
  }
  const bool are_filled = extents.size() == wanted.size();
  const auto shared = std::make_shared<const Batch>(std::move(batch));
  if (are_filled) {
    publish(client, shared, std::move(extents));
    return Status::ok();
  }
  extents.clear();
  parts_.worker.run(Lane::kMemory,
                    [this, key = client.key(), shared, began_ns = os::monotonic_ns(),
                     &arena = parts_.objects.arena()]() -> StoreWorker::Completion {
                      std::vector<Extent> filled;
                      for (const WholeObject& object : shared->request.objects) {
                        auto extent = arena.lease_since(began_ns, object.data.size() + object.metadata.size());
                        if (!extent.is_ok()) {
                          log_warning("no memory for a Plasma client: ", extent.status().to_string());
                          break;
                        }
                        fill(arena.address(*extent), object);
                        filled.push_back(extent.take());
                      }
                      return [this, key, shared, filled = std::move(filled)]() {
                        if (ClientChannel* const channel = parts_.channel(key)) publish(*channel, shared, filled);
                      };
                    });
  return Status::ok();
}

void Requests::publish(ClientChannel& client, std::shared_ptr<const Batch> batch, std::vector<Extent> extents) {
  Arena& arena = parts_.objects.arena();
  std::vector<Published> published;
  // Each is a request to the daemon; nobody else is to wait for many.
  if (!arena.publishes_copies() && batch->request.objects.size() <= kSealedHere) {
    publish_rest(arena, *batch, extents, published, Patience::kBrief);
    if (published.empty() || !published.back().is_open) return end_batch(client, *batch, extents, published);
  }
  const Lane lane = arena.publishes_copies() ? Lane::kMemory : Lane::kAnswers;
  parts_.worker.run(lane,
                    [this, key = client.key(), batch = std::move(batch), extents = std::move(extents),
                     published = std::move(published), &arena]() mutable -> StoreWorker::Completion {
                      publish_rest(arena, *batch, extents, published, Patience::kUntilAnswered);
                      return [this, key, batch, extents, published = std::move(published)]() {
                        if (ClientChannel* const channel = parts_.channel(key))
                          end_batch(*channel, *batch, extents, published);
                      };
                    });
}

// Goes on behind what is published, until the first one that cannot be, or is open. The extents hold the bytes; there
// are fewer than objects if there was no memory for more, and then none is published.
void Requests::publish_rest(Arena& arena, const Batch& batch, const std::vector<Extent>& extents,
                            std::vector<Published>& published, Patience patience) {
  const auto& wanted = batch.request.objects;
  if (extents.size() != wanted.size()) return;
  if (!published.empty() && published.back().is_open) published.pop_back();
  while (published.size() < wanted.size() && (published.empty() || published.back().status.is_ok())) {
    const WholeObject& object = wanted[published.size()];
    published.push_back(
        arena.publish(object.id, extents[published.size()], object.data.size(), object.metadata.size(), patience));
  }
}

void Requests::end_batch(ClientChannel& client, const Batch& batch, const std::vector<Extent>& extents,
                         const std::vector<Published>& published) {
  const auto& wanted = batch.request.objects;
  Error error = extents.size() == wanted.size() ? Error::kOk : Error::kOutOfMemory;
  std::size_t sealed = 0;
  for (; sealed < published.size(); ++sealed) {
    const WholeObject& object = wanted[sealed];
    Object& added = *parts_.objects.table().find(object.id);
    added.extent = extents[sealed];
    const Status status = parts_.objects.seal(object.id, added, published[sealed], std::string(object.digest));
    if (status.is_ok()) continue;
    log_warning("object ", to_hex(object.id), " of a Plasma client cannot be sealed: ", status.to_string());
    error = error_of(status);
    break;
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (i < sealed) {
      static_cast<void>(parts_.objects.release(client, wanted[i].id));
    } else {
      client.held.erase(wanted[i].id);
      parts_.objects.table().erase(wanted[i].id);
    }
  }
  client.send(batch.is_batch ? create_and_seal_batch_reply(error) : create_and_seal_reply(error));
  for (std::size_t i = 0; i < sealed; ++i)
    parts_.gets.available(wanted[i].id);
  parts_.answered(client);
}

void Requests::drop(ClientChannel& client, const Batch& batch, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    client.held.erase(batch.request.objects[i].id);
    parts_.objects.table().erase(batch.request.objects[i].id);
  }
}

}  // namespace entrepot::plasma
