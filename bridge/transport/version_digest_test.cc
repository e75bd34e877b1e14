#include "bridge/transport/version_digest.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::transport {
namespace {

const Digest256 kKey = Blake2b256("a version's key");

Manifest ThreeTensors() {
  Manifest manifest;
  manifest.tensors = {{"a", Dtype::kBF16, {3, 5}, TensorOrigin::kSynced},
                      {"b", Dtype::kU8, {70'000}, TensorOrigin::kFrozen},
                      {"c", Dtype::kU8, {70'000}, TensorOrigin::kSynced}};
  return manifest;
}

std::vector<uint8_t> Filled(const Manifest& manifest) {
  std::vector<uint8_t> arena(ComputeArenaLayout(manifest).total_bytes);
  for (size_t i = 0; i < arena.size(); ++i) arena[i] = static_cast<uint8_t>(i * 7 + i / 251);
  return arena;
}

TEST(VersionDigestTest, EachSyncedByteCountsInItsTensorAndInTheManifestRoot) {
  const Manifest manifest = ThreeTensors();
  std::vector<uint8_t> arena = Filled(manifest);
  const VersionDigest before = *DigestArena("run", 3, kKey, manifest, arena, 2);
  arena[ComputeArenaLayout(manifest).offsets[2] + 69'999] ^= 1;
  const VersionDigest after = *DigestArena("run", 3, kKey, manifest, arena, 1);
  EXPECT_EQ(before.tensor_roots[0], after.tensor_roots[0]);
  EXPECT_NE(before.tensor_roots[2], after.tensor_roots[2]);
  EXPECT_NE(before.manifest_root, after.manifest_root);
}

TEST(VersionDigestTest, PaddingAndThreadsDoNotCount) {
  const Manifest manifest = ThreeTensors();
  std::vector<uint8_t> arena = Filled(manifest);
  const VersionDigest before = *DigestArena("run", 3, kKey, manifest, arena, 1);
  arena[30] ^= 0xff;  // behind the 30 bytes of `a`
  EXPECT_EQ(before, *DigestArena("run", 3, kKey, manifest, arena, 3));
}

TEST(VersionDigestTest, RunVersionAndKeyAreBoundIn) {
  const Manifest manifest = ThreeTensors();
  const std::vector<uint8_t> arena = Filled(manifest);
  const VersionDigest one = *DigestArena("run", 3, kKey, manifest, arena, 1);
  EXPECT_NE(one, *DigestArena("other", 3, kKey, manifest, arena, 1));
  EXPECT_NE(one, *DigestArena("run", 4, kKey, manifest, arena, 1));
  EXPECT_NE(one, *DigestArena("run", 3, Blake2b256("another"), manifest, arena, 1));
}

TEST(VersionDigestTest, ATensorThatIsNotSyncedHasAZeroRootAndNoBytes) {
  Manifest manifest = ThreeTensors();
  const VersionDigest digest = *DigestArena("run", 3, kKey, manifest, Filled(manifest), 1);
  ASSERT_EQ(digest.tensor_roots.size(), 3u);
  EXPECT_EQ(digest.tensor_roots[1], Digest256{});
  manifest.tensors.erase(manifest.tensors.begin() + 1);
  EXPECT_EQ(digest.manifest_root,
            DigestArena("run", 3, kKey, manifest, Filled(manifest), 1)->manifest_root);
}

TEST(VersionDigestTest, MissingBytesAndResultsAreErrors) {
  const Manifest manifest = ThreeTensors();
  std::vector<uint8_t> arena = Filled(manifest);
  arena.pop_back();
  EXPECT_EQ(DigestArena("run", 3, kKey, manifest, arena, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  const kernels::PageKeys keys(kKey);
  EXPECT_EQ(VersionDigestOf("run", 3, keys, manifest, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::vector<kernels::DigestResult> results(2);
  EXPECT_EQ(VersionDigestOf("run", 3, keys, manifest, results).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lockstep::transport
