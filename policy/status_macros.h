#ifndef LOCKSTEP_POLICY_STATUS_MACROS_H_
#define LOCKSTEP_POLICY_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function when `expr` (an absl::Status) is an error.
#define LOCKSTEP_RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                           \
    if (absl::Status lockstep_status_ = (expr); !lockstep_status_.ok()) return lockstep_status_; \
  } while (false)

#define LOCKSTEP_CONCAT_INNER_(a, b) a##b
#define LOCKSTEP_CONCAT_(a, b) LOCKSTEP_CONCAT_INNER_(a, b)

// `lhs` is a declaration or an lvalue; `expr` yields an absl::StatusOr.
#define LOCKSTEP_ASSIGN_OR_RETURN(lhs, expr) \
  LOCKSTEP_ASSIGN_OR_RETURN_IMPL_(LOCKSTEP_CONCAT_(lockstep_statusor_, __LINE__), lhs, expr)
#define LOCKSTEP_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr) \
  auto statusor = (expr);                                    \
  if (!statusor.ok()) return statusor.status();              \
  lhs = *std::move(statusor)

#endif  // LOCKSTEP_POLICY_STATUS_MACROS_H_
