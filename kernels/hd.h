#ifndef LOCKSTEP_KERNELS_HD_H_
#define LOCKSTEP_KERNELS_HD_H_

// Marks a function that the host and the CUDA twin compile from the same source, so that
// there is one text of every scalar step.
//
// Example:
//   LOCKSTEP_HD inline float Twice(float x) { return x + x; }

#ifdef __CUDACC__
#define LOCKSTEP_HD __host__ __device__
#else
#define LOCKSTEP_HD
#endif

#endif  // LOCKSTEP_KERNELS_HD_H_
