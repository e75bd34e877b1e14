// Runs the CUDA twins over weights (digest, delta) and sequences (gated delta net, short
// convolution) beside their CPU functions and compares all bytes. One line per program; exit 1 on
// any difference, 2 when there is no GPU to run on.
//
//   state_twins_check [--only SUBSTRING_OF_A_PROGRAM_ID] [--seed N]

#include <cinttypes>
#include <cstdio>
#include <random>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tests/gpu/state_twins.h"
#include "tests/gpu/twin_check.h"

ABSL_FLAG(std::string, only, "", "compare only programs whose id contains this");
ABSL_FLAG(uint64_t, seed, 0, "of the random operands; 0 draws one");

int main(int argc, char** argv) {
  using namespace lockstep::kernels;
  absl::ParseCommandLine(argc, argv);
  const int devices = OrDie(CudaDeviceCount());
  if (devices == 0) Die(absl::UnavailableError("no CUDA device: run this on a machine with one"));
  const CudaDeviceInfo device = OrDie(DescribeCudaDevice(0));
  uint64_t seed = absl::GetFlag(FLAGS_seed);
  if (seed == 0) seed = std::random_device()();
  printf("%s, sm_%d%d, seed %" PRIu64 "\n", device.name.c_str(), device.compute_major,
         device.compute_minor, seed);
  fflush(stdout);
  bool equal = true;
  // Each family reports at once: a device fault ends the process.
  for (const auto compare : {CheckDigestTwins, CheckDeltaTwins, CheckShortConvTwins, CheckGdnTwins,
                             CheckGdnCpTwins, CheckStateRepeats}) {
    TwinCheck check(seed++, absl::GetFlag(FLAGS_only));
    compare(check);
    equal = check.Report() && equal;
    fflush(stdout);
  }
  printf("%s\n", equal ? "every byte is equal" : "BYTES DIFFER");
  return equal ? 0 : 1;
}
