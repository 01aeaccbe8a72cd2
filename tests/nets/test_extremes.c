/* nets/test_extremes.c: every public function with every pointer NULL and every number extreme, one at a time, also
 * inside the structs it takes; with a communicator of one and of two ranks, one that was aborted, and in a forked
 * child. The functions come from the headers (generate.cc). An answer or a code of gsel/error.h is right; a signal, a
 * hang, an internal error, an error without text and an object beside an error are findings. */
#include <float.h>
#include <math.h>
#include <pthread.h>

#include "nets/scene.h"
#include "support/net.h"
#include "support/scratch.h"
#include "support/traces.h"

enum { MOST_PARAMETERS = 16, MOST_VALUES = 12, AREA_WRITABLE = 1 << 20, MOST_RANKS = 2 };
/* Behind what may be written stand zeros as far as a count of 2^31 numbers may have to be followed. */
static const size_t area_bytes = (size_t)17 << 30;

typedef enum { FRESH, ABORTED, FORKED } condition;

/* A call with one thing changed: value k of a parameter, or of a field of the struct that it points to;
 * parameter -1: nothing. */
typedef struct change {
  const net_function* function;
  int parameter, field, k, variant;
  int32_t world_size;
  condition state;
} change;

typedef union slot {
  void* pointer;
  int64_t number;
  double real;
  gsel_str str;
  unsigned char bytes[sizeof(gsel_str)];
} slot;

typedef struct attempt {
  net_trial* trial;
  change change;
  int32_t rank;
  const gsel_unique_id* id;
  char* arena;
  pthread_barrier_t* arranged; /* all ranks; what comes then has the attempt's name */
  int exists;                  /* whether there is such a change */
  gsel_status status;
} attempt;

/* ---- extreme values ---- */

/* Writes value k of a number of so many bytes; 0 past the last. None of the large ones has a size in memory. */
static int extreme_number(uint32_t bytes, int k, void* at, char* label, size_t capacity) {
  static const int64_t wide[] = {
      0, 1, -1, INT64_MIN, INT64_MAX, (int64_t)(SIZE_MAX / 4 + 2), (int64_t)(SIZE_MAX / 8 + 2)};
  static const int32_t narrow[] = {0, 1, -1, INT32_MIN, INT32_MAX, 65536};
  if (bytes == 8 && k < (int)(sizeof wide / sizeof *wide)) {
    memcpy(at, &wide[k], 8);
    snprintf(label, capacity, "%lld", (long long)wide[k]);
    return 1;
  }
  if (bytes < 8 && k < (int)(sizeof narrow / sizeof *narrow)) {
    memcpy(at, &narrow[k], bytes);
    snprintf(label, capacity, "%d", (int)narrow[k]);
    return 1;
  }
  return 0;
}

/* Sizes of structs: what an older or newer caller may say, and what none can mean. */
static int extreme_size(uint32_t bytes, uint32_t right, int k, void* at, char* label, size_t capacity) {
  const uint64_t sizes[] = {0, 1, 4, 8, right - 1, right + 8, 65536, SIZE_MAX, SIZE_MAX / 2, (uint64_t)UINT32_MAX + 1};
  if (k >= (bytes == 8 ? 10 : 7)) return 0;
  memcpy(at, &sizes[k], bytes);
  snprintf(label, capacity, "%llu", (unsigned long long)sizes[k]);
  return 1;
}

static int extreme_real(uint32_t bytes, int k, void* at, char* label, size_t capacity) {
  const double reals[] = {0, -1, NAN, INFINITY, -INFINITY, DBL_MAX, DBL_MIN / 2};
  if (k >= (int)(sizeof reals / sizeof *reals)) return 0;
  const float narrow = (float)reals[k];
  memcpy(at, bytes == 8 ? (const void*)&reals[k] : (const void*)&narrow, bytes);
  snprintf(label, capacity, "%g", reals[k]);
  return 1;
}

static int extreme_str(int k, void* at, char* label, size_t capacity) {
  static char longest[5001];
  memset(longest, 'x', 5000);
  const gsel_str strs[] = {{NULL, 0},          {NULL, 7},   {NULL, GSEL_NUL},      {"", 0},
                           {"", GSEL_NUL},     {"a\0b", 3}, {"\xff\xfe\n\x01", 4}, {longest, 5000},
                           {longest, GSEL_NUL}};
  static const char* const labels[] = {
      "NULL",      "NULL of 7 bytes",        "NULL to its end", "\"\" of 0 bytes",        "\"\"",
      "\"a\\0b\"", "bytes that are no text", "5000 bytes",      "5000 bytes to their end"};
  if (k >= (int)(sizeof strs / sizeof *strs)) return 0;
  memcpy(at, &strs[k], sizeof strs[k]);
  snprintf(label, capacity, "%s", labels[k]);
  return 1;
}

