// Runs a fuzz target without libFuzzer: each corpus file named on the command line as it is,
// every prefix of it, and a fixed number of seeded mutations. Same input, same run.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr uint32_t kSeed = 20240611;
constexpr int kMutationsPerFile = 2'000;
constexpr size_t kMaxPrefixes = 2'000;

void Run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

// Up to four byte edits: overwrite, flip a bit, delete a range, repeat a range.
std::string Mutate(std::string input, std::mt19937& random) {
  const int edits = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < edits && !input.empty(); ++i) {
    const size_t at = random() % input.size();
    const size_t length = 1 + random() % 16;
    switch (random() % 4) {
      case 0:
        input[at] = static_cast<char>(random());
        break;
      case 1:
        input[at] = static_cast<char>(input[at] ^ (1 << (random() % 8)));
        break;
      case 2:
        input.erase(at, length);
        break;
      default:
        input.insert(at, input.substr(at, length));
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  std::mt19937 random(kSeed);
  Run("");
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read corpus file %s\n", argv[i]);
      return 1;
    }
    const std::string input((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
    Run(input);
    const size_t step = input.size() / kMaxPrefixes + 1;
    for (size_t end = 0; end < input.size(); end += step) Run(input.substr(0, end));
    for (int round = 0; round < kMutationsPerFile; ++round) Run(Mutate(input, random));
  }
  std::printf("replayed %d corpus files, seed %u\n", argc - 1, kSeed);
  return argc > 1 ? 0 : 1;
}
