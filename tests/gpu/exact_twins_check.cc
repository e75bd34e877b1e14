// Runs every CUDA twin beside its CPU function on random and adversarial operands and compares all
// bytes. One line per program; exit 1 on any difference, 2 when there is no GPU to run on.
//
//   exact_twins_check [--only SUBSTRING_OF_A_PROGRAM_ID] [--seed N] [--rounds N]

#include <cinttypes>
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tests/gpu/twin_check.h"
#include "tests/gpu/twins.h"

ABSL_FLAG(std::string, only, "", "compare only programs whose id contains this");
ABSL_FLAG(uint64_t, seed, 20260801, "of the random operands");
ABSL_FLAG(int, rounds, 1, "how often everything is compared, on new operands each time");

namespace lockstep::kernels {
namespace {

void CheckAll(TwinCheck& check) {
  CheckSwigluTwins(check);
  CheckMoeTwins(check);
  CheckRmsNormTwins(check);
  CheckGemmTwins(check);
  CheckHeadTwins(check);
  CheckAttentionTwins(check);
  CheckLoraTwins(check);
}

}  // namespace
}  // namespace lockstep::kernels

int main(int argc, char** argv) {
  using namespace lockstep::kernels;
  absl::ParseCommandLine(argc, argv);
  const int devices = OrDie(CudaDeviceCount());
  if (devices == 0) Die(absl::UnavailableError("no CUDA device: run this on a machine with one"));
  const CudaDeviceInfo device = OrDie(DescribeCudaDevice(0));
  printf("%s, sm_%d%d, seed %" PRIu64 "\n", device.name.c_str(), device.compute_major,
         device.compute_minor, absl::GetFlag(FLAGS_seed));
  TwinCheck check(absl::GetFlag(FLAGS_seed), absl::GetFlag(FLAGS_only));
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) CheckAll(check);
  CheckRepeats(check);
  if (!check.ComparedAnything()) {
    Die(absl::InvalidArgumentError("--only matches no program: see kernels/SPECIFICATION.md"));
  }
  const bool equal = check.Report();
  printf("%s\n", equal ? "every byte is equal" : "BYTES DIFFER");
  return equal ? 0 : 1;
}
