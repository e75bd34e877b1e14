#include "tools/cli/digest_command.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "kernels/digest.h"
#include "kernels/parallel.h"
#include "policy/ids.h"
#include "policy/status_macros.h"
#include "tools/cli/checkpoint_file.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_line.h"
#include "tools/cli/table.h"

namespace lockstep::tools {
namespace {

struct FileDigest {
  Digest256 manifest_root{};
  // Parallel to the header's tensors.
  std::vector<Digest256> paged;
  std::vector<Digest256> content;
};

int Threads() {
  return std::min(static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u)),
                  kernels::kMaxThreads);
}

// Under the public key, run "" and version 0: what files and deltas use.
absl::StatusOr<FileDigest> DigestFile(const CheckpointFile& file) {
  const std::vector<SafetensorsTensor>& tensors = file.header().tensors;
  const kernels::PageKeys& keys = kernels::PublicPageKeys();
  std::vector<kernels::DigestTask> tasks;
  for (const SafetensorsTensor& tensor : tensors) {
    const absl::Span<const uint8_t> bytes = file.Bytes(tensor);
    tasks.push_back({.source = bytes.data(), .bytes = bytes.size()});
  }
  const std::vector<kernels::DigestResult> results = kernels::CopyAndDigest(keys, tasks, Threads());
  FileDigest digest;
  std::vector<std::pair<std::string, Digest256>> roots;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& spec = tensors[i].spec;
    LOCKSTEP_ASSIGN_OR_RETURN(
        const Digest256 root,
        kernels::TensorRoot(
            {.name = spec.name, .dtype = std::string(DtypeName(spec.dtype)), .shape = spec.shape},
            keys, results[i].table));
    digest.paged.push_back(root);
    roots.emplace_back(spec.name, root);
  }
  digest.content.resize(tensors.size());
  kernels::ParallelFor(tensors.size(), Threads(), [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      digest.content[i] = kernels::ContentDigest(file.Bytes(tensors[i]));
    }
  });
  LOCKSTEP_ASSIGN_OR_RETURN(digest.manifest_root, kernels::ManifestRoot(std::move(roots)));
  return digest;
}

absl::StatusOr<int> DigestOfFile(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(const CheckpointFile file, CheckpointFile::Open(args.words()[0]));
  LOCKSTEP_ASSIGN_OR_RETURN(const FileDigest digest, DigestFile(file));
  const std::vector<SafetensorsTensor>& tensors = file.header().tensors;
  if (io.format == Format::kJson) {
    nlohmann::json list = nlohmann::json::object();
    for (size_t i = 0; i < tensors.size(); ++i) {
      list[tensors[i].spec.name] = {{"paged", ToHex(digest.paged[i])},
                                    {"content", ToHex(digest.content[i])}};
    }
    io.out << JsonLine({{"manifest_root", ToHex(digest.manifest_root)}, {"tensors", list}}) << "\n";
    return kExitConverged;
  }
  const bool wide = io.format == Format::kWide;
  Table table(wide ? std::vector<std::string>{"TENSOR", "PAGED", "CONTENT"}
                   : std::vector<std::string>{"TENSOR", "PAGED"});
  for (size_t i = 0; i < tensors.size(); ++i) {
    table.Add({tensors[i].spec.name, ToHex(digest.paged[i]), ToHex(digest.content[i])});
  }
  io.out << "manifest root  " << ToHex(digest.manifest_root) << "\n\n" << table.ToString();
  return kExitConverged;
}

}  // namespace

std::vector<Command> DigestCommands() {
  return {{.name = "digest",
           .words = "FILE.safetensors",
           .min_words = 1,
           .max_words = 1,
           .help = "digests of a file's tensors under the public key, and of the whole",
           .details =
               "-o json prints {\"manifest_root\", \"tensors\": {NAME: {\"paged\", "
               "\"content\"}}} in hex:\nthe root of digest/paged@v1, and digest/content@v1.\n",
           .run = DigestOfFile}};
}

}  // namespace lockstep::tools
