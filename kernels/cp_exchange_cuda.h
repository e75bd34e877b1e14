#ifndef LOCKSTEP_KERNELS_CP_EXCHANGE_CUDA_H_
#define LOCKSTEP_KERNELS_CP_EXCHANGE_CUDA_H_

// An exchange of device memory over one of host memory, for ranks simulated on one GPU and for
// connections without NCCL.
//
// Example, in rank r's thread:
//   StagedCpExchange exchange(group.Rank(r), stream);
//   absl::Status status = GdnCpRankCuda(params, exchange, workspace, stream);

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cp_exchange.h"
#include "kernels/cuda_support.h"

namespace lockstep::kernels {

// Spans are of device memory. Every call waits for `stream`, the one its rank computes on.
class StagedCpExchange final : public CpExchange {
 public:
  StagedCpExchange(CpExchange& host, CudaStream stream) : host_(host), stream_(stream) {}

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }

  absl::Status Send(int to, absl::Span<const uint8_t> data) override;
  absl::Status Receive(int from, absl::Span<uint8_t> data) override;
  absl::Status AllGather(absl::Span<const uint8_t> mine, absl::Span<uint8_t> all) override;
  absl::Status Broadcast(int root, absl::Span<uint8_t> data) override;

 private:
  absl::Status Download(absl::Span<const uint8_t> from, std::vector<uint8_t>& to);
  absl::Status Upload(const std::vector<uint8_t>& from, absl::Span<uint8_t> to);

  CpExchange& host_;
  CudaStream stream_;
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_CP_EXCHANGE_CUDA_H_
