#ifndef LOCKSTEP_TOOLS_CLI_BRIDGE_JSON_H_
#define LOCKSTEP_TOOLS_CLI_BRIDGE_JSON_H_

// What the bridge answers as the JSON that `-o json` prints. Digests are hex, absent numbers
// null, times milliseconds since 1970. Keys are added over time and never change meaning.
//
//   status    {run, contract, contract_id, software, listen, uptime_ms, draining, trainer,
//              versions: [version], samplers: [sampler],
//              rollouts: {admitted, pending, refused: {REASON: count}},
//              refusals: {REASON: count}, alarms: [sentence]}
//   trainer   {name, epoch, connected, contract, source_role} or null
//   version   {version, epoch, state, manifest_root, contract, bytes, tensors, nan_elements,
//              zero_change, bytes_held, on_disk, samplers_live, rollback_of, sealed_ms}
//   sampler   {name, state, live_version, transport, components_verified, components_total,
//              reason, contract, connected, bytes_sent, incarnation}
//   event     {seq, time_ms, kind, subject, text}
//   explain   {found, headline, paragraphs, facts: {name: value}}
//   outcome   {version, zero_change, nan_elements, samplers: [{name, state, refusals,
//              components_verified, components_total, elapsed_ms}]}
//   decision  {id, decision: "admit" | "refuse" | "pending", reasons: [code],
//              refusals: [{code, key, message}], level, sampler, contract_id,
//              spans: [[version, start, end]], k1, k2, k3, k3_float32_naive, max_abs_diff,
//              compared_tokens, mismatched_tokens,
//              mismatches: [{token, sampler_bits, trainer_bits}], tolerance_mode}
//             The numbers of a comparison are null where none was made.

#include "nlohmann/json.hpp"
#include "policy/protocol.h"
#include "tools/cli/json_line.h"

namespace lockstep::tools {

nlohmann::json StatusJson(const StatusReply& status);
nlohmann::json VersionsJson(const StatusReply& status);
nlohmann::json SamplersJson(const StatusReply& status);
nlohmann::json EventJson(const Event& event);
nlohmann::json ExplainJson(const ExplainReply& reply);
nlohmann::json OutcomeJson(const PublishOutcome& outcome);
nlohmann::json DecisionJson(const Decision& decision);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BRIDGE_JSON_H_
