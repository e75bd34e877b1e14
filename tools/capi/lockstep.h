#ifndef LOCKSTEP_TOOLS_CAPI_LOCKSTEP_H_
#define LOCKSTEP_TOOLS_CAPI_LOCKSTEP_H_

/*
 * Lockstep's clients for any language: a trainer publishes versions of its weights, a sampler
 * receives, proves and serves them and submits rollouts. C99; one shared library, liblockstep.so.
 *
 * Example, a trainer:
 *   lockstep_trainer_options options = {.size = sizeof(options)};
 *   options.contract_json = contract;
 *   options.tensors = specs;
 *   options.tensor_count = count;
 *   lockstep_trainer* trainer;
 *   if (lockstep_trainer_connect(&options, &trainer) != LOCKSTEP_OK)
 *     fprintf(stderr, "%s\n", lockstep_last_error());
 *   lockstep_publish* publish;
 *   lockstep_trainer_publish(trainer, step, tensors, count, NULL, &publish);
 *   lockstep_publish_result result = {.size = sizeof(result)};
 *   lockstep_publish_wait(publish, -1, &result);
 *   lockstep_publish_destroy(publish);
 *   lockstep_trainer_destroy(trainer);
 *
 * Growth. A struct that begins with `size` may get members at its end: the caller sets
 * size = sizeof(the struct), members that it does not know are taken as 0, and members that the
 * library does not know must be 0. Other structs, enumerators and functions never change;
 * functions are added. LOCKSTEP_ABI_VERSION grows when something was added;
 * lockstep_abi_version() is the library's.
 *
 * Errors. Functions that can fail return a lockstep_code; what was wrong, why and what to do is
 * lockstep_last_error() of the same thread. No C++ exception leaves the library.
 *
 * Threads. Every function may be called from any thread, and on one handle from several at
 * once, except that a handle's destroy or release is its last call. Callbacks run on the
 * library's threads: on_pause, on_flush_cache, on_activate and on_resume one after the other on
 * one thread, which may take its time; on_done on another; on_released, on_live and on_state on
 * those that talk to the bridge, so they must return at once. A callback must not destroy the
 * trainer or sampler that it is of, nor wait for it. After destroy returned no callback runs and
 * none will.
 *
 * Memory. Inputs are copied unless said otherwise. A char** result is the caller's, for
 * lockstep_string_free. Strings are UTF-8 with a terminating 0; NULL stands for the default.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOCKSTEP_ABI_VERSION 1
#define LOCKSTEP_API __attribute__((visibility("default")))

/* The numbers are those of gRPC and Abseil. */
typedef enum lockstep_code {
  LOCKSTEP_OK = 0,
  LOCKSTEP_CANCELLED = 1,
  LOCKSTEP_UNKNOWN = 2,
  LOCKSTEP_INVALID_ARGUMENT = 3,
  LOCKSTEP_DEADLINE_EXCEEDED = 4,
  LOCKSTEP_NOT_FOUND = 5,
  LOCKSTEP_PERMISSION_DENIED = 7,
  LOCKSTEP_RESOURCE_EXHAUSTED = 8,
  LOCKSTEP_FAILED_PRECONDITION = 9, /* refused; the text names each reason's code */
  LOCKSTEP_ABORTED = 10,
  LOCKSTEP_INTERNAL = 13,
  LOCKSTEP_UNAVAILABLE = 14, /* no bridge */
  LOCKSTEP_DATA_LOSS = 15
} lockstep_code;

LOCKSTEP_API uint32_t lockstep_abi_version(void);

/* Of the last call on this thread that failed; "" before one has. Valid until the next call. */
LOCKSTEP_API const char* lockstep_last_error(void);

/* NULL is fine. */
LOCKSTEP_API void lockstep_string_free(char* text);

/* ---------------------------------------------------------------- contracts */

typedef struct lockstep_resolve_options {
  size_t size;
  int32_t exact;             /* not 0: refuse where there is no exact family */
  const char* lane;          /* "scoring", "active_lora", "full_param"; NULL: none */
  uint64_t tp;               /* 0: the family's own */
  uint64_t ep;               /* 0: the family's own */
  const char* level;         /* "weights", "kernels", "tokens"; NULL: the family's own */
  const char* local_partial; /* "v2", "v3"; NULL: the family's own */
  const char* swiglu;        /* "one_round", "two_round"; NULL: the family's own */
} lockstep_resolve_options;

