#include "tools/cli/kernel_commands.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/registry.h"
#include "policy/status_macros.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_line.h"
#include "tools/cli/kernel_op.h"
#include "tools/cli/kernel_programs.h"
#include "tools/cli/kernel_selftest.h"
#include "tools/cli/table.h"

namespace lockstep::tools {
namespace {

constexpr absl::string_view kDevices[] = {"cpu", "cuda"};
constexpr FlagSpec kDeviceFlag = {"--device", "cpu|cuda", "where it runs (default: cpu)"};

absl::StatusOr<bool> WantsCuda(const Args& args) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto device, args.OneOf("--device", kDevices));
  return device.value_or("cpu") == "cuda";
}

// ---- kernel list ----

std::string SitesOf(absl::string_view id) {
  const ProgramInfo* info = FindProgram(id);
  return info == nullptr ? "" : std::string(info->sites);
}

absl::StatusOr<int> List(const Args&, Io& io) {
  if (io.format == Format::kJson) {
    nlohmann::json programs = nlohmann::json::array();
    for (const KernelProgram& program : KernelPrograms()) {
      nlohmann::json devices = {"cpu"};
      if (program.cuda) devices.push_back("cuda");
      programs.push_back({{"id", std::string(program.id)},
                          {"op", std::string(program.op)},
                          {"sites", SitesOf(program.id)},
                          {"devices", std::move(devices)},
                          {"vectors", program.vectors},
                          {"golden", GoldenStatus(program)}});
    }
    io.out << JsonLine({{"programs", std::move(programs)}}) << "\n";
    return kExitConverged;
  }
  Table table({"PROGRAM", "OP", "SITES", "DEVICES", "GOLDEN"});
  for (const KernelProgram& program : KernelPrograms()) {
    table.Add({std::string(program.id), std::string(program.op), SitesOf(program.id),
               program.cuda ? "cpu cuda" : "cpu", GoldenStatus(program)});
  }
  io.out << table.ToString();
  return kExitConverged;
}

// ---- kernel run ----

const std::vector<FlagSpec>& OptionFlags() {
  static const auto* const flags = new std::vector<FlagSpec>{
      {"--scale", "X", "moe_leaf: of the routed part; lora_*: alpha over rank (default: 1)"},
      {"--eps", "X", "rmsnorm (default: 1e-6)"},
      {"--zero-centered", "", "rmsnorm: the weight is 1 + w"},
      {"--limit", "L", "swiglu/one_round_fp32_clamped@v1: the clamp"},
      {"--tp", "N", "lora_mlp: ordinals (default: 1)"},
      {"--cp", "N", "gdn_cp/*: simulated ranks (default: 1)"},
  };
  return *flags;
}

absl::Status RefuseOtherFlags(const Args& args, const KernelOp& op) {
  std::vector<absl::string_view> takes(op.flags.begin(), op.flags.end());
  if (op.takes_realisation) takes.push_back("--realisation");
  std::vector<absl::string_view> all = {"--realisation"};
  for (const FlagSpec& flag : OptionFlags()) all.push_back(flag.name);
  for (const absl::string_view flag : all) {
    if (args.Has(flag) && std::find(takes.begin(), takes.end(), flag) == takes.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          op.name, " takes no ", flag, "; it takes ",
          takes.empty() ? "--program, --device and --threads alone" : absl::StrJoin(takes, ", ")));
    }
  }
  return absl::OkStatus();
}

// Rounded once from decimal text to float32.
absl::Status ReadFloat(const Args& args, absl::string_view flag, float& value) {
  const std::optional<std::string> text = args.Text(flag);
  if (!text.has_value()) return absl::OkStatus();
  if (absl::SimpleAtof(*text, &value) && std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " takes a number that a float32 can hold, got '", *text, "'"));
}

absl::Status ReadCount(const Args& args, absl::string_view flag, int64_t& value) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<uint64_t> given, args.U64(flag));
  if (!given.has_value()) return absl::OkStatus();
  if (*given < 1 || *given > uint64_t{std::numeric_limits<int32_t>::max()}) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " takes a whole number from 1 to 2^31-1, got ", *given));
  }
  value = static_cast<int64_t>(*given);
  return absl::OkStatus();
}

