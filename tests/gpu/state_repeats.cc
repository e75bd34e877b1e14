#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/delta_cuda.h"
#include "kernels/digest_cuda.h"
#include "kernels/gdn_cuda.h"
#include "tests/gpu/state_twins.h"

namespace lockstep::kernels {
namespace {

constexpr int kRepeats = 100;

// Downloads what `run` leaves in `bytes` poisoned bytes, again and again: always the same.
template <class Fn>
void Repeat(TwinCheck& check, const char* program, size_t bytes, Fn run) {
  if (!check.Wants(program)) return;
  std::vector<uint8_t> want;
  for (int i = 0; i < kRepeats; ++i) {
    const DeviceArray<uint8_t> out = check.UploadPoison<uint8_t>(bytes);
    check.Ran(program, "repeats", run(out.get()));
    if (i == 0) {
      want = check.Download(out);
    } else {
      check.Equal(program, absl::StrCat("repeat ", i), want, out);
    }
  }
}

}  // namespace

void CheckStateRepeats(TwinCheck& check) {
  constexpr int64_t kTokens = 517, kKeyHeads = 2, kValueHeads = 6, kDim = 128;
  const auto floats = [&](int64_t count) {
    return check.Upload(check.Floats(static_cast<size_t>(count), Mix::kNormal));
  };
  const DeviceArray<float> q = floats(kTokens * kKeyHeads * kDim);
  const DeviceArray<float> k = floats(kTokens * kKeyHeads * kDim);
  const DeviceArray<float> v = floats(kTokens * kValueHeads * kDim);
  std::vector<float> decay = check.Floats(kTokens * kValueHeads, Mix::kNormal);
  for (float& g : decay) g = -0.1f * g * g;
  const DeviceArray<float> g = check.Upload(decay);
  const DeviceArray<float> beta = floats(kTokens * kValueHeads);
  GdnParams p;
  p.tokens = kTokens, p.key_heads = kKeyHeads, p.value_heads = kValueHeads;
  p.key_dim = p.value_dim = kDim;
  p.q = q.get(), p.k = k.get(), p.v = v.get(), p.g = g.get(), p.beta = beta.get();
  const size_t out_floats = v.size();
  const size_t state_floats = static_cast<size_t>(kValueHeads * kDim * kDim);
  const DeviceBuffer work = OrDie(DeviceBuffer::Allocate(GdnCudaWorkspaceBytes(p)));
  for (const GdnProgram program : {GdnProgram::kChunk64, GdnProgram::kRecurrent}) {
    Repeat(check, program == GdnProgram::kChunk64 ? kGdnChunk64Id : kGdnRecurrentId,
           (out_floats + state_floats) * sizeof(float), [&](uint8_t* out) {
             p.program = program;
             p.o = out;
             p.state = reinterpret_cast<float*>(out) + out_floats;
             return GdnCuda(p, work.data(), check.stream());
           });
  }
  constexpr uint64_t kStream = 30 * kPageBytes + 6;
  const DeviceArray<uint16_t> stream =
      check.Upload(check.Halves(kStream / 2, FloatType::kBf16, Mix::kNormal));
  const DevicePageKeys keys = OrDie(DevicePageKeys::Upload(PublicPageKeys(), check.stream()));
  // Rows and columns change places in memory, so that warps meet in the same pages.
  constexpr uint64_t kRows = 131072;
  static_assert(kStream / 2 >= kRows * 7);
  BoxView view = WholeTensorView({kRows, 7}, 2);
  view.stride_bytes = {2, 2 * kRows};
  constexpr uint64_t kViewBytes = 2 * kRows * 7;
  Repeat(check, "digest/paged@v1 of views", PagesOf(kViewBytes) * sizeof(PageSum),
         [&](uint8_t* out) {
           auto* sums = reinterpret_cast<PageSum*>(out);
           const absl::Status cleared = ClearPageSumsCuda(sums, kViewBytes, check.stream());
           if (!cleared.ok()) return cleared;
           return AddViewCuda(keys, view, reinterpret_cast<const uint8_t*>(stream.get()), kStream,
                              kViewBytes, sums, check.stream());
         });
  std::vector<uint16_t> changed = check.Download(stream);
  for (size_t i = 0; i < changed.size(); i += 37) changed[i] ^= 1;
  const DeviceArray<uint16_t> target = check.Upload(changed);
  const std::vector<DeviceDeltaSource> sources = {{{"w", "BF16", 2, kStream},
                                                   reinterpret_cast<const uint8_t*>(stream.get()),
                                                   reinterpret_cast<const uint8_t*>(target.get())}};
  const DeviceBuffer delta_work =
      OrDie(DeviceBuffer::Allocate(MakeDeltaCudaWorkspaceBytes(sources)));
  const uint64_t body_bytes = DeltaBodyBytes(sources);
  Repeat(check, "delta/overwrite@v1 make", body_bytes, [&](uint8_t* out) {
    return MakeDeltaCuda(sources, delta_work.data(), out, body_bytes, check.stream());
  });
}

}  // namespace lockstep::kernels
