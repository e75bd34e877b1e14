#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cp_exchange_cuda.h"
#include "kernels/parallel.h"
#include "kernels/short_conv_cuda.h"
#include "tests/gpu/state_twins.h"

namespace lockstep::kernels {
namespace {

constexpr char kOverRanks[] = "short_conv/causal4@v1 over ranks";

std::vector<uint8_t> Values(TwinCheck& check, size_t count, FloatType type, Mix mix) {
  std::vector<uint8_t> bytes(count * SizeOf(type));
  if (type == FloatType::kBf16) {
    const std::vector<uint16_t> halves = check.Halves(count, type, mix);
    memcpy(bytes.data(), halves.data(), bytes.size());
  } else {
    const std::vector<float> floats = check.Floats(count, mix);
    memcpy(bytes.data(), floats.data(), bytes.size());
  }
  return bytes;
}

std::vector<uint8_t> Shifted(const std::vector<uint8_t>& bytes, size_t shift) {
  std::vector<uint8_t> moved = Poisoned<uint8_t>(shift);
  moved.insert(moved.end(), bytes.begin(), bytes.end());
  return moved;
}

void CompareConv(TwinCheck& check, int64_t tokens, int64_t channels, Mix mix, size_t shift) {
  ShortConvParams p;
  p.tokens = tokens, p.channels = channels;
  p.type = check.Random() % 2 == 0 ? FloatType::kBf16 : FloatType::kF32;
  p.weight_type = check.Random() % 2 == 0 ? FloatType::kBf16 : FloatType::kF32;
  const int halo_kind = static_cast<int>(check.Between(0, 2));  // none, apart, in place of the tail
  const size_t row = static_cast<size_t>(channels);
  const std::vector<uint8_t> x = Values(check, static_cast<size_t>(tokens) * row, p.type, mix);
  const std::vector<uint8_t> weight = Values(check, 4 * row, p.weight_type, mix);
  const std::vector<uint8_t> halo = Values(check, 3 * row, p.type, mix);
  std::vector<uint8_t> out = Poisoned<uint8_t>(x.size());
  std::vector<uint8_t> tail = halo_kind == 2 ? halo : Poisoned<uint8_t>(halo.size());
  const DeviceArray<uint8_t> x_d = check.Upload(Shifted(x, shift));
  const DeviceArray<uint8_t> weight_d = check.Upload(weight);
  const DeviceArray<uint8_t> halo_d = check.Upload(Shifted(halo, shift));
  const DeviceArray<uint8_t> out_d = check.Upload(Shifted(out, shift));
  const DeviceArray<uint8_t> tail_d = check.Upload(Shifted(tail, shift));
  const std::string label =
      absl::StrCat("[", tokens, ", ", channels, "] ", Name(p.type), " by ", Name(p.weight_type),
                   " halo ", halo_kind, shift > 0 ? " shifted" : "");
  p.x = x.data(), p.weight = weight.data(), p.out = out.data(), p.tail = tail.data();
  p.halo = halo_kind == 0 ? nullptr : halo_kind == 1 ? halo.data() : tail.data();
  check.Ran(kShortConvId, label, ShortConv(p));
  p.x = x_d.get() + shift, p.weight = weight_d.get(), p.out = out_d.get() + shift;
  p.tail = tail_d.get() + shift;
  p.halo = halo_kind == 0 ? nullptr : halo_kind == 1 ? halo_d.get() + shift : tail_d.get() + shift;
  check.Ran(kShortConvId, label, ShortConvCuda(p, check.stream()));
  check.Equal(kShortConvId, label, Shifted(out, shift), out_d);
  check.Equal(kShortConvId, label + ": tail", Shifted(tail, shift), tail_d);
}

// One rank of the device's group: its rows, gathered by hand.
absl::Status RunRank(const ShortConvParams& whole, GdnCpProgram split,
                     const std::vector<CpSegment>& segments, CpExchange& host,
                     std::vector<uint8_t>& out, std::vector<uint8_t>& tail) {
  const OwnedCudaStream stream = OrDie(OwnedCudaStream::Create());
  const size_t row = static_cast<size_t>(whole.channels) * SizeOf(whole.type);
  const auto upload = [&](const void* from, size_t bytes) {
    DeviceBuffer buffer = OrDie(DeviceBuffer::Allocate(bytes + 1));
    absl::Status copied = CopyToDevice(buffer.data(), from, bytes, stream.get());
    copied.Update(SynchronizeStream(stream.get()));
    if (!copied.ok()) Die(copied);
    return buffer;
  };
  std::vector<uint8_t> rows;
  for (const CpSegment& segment : segments) {
    if (segment.owner != host.rank()) continue;
    const auto* from =
        static_cast<const uint8_t*>(whole.x) + static_cast<size_t>(segment.first) * row;
    rows.insert(rows.end(), from, from + static_cast<size_t>(segment.count) * row);
  }
  const DeviceBuffer x = upload(rows.data(), rows.size());
  const DeviceBuffer weight =
      upload(whole.weight, static_cast<size_t>(4 * whole.channels) * SizeOf(whole.weight_type));
  const DeviceBuffer halo = upload(whole.halo, 3 * row);
  const DeviceBuffer out_d = upload(rows.data(), rows.size());
  const DeviceBuffer tail_d = upload(whole.halo, 3 * row);
  ShortConvParams p = whole;
  p.tokens = LocalTokens(segments, host.rank());
  p.x = x.data(), p.weight = weight.data(), p.halo = halo.data(), p.out = out_d.data();
  p.tail = tail_d.data();
  const DeviceBuffer work = OrDie(DeviceBuffer::Allocate(
      ShortConvCpRankCudaWorkspaceBytes(p, split, whole.tokens, host.size())));
  StagedCpExchange exchange(host, stream.get());
  absl::Status status =
      ShortConvCpRankCuda(p, split, whole.tokens, exchange, work.data(), stream.get());
  std::vector<uint8_t> local(rows.size());
  status.Update(CopyToHost(local.data(), out_d.data(), local.size(), stream.get()));
  status.Update(CopyToHost(tail.data(), tail_d.data(), tail.size(), stream.get()));
  status.Update(SynchronizeStream(stream.get()));
  if (!status.ok()) return status;
  size_t at = 0;
  for (const CpSegment& segment : segments) {
    if (segment.owner != host.rank()) continue;
    const size_t bytes = static_cast<size_t>(segment.count) * row;
    memcpy(out.data() + static_cast<size_t>(segment.first) * row, local.data() + at, bytes);
    at += bytes;
  }
  return absl::OkStatus();
}

void CompareOverRanks(TwinCheck& check, GdnCpProgram split, int64_t tokens, int64_t channels,
                      int cp) {
  const size_t row = static_cast<size_t>(channels);
  ShortConvParams p;
  p.tokens = tokens, p.channels = channels;
  const std::vector<uint8_t> x =
      Values(check, static_cast<size_t>(tokens) * row, p.type, Mix::kNormal);
  const std::vector<uint8_t> weight = Values(check, 4 * row, p.weight_type, Mix::kNormal);
  const std::vector<uint8_t> halo = Values(check, 3 * row, p.type, Mix::kNormal);
  std::vector<uint8_t> want = Poisoned<uint8_t>(x.size());
  std::vector<uint8_t> want_tail = Poisoned<uint8_t>(halo.size());
  p.x = x.data(), p.weight = weight.data(), p.halo = halo.data();
  p.out = want.data(), p.tail = want_tail.data();
  const std::string label = absl::StrCat("[", tokens, ", ", channels, "] cp ", cp,
                                         split == GdnCpProgram::kRelay ? " relay" : " fold");
  check.Ran(kOverRanks, label, ShortConv(p));
  const std::vector<CpSegment> segments = OrDie(SegmentsOfSplit(split, tokens, cp));
  std::vector<uint8_t> got = Poisoned<uint8_t>(x.size());
  std::vector<std::vector<uint8_t>> tails(static_cast<size_t>(cp), Poisoned<uint8_t>(halo.size()));
  std::vector<absl::Status> results(static_cast<size_t>(cp));
  LocalCpGroup group(cp);
  ParallelFor(static_cast<size_t>(cp), cp, [&](size_t begin, size_t end) {
    for (size_t rank = begin; rank < end; ++rank) {
      results[rank] =
          RunRank(p, split, segments, group.Rank(static_cast<int>(rank)), got, tails[rank]);
      if (!results[rank].ok()) group.Abort(results[rank]);
    }
  });
  for (const absl::Status& result : results) check.Ran(kOverRanks, label, result);
  check.Compare(kOverRanks, label, want.data(), got.data(), want.size(), 2);
  for (const std::vector<uint8_t>& tail : tails) {
    check.Compare(kOverRanks, label + ": tail", want_tail.data(), tail.data(), tail.size(), 2);
  }
}

}  // namespace

void CheckShortConvTwins(TwinCheck& check) {
  if (check.Wants(kShortConvId)) {
    for (const Mix mix : {Mix::kNormal, Mix::kAdversarial}) {
      for (const int64_t tokens : {1, 2, 3, 4, 31, 32, 33, 100}) {
        for (const int64_t channels : {1, 7, 8, 64, 1030}) {
          CompareConv(check, tokens, channels, mix, 0);
          CompareConv(check, tokens, channels, mix, 4);
        }
      }
    }
    CompareConv(check, 3000, 8192, Mix::kNormal, 0);
  }
  if (check.Wants(kOverRanks)) {
    for (const int cp : {1, 2, 4, 8}) {
      CompareOverRanks(check, GdnCpProgram::kRelay, 1024, 72, cp);
      CompareOverRanks(check, GdnCpProgram::kCanonicalFold, 2049, 40, cp);
      CompareOverRanks(check, GdnCpProgram::kCanonicalFold, 5, 9, cp);
    }
  }
}

}  // namespace lockstep::kernels
