#include "tools/cli/kernel_selftest.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "hwy/highway.h"
#include "kernels/digest.h"
#include "policy/status_macros.h"
#include "tools/cli/kernel_op.h"
#include "tools/cli/kernel_selftest_cases.h"

namespace lockstep::tools {
namespace {

constexpr int kThreads[] = {1, 2, 8};
constexpr uint64_t kSeed = 20'261'201;
// Inputs besides the pinned ones, CPU against CUDA.
constexpr int kCudaSeeds = 8;

// ---- seeded inputs ----

// splitmix64: the same numbers with every library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

// A float format's bits, from the exponent's bias and the mantissa's width.
struct Layout {
  int bits;
  int bias;
  int mantissa_bits;
};

Layout LayoutOf(Dtype dtype) {
  if (dtype == Dtype::kF16) return {16, 15, 10};
  if (dtype == Dtype::kF32) return {32, 127, 23};
  return {16, 127, 7};
}

// Sign at random; magnitude in [2^low, 2^high).
uint32_t ModerateBits(const Layout& layout, int low, int high, bool negative, uint64_t random) {
  const auto exponent =
      static_cast<uint32_t>(layout.bias + low + static_cast<int>(random >> 40) % (high - low));
  const uint32_t mantissa = static_cast<uint32_t>(random) & ((1u << layout.mantissa_bits) - 1);
  return (negative ? 1u << (layout.bits - 1) : 0u) | exponent << layout.mantissa_bits | mantissa;
}

uint32_t ElementBits(absl::string_view tensor, SelftestFill fill, const Layout& layout,
                     uint64_t random) {
  const bool sign = (random >> 63) != 0;
  // A decay's logarithm and an update's strength, as a model makes them.
  if (tensor == "g") return ModerateBits(layout, -6, -1, true, random);
  if (tensor == "beta") return ModerateBits(layout, -3, 0, false, random);
  if (fill == SelftestFill::kAnyBits) return static_cast<uint32_t>(random >> 32);
  if (fill == SelftestFill::kCancelling) return ModerateBits(layout, -10, 10, sign, random);
  return ModerateBits(layout, -4, 2, sign, random);
}

std::vector<uint8_t> Fill(const TensorSpec& spec, SelftestFill fill, int64_t vocab, uint64_t bytes,
                          Random& random) {
  std::vector<uint8_t> data(bytes);
  const size_t element = DtypeBytes(spec.dtype);
  for (size_t at = 0; at < data.size(); at += element) {
    uint64_t bits = random.Next();
    if (spec.dtype == Dtype::kI64) {
      bits = vocab < 1 ? 0 : bits % static_cast<uint64_t>(vocab);
    } else {
      bits = ElementBits(spec.name, fill, LayoutOf(spec.dtype), bits);
    }
    for (size_t i = 0; i < element; ++i) data[at + i] = static_cast<uint8_t>(bits >> (8 * i));
  }
  return data;
}

// Of kCancelling: the terms of a sum lie along the first axis of a fold's partials, else along the
// last; of a product one operand alone is negated.
void MirrorTerms(KernelTensor& tensor) {
  const bool fold = tensor.spec.name == "partials";
  const bool negate = fold || tensor.spec.name == "a";
  const uint64_t terms = fold ? tensor.spec.shape.front() : tensor.spec.shape.back();
  const size_t element = DtypeBytes(tensor.spec.dtype);
  const size_t sums = tensor.bytes.size() / element / terms;
  const auto at = [&](size_t sum, size_t term) {
    return tensor.bytes.data() + element * (fold ? term * sums + sum : sum * terms + term);
  };
  for (size_t sum = 0; sum < sums; ++sum) {
    for (size_t term = 0; term < terms / 2; ++term) {
      uint8_t* const mirrored = at(sum, terms - 1 - term);
      memcpy(mirrored, at(sum, term), element);
      if (negate) mirrored[element - 1] ^= 0x80;  // the sign, in little-endian order
    }
  }
}

std::map<std::string, int64_t, std::less<>> ParseSizes(absl::string_view text) {
  std::map<std::string, int64_t, std::less<>> sizes;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> named = absl::StrSplit(part, '=');
    int64_t size = 0;
    if (absl::SimpleAtoi(named.second, &size)) sizes[std::string(named.first)] = size;
  }
  return sizes;
}

// Every tensor of the op's rules, the optional ones too; the separate ones of a choice.
absl::StatusOr<std::vector<KernelTensor>> MakeInputs(const SelftestCase& c, const KernelOp& op,
                                                     uint64_t seed) {
  Random random(seed);
  const auto sizes = ParseSizes(c.sizes);
  const auto vocab = sizes.find("V");
  std::vector<KernelTensor> tensors;
  for (const TensorRule& rule : op.tensors) {
    if (rule.need == TensorNeed::kPacked) continue;
    KernelTensor tensor;
    tensor.spec.name = std::string(rule.name);
    const std::vector<absl::string_view> dtypes = absl::StrSplit(rule.dtypes, ' ');
    const bool can = std::find(dtypes.begin(), dtypes.end(), c.dtype) != dtypes.end();
    tensor.spec.dtype = DtypeFromName(can ? c.dtype : dtypes[0]).value_or(Dtype::kBF16);
    for (const absl::string_view name : absl::StrSplit(rule.shape, ',')) {
      const auto size = sizes.find(name);
      if (size == sizes.end()) {
        return absl::InternalError(absl::StrCat(c.program, ": the case has no size ", name));
      }
      tensor.spec.shape.push_back(static_cast<uint64_t>(size->second));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(tensor.spec));
    tensor.bytes =
        Fill(tensor.spec, c.fill, vocab == sizes.end() ? 0 : vocab->second, bytes, random);
    if (c.fill == SelftestFill::kCancelling) MirrorTerms(tensor);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// ---- runs ----

absl::StatusOr<std::string> Digest(const KernelRequest& request,
                                   const std::vector<KernelTensor>& inputs, KernelMemory memory) {
  std::vector<TensorToWrite> tensors;
  for (const KernelTensor& input : inputs) tensors.push_back({input.spec, input.bytes});
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<KernelTensor> outputs,
                            RunKernel(request, tensors, memory));
  std::vector<uint8_t> stream;
  for (const KernelTensor& output : outputs) {
    const std::string head = absl::StrCat(output.spec.name, " ", DtypeName(output.spec.dtype), " [",
                                          absl::StrJoin(output.spec.shape, ","), "]\n");
    stream.insert(stream.end(), head.begin(), head.end());
    stream.insert(stream.end(), output.bytes.begin(), output.bytes.end());
  }
  const kernels::Digest256 digest = kernels::ContentDigest(stream);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

void UseTargets(int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// Compares one run with what `result` has; keeps the first difference.
void Judge(const absl::StatusOr<std::string>& got, absl::string_view want, absl::string_view where,
           SelftestResult& result) {
  ++result.runs;
  if (result.digest.empty() && got.ok()) result.digest = *got;
  if (!result.difference.empty() || (got.ok() && *got == want)) return;
  result.difference = got.ok() ? absl::StrCat("differs ", where)
                               : absl::StrCat("fails ", where, ": ", got.status().message());
}

void RunOnCpu(KernelRequest request, const std::vector<KernelTensor>& inputs,
              absl::string_view want, SelftestResult& result) {
  const auto restore = absl::MakeCleanup([] { UseTargets(0); });
  UseTargets(0);
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    UseTargets(target);
    for (const int threads : kThreads) {
      request.threads = threads;
      Judge(Digest(request, inputs, KernelMemory::OnHost()), want,
            absl::StrCat("on ", hwy::TargetName(target), " with ", threads,
                         threads == 1 ? " thread" : " threads"),
            result);
    }
  }
}

absl::Status RunOnCuda(const SelftestCase& c, const KernelRequest& request,
                       SelftestResult& result) {
  for (uint64_t seed = kSeed; seed < kSeed + kCudaSeeds; ++seed) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto inputs, MakeInputs(c, *request.op, seed));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string want,
                              Digest(request, inputs, KernelMemory::OnHost()));
    LOCKSTEP_ASSIGN_OR_RETURN(KernelMemory memory, KernelMemory::OnCuda());
    Judge(Digest(request, inputs, std::move(memory)), want,
          absl::StrCat("between CPU and CUDA at seed ", seed), result);
  }
  return absl::OkStatus();
}