/*
 * From a model's config.json to its contract. `options` may be NULL. *contract_json is what
 * connect takes; *resolution_json (may be NULL: not wanted) says everything, refusals too, and is
 * also set when the answer is LOCKSTEP_FAILED_PRECONDITION: refused. On any failure *contract_json
 * is NULL.
 */
LOCKSTEP_API int32_t lockstep_contract_resolve(const char* config_json,
                                               const lockstep_resolve_options* options,
                                               char** contract_json, char** resolution_json);

/* ---------------------------------------------------------------- tensors and bridges */

typedef enum lockstep_origin {
  LOCKSTEP_SYNCED = 0, /* moved by every publish */
  LOCKSTEP_FROZEN = 1, /* not moved */
  LOCKSTEP_DERIVED = 2 /* computed by the sampler from synced ones */
} lockstep_origin;

/* A tensor of the manifest; any order, names unique. */
typedef struct lockstep_tensor_spec {
  const char* name;
  const char* dtype;     /* of the safetensors format: "BF16", "F32", "F8_E4M3", ... */
  const uint64_t* shape; /* row-major, unsharded */
  size_t rank;
  int32_t origin; /* lockstep_origin */
} lockstep_tensor_spec;

/* Tensors whose bytes must be equal (tied weights). */
typedef struct lockstep_alias_group {
  const char* const* names;
  size_t name_count;
} lockstep_alias_group;

/* ---------------------------------------------------------------- decisions */

typedef enum lockstep_decision_kind {
  LOCKSTEP_ADMIT = 0,
  LOCKSTEP_REFUSE = 1,
  LOCKSTEP_PENDING = 2
} lockstep_decision_kind;

typedef struct lockstep_decision_result {
  size_t size;
  int32_t kind;     /* lockstep_decision_kind */
  int32_t compared; /* not 0: the numbers below are of a comparison that was made */
  uint64_t compared_tokens;
  uint64_t mismatched_tokens;
  double k1, k2, k3; /* d = trainer - sampler: means of -d, d*d/2, expm1(d) - d */
  double max_abs_diff;
} lockstep_decision_result;

/* A decision that may still be on its way. */
typedef struct lockstep_decision lockstep_decision;

/*
 * Waits at most timeout_ms (negative: for ever; 0: looks). LOCKSTEP_DEADLINE_EXCEEDED: not yet,
 * wait again; any other error is the outcome. `result` may be NULL.
 */
LOCKSTEP_API int32_t lockstep_decision_wait(lockstep_decision* decision, int64_t timeout_ms,
                                            lockstep_decision_result* result);

/* {"id", "decision", "reasons", "refusals", ...} as `lockstep rollout submit -o json` prints it. */
LOCKSTEP_API int32_t lockstep_decision_json(lockstep_decision* decision, char** json);

/* Also before it came: the rollout is judged all the same. NULL is fine. */
LOCKSTEP_API void lockstep_decision_destroy(lockstep_decision* decision);

/* ---------------------------------------------------------------- trainer */

typedef struct lockstep_trainer lockstep_trainer;

typedef struct lockstep_trainer_options {
  size_t size;
  const char* bridge; /* ipc://PATH or tcp://HOST:PORT; NULL: the default of this machine */
  const char* run;    /* must be the bridge's; NULL: any */
  const char* name;   /* NULL: "trainer" */
  const char* contract_json;
  const lockstep_tensor_spec* tensors; /* the manifest */
  size_t tensor_count;
  const lockstep_alias_group* alias_groups;
  size_t alias_group_count;
  const char* transport;       /* "shm" or "tcp"; NULL: chosen */
  int32_t threads;             /* for copying and digesting; 0: one per processor */
  const char* key_file;        /* NAME.key, for tcp */
  const char* bridge_key_file; /* the bridge's .pub, for tcp */
} lockstep_trainer_options;

