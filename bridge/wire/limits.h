#ifndef LOCKSTEP_BRIDGE_WIRE_LIMITS_H_
#define LOCKSTEP_BRIDGE_WIRE_LIMITS_H_

// What a control frame may hold. Decode refuses a frame beyond any of these; a sender
// keeps within them (Encode shortens only the texts and lists of refusals, which grow with
// what went wrong). Limits that have a meaning beyond the wire (tensors, rollout tokens)
// live in policy and are used from there.

#include <cstdint>

namespace lockstep::wire {

// Of a frame, by what it holds. The largest is a manifest of kMaxTensors with long names;
// it is also the ZMQ_MAXMSGSIZE of control sockets.
inline constexpr uint64_t kMaxControlFrameBytes = uint64_t{256} << 20;
// Rollouts, re-scorings, decisions and refusals.
inline constexpr uint64_t kMaxRolloutFrameBytes = uint64_t{32} << 20;
// Everything without a list or a document.
inline constexpr uint64_t kMaxSmallFrameBytes = uint64_t{1} << 20;

// Names, identifiers, states, addresses and paths.
inline constexpr uint64_t kMaxNameBytes = 1'024;
// Free text: headlines, paragraphs, event sentences, receipts.
inline constexpr uint64_t kMaxTextBytes = uint64_t{64} << 10;
inline constexpr uint64_t kMaxRefusalMessageBytes = uint64_t{16} << 10;
inline constexpr uint64_t kMaxRefusals = 1'024;
inline constexpr uint64_t kMaxContractJsonBytes = uint64_t{4} << 20;

inline constexpr uint64_t kMaxComponents = 100'000;  // of one version's probe
inline constexpr uint64_t kMaxTables = 1'024;        // realisations of one build
inline constexpr uint64_t kMaxTransports = 16;
inline constexpr uint64_t kMaxStatusEntries = 100'000;  // of each list of a status reply
inline constexpr uint64_t kMaxEvents = 100'000;         // of one events reply
inline constexpr uint64_t kMaxExplainEntries = 10'000;  // paragraphs; facts
inline constexpr uint64_t kMaxSamplers = 100'000;       // outcomes of one publish

// Cap'n Proto pointers below each other; ours need 6.
inline constexpr int kMaxNesting = 16;

}  // namespace lockstep::wire

#endif  // LOCKSTEP_BRIDGE_WIRE_LIMITS_H_
