#include "tests/capi/c_client.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tools/capi/lockstep.h"

#define EXPECT(condition)                                                \
  do {                                                                   \
    if (!(condition)) fail(#condition, __LINE__, lockstep_last_error()); \
  } while (0)

#define TIMEOUT_MS 30000
#define BIG_BYTES 300001

static const char kConfig[] = "{\"model_type\": \"llama\", \"hidden_act\": \"silu\"}";

static const uint64_t kBigShape[] = {BIG_BYTES};
static const uint64_t kHeadShape[] = {4, 8};
/* Not in the manifest's order. */
static const lockstep_tensor_spec kSpecs[] = {
    {"head.weight", "BF16", kHeadShape, 2, LOCKSTEP_SYNCED},
    {"big", "U8", kBigShape, 1, LOCKSTEP_SYNCED},
    {"rope.frozen", "F32", kHeadShape, 2, LOCKSTEP_FROZEN},
};

struct seen {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int released;
  int done;
  int done_ok;
  int paused;
  int flushed;
  int activated;
  uint64_t activated_byte;
  uint64_t live;
  int states;
};

static void lock(struct seen* seen) { pthread_mutex_lock(&seen->mutex); }
static void unlock(struct seen* seen) {
  pthread_cond_broadcast(&seen->changed);
  pthread_mutex_unlock(&seen->mutex);
}

static int wait_for(struct seen* seen, const int* count, int at_least) {
  struct timespec deadline;
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += TIMEOUT_MS / 1000;
  pthread_mutex_lock(&seen->mutex);
  int timed_out = 0;
  while (*count < at_least && timed_out == 0) {
    timed_out = pthread_cond_timedwait(&seen->changed, &seen->mutex, &deadline);
  }
  const int reached = *count >= at_least;
  pthread_mutex_unlock(&seen->mutex);
  return reached;
}

static void on_released(void* user) {
  struct seen* seen = user;
  lock(seen);
  ++seen->released;
  unlock(seen);
}

static void on_done(void* user, int32_t code, const char* error,
                    const lockstep_publish_result* result) {
  struct seen* seen = user;
  lock(seen);
  ++seen->done;
  if (code == LOCKSTEP_OK && error == NULL && result != NULL && result->samplers_live == 1) {
    ++seen->done_ok;
  }
  unlock(seen);
}

static int32_t on_pause(void* user, uint64_t version) {
  struct seen* seen = user;
  (void)version;
  lock(seen);
  ++seen->paused;
  unlock(seen);
  return LOCKSTEP_OK;
}

static int32_t on_flush_cache(void* user, uint64_t version, char* receipt, size_t receipt_bytes) {
  struct seen* seen = user;
  lock(seen);
  ++seen->flushed;
  unlock(seen);
  snprintf(receipt, receipt_bytes, "flushed before %llu", (unsigned long long)version);
  return LOCKSTEP_OK;
}

static int32_t on_activate(void* user, uint64_t version, const lockstep_weights* weights) {
  struct seen* seen = user;
  lockstep_tensor_view big;
  if (lockstep_weights_version(weights) != version) return LOCKSTEP_INTERNAL;
  const int32_t found = lockstep_weights_find(weights, "big", &big);
  if (found != LOCKSTEP_OK) return found;
  lock(seen);
  ++seen->activated;
  seen->activated_byte = ((const unsigned char*)big.data)[BIG_BYTES - 1];
  unlock(seen);
  return LOCKSTEP_OK;
}

static void on_live(void* user, uint64_t version) {
  struct seen* seen = user;
  lock(seen);
  seen->live = version;
  unlock(seen);
}

static void on_state(void* user, const char* state_json) {
  struct seen* seen = user;
  if (strstr(state_json, "\"state\"") == NULL) return;
  lock(seen);
  ++seen->states;
  unlock(seen);
}

void c_client_without_bridge(c_client_fail fail) {
  EXPECT(lockstep_abi_version() == LOCKSTEP_ABI_VERSION);

  char* contract = NULL;
  char* resolution = NULL;
  EXPECT(lockstep_contract_resolve(kConfig, NULL, &contract, &resolution) == LOCKSTEP_OK);
  EXPECT(contract != NULL && strstr(contract, "\"none\"") != NULL);
  EXPECT(resolution != NULL && strstr(resolution, "contract_id") != NULL);
  lockstep_string_free(resolution);

  lockstep_resolve_options exact = {.size = sizeof(exact), .exact = 1};
  char* none = NULL;
  EXPECT(lockstep_contract_resolve(kConfig, &exact, &none, &resolution) ==
         LOCKSTEP_FAILED_PRECONDITION);
  EXPECT(none == NULL);
  EXPECT(resolution != NULL && strstr(resolution, "no_exact_family") != NULL);
  EXPECT(strstr(lockstep_last_error(), "no_exact_family") != NULL);
  lockstep_string_free(resolution);
  EXPECT(lockstep_contract_resolve("{", NULL, &none, NULL) == LOCKSTEP_FAILED_PRECONDITION);
  exact.lane = "fast";
  EXPECT(lockstep_contract_resolve(kConfig, &exact, &none, NULL) == LOCKSTEP_INVALID_ARGUMENT);

  /* Structs of another age. */
  struct {
    lockstep_resolve_options known;
    uint64_t of_the_future;
  } newer = {.known = {.size = sizeof(newer)}};
  EXPECT(lockstep_contract_resolve(kConfig, &newer.known, &none, NULL) == LOCKSTEP_OK);
  lockstep_string_free(none);
  newer.of_the_future = 1;
  EXPECT(lockstep_contract_resolve(kConfig, &newer.known, &none, NULL) ==
         LOCKSTEP_INVALID_ARGUMENT);
  EXPECT(strstr(lockstep_last_error(), "newer liblockstep.so") != NULL);
  /* Ends before `lane`, which is therefore not read. */
  lockstep_resolve_options older = {.size = offsetof(lockstep_resolve_options, lane),
                                    .lane = "fast"};
  EXPECT(lockstep_contract_resolve(kConfig, &older, &none, NULL) == LOCKSTEP_OK);
  lockstep_string_free(none);
  older.size = 0;
  EXPECT(lockstep_contract_resolve(kConfig, &older, &none, NULL) == LOCKSTEP_INVALID_ARGUMENT);

  lockstep_trainer* trainer = NULL;
  EXPECT(lockstep_trainer_connect(NULL, &trainer) == LOCKSTEP_INVALID_ARGUMENT);
  lockstep_trainer_options options = {.size = sizeof(options)};
  EXPECT(lockstep_trainer_connect(&options, &trainer) == LOCKSTEP_INVALID_ARGUMENT);
  EXPECT(strstr(lockstep_last_error(), "contract_json") != NULL);
  options.contract_json = contract;
  const lockstep_tensor_spec odd = {"x", "BF17", kHeadShape, 2, LOCKSTEP_SYNCED};
  options.tensors = &odd;
  options.tensor_count = 1;
  EXPECT(lockstep_trainer_connect(&options, &trainer) == LOCKSTEP_INVALID_ARGUMENT);
  EXPECT(strstr(lockstep_last_error(), "BF17") != NULL);
  options.tensors = kSpecs;
  options.tensor_count = 3;
  options.bridge = "ipc:///nonexistent/lockstep.sock";
  EXPECT(lockstep_trainer_connect(&options, &trainer) == LOCKSTEP_UNAVAILABLE);
  EXPECT(trainer == NULL);
  lockstep_sampler* sampler = NULL;
  lockstep_sampler_options serving = {.size = sizeof(serving), .contract_json = contract};
  EXPECT(lockstep_sampler_connect(&serving, &sampler) == LOCKSTEP_INVALID_ARGUMENT);
  EXPECT(strstr(lockstep_last_error(), "on_flush_cache") != NULL);

  /* What is NULL where it may be. */
  lockstep_trainer_destroy(NULL);
  lockstep_sampler_destroy(NULL);
  lockstep_publish_destroy(NULL);
  lockstep_decision_destroy(NULL);
  lockstep_weights_release(NULL);
  lockstep_string_free(contract);
}

static void publish_one(lockstep_trainer* trainer, uint64_t version, struct seen* seen,
                        c_client_fail fail) {
  static unsigned char big[BIG_BYTES];
  static unsigned char head[4 * 8 * 2];
  memset(big, (int)version, sizeof(big));
  memset(head, (int)(version + 1), sizeof(head));
  const lockstep_tensor tensors[] = {{"big", big, sizeof(big)},
                                     {"head.weight", head, sizeof(head)}};
  const lockstep_publish_options options = {
      .size = sizeof(options), .user = seen, .on_released = on_released, .on_done = on_done};
  lockstep_publish* publish = NULL;
  EXPECT(lockstep_trainer_publish(trainer, version, tensors, 2, &options, &publish) == LOCKSTEP_OK);
  EXPECT(wait_for(seen, &seen->released, (int)version));
  memset(big, 0xEE, sizeof(big));
  lockstep_publish_result result = {.size = sizeof(result)};
  EXPECT(lockstep_publish_wait(publish, TIMEOUT_MS, &result) == LOCKSTEP_OK);
  EXPECT(result.version == version && result.samplers == 1 && result.samplers_live == 1);
  EXPECT(wait_for(seen, &seen->done_ok, (int)version));
  char* json = NULL;
  EXPECT(lockstep_publish_json(publish, &json) == LOCKSTEP_OK);
  EXPECT(json != NULL && strstr(json, "\"live\"") != NULL);
  lockstep_string_free(json);
  lockstep_publish_destroy(publish);
}

static void look_at(lockstep_sampler* sampler, uint64_t version, c_client_fail fail) {
  lockstep_weights* weights = NULL;
  EXPECT(lockstep_sampler_weights(sampler, &weights) == LOCKSTEP_OK);
  EXPECT(lockstep_weights_version(weights) == version);
  EXPECT(lockstep_weights_count(weights) == 3);
  lockstep_tensor_view view;
  EXPECT(lockstep_weights_at(weights, 0, &view) == LOCKSTEP_OK);
  EXPECT(strcmp(view.name, "big") == 0 && strcmp(view.dtype, "U8") == 0);
  EXPECT(view.rank == 1 && view.shape[0] == BIG_BYTES && view.bytes == BIG_BYTES);
  const unsigned char* bytes = view.data;
  EXPECT(bytes[0] == version && bytes[BIG_BYTES - 1] == version);
  EXPECT(lockstep_weights_find(weights, "head.weight", &view) == LOCKSTEP_OK);
  EXPECT(((const unsigned char*)view.data)[0] == version + 1);
  EXPECT(lockstep_weights_find(weights, "rope.frozen", &view) == LOCKSTEP_OK);
  EXPECT(view.data == NULL && view.bytes == 0);
  EXPECT(lockstep_weights_find(weights, "nobody", &view) == LOCKSTEP_NOT_FOUND);
  EXPECT(lockstep_weights_at(weights, 3, &view) == LOCKSTEP_NOT_FOUND);
  lockstep_weights_release(weights);
}

static void judge(lockstep_trainer* trainer, lockstep_sampler* sampler, uint64_t version,
                  c_client_fail fail) {
  const lockstep_token_span span = {version, 0, 3};
  const int64_t tokens[] = {5, 6, 7};
  const float logprobs[] = {-0.5f, -0.25f, -1.0f};
  const float rescored[] = {-0.5f, -0.250001f, -1.0f};
  lockstep_rollout rollout = {.size = sizeof(rollout),
                              .spans = &span,
                              .span_count = 1,
                              .tokens = tokens,
                              .sampler_logprobs = logprobs,
                              .token_count = 3,
                              .level = "weights"};
  lockstep_decision* decision = NULL;
  lockstep_decision_result result = {.size = sizeof(result)};
  EXPECT(lockstep_sampler_submit_rollout(sampler, &rollout, &decision) == LOCKSTEP_OK);
  EXPECT(lockstep_decision_wait(decision, TIMEOUT_MS, &result) == LOCKSTEP_OK);
  EXPECT(result.kind == LOCKSTEP_ADMIT && !result.compared);
  lockstep_decision_destroy(decision);

  rollout.id = "c1";
  rollout.level = "tokens";
  EXPECT(lockstep_sampler_submit_rollout(sampler, &rollout, &decision) == LOCKSTEP_OK);
  EXPECT(lockstep_decision_wait(decision, 0, NULL) == LOCKSTEP_DEADLINE_EXCEEDED);
  lockstep_decision* by_trainer = NULL;
  int32_t code = LOCKSTEP_FAILED_PRECONDITION;
  /* Until the bridge knows the rollout it says so. */
  for (int i = 0; i < 10000 && code == LOCKSTEP_FAILED_PRECONDITION; ++i) {
    lockstep_decision_destroy(by_trainer);
    EXPECT(lockstep_trainer_submit_rescore(trainer, "c1", rescored, 3, &by_trainer) == LOCKSTEP_OK);
    code = lockstep_decision_wait(by_trainer, TIMEOUT_MS, NULL);
  }
  EXPECT(code == LOCKSTEP_OK);
  EXPECT(lockstep_decision_wait(decision, TIMEOUT_MS, &result) == LOCKSTEP_OK);
  EXPECT(result.kind == LOCKSTEP_REFUSE && result.compared && result.mismatched_tokens == 1);
  char* json = NULL;
  EXPECT(lockstep_decision_json(decision, &json) == LOCKSTEP_OK);
  EXPECT(json != NULL && strstr(json, "logprob_mismatch") != NULL);
  lockstep_string_free(json);
  lockstep_decision_destroy(decision);
  lockstep_decision_destroy(by_trainer);
}

void c_client_with_bridge(const char* bridge, const char* transport, c_client_fail fail) {
  struct seen seen = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  char* contract = NULL;
  EXPECT(lockstep_contract_resolve(kConfig, NULL, &contract, NULL) == LOCKSTEP_OK);

  lockstep_trainer_options training = {.size = sizeof(training),
                                       .bridge = bridge,
                                       .name = "c-trainer",
                                       .contract_json = contract,
                                       .tensors = kSpecs,
                                       .tensor_count = 3,
                                       .transport = transport};
  lockstep_trainer* trainer = NULL;
  EXPECT(lockstep_trainer_connect(&training, &trainer) == LOCKSTEP_OK);
  lockstep_sampler_options serving = {.size = sizeof(serving),
                                      .bridge = bridge,
                                      .name = "c-sampler",
                                      .contract_json = contract,
                                      .transports = transport,
                                      .user = &seen,
                                      .on_pause = on_pause,
                                      .on_flush_cache = on_flush_cache,
                                      .on_activate = on_activate,
                                      .on_live = on_live,
                                      .on_state = on_state};
  lockstep_sampler* sampler = NULL;
  EXPECT(lockstep_sampler_connect(&serving, &sampler) == LOCKSTEP_OK);
  if (trainer == NULL || sampler == NULL) return;
  EXPECT(lockstep_trainer_epoch(trainer) >= 1);
  lockstep_weights* early = NULL;
  EXPECT(lockstep_sampler_weights(sampler, &early) == LOCKSTEP_FAILED_PRECONDITION);
  EXPECT(lockstep_sampler_wait_live(sampler, 1, 0) == LOCKSTEP_DEADLINE_EXCEEDED);

  for (uint64_t version = 1; version <= 2; ++version) {
    publish_one(trainer, version, &seen, fail);
    EXPECT(lockstep_sampler_wait_live(sampler, version, TIMEOUT_MS) == LOCKSTEP_OK);
    look_at(sampler, version, fail);
    lock(&seen);
    EXPECT(seen.paused == (int)version && seen.flushed == (int)version);
    EXPECT(seen.activated == (int)version && seen.activated_byte == version);
    EXPECT(seen.states > 0);
    unlock(&seen);
  }
  judge(trainer, sampler, 2, fail);

  /* Half a version is refused, and on_done hears of that too. */
  unsigned char head[4 * 8 * 2] = {0};
  const lockstep_tensor one = {"head.weight", head, sizeof(head)};
  const lockstep_publish_options options = {
      .size = sizeof(options), .user = &seen, .on_done = on_done};
  EXPECT(lockstep_trainer_publish(trainer, 3, &one, 1, &options, NULL) == LOCKSTEP_OK);
  EXPECT(wait_for(&seen, &seen.done, 3));
  lock(&seen);
  EXPECT(seen.done_ok == 2);
  unlock(&seen);

  char* state = NULL;
  EXPECT(lockstep_sampler_state(sampler, &state) == LOCKSTEP_OK);
  EXPECT(state != NULL && strstr(state, "\"live_version\":2") != NULL);
  lockstep_string_free(state);
  lockstep_sampler_destroy(sampler);
  lockstep_trainer_destroy(trainer);
  lock(&seen);
  EXPECT(seen.live == 2);
  unlock(&seen);
  lockstep_string_free(contract);
}