static int extreme_pointer(scene* s, const net_variable* p, int k, void* at, char* label, size_t capacity) {
  void* good = NULL;
  if (k == 1 && p->kind == NET_HANDLE) good = scene_object(s, p->type);
  if (k == 1 && p->kind == NET_FUNCTION) memcpy(&good, &p->no_op, sizeof good);
  if (k == 1 && p->kind == NET_TEXT) good = (void*)(uintptr_t) "";
  if (k > 1 || (k == 1 && !good)) return 0;
  memcpy(at, &good, sizeof good);
  snprintf(label, capacity, "%s", good ? "given" : "NULL");
  return 1;
}

static int change_value(scene* s, const net_variable* p, uint32_t record_bytes, int k, void* at, char* label,
                        size_t capacity) {
  if (!strcmp(p->name, "struct_size"))
    return extreme_size(p->bytes, record_bytes ? record_bytes : 16, k, at, label, capacity);
  if (p->kind == NET_NUMBER) return extreme_number(p->bytes, k, at, label, capacity);
  if (p->kind == NET_REAL) return extreme_real(p->bytes, k, at, label, capacity);
  if (p->kind == NET_STR) return extreme_str(k, at, label, capacity);
  return extreme_pointer(s, p, k, at, label, capacity);
}

/* ---- a good call ---- */

static void good_buffer(const net_variable* p, char* area) {
  memset(area, 0, 4096);
  if (p->bytes == 8 || p->bytes == 4)
    for (uint32_t i = 0; i < 16 && strcmp(p->type, "float") && strcmp(p->type, "double"); ++i) area[i * p->bytes] = 1;
}

static int good_record(scene* s, const net_variable* p, char* area) {
  const net_record* record = p->record;
  memset(area, 0, record->bytes + 4096);
  if (record->n_fields && !strcmp(record->fields[0].name, "struct_size")) memcpy(area, &record->bytes, 4);
  return scene_fill(s, record->name, area);
}

/* 0: the struct has no such variant. */
static int good_value(scene* s, const net_variable* p, char* area, slot* at) {
  int64_t number;
  void* object;
  switch (p->kind) {
    case NET_NUMBER:
      scene_number(s, s->function, p->name, &number);
      if (!strcmp(p->name, "struct_size")) number = 8;
      memcpy(at, &number, p->bytes);
      return 1;
    case NET_REAL:
      at->real = 1;
      return 1;
    case NET_STR:
      at->str = gsel_str_from(scene_text(s->function, p->name));
      return 1;
    case NET_TEXT:
      at->pointer = (void*)(uintptr_t)scene_text(s->function, p->name);
      return 1;
    case NET_FUNCTION:
      memcpy(at, &p->no_op, sizeof p->no_op);
      return 1;
    case NET_HANDLE:
      at->pointer = scene_object(s, p->type);
      return 1;
    case NET_RECORD:
      at->pointer = area;
      return good_record(s, p, area);
    case NET_LIST:
      memset(area, 0, 4096);
      object = scene_makes(p->type) ? scene_object(s, p->type) : area + 65536;
      memcpy(area, &object, sizeof object);
      at->pointer = area;
      return p->record ? good_record(s, p, area + 65536) : 1;
    default: /* NET_OUT, NET_ERROR, NET_BUFFER */
      good_buffer(p, area);
      at->pointer = area;
      return 1;
  }
}

static int is_release(const net_function* f) {
  const size_t n = strlen(f->name);
  return f->n_parameters == 1 && f->parameters[0].kind == NET_HANDLE &&
         (!strcmp(f->name + n - 5, "_free") || !strcmp(f->name + n - 8, "_destroy"));
}

/* Of those that promise GSEL_ERR_FORKED; queries of a pipeline and of programs are answered everywhere. */
static int is_of_one_process(const net_function* f) {
  const char* type = f->n_parameters ? f->parameters[0].type : "";
  return !strcmp(type, "gsel_comm") || !strcmp(type, "gsel_request") || !strcmp(type, "gsel_trainer");
}

