#include "tools/cli/machine_checks.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <zmq.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "bridge/transport/address.h"
#include "bridge/transport/unique_fd.h"
#include "kernels/cuda_support.h"
#include "kernels/fp_environment.h"

namespace lockstep::tools {
namespace {

constexpr auto kBridgeTimeout = std::chrono::milliseconds(500);
// A bridge with a few hundred peers uses a handful of descriptors for each.
constexpr uint64_t kWantedDescriptors = 4'096;

MachineCheck Ok(std::string name, std::string found) {
  return {std::move(name), CheckState::kOk, std::move(found), ""};
}

MachineCheck CheckProcessor() {
  std::string features;
  const auto add = [&features](bool has, const char* name) {
    if (has) absl::StrAppend(&features, features.empty() ? "" : " ", name);
  };
  add(__builtin_cpu_supports("sse4.2"), "sse4.2");
  add(__builtin_cpu_supports("avx2"), "avx2");
  add(__builtin_cpu_supports("fma"), "fma");
  add(__builtin_cpu_supports("avx512f"), "avx512f");
  MachineCheck check =
      Ok("processor", absl::StrCat(std::thread::hardware_concurrency(), " threads, ", features));
  if (!__builtin_cpu_supports("avx2")) {
    check.advice = "the exact kernels give the same bytes without avx2, only slower";
  }
  return check;
}

MachineCheck CheckArithmetic() {
  const absl::Status status = kernels::CheckFpEnvironment();
  if (status.ok()) return Ok("arithmetic", "IEEE 754: denormals kept, rounding to nearest even");
  return {"arithmetic", CheckState::kBad, std::string(status.message()),
          "find the library that was linked with fast-math and leave it out"};
}

MachineCheck CheckMemory() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  uint64_t total_kib = 0, free_kib = 0;
  while (std::getline(file, line)) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t kib = 0;
    if (words.size() < 2 || !absl::SimpleAtoi(words[1], &kib)) continue;
    if (words[0] == "MemTotal:") total_kib = kib;
    if (words[0] == "MemAvailable:") free_kib = kib;
  }
  MachineCheck check = Ok("memory", absl::StrFormat("%.1f GiB, %.1f GiB available",
                                                    static_cast<double>(total_kib) / 1048576.0,
                                                    static_cast<double>(free_kib) / 1048576.0));
  check.advice = "the bridge keeps two versions, a sampler on tcp two more";
  return check;
}

MachineCheck CheckSharedMemory() {
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
  const transport::UniqueFd fd(::memfd_create("lockstep-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.valid() && ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) == 0 &&
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0) {
    return Ok("shared memory", "memory files can be sealed");
  }
  return {"shared memory", CheckState::kBad, absl::StrCat("sealing fails: ", strerror(errno)),
          "needs Linux 5.1 or newer; --transport tcp works without"};
}

MachineCheck CheckDescriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  MachineCheck check = Ok(
      "open files", absl::StrCat("at most ", limit.rlim_cur, " (hard limit ", limit.rlim_max, ")"));
  if (limit.rlim_cur < kWantedDescriptors) {
    check.advice = absl::StrCat("for hundreds of peers: ulimit -n ", kWantedDescriptors);
  }
  return check;
}

MachineCheck CheckZmq() {
  int major = 0, minor = 0, patch = 0;
  ::zmq_version(&major, &minor, &patch);
  const std::string version = absl::StrCat("ZeroMQ ", major, ".", minor, ".", patch);
  if (::zmq_has("curve") == 1) return Ok("messages", version + " with CURVE");
  return {"messages", CheckState::kAbsent, version + " without CURVE",
          "ipc works; a tcp bridge needs a ZeroMQ that was built with libsodium"};
}

MachineCheck CheckRunFolder() {
  const absl::StatusOr<std::string> folder = transport::DefaultRunFolder();
  if (folder.ok()) return Ok("run folder", *folder);
  return {"run folder", CheckState::kBad, std::string(folder.status().message()),
          "mend its owner and mode, or give lockstepd --listen and clients --bridge another"};
}

MachineCheck CheckBridge(const std::string& bridge) {
  std::string address = bridge;
  if (address.empty()) {
    const absl::StatusOr<std::string> standard = transport::DefaultBridgeAddress();
    if (!standard.ok()) {
      return {"bridge", CheckState::kAbsent, std::string(standard.status().message()), ""};
    }
    address = *standard;
  }
  const absl::StatusOr<transport::Address> parsed = transport::ParseAddress(address);
  if (!parsed.ok()) {
    return {"bridge", CheckState::kBad, std::string(parsed.status().message()), ""};
  }
  const absl::Status present = transport::BridgePresent(*parsed, kBridgeTimeout);
  if (present.ok()) return Ok("bridge", absl::StrCat("answers at ", address));
  return {"bridge", CheckState::kAbsent, std::string(present.message()), ""};
}

MachineCheck CheckCuda() {
  if (!kernels::BuiltWithCuda()) {
    return {"CUDA", CheckState::kAbsent, "this build has no CUDA twins",
            "install the CUDA toolkit and build again to run the exact kernels on GPUs"};
  }
  const absl::StatusOr<int> count = kernels::CudaDeviceCount();
  if (!count.ok() || *count == 0) {
    return {"CUDA", CheckState::kAbsent,
            count.ok() ? "built with CUDA, no device here" : std::string(count.status().message()),
            "install NVIDIA's driver if this machine has a GPU; everything else works without"};
  }
  std::string found;
  for (int device = 0; device < *count; ++device) {
    const absl::StatusOr<kernels::CudaDeviceInfo> info = kernels::DescribeCudaDevice(device);
    absl::StrAppend(
        &found, device == 0 ? "" : ", ",
        info.ok() ? absl::StrCat(info->name, " (sm_", info->compute_major, info->compute_minor, ")")
                  : std::string(info.status().message()));
  }
  return Ok("CUDA", found);
}

MachineCheck CheckNccl() {
  struct Close {
    void operator()(void* library) const { ::dlclose(library); }
  };
  const std::unique_ptr<void, Close> library(::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL));
  if (library == nullptr) {
    return {"NCCL", CheckState::kAbsent, "no libnccl.so.2",
            "only transfers between GPUs of several hosts will need it"};
  }
  using GetVersion = int (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(::dlsym(library.get(), "ncclGetVersion"));
  int version = 0;
  if (get_version != nullptr) get_version(&version);
  return Ok("NCCL", absl::StrCat("version code ", version));
}

MachineCheck CheckKernel() {
  utsname name{};
  ::uname(&name);
  return Ok("system", absl::StrCat(name.sysname, " ", name.release, " ", name.machine));
}

}  // namespace

std::vector<MachineCheck> CheckMachine(const std::string& bridge) {
  return {CheckKernel(),       CheckProcessor(),   CheckArithmetic(), CheckMemory(),
          CheckSharedMemory(), CheckDescriptors(), CheckZmq(),        CheckRunFolder(),
          CheckBridge(bridge), CheckCuda(),        CheckNccl()};
}

const char* CheckStateName(CheckState state) {
  switch (state) {
    case CheckState::kOk:
      return "ok";
    case CheckState::kAbsent:
      return "absent";
    case CheckState::kBad:
      return "bad";
  }
  return "";
}

}  // namespace lockstep::tools
