#include "kernels/cp_exchange_cuda.h"

namespace lockstep::kernels {

absl::Status StagedCpExchange::Download(absl::Span<const uint8_t> from, std::vector<uint8_t>& to) {
  to.resize(from.size());
  const absl::Status copied = CopyToHost(to.data(), from.data(), from.size(), stream_);
  return copied.ok() ? SynchronizeStream(stream_) : copied;
}

absl::Status StagedCpExchange::Upload(const std::vector<uint8_t>& from, absl::Span<uint8_t> to) {
  const absl::Status copied = CopyToDevice(to.data(), from.data(), from.size(), stream_);
  return copied.ok() ? SynchronizeStream(stream_) : copied;
}

absl::Status StagedCpExchange::Send(int to, absl::Span<const uint8_t> data) {
  std::vector<uint8_t> bytes;
  if (absl::Status s = Download(data, bytes); !s.ok()) return s;
  return host_.Send(to, bytes);
}

absl::Status StagedCpExchange::Receive(int from, absl::Span<uint8_t> data) {
  std::vector<uint8_t> bytes(data.size());
  if (absl::Status s = host_.Receive(from, absl::MakeSpan(bytes)); !s.ok()) return s;
  return Upload(bytes, data);
}

absl::Status StagedCpExchange::AllGather(absl::Span<const uint8_t> mine, absl::Span<uint8_t> all) {
  std::vector<uint8_t> own;
  if (absl::Status s = Download(mine, own); !s.ok()) return s;
  std::vector<uint8_t> gathered(all.size());
  if (absl::Status s = host_.AllGather(own, absl::MakeSpan(gathered)); !s.ok()) return s;
  return Upload(gathered, all);
}

absl::Status StagedCpExchange::Broadcast(int root, absl::Span<uint8_t> data) {
  std::vector<uint8_t> bytes;
  if (absl::Status s = Download(data, bytes); !s.ok()) return s;
  if (absl::Status s = host_.Broadcast(root, absl::MakeSpan(bytes)); !s.ok()) return s;
  return Upload(bytes, data);
}

}  // namespace lockstep::kernels