absl::Status CheckRealisation(const std::string& realisation) {
  std::vector<std::string> known;
  for (const RealisationInfo& info : Realisations()) {
    if (info.id == realisation) return absl::OkStatus();
    if (known.empty() || known.back() != info.id) known.emplace_back(info.id);
  }
  return absl::InvalidArgumentError(UnknownNameText("SiLU realisation", realisation, known));
}

absl::StatusOr<KernelRequest> ReadRequest(const Args& args) {
  KernelRequest request;
  LOCKSTEP_ASSIGN_OR_RETURN(request.op, FindKernelOp(args.words()[0]));
  LOCKSTEP_RETURN_IF_ERROR(RefuseOtherFlags(args, *request.op));
  const std::vector<std::string> programs = ProgramsOf(request.op->name);
  if (!args.Has("--program") && programs.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("--program is missing: ", request.op->name,
                                                   " runs ", absl::StrJoin(programs, ", ")));
  }
  request.program = args.TextOr("--program", programs[0]);
  request.realisation = args.TextOr("--realisation", request.realisation);
  LOCKSTEP_RETURN_IF_ERROR(CheckRealisation(request.realisation));
  KernelOptions& options = request.options;
  LOCKSTEP_RETURN_IF_ERROR(ReadFloat(args, "--scale", options.scale));
  LOCKSTEP_RETURN_IF_ERROR(ReadFloat(args, "--eps", options.eps));
  LOCKSTEP_RETURN_IF_ERROR(ReadFloat(args, "--limit", options.limit));
  options.zero_centered = args.Has("--zero-centered");
  LOCKSTEP_RETURN_IF_ERROR(ReadCount(args, "--tp", options.tp));
  LOCKSTEP_RETURN_IF_ERROR(ReadCount(args, "--cp", options.cp));
  int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  LOCKSTEP_RETURN_IF_ERROR(ReadCount(args, "--threads", threads));
  request.threads = static_cast<int>(threads);
  return request;
}

std::string ShapeOf(const TensorSpec& spec) {
  return absl::StrCat("[", absl::StrJoin(spec.shape, ","), "]");
}

void PrintOutputs(const std::string& path, const std::string& program,
                  const std::vector<KernelTensor>& outputs, Io& io) {
  if (io.format == Format::kJson) {
    nlohmann::json tensors = nlohmann::json::object();
    for (const KernelTensor& output : outputs) {
      tensors[output.spec.name] = {{"dtype", std::string(DtypeName(output.spec.dtype))},
                                   {"shape", output.spec.shape}};
    }
    io.out << JsonLine({{"output", path}, {"program", program}, {"tensors", std::move(tensors)}})
           << "\n";
    return;
  }
  for (const KernelTensor& output : outputs) {
    io.out << output.spec.name << " " << DtypeName(output.spec.dtype) << " " << ShapeOf(output.spec)
           << "\n";
  }
  io.err << "wrote " << path << "\n";
}

absl::StatusOr<int> Run(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(const KernelRequest request, ReadRequest(args));
  LOCKSTEP_ASSIGN_OR_RETURN(const bool cuda, WantsCuda(args));
  for (const absl::string_view flag : {"--input", "--output"}) {
    if (args.TextOr(flag, "").empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " FILE.safetensors is missing; the command needs both files"));
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const CheckpointFile file,
                            CheckpointFile::Open(args.TextOr("--input", "")));
  std::vector<TensorToWrite> inputs;
  for (const SafetensorsTensor& tensor : file.header().tensors) {
    inputs.push_back({tensor.spec, file.Bytes(tensor)});
  }
  KernelMemory memory = KernelMemory::OnHost();
  if (cuda) {
    LOCKSTEP_ASSIGN_OR_RETURN(memory, KernelMemory::OnCuda());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<KernelTensor> outputs,
                            RunKernel(request, inputs, memory));
  std::vector<TensorToWrite> tensors;
  for (const KernelTensor& output : outputs) tensors.push_back({output.spec, output.bytes});
  const std::string path = args.TextOr("--output", "");
  LOCKSTEP_RETURN_IF_ERROR(WriteCheckpoint(path, tensors, {{"program", request.program}}));
  PrintOutputs(path, request.program, outputs, io);
  return kExitConverged;
}

