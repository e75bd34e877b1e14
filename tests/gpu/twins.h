#ifndef LOCKSTEP_TESTS_GPU_TWINS_H_
#define LOCKSTEP_TESTS_GPU_TWINS_H_

// The comparisons of exact_twins_check, one function per family of programs.
//
// Example:
//   TwinCheck check(seed, only);
//   CheckSwigluTwins(check);

#include "tests/gpu/twin_check.h"

namespace lockstep::kernels {

// Of random shapes in every family and round, besides the listed ones.
inline constexpr int kRandomShapes = 4;

void CheckAttentionTwins(TwinCheck& check);  // and RoPE and the router
void CheckGemmTwins(TwinCheck& check);
void CheckHeadTwins(TwinCheck& check);
void CheckLoraTwins(TwinCheck& check);
void CheckMoeTwins(TwinCheck& check);
void CheckRmsNormTwins(TwinCheck& check);
void CheckSwigluTwins(TwinCheck& check);

// Runs twins of every kind 100 times on the same operands: the bytes never change.
void CheckRepeats(TwinCheck& check);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_TESTS_GPU_TWINS_H_