static int is_of_a_comm(const net_function* f) {
  for (int i = 0; i < f->n_parameters; ++i)
    if (f->parameters[i].kind == NET_HANDLE && scene_needs_comm(f->parameters[i].type)) return 1;
  return 0;
}

/* ---- what came back ---- */

static int is_code(gsel_status status) {
#define ONE_CODE(constant, number, text) \
  if (status == (number)) return (number) != GSEL_ERR_INTERNAL;
  GSEL_ERROR_LIST(ONE_CODE)
#undef ONE_CODE
  return 0;
}

static void judge_error(const attempt* a, gsel_status status, const gsel_error* err) {
  char text[200];
  const gsel_str message = gsel_error_message(err);
  if (!is_code(status)) {
    snprintf(text, sizeof text, "status %d: %.150s", (int)status, message.data ? message.data : "");
    net_find(a->trial->log, a->trial->name, text);
  }
  if ((status == GSEL_OK) != (err == NULL) || gsel_error_code(err) != status)
    net_find(a->trial->log, a->trial->name, "status and error object differ");
  if (!err) return;
  for (size_t i = 0; i < message.len; ++i)
    if ((unsigned char)message.data[i] < 0x20) {
      net_find(a->trial->log, a->trial->name, "a message with control characters");
      break;
    }
  if (message.len == 0) net_find(a->trial->log, a->trial->name, "an error without text");
}

static void judge_out(const attempt* a, const net_variable* p, const slot* at, const net_answer* answer) {
  void* object = NULL;
  if (!at->pointer) return;
  memcpy(&object, at->pointer, sizeof object);
  /* Breaches are an error with a report: the data that a scene gives fills nothing. */
  const int is_report = answer->status == GSEL_ERR_MODEL && !strcmp(p->type, "gsel_model_check_report");
  if (answer->status && object && !is_report) net_find(a->trial->log, a->trial->name, "an object beside an error");
  if ((!answer->status || is_report) && object) scene_release(p->type, object);
}

static void judge_text(const net_answer* answer) {
  volatile size_t sum = 0;
  for (size_t i = 0; answer->text.data && i < answer->text.len; ++i) sum += (unsigned char)answer->text.data[i];
  if (answer->c_text) sum += strlen(answer->c_text);
}

static void judge(attempt* a, scene* s, const slot* slots, const net_answer* answer) {
  const net_function* f = a->change.function;
  for (int i = 0; i < f->n_parameters; ++i) {
    if (f->parameters[i].kind == NET_OUT) judge_out(a, &f->parameters[i], &slots[i], answer);
    if (f->parameters[i].kind == NET_ERROR && slots[i].pointer) {
      gsel_error* err;
      memcpy(&err, slots[i].pointer, sizeof err);
      judge_error(a, answer->status, err);
      gsel_error_free(err);
    } else if (f->parameters[i].kind == NET_ERROR && !is_code(answer->status)) {
      net_find(a->trial->log, a->trial->name, "an internal error");
    }
  }
  judge_text(answer);
  if (is_release(f) && slots[0].pointer) scene_forget(s, f->parameters[0].type);
  if (a->change.state == FORKED && f->result == NET_STATUS && is_of_one_process(f) && answer->status != GSEL_ERR_FORKED)
    net_find(a->trial->log, a->trial->name, answer->status ? "another code than GSEL_ERR_FORKED" : "answers GSEL_OK");
  a->status = answer->status;
}

/* ---- an attempt ---- */

static const char* state_text(const change* c) {
  return c->state == ABORTED ? ", aborted" : c->state == FORKED ? ", in a forked child" : "";
}

static void name_attempt(const attempt* a, const char* value) {
  const change* c = &a->change;
  const net_variable* p = c->parameter < 0 ? NULL : &c->function->parameters[c->parameter];
  char variant[24] = "";
  if (a->rank > 0) return;
  if (c->variant > 0) snprintf(variant, sizeof variant, ", form %d", c->variant);
  snprintf(a->trial->name, sizeof a->trial->name, "%s(%s%s%s%s%s) in a world of %d%s%s", c->function->name,
           p ? p->name : "", c->field < 0 ? "" : "->", c->field < 0 ? "" : p->record->fields[c->field].name,
           p ? " = " : "", p ? value : "", (int)c->world_size, variant, state_text(c));
}