/* LOCKSTEP_UNAVAILABLE: no bridge; LOCKSTEP_FAILED_PRECONDITION: refused, with reasons. */
LOCKSTEP_API int32_t lockstep_trainer_connect(const lockstep_trainer_options* options,
                                              lockstep_trainer** trainer);

/* Leaves the bridge; publishes in flight end with LOCKSTEP_CANCELLED. NULL is fine. */
LOCKSTEP_API void lockstep_trainer_destroy(lockstep_trainer* trainer);

LOCKSTEP_API uint64_t lockstep_trainer_epoch(const lockstep_trainer* trainer);

/* One synced tensor's bytes: row-major, contiguous, little-endian; not copied by the call. */
typedef struct lockstep_tensor {
  const char* name;
  const void* data;
  uint64_t bytes;
} lockstep_tensor;

typedef struct lockstep_publish lockstep_publish;

typedef struct lockstep_publish_result {
  size_t size;
  uint64_t version;
  uint64_t samplers;      /* told of it */
  uint64_t samplers_live; /* serve it now */
  uint64_t nan_elements;  /* allowed, counted */
  int32_t zero_change;    /* not 0: no byte differs from the version before */
} lockstep_publish_result;

typedef struct lockstep_publish_options {
  size_t size;
  void* user;
  /* Once for every publish that was started, also one that failed: the tensors are no longer
   * read. */
  void (*on_released)(void* user);
  /* Once for every publish that was started, after on_released: LOCKSTEP_OK and `result`, or a
   * code and `error`; both live as long as the call, and the other of the two is NULL. */
  void (*on_done)(void* user, int32_t code, const char* error,
                  const lockstep_publish_result* result);
} lockstep_publish_options;

/*
 * Starts to publish the manifest's synced tensors, all of them, in any order. Their bytes must
 * stay as they are until on_released, or until the publish is done. `options` may be NULL.
 * Publishes of a trainer run one after the other, in the order of the calls. `publish` may be
 * NULL where on_done says enough.
 */
LOCKSTEP_API int32_t lockstep_trainer_publish(lockstep_trainer* trainer, uint64_t version,
                                              const lockstep_tensor* tensors, size_t tensor_count,
                                              const lockstep_publish_options* options,
                                              lockstep_publish** publish);

/*
 * Waits until the version is durable and every agreed sampler is live or failed; as
 * lockstep_decision_wait.
 */
LOCKSTEP_API int32_t lockstep_publish_wait(lockstep_publish* publish, int64_t timeout_ms,
                                           lockstep_publish_result* result);

/* {"version", "zero_change", "nan_elements", "samplers": [{"name", "state", "refusals", ...}]}. */
LOCKSTEP_API int32_t lockstep_publish_json(lockstep_publish* publish, char** json);

/* The publish itself goes on. NULL is fine. */
LOCKSTEP_API void lockstep_publish_destroy(lockstep_publish* publish);

/* The trainer's log-probabilities, one a token, of a rollout that waits for them. */
LOCKSTEP_API int32_t lockstep_trainer_submit_rescore(lockstep_trainer* trainer,
                                                     const char* rollout_id, const float* logprobs,
                                                     size_t token_count,
                                                     lockstep_decision** decision);

/* ---------------------------------------------------------------- sampler */

typedef struct lockstep_sampler lockstep_sampler;
/* One version, held in place. */
typedef struct lockstep_weights lockstep_weights;

#define LOCKSTEP_RECEIPT_BYTES 1024

/*
 * For a new version: on_pause, on_flush_cache, on_activate, then on_live once the bridge has
 * confirmed; on_resume instead when the switch will not happen after on_pause was called, and
 * the version before is served on. Those that answer: LOCKSTEP_OK (0), or another code to fail
 * the round.
 */
