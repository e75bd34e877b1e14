#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/lm_head_cuda.h"
#include "tests/gpu/twins.h"

namespace lockstep::kernels {
namespace {

struct Case {
  int64_t rows, hidden, vocab;
  FloatType type = FloatType::kBf16;
  Mix mix = Mix::kNormal;
};

std::string Label(const Case& c) {
  return absl::StrCat("T ", c.rows, " H ", c.hidden, " V ", c.vocab, " ", Name(c.type), " mix ",
                      static_cast<int>(c.mix));
}

std::vector<int64_t> Tokens(TwinCheck& check, const Case& c) {
  std::vector<int64_t> tokens(static_cast<size_t>(c.rows));
  for (int64_t& token : tokens) token = check.Between(0, c.vocab - 1);
  tokens[0] = c.vocab - 1;
  return tokens;
}

void CompareHead(TwinCheck& check, const Case& c) {
  const std::vector<uint16_t> hidden =
      check.Halves(static_cast<size_t>(c.rows * c.hidden), c.type, c.mix);
  const std::vector<uint16_t> weight =
      check.Halves(static_cast<size_t>(c.vocab * c.hidden), c.type, c.mix);
  const std::vector<int64_t> tokens = Tokens(check, c);
  std::vector<float> want = Poisoned<float>(tokens.size());
  const DeviceArray<uint16_t> hidden_d = check.Upload(hidden), weight_d = check.Upload(weight);
  const DeviceArray<int64_t> tokens_d = check.Upload(tokens);
  const DeviceArray<float> got = check.UploadPoison<float>(want.size());
  LmHeadParams p;
  p.operand_type = c.type, p.rows = c.rows, p.hidden_size = c.hidden, p.vocab = c.vocab;
  p.threads = 2;
  p.hidden = hidden.data(), p.weight = weight.data(), p.tokens = tokens.data();
  p.logprob = want.data();
  check.Ran(kLmHeadId, Label(c), SelectedLogprob(p));
  p.hidden = hidden_d.get(), p.weight = weight_d.get(), p.tokens = tokens_d.get();
  p.logprob = got.get();
  const DeviceBuffer workspace =
      OrDie(DeviceBuffer::Allocate(SelectedLogprobCudaWorkspaceBytes(p)));
  check.Ran(kLmHeadId, Label(c), SelectedLogprobCuda(p, workspace.data(), check.stream()));
  check.Equal(kLmHeadId, Label(c), want, got);
}

// Two vocabulary shards: their tiles, and the merge of what both made.
void CompareShards(TwinCheck& check, const Case& c, int64_t first_shard) {
  const std::vector<uint16_t> hidden =
      check.Halves(static_cast<size_t>(c.rows * c.hidden), c.type, c.mix);
  const std::vector<uint16_t> weight =
      check.Halves(static_cast<size_t>(c.vocab * c.hidden), c.type, c.mix);
  const std::vector<int64_t> tokens = Tokens(check, c);
  const int64_t tiles = LmHeadTiles(c.vocab);
  std::vector<LmHeadTileStat> want = Poisoned<LmHeadTileStat>(static_cast<size_t>(c.rows * tiles));
  std::vector<float> want_logit = Poisoned<float>(tokens.size());
  std::vector<float> want_logprob = want_logit;
  const DeviceArray<uint16_t> hidden_d = check.Upload(hidden), weight_d = check.Upload(weight);
  const DeviceArray<int64_t> tokens_d = check.Upload(tokens);
  const auto got = check.UploadPoison<LmHeadTileStat>(want.size());
  const auto got_logit = check.UploadPoison<float>(tokens.size());
  const auto got_logprob = check.UploadPoison<float>(tokens.size());
  const std::string label = absl::StrCat(Label(c), " cut at ", first_shard);
  for (const int64_t begin : {int64_t{0}, first_shard}) {
    LmHeadShardParams p;
    p.operand_type = c.type, p.rows = c.rows, p.hidden_size = c.hidden, p.vocab = c.vocab;
    p.vocab_begin = begin;
    p.shard_vocab = begin == 0 ? first_shard : c.vocab - first_shard;
    p.tiles_row_stride = tiles, p.threads = 2;
    p.hidden = hidden.data(), p.shard_weight = weight.data() + begin * c.hidden;
    p.tokens = tokens.data(), p.tiles = want.data() + begin / kLmHeadTile;
    p.selected_logit = want_logit.data();
    check.Ran(kLmHeadId, label, LmHeadShard(p));
    p.hidden = hidden_d.get(), p.shard_weight = weight_d.get() + begin * c.hidden;
    p.tokens = tokens_d.get(), p.tiles = got.get() + begin / kLmHeadTile;
    p.selected_logit = got_logit.get();
    const DeviceBuffer workspace = OrDie(DeviceBuffer::Allocate(LmHeadShardCudaWorkspaceBytes(p)));
    check.Ran(kLmHeadId, label, LmHeadShardCuda(p, workspace.data(), check.stream()));
    check.Ran(kLmHeadId, label, SynchronizeStream(check.stream()));
  }
  check.Equal(kLmHeadId, label + " tiles", want, got);
  check.Equal(kLmHeadId, label + " selected logits", want_logit, got_logit);
  LmHeadMergeParams m;
  m.rows = c.rows, m.vocab = c.vocab;
  m.tiles = want.data(), m.selected_logit = want_logit.data(), m.logprob = want_logprob.data();
  check.Ran(kLmHeadId, label, LmHeadMerge(m));
  m.tiles = got.get(), m.selected_logit = got_logit.get(), m.logprob = got_logprob.get();
  const DeviceBuffer workspace = OrDie(DeviceBuffer::Allocate(LmHeadMergeCudaWorkspaceBytes(m)));
  check.Ran(kLmHeadId, label, LmHeadMergeCuda(m, workspace.data(), check.stream()));
  check.Equal(kLmHeadId, label + " merged", want_logprob, got_logprob);
}

// A token that is not there: NaN, and the rows beside it as ever.
void CompareUnknownToken(TwinCheck& check) {
  const Case c = {2, 16, 200};
  const std::vector<uint16_t> hidden =
      check.Halves(static_cast<size_t>(c.rows * c.hidden), c.type, c.mix);
  const std::vector<uint16_t> weight =
      check.Halves(static_cast<size_t>(c.vocab * c.hidden), c.type, c.mix);
  const DeviceArray<uint16_t> hidden_d = check.Upload(hidden), weight_d = check.Upload(weight);
  const DeviceArray<int64_t> tokens_d = check.Upload(std::vector<int64_t>{5000, 7});
  const auto got = check.UploadPoison<float>(2);
  LmHeadParams p;
  p.rows = c.rows, p.hidden_size = c.hidden, p.vocab = c.vocab;
  p.hidden = hidden_d.get(), p.weight = weight_d.get(), p.tokens = tokens_d.get();
  p.logprob = got.get();
  const DeviceBuffer workspace =
      OrDie(DeviceBuffer::Allocate(SelectedLogprobCudaWorkspaceBytes(p)));
  check.Ran(kLmHeadId, "unknown token", SelectedLogprobCuda(p, workspace.data(), check.stream()));
  const std::vector<float> result = check.Download(got);
  check.Expect(kLmHeadId, "an unknown token gives NaN", result[0] != result[0]);
  check.Expect(kLmHeadId, "a known token beside it gives a number", result[1] <= 0.0f);
}

}  // namespace

void CheckHeadTwins(TwinCheck& check) {
  if (!check.Wants(kLmHeadId)) return;
  const FloatType f16 = FloatType::kF16;
  for (const Case& c : std::vector<Case>{{1, 8, 1},
                                         {1, 64, 127},
                                         {3, 64, 128},
                                         {2, 33, 129},
                                         {5, 128, 1000},
                                         {70, 256, 3000},
                                         {66, 64, 130},
                                         {4, 512, 20000},
                                         {5, 128, 1000, f16},
                                         {70, 64, 500, f16}}) {
    for (const Mix mix : {Mix::kNormal, Mix::kSmall, Mix::kAdversarial}) {
      Case mixed = c;
      mixed.mix = mix;
      CompareHead(check, mixed);
    }
  }
  for (int i = 0; i < kRandomShapes; ++i) {
    CompareHead(check, {check.Between(1, 80), check.Between(1, 300), check.Between(1, 1500)});
  }
  CompareShards(check, {3, 64, 1000}, 512);
  CompareShards(check, {5, 40, 1000, f16, Mix::kSmall}, 128);
  CompareShards(check, {2, 24, 700, FloatType::kBf16, Mix::kAdversarial}, 640);
  CompareUnknownToken(check);
}

}  // namespace lockstep::kernels
