#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/delta_cuda.h"
#include "tests/gpu/state_twins.h"

namespace lockstep::kernels {
namespace {

constexpr char kMake[] = "delta/overwrite@v1 make";
constexpr char kApply[] = "delta/overwrite@v1 apply";

// How many of a thousand elements change; runs of changes when `clustered`.
struct Change {
  int64_t per_mille;
  bool clustered;
};

std::vector<uint8_t> Changed(TwinCheck& check, const std::vector<uint8_t>& base,
                             uint32_t element_bytes, const Change& change) {
  std::vector<uint8_t> target = base;
  const size_t elements = base.size() / element_bytes;
  for (size_t e = 0; e < elements; ++e) {
    if (check.Between(0, 999) >= change.per_mille) continue;
    const size_t run = change.clustered ? static_cast<size_t>(check.Between(1, 700)) : 1;
    for (size_t i = e; i < std::min(elements, e + run); ++i) {
      const size_t byte = static_cast<size_t>(check.Between(0, element_bytes - 1));
      target[i * element_bytes + byte] ^= static_cast<uint8_t>(check.Between(1, 255));
    }
    e += change.clustered ? run + 300 : 0;
  }
  return target;
}

struct Streams {
  DeltaTensor tensor;
  std::vector<uint8_t> base, target;
};

void CompareDelta(TwinCheck& check, const std::vector<Streams>& streams, bool misaligned,
                  const std::string& label) {
  DeltaRoots roots;
  for (uint8_t& byte : roots.base) byte = static_cast<uint8_t>(check.Random());
  for (uint8_t& byte : roots.target) byte = static_cast<uint8_t>(check.Random());
  const size_t shift = misaligned ? static_cast<size_t>(check.Between(1, 15)) : 0;
  const auto shifted = [&](const std::vector<uint8_t>& bytes) {
    std::vector<uint8_t> moved(shift, 0);
    moved.insert(moved.end(), bytes.begin(), bytes.end());
    return check.Upload(moved);
  };
  std::vector<DeltaSource> sources;
  std::vector<DeviceDeltaSource> device_sources;
  std::vector<DeviceArray<uint8_t>> bases, targets;
  std::vector<DeltaTensor> tensors;
  for (const Streams& s : streams) {
    bases.push_back(shifted(s.base));
    targets.push_back(shifted(s.target));
    sources.push_back({s.tensor, s.base, s.target});
    device_sources.push_back({s.tensor, bases.back().get() + shift, targets.back().get() + shift});
    tensors.push_back(s.tensor);
  }
  const DeltaLayout want = OrDie(MakeDeltaLayout(roots, sources, 1));
  const DeviceArray<uint8_t> work =
      check.UploadPoison<uint8_t>(MakeDeltaCudaWorkspaceBytes(device_sources));
  const uint64_t body_bytes = DeltaBodyBytes(device_sources);
  const DeviceArray<uint8_t> body = check.UploadPoison<uint8_t>(body_bytes);
  check.Ran(kMake, label,
            MakeDeltaCuda(device_sources, work.get(), body.get(), body_bytes, check.stream()));
  const absl::StatusOr<DeltaLayout> got = DownloadDeltaLayout(
      roots, device_sources, work.get(), body.get(), body_bytes, check.stream());
  check.Ran(kMake, label, got.status());
  if (!got.ok()) return;
  uint64_t section_bytes = 0;
  for (uint64_t s = 0; s < kDeltaSections; ++s) {
    const std::string name = absl::StrCat(label, ": section ", s);
    const bool same_size = want.sections[s].size() == got->sections[s].size();
    check.Expect(
        kMake,
        absl::StrCat(name, ": size ", got->sections[s].size(), ", cpu ", want.sections[s].size()),
        same_size);
    if (same_size) {
      check.Compare(kMake, name, want.sections[s].data(), got->sections[s].data(),
                    want.sections[s].size(), 1);
    }
    if (s > 0) section_bytes += want.sections[s].size();
  }
  if (section_bytes > 0) {
    // Too small a body is refused.
    check.Ran(
        kMake, label,
        MakeDeltaCuda(device_sources, work.get(), body.get(), section_bytes - 1, check.stream()));
    check.Expect(kMake, label + ": a small body",
                 DownloadDeltaLayout(roots, device_sources, work.get(), body.get(),
                                     section_bytes - 1, check.stream())
                         .status()
                         .code() == absl::StatusCode::kResourceExhausted);
  }
  const DeltaPatch patch = OrDie(DeltaPatch::FromLayout(want, tensors, roots.base));
  const absl::StatusOr<DeviceDeltaPatch> on_device =
      DeviceDeltaPatch::Upload(patch, check.stream());
  check.Ran(kApply, label, on_device.status());
  if (!on_device.ok()) return;
  std::vector<absl::Span<uint8_t>> buffers;
  for (size_t t = 0; t < streams.size(); ++t) {
    buffers.push_back({bases[t].get() + shift, streams[t].base.size()});
  }
  for (int times = 0; times < 2; ++times) {
    check.Ran(kApply, label, on_device->Apply(buffers, check.stream()));
    for (size_t t = 0; t < streams.size(); ++t) {
      std::vector<uint8_t> bytes(shift, 0);
      bytes.insert(bytes.end(), streams[t].target.begin(), streams[t].target.end());
      check.Equal(kApply, absl::StrCat(label, ": tensor ", t), bytes, bases[t]);
    }
  }
}

Streams RandomStreams(TwinCheck& check, uint32_t element_bytes, uint64_t elements,
                      const Change& change) {
  Streams s;
  s.tensor = {absl::StrCat("t", elements), "X", element_bytes, elements * element_bytes};
  s.base.resize(elements * element_bytes);
  for (uint8_t& byte : s.base) byte = static_cast<uint8_t>(check.Random());
  s.target = Changed(check, s.base, element_bytes, change);
  return s;
}

}  // namespace

void CheckDeltaTwins(TwinCheck& check) {
  if (!check.Wants(kMake) && !check.Wants(kApply)) return;
  const Change kChanges[] = {{0, false},   {1, false},    {4, false}, {10, false},
                             {300, false}, {1000, false}, {2, true},  {500, true}};
  CompareDelta(check, {}, false, "no tensors");
  for (const uint32_t size : {1u, 2u, 4u, 8u}) {
    for (const Change& change : kChanges) {
      const std::string label = absl::StrCat("elements of ", size, ", ", change.per_mille,
                                             " per mille", change.clustered ? ", clustered" : "");
      for (const bool misaligned : {false, true}) {
        std::vector<Streams> streams;
        const uint64_t page = kPageBytes / size;
        for (const uint64_t elements :
             {uint64_t{0}, uint64_t{1}, uint64_t{7}, page - 1, page, page + 1, 4 * page + 333}) {
          streams.push_back(RandomStreams(check, size, elements, change));
        }
        CompareDelta(check, streams, misaligned, label + (misaligned ? ", misaligned" : ""));
      }
    }
  }
  for (int round = 0; round < 20; ++round) {
    std::vector<Streams> streams;
    for (int t = 0; t < 70; ++t) {
      streams.push_back(RandomStreams(check, 1u << check.Between(0, 3),
                                      static_cast<uint64_t>(check.Between(0, 3000)),
                                      kChanges[check.Between(0, 7)]));
    }
    CompareDelta(check, streams, round % 2 == 1, absl::StrCat("70 mixed tensors, round ", round));
  }
  // More pages than one group of the scan.
  CompareDelta(check, {RandomStreams(check, 2, uint64_t{40} << 20, {10, false})}, false,
               "80 MiB of BF16");
}

}  // namespace lockstep::kernels
