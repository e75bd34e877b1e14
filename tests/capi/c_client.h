#ifndef LOCKSTEP_TESTS_CAPI_C_CLIENT_H_
#define LOCKSTEP_TESTS_CAPI_C_CLIENT_H_

/* A trainer and a sampler in plain C over lockstep.h, for lockstep_test.cc. */

#ifdef __cplusplus
extern "C" {
#endif

/* Told of everything that is not as it must be. */
typedef void (*c_client_fail)(const char* what, int line, const char* detail);

/* What needs no bridge: resolving, arguments that are refused, errors' texts. */
void c_client_without_bridge(c_client_fail fail);

/* Two versions from a trainer to a sampler at `bridge`, and their rollouts. */
void c_client_with_bridge(const char* bridge, const char* transport, c_client_fail fail);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* LOCKSTEP_TESTS_CAPI_C_CLIENT_H_ */