typedef struct lockstep_sampler_options {
  size_t size;
  const char* bridge; /* as a trainer's */
  const char* run;
  const char* name; /* NULL: "sampler" */
  const char* contract_json;
  const lockstep_tensor_spec* tensors; /* what the engine serves; NULL: what the trainer states */
  size_t tensor_count;
  const lockstep_alias_group* alias_groups;
  size_t alias_group_count;
  const char* transports; /* "shm,tcp", "tcp", ...: most wanted first; NULL: "shm,tcp" */
  int32_t threads;        /* for digests and the probe; 0: one per processor */
  const char* key_file;
  const char* bridge_key_file;
  void* user; /* handed to the callbacks */
  int32_t (*on_pause)(void* user, uint64_t version);
  /* Must be there: drops caches of older versions and writes into `receipt`, of
   * LOCKSTEP_RECEIPT_BYTES, what was flushed, never empty, with a terminating 0. */
  int32_t (*on_flush_cache)(void* user, uint64_t version, char* receipt, size_t receipt_bytes);
  /* `weights` is borrowed for the call; lockstep_sampler_weights for one that stays. */
  int32_t (*on_activate)(void* user, uint64_t version, const lockstep_weights* weights);
  void (*on_resume)(void* user, uint64_t version);
  void (*on_live)(void* user, uint64_t version);
  /* {"state", "live_version", "contract", "reasons": [{"code", "key", "message"}]}, at every
   * change; from several threads. */
  void (*on_state)(void* user, const char* state_json);
} lockstep_sampler_options;

/*
 * A contract that differs from the trainer's is no error here: the state is then "refused", with
 * reasons. LOCKSTEP_UNAVAILABLE: no bridge. Callbacks may come before this returns.
 */
LOCKSTEP_API int32_t lockstep_sampler_connect(const lockstep_sampler_options* options,
                                              lockstep_sampler** sampler);

/* Leaves the bridge; waits until every lockstep_weights is released. NULL is fine. */
LOCKSTEP_API void lockstep_sampler_destroy(lockstep_sampler* sampler);

/* LOCKSTEP_DEADLINE_EXCEEDED when neither `version` nor a newer one is live by then. */
LOCKSTEP_API int32_t lockstep_sampler_wait_live(lockstep_sampler* sampler, uint64_t version,
                                                int64_t timeout_ms);

/* As on_state gets it. */
LOCKSTEP_API int32_t lockstep_sampler_state(lockstep_sampler* sampler, char** state_json);

/*
 * Holds the version that is served now, for one forward pass or one request: its bytes stay as
 * they are until lockstep_weights_release. LOCKSTEP_FAILED_PRECONDITION: there is none yet.
 */
LOCKSTEP_API int32_t lockstep_sampler_weights(lockstep_sampler* sampler,
                                              lockstep_weights** weights);

/* NULL is fine. */
LOCKSTEP_API void lockstep_weights_release(lockstep_weights* weights);

LOCKSTEP_API uint64_t lockstep_weights_version(const lockstep_weights* weights);

/* Of the manifest: also those that are not synced. */
LOCKSTEP_API size_t lockstep_weights_count(const lockstep_weights* weights);

/* Everything is read-only and lives as long as the weights. */
typedef struct lockstep_tensor_view {
  const char* name;
  const char* dtype;
  const uint64_t* shape;
  size_t rank;
  const void* data; /* row-major, little-endian; NULL when it is not synced */
  uint64_t bytes;
} lockstep_tensor_view;

/* In the order of the names' bytes. */
LOCKSTEP_API int32_t lockstep_weights_at(const lockstep_weights* weights, size_t index,
                                         lockstep_tensor_view* view);
LOCKSTEP_API int32_t lockstep_weights_find(const lockstep_weights* weights, const char* name,
                                           lockstep_tensor_view* view);

/* Tokens [start, end) were decoded under `version`. */
typedef struct lockstep_token_span {
  uint64_t version;
  uint64_t start;
  uint64_t end;
} lockstep_token_span;

typedef struct lockstep_rollout {
  size_t size;
  const char* id; /* NULL: from the content */
  const lockstep_token_span* spans;
  size_t span_count;
  const int64_t* tokens;         /* of the completion */
  const float* sampler_logprobs; /* decision-time, one a token */
  size_t token_count;
  const char* level; /* "weights", "kernels", "tokens"; NULL: "tokens" */
} lockstep_rollout;

/* The sampler's name, incarnation, contract, cache epoch and ticket are filled in. */
LOCKSTEP_API int32_t lockstep_sampler_submit_rollout(lockstep_sampler* sampler,
                                                     const lockstep_rollout* rollout,
                                                     lockstep_decision** decision);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* LOCKSTEP_TOOLS_CAPI_LOCKSTEP_H_ */