/* Puts the good arguments together and changes one; 0: there is no such change. */
static int arrange(attempt* a, scene* s, slot* slots) {
  const change* c = &a->change;
  const net_function* f = c->function;
  char value[64] = "";
  int exists = c->variant == 0;
  for (int i = 0; i < f->n_parameters; ++i) {
    const int has = good_value(s, &f->parameters[i], a->arena + (size_t)i * area_bytes, &slots[i]);
    exists = exists || (f->parameters[i].kind == NET_RECORD && has);
  }
  if (!exists) return 0;
  if (c->parameter >= 0) {
    const net_variable* p = &f->parameters[c->parameter];
    if (c->field < 0) {
      if (!change_value(s, p, 0, c->k, &slots[c->parameter], value, sizeof value)) return 0;
    } else {
      char* record = (char*)slots[c->parameter].pointer;
      const net_variable* field = &p->record->fields[c->field];
      if (!change_value(s, field, p->record->bytes, c->k, record + field->offset, value, sizeof value)) return 0;
    }
  }
  name_attempt(a, value);
  if (s->failure[0]) net_find(a->trial->log, a->trial->name, s->failure);
  return 1;
}

static void call_and_judge(attempt* a, scene* s, slot* slots) {
  void* arguments[MOST_PARAMETERS];
  net_answer answer = {GSEL_OK, {NULL, 0}, NULL};
  for (int i = 0; i < a->change.function->n_parameters; ++i) arguments[i] = &slots[i];
  a->change.function->call(arguments, &answer);
  judge(a, s, slots, &answer);
}

static void call_in_child(attempt* a, scene* s, slot* slots) {
  char text[64];
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    call_and_judge(a, s, slots);
    scene_close(s);
    _exit(0);
  }
  const char* wrong = net_reap(pid, 30, text, sizeof text);
  if (wrong) net_find(a->trial->log, a->trial->name, wrong);
}

static void* attempt_main(void* argument) {
  attempt* a = (attempt*)argument;
  const change* c = &a->change;
  scene s;
  slot slots[MOST_PARAMETERS];
  memset(slots, 0, sizeof slots);
  scene_open(&s, c->function->name, a->rank, c->world_size, a->id, c->variant);
  a->exists = arrange(a, &s, slots);
  gsel_comm* comm = is_of_a_comm(c->function) ? (gsel_comm*)scene_object(&s, "gsel_comm") : NULL;
  pthread_barrier_wait(a->arranged);
  if (a->exists && !s.failure[0]) {
    if (comm) gsel_comm_set_timeout(comm, 0.1, NULL);
    if (c->state == ABORTED) gsel_comm_abort(comm, gsel_str_from("the net"));
    if (c->state == FORKED)
      call_in_child(a, &s, slots);
    else
      call_and_judge(a, &s, slots);
  }
  scene_close(&s);
  return NULL;
}

/* ---- all of them ---- */

typedef struct walk {
  net_trial* trial;
  long index; /* of the next attempt */
  long from;  /* the first that this process makes */
  char* arenas[MOST_RANKS];
  gsel_status status; /* of the last attempt */
} walk;

/* Returns whether there was such a change, as far as is known. */
static int try_change(walk* w, change c) {
  pthread_t threads[MOST_RANKS];
  attempt attempts[MOST_RANKS];
  pthread_barrier_t arranged;
  gsel_unique_id id;
  const long index = w->index++;
  if (index < w->from) return 1;
  gsel_unique_id_create(&id, NULL);
  w->trial->index = index;
  ++w->trial->log->trials;
  alarm(20);
  pthread_barrier_init(&arranged, NULL, (unsigned)c.world_size);
  for (int32_t r = 0; r < c.world_size; ++r) {
    attempts[r] = (attempt){w->trial, c, r, &id, w->arenas[r], &arranged, 0, GSEL_OK};
    pthread_create(&threads[r], NULL, attempt_main, &attempts[r]);
  }
  for (int32_t r = 0; r < c.world_size; ++r) pthread_join(threads[r], NULL);
  pthread_barrier_destroy(&arranged);
  w->status = attempts[0].status;
  return attempts[0].exists;
}

/* What is past the last value of a parameter is tried and found not to exist. */
static void try_values(walk* w, change c) {
  const long end = w->index + MOST_VALUES;
  for (c.k = 0; c.k < MOST_VALUES && try_change(w, c);) ++c.k;
  w->index = end;
}

