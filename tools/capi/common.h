#ifndef LOCKSTEP_TOOLS_CAPI_COMMON_H_
#define LOCKSTEP_TOOLS_CAPI_COMMON_H_

// What every function of the C ABI needs: errors as codes and a thread's text, structs that
// grow, owned strings, waiting. Internal to liblockstep.so.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <future>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bridge/transport/client_session.h"
#include "policy/manifest.h"
#include "policy/protocol.h"
#include "tools/capi/lockstep.h"

namespace lockstep::capi {

// Remembers the text for lockstep_last_error; the code.
int32_t Fail(const absl::Status& status);

// Runs what returns a Status. Nothing is thrown past it: memory can run out in any function.
template <typename Body>
int32_t Guarded(Body body) noexcept {
  try {
    const absl::Status status = body();
    return status.ok() ? LOCKSTEP_OK : Fail(status);
  } catch (const std::bad_alloc&) {
    return LOCKSTEP_RESOURCE_EXHAUSTED;
  } catch (const std::exception& error) {
    return Fail(absl::InternalError(error.what()));
  } catch (...) {
    return Fail(absl::InternalError("an unknown exception"));
  }
}

// InvalidArgument that names the argument.
absl::Status Missing(absl::string_view what);

inline std::string TextOr(const char* text, const char* otherwise) {
  return text != nullptr ? text : otherwise;
}

// A struct that begins with `size`, as this library knows it.
template <typename Struct>
absl::StatusOr<Struct> ReadSized(const Struct* given, absl::string_view name) {
  if (given == nullptr) return Missing(name);
  if (given->size < sizeof(size_t)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".size is ", given->size, "; set it to sizeof the struct"));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(Struct); i < given->size; ++i) {
    if (bytes[i] != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " has a member that this library, of ABI version ",
                       LOCKSTEP_ABI_VERSION, ", does not know; use a newer liblockstep.so"));
    }
  }
  Struct known{};
  std::memcpy(&known, given, std::min(given->size, sizeof(Struct)));
  return known;
}

// Fills as much of `*into` as its caller knows. `into` may be null.
template <typename Struct>
absl::Status WriteSized(Struct value, Struct* into, absl::string_view name) {
  if (into == nullptr) return absl::OkStatus();
  if (into->size < sizeof(size_t)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".size is ", into->size, "; set it to sizeof the struct"));
  }
  value.size = into->size;
  std::memcpy(into, &value, std::min(into->size, sizeof(Struct)));
  return absl::OkStatus();
}

// For the caller, who frees it with lockstep_string_free.
char* NewString(absl::string_view text);

// Every kind of pending answer. Negative: for ever.
template <typename T>
absl::Status WaitReady(const std::shared_future<T>& future, int64_t timeout_ms) {
  if (timeout_ms < 0) {
    future.wait();
    return absl::OkStatus();
  }
  constexpr int64_t kLongestMs = int64_t{1} << 40;  // what the clock can add without overflow
  const std::chrono::milliseconds timeout(std::min(timeout_ms, kLongestMs));
  if (future.wait_for(timeout) == std::future_status::ready) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("there is no answer after ", timeout_ms, " ms; wait again"));
}

absl::StatusOr<transport::BridgeAddress> BridgeOf(const char* bridge, const char* run,
                                                  const char* key_file,
                                                  const char* bridge_key_file);

// Sorted, as a Manifest must be.
absl::StatusOr<Manifest> ManifestOf(const lockstep_tensor_spec* tensors, size_t tensor_count,
                                    const lockstep_alias_group* groups, size_t group_count);

absl::StatusOr<TransportKind> TransportOf(absl::string_view name);

using DecisionFuture = std::shared_future<absl::StatusOr<Decision>>;
lockstep_decision* NewDecision(DecisionFuture future);

}  // namespace lockstep::capi

#endif  // LOCKSTEP_TOOLS_CAPI_COMMON_H_