std::vector<FlagSpec> RunFlags() {
  std::vector<FlagSpec> flags = {
      {"--program", "ID", "the program, as in `kernel list`"},
      {"--realisation", "ID", "the SiLU realisation (default: silu/ieee@v1)"},
      kDeviceFlag,
      {"--threads", "N", "of the CPU (default: all; the bytes are the same)"},
      {"--input", "IN", "safetensors file with the op's tensors"},
      {"--output", "OUT", "safetensors file to write, complete or not at all"},
  };
  flags.insert(flags.end(), OptionFlags().begin(), OptionFlags().end());
  return flags;
}

// ---- kernel selftest ----

absl::StatusOr<int> Selftest(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(const bool cuda, WantsCuda(args));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<SelftestResult> results, RunSelftest(cuda));
  const bool equal = std::all_of(results.begin(), results.end(),
                                 [](const SelftestResult& result) { return result.equal; });
  if (io.format == Format::kJson) {
    nlohmann::json rows = nlohmann::json::array();
    for (const SelftestResult& result : results) {
      rows.push_back({{"program", result.program},
                      {"case", result.what},
                      {"runs", result.runs},
                      {"digest", result.digest},
                      {"equal", result.equal},
                      {"difference", result.difference}});
    }
    io.out << JsonLine({{"device", cuda ? "cuda" : "cpu"}, {"equal", equal}, {"checks", rows}})
           << "\n";
    return equal ? kExitConverged : kExitDegraded;
  }
  constexpr size_t kShownDigits = 16;
  const bool wide = io.format == Format::kWide;
  Table table({"PROGRAM", "CASE", "RUNS", "BLAKE2B", "RESULT"});
  table.AlignRight(2);
  for (const SelftestResult& result : results) {
    table.Add({result.program, result.what, absl::StrCat(result.runs),
               wide ? result.digest : result.digest.substr(0, kShownDigits),
               result.equal ? Paint(io, Color::kGreen, "equal")
                            : Paint(io, Color::kRed, result.difference)});
  }
  io.out << table.ToString() << "\n"
         << (equal ? "every program gives its bytes on this machine\n"
                   : "some bytes differ: exact contracts must not be run on this machine\n");
  return equal ? kExitConverged : kExitDegraded;
}

}  // namespace

std::vector<Command> KernelCommands() {
  return {
      {.name = "kernel list",
       .help = "every exact program: its id, op, sites, devices and golden status",
       .run = List},
      {.name = "kernel run",
       .words = "OP",
       .min_words = 1,
       .max_words = 1,
       .help = "run an exact program on a file of tensors",
       .details =
           "  swiglu      gate_up [T,2N], or gate, up [T,N] -> out; --realisation, --limit\n"
           "  swiglu_vjp  the same and dout [T,N] -> dgate, dup\n"
           "  moe_leaf    routed, shared [T,H] -> out; --scale\n"
           "  moe_fold    partials [E,T,H] -> out\n"
           "  rmsnorm     x [T,H], optional residual [T,H], weight [H] -> out; --eps,\n"
           "              --zero-centered\n"
           "  gemm        a [M,K], b [N,K] -> out [M,N]\n"
           "  lm_head     hidden [T,H], weight [V,H], tokens [T] int64 -> logprob [T] float32\n"
           "  gdn         q, k [T,Hk,K], v [T,Hv,V], g, beta [T,Hv], optional s0 [Hv,K,V]\n"
           "              -> o, state; --cp\n"
           "  lora_mlp    x [T,H], gate, up [I,H], down [H,I], a_gate, a_up [r,H], b_gate,\n"
           "              b_up [I,r], a_down [r,I], b_down [H,r] -> out, partials [N,T,H] for\n"
           "              --tp N > 1; --scale, --realisation\n"
           "  lora_merge  weight [O,I], a [r,I], b [O,r] -> out; --scale\n\n"
           "Tensors named want_... are recorded answers and are not read. Exits 2 when the\n"
           "command line or the file does not fit the op, 3 without the device, 4 when the\n"
           "program refuses the operands.\n",
       .flags = RunFlags(),
       .run = Run},
      {.name = "kernel selftest",
       .help = "prove that this machine computes the exact programs' bytes",
       .details =
           "On the CPU: every program at 1, 2 and 8 threads and on every vector instruction\n"
           "set, against the digest of the recorded outputs. With --device cuda also the\n"
           "device against the CPU. Exits 1 on any difference.\n",
       .flags = {kDeviceFlag},
       .run = Selftest},
  };
}

}  // namespace lockstep::tools