static void try_parameters(walk* w, change c) {
  for (c.parameter = 0; c.parameter < c.function->n_parameters; ++c.parameter) {
    const net_variable* p = &c.function->parameters[c.parameter];
    c.field = -1;
    if (c.variant == 0) try_values(w, c);
    if (p->kind != NET_RECORD || !p->record) continue;
    for (c.field = 0; c.field < p->record->n_fields; ++c.field) try_values(w, c);
  }
}

static int has_variants(const net_function* f) {
  for (int i = 0; i < f->n_parameters; ++i)
    if (f->parameters[i].kind == NET_RECORD && !strcmp(f->parameters[i].type, "gsel_collective")) return 1;
  return 0;
}

/* In a forked child, where the same is a good call in the parent. */
static void try_forked(walk* w, change c) {
  change fresh = c;
  fresh.state = FRESH;
  w->status = GSEL_ERR_ARG;
  try_change(w, fresh);
  if (w->status)
    ++w->index;
  else
    try_change(w, c);
}

static void try_function(walk* w, const net_function* f) {
  const int of_a_comm = is_of_a_comm(f);
  const int variants = has_variants(f) ? GSEL_COLLECTIVE_KINDS : 1;
  for (int32_t n = 1; n <= (of_a_comm ? MOST_RANKS : 1); ++n)
    for (int variant = 0; variant < variants; ++variant) {
      change c = {f, -1, -1, 0, variant, n, FRESH};
      c.state = FORKED; /* where the good call is one */
      if (of_a_comm && n == 1) try_forked(w, c);
      c.state = ABORTED;
      if (of_a_comm) try_change(w, c);
      c.state = FRESH;
      if (!of_a_comm || n > 1) try_change(w, c);
      try_parameters(w, c);
    }
}

/* It listens until its process has joined with the id, or ends. */
static int keeps_a_descriptor(const net_function* f) {
  return strcmp(f->name, "gsel_unique_id_listen") == 0;
}

static void walk_functions(net_trial* trial, void* user) {
  const int worker = *(const int*)user;
  walk w = {trial, 0, trial->index, {NULL}, GSEL_OK};
  for (int r = 0; r < MOST_RANKS; ++r) {
    w.arenas[r] =
        (char*)mmap(NULL, area_bytes * MOST_PARAMETERS, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(w.arenas[r] != MAP_FAILED);
    for (int i = 0; i < MOST_PARAMETERS; ++i)
      assert_int_equal(mprotect(w.arenas[r] + (size_t)i * area_bytes, AREA_WRITABLE, PROT_READ | PROT_WRITE), 0);
  }
  for (int i = worker; i < net_n_functions; i += NET_WORKERS) {
    if (!net_wanted(net_functions[i].name)) continue;
    const traces before = traces_now();
    try_function(&w, &net_functions[i]);
    const traces after = traces_now();
    if (after.descriptors != before.descriptors && !keeps_a_descriptor(&net_functions[i]))
      net_find(trial->log, net_functions[i].name, "leaves descriptors open");
    if (after.mappings != before.mappings) net_find(trial->log, net_functions[i].name, "leaves communicators' memory");
  }
  alarm(0);
}

static void walk_share(net_log* log, int worker) {
  net_contain(log, walk_functions, &worker, 600);
}

static void no_pointer_and_no_number_harms(void** unused) {
  (void)unused;
  net_on_workers(walk_share);
}

/* The names that the library exports, so that none is missing in the table. */
static void every_function_is_in_the_table(void** unused) {
  (void)unused;
  char path[1024], line[200];
  int exported = 0;
  snprintf(path, sizeof path, "%s/../abi/symbols.txt", getenv("GSEL_TEST_DATA"));
  FILE* file = fopen(path, "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    int found = 0;
    line[strcspn(line, "\n")] = '\0';
    for (int i = 0; i < net_n_functions; ++i) found = found || !strcmp(net_functions[i].name, line);
    if (!found) fail_msg("%s is not in the table", line);
    ++exported;
  }
  fclose(file);
  assert_int_equal(exported, net_n_functions);
}

int main(void) {
  char folder[300];
  if (!make_scratch(folder, sizeof folder, "extremes") || chdir(folder)) return 1;
  setenv("GSEL_RESERVE_FOLDER", folder, 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_function_is_in_the_table),
      cmocka_unit_test(no_pointer_and_no_number_harms),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return remove_scratch(folder) || failed;
}
