// Decisions of lockstep.h.

#include <utility>

#include "tools/capi/common.h"
#include "tools/cli/bridge_json.h"
#include "tools/cli/json_line.h"

struct lockstep_decision {
  lockstep::capi::DecisionFuture future;
};

namespace lockstep::capi {

static_assert(static_cast<int>(DecisionKind::kAdmit) == LOCKSTEP_ADMIT);
static_assert(static_cast<int>(DecisionKind::kRefuse) == LOCKSTEP_REFUSE);
static_assert(static_cast<int>(DecisionKind::kPending) == LOCKSTEP_PENDING);

lockstep_decision* NewDecision(DecisionFuture future) {
  return new lockstep_decision{std::move(future)};
}

}  // namespace lockstep::capi

using lockstep::capi::Guarded;
using lockstep::capi::Missing;

extern "C" {

int32_t lockstep_decision_wait(lockstep_decision* decision, int64_t timeout_ms,
                               lockstep_decision_result* result) {
  return Guarded([&]() -> absl::Status {
    if (decision == nullptr) return Missing("decision");
    const absl::Status ready = lockstep::capi::WaitReady(decision->future, timeout_ms);
    if (!ready.ok()) return ready;
    const absl::StatusOr<lockstep::Decision>& decided = decision->future.get();
    if (!decided.ok()) return decided.status();
    lockstep_decision_result values{};
    values.kind = static_cast<int32_t>(decided->kind);
    values.compared = decided->compared ? 1 : 0;
    values.compared_tokens = decided->compared_tokens;
    values.mismatched_tokens = decided->mismatched_tokens;
    values.k1 = decided->k1;
    values.k2 = decided->k2;
    values.k3 = decided->k3;
    values.max_abs_diff = decided->max_abs_diff;
    return lockstep::capi::WriteSized(values, result, "result");
  });
}

int32_t lockstep_decision_json(lockstep_decision* decision, char** json) {
  return Guarded([&]() -> absl::Status {
    if (json == nullptr) return Missing("json");
    *json = nullptr;
    if (decision == nullptr) return Missing("decision");
    const absl::Status ready = lockstep::capi::WaitReady(decision->future, 0);
    if (!ready.ok()) return ready;
    const absl::StatusOr<lockstep::Decision>& decided = decision->future.get();
    if (!decided.ok()) return decided.status();
    *json = lockstep::capi::NewString(
        lockstep::tools::JsonLine(lockstep::tools::DecisionJson(*decided)));
    return absl::OkStatus();
  });
}

void lockstep_decision_destroy(lockstep_decision* decision) { delete decision; }

}  // extern "C"
