#include <utility>
#include <vector>

#include "tools/cli/kernel_op.h"
#include "tools/cli/kernel_run.h"

namespace lockstep::tools {

const std::vector<KernelOp>& KernelOps() {
  static const auto* const ops = [] {
    auto* all = new std::vector<KernelOp>;
    for (std::vector<KernelOp> (*family)() : {MlpOps, LoraOps, MatrixOps, GdnOps}) {
      for (const KernelOp& op : family()) all->push_back(op);
    }
    return all;
  }();
  return *ops;
}

}  // namespace lockstep::tools