absl::StatusOr<SelftestResult> RunCase(const SelftestCase& c, bool cuda) {
  KernelRequest request;
  LOCKSTEP_ASSIGN_OR_RETURN(request.op, FindKernelOp(c.op));
  request.program = std::string(c.program);
  if (!c.realisation.empty()) request.realisation = std::string(c.realisation);
  request.options = c.options;
  SelftestResult result;
  result.program = std::string(c.program);
  result.what = absl::StrCat(c.realisation, c.realisation.empty() ? "" : " ", c.dtype, " ", c.sizes,
                             c.options.tp > 1 ? absl::StrCat(" tp=", c.options.tp) : "",
                             c.options.cp > 1 ? absl::StrCat(" cp=", c.options.cp) : "");
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<KernelTensor> inputs,
                            MakeInputs(c, *request.op, kSeed));
  RunOnCpu(request, inputs, c.digest, result);
  if (cuda) {
    LOCKSTEP_RETURN_IF_ERROR(RunOnCuda(c, request, result));
  }
  result.equal = result.difference.empty();
  return result;
}

}  // namespace

absl::StatusOr<std::vector<SelftestResult>> RunSelftest(bool cuda) {
  // Before minutes of CPU work.
  if (cuda) {
    LOCKSTEP_RETURN_IF_ERROR(KernelMemory::OnCuda().status());
  }
  std::vector<SelftestResult> results;
  for (const SelftestCase& c : SelftestCases()) {
    LOCKSTEP_ASSIGN_OR_RETURN(SelftestResult result, RunCase(c, cuda));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace lockstep::tools
