/* Weights from files of other programs: what a file has under the map's names, transposed, joined, divided and
 * permuted, is in every rank's parameters under every layout, and an export gives the bytes of the file back, tensor by
 * tensor. What does not fit is refused on all ranks and changes nothing. Numbers are integers, so that all types hold
 * them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/scratch.h"
#include "support/trainer_trial.h"
#include "support/weights_file.h"

#define LION "[train]\noptimizer = \"lion\"\nlearning_rate = 1.0\nweight_decay = 0.0\nbatch = 9\nseed = 5\n"
#define PIPELINE(n, more) "[mesh]\npipeline = " n "\n[strategy.pipeline]\nplugin = \"pp\"\n" more
#define EIGHT_BITS "[train]\noptimizer = \"adamw_8bit\"\nbatch = 9\nseed = 5\n"

struct layout {
  const char *name, *sections, *train;
  int ranks, holds_all; /* each rank has all parameters, so that it reads all and no more */
};
static const struct layout kLayouts[] = {
    {"one rank", "", LION, 1, 1},
    {"one rank, states of 8 bits", "", EIGHT_BITS, 1, 1},
    {"dp", DP("bucket_bytes = 1\n"), LION, 3, 0},
    {"ddp", DDP(""), LION, 2, 1},
    {"zero 1", ZERO("1", ""), LION, 2, 0},
    {"zero 2, offload", ZERO("2", "bucket_bytes = 1\noffload = \"state\"\n"), LION, 3, 0},
    {"zero 3", ZERO("3", ALL_SHARDED), LION, 2, 0},
    {"zero 3, some resident", ZERO("3", "persist_elems = 13\nbucket_bytes = 1\n"), LION, 4, 0},
    {"pipeline", PIPELINE("2", "schedule = \"1f1b\"\n"), LION "microbatch = 3\n", 2, 0},
    {"pipeline with zero 1", PIPELINE("2", "schedule = \"1f1b\"\n") ZERO("1", ""), LION "microbatch = 1\n", 4, 0},
};
enum { N_LAYOUTS = sizeof kLayouts / sizeof kLayouts[0], TWO_RANKS = 6 };

/* Parameters: table [8][4], position [3][4], w1 [4][4], b1 [4], w2 [4][4]. */
static const char map[] =
    "[weights]\nprefix = \"model.\"\n"
    "[[weights.map]]\nsource = \"wte.weight\"\ntarget = \"table\"\nalias = \"lm_head.weight\"\n"
    "[[weights.map]]\nsource = \"wpe.weight\"\ntarget = \"position\"\ntranspose = true\n"
    "[[weights.map]]\nsource = [\"h.{i}.q\", \"h.{i}.k\", \"h.{i}.v\"]\ntarget = \"w{i}\"\nconcat = 1\n"
    "parts = [1, 1, 2]\ntranspose = true\n"
    "[[weights.map]]\nsource = \"bias.{i}\"\ntarget = \"b{i}\"\npermute = \"halves_to_pairs\"\nheads = 1\n"
    "[[weights.map]]\nsource = \"h.{i}.mask.{rest:any}\"\nignore = true\n";
/* w1 is transposed and joined from parts of columns; w2 has the same rule and other numbers. */

static float value_of(int param, int64_t i) {
  return (float)((i * 37 + param * 11) % 100 - 50);
}

static float expected[EXACT_ELEMS];
static void fill_expected(void) {
  float* to = expected;
  for (int p = 0; p < N_PARAMS; ++p)
    for (int64_t i = 0; i < kExactElems[p]; ++i) *to++ = value_of(p, i);
}

/* Whole file in the map's layout; what a file of another program would have. */
static void fill_file(weights_file* file, gsel_dtype dtype) {
  float values[VOCAB * WIDTH];
  *file = (weights_file){.dtype = dtype};
  const int64_t table[] = {VOCAB, WIDTH}, position[] = {WIDTH, TOKENS}, bias[] = {WIDTH}, mask[] = {2, 2};
  for (int64_t i = 0; i < VOCAB * WIDTH; ++i) values[i] = value_of(P_TABLE, i);
  weights_file_add(file, "model.wte.weight", table, 2, values);
  for (int64_t r = 0; r < WIDTH; ++r)
    for (int64_t c = 0; c < TOKENS; ++c) values[r * TOKENS + c] = value_of(P_POSITION, c * WIDTH + r);
  weights_file_add(file, "wpe.weight", position, 2, values);
  static const struct {
    const char* name;
    int param;
    int64_t first, columns;
  } parts[] = {{"h.1.q", P_W1, 0, 1}, {"model.h.1.k", P_W1, 1, 1}, {"h.1.v", P_W1, 2, 2},
               {"h.2.q", P_W2, 0, 1}, {"h.2.k", P_W2, 1, 1},       {"h.2.v", P_W2, 2, 2}};
  for (size_t n = 0; n < sizeof parts / sizeof *parts; ++n) {
    const int64_t shape[] = {WIDTH, parts[n].columns};
    for (int64_t r = 0; r < WIDTH; ++r)
      for (int64_t c = 0; c < parts[n].columns; ++c)
        values[r * parts[n].columns + c] = value_of(parts[n].param, (parts[n].first + c) * WIDTH + r);
    weights_file_add(file, parts[n].name, shape, 2, values);
  }
  /* Rows 0, 1, 2, 3 of the parameter are rows 0, 2, 1, 3 of the file. */
  for (int64_t i = 0; i < WIDTH; ++i) values[i] = value_of(P_B1, i == 1 ? 2 : i == 2 ? 1 : i);
  weights_file_add(file, "bias.1", bias, 1, values);
  for (int64_t i = 0; i < VOCAB * WIDTH; ++i) values[i] = value_of(P_TABLE, i);
  weights_file_add(file, "lm_head.weight", table, 2, values);
  weights_file_add(file, "model.h.1.mask.of.attention", mask, 2, values);
}

static char folder[128], source[160];

struct going {
  trial t;
  const char *path, *export_to;
  gsel_dtype dtype;
  int holds_all;
  const char* expected_message;
  const char* map_of_rank_1;
};

static gsel_status load_config(const struct going* what, int32_t rank, gsel_config** config, gsel_error** err) {
  const char* text = rank == 1 && what->map_of_rank_1 ? what->map_of_rank_1 : map;
  return gsel_config_parse(gsel_str_from(text), gsel_str_from("map.toml"), config, err);
}

static void load_and_export(rank_run* run) {
  const struct going* what = (const struct going*)run->user;
  session s;
  gsel_error* err = NULL;
  gsel_config* rules = NULL;
  float params[EXACT_ELEMS];
  gsel_weights_report report = GSEL_WEIGHTS_REPORT_INIT;
  gsel_step_report step = GSEL_STEP_REPORT_INIT;
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, load_config(what, run->rank, &rules, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_trainer_load_weights(s.trainer, gsel_str_from(what->path), rules, &report, &err), err);
  rank_check(run, report.n_tensors == 9 && report.n_kept == 0 && report.n_ignored == 2);
  rank_check(run, report.n_widened == (what->dtype == GSEL_F32 ? 0 : 9));
  rank_check(run, report.bytes >= report.needed_bytes);
  if (what->holds_all)
    rank_check(run, report.bytes == report.needed_bytes &&
                        report.bytes == EXACT_ELEMS * (what->dtype == GSEL_F32 ? sizeof(float) : 2));
  rank_check(run, report.compared_bytes > 0 && report.compared_bytes < 2 * VOCAB * WIDTH * sizeof(float) + 1);
  read_params(run, s.trainer, params);
  same_params(run, params, expected, EXACT_ELEMS);
  rank_ok(run,
          gsel_trainer_export_weights(s.trainer, gsel_str_from(what->export_to), rules, what->dtype, &report, &err),
          err);
  rank_check(run, report.n_tensors == 9 && (report.bytes > 0) == (run->rank == 0));
  /* What was exported loads, and is the same; the step is the next one. */
  rank_ok(run, gsel_trainer_load_weights(s.trainer, gsel_str_from(what->export_to), rules, NULL, &err), err);
  read_params(run, s.trainer, params);
  same_params(run, params, expected, EXACT_ELEMS);
  rank_ok(run, gsel_trainer_step(s.trainer, &step, &err), err);
  rank_check(run, step.step == 1);
  gsel_config_free(rules);
  close_session(&s);
}

static int begin(void** state) {
  (void)state;
  fill_expected();
  if (!make_scratch(folder, sizeof folder, "weights")) return -1;
  snprintf(source, sizeof source, "%s/source.safetensors", folder);
  return 0;
}
static int end(void** state) {
  (void)state;
  return remove_scratch(folder);
}

static void write_source(gsel_dtype dtype) {
  weights_file file;
  fill_file(&file, dtype);
  weights_file_write(&file, source);
  weights_file_free(&file);
}

static const char* in_folder(const char* name) {
  static char path[200];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static int files_in_folder(void) {
  DIR* dir = opendir(folder);
  int n = 0;
  for (struct dirent* entry; (entry = readdir(dir));) n += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
  closedir(dir);
  return n;
}

static void every_layout_loads_and_gives_back(gsel_dtype dtype, const char* precision) {
  write_source(dtype);
  for (int l = 0; l < N_LAYOUTS; ++l) {
    char text[1024], path[200];
    snprintf(text, sizeof text, "%s%s%s", kLayouts[l].sections, kLayouts[l].train, precision);
    snprintf(path, sizeof path, "%s", in_folder("export.safetensors"));
    struct going what = {.t = plain(text, NULL),
                         .path = source,
                         .export_to = path,
                         .dtype = dtype,
                         .holds_all = kLayouts[l].holds_all && !*precision};
    print_message("  %s\n", kLayouts[l].name);
    as_threads(kLayouts[l].ranks, load_and_export, &what);
    /* Without the copy and the mask, and without prefixes: 9 tensors, each with the bytes it had. */
    assert_int_equal(weights_file_compare(path, source, "model."), 9);
    assert_int_equal(files_in_folder(), 2); /* nothing temporary */
    BY_FIRST_PROCESS(assert_int_equal(remove(path), 0));
  }
}

static void each_layout_has_the_file_s_numbers_and_gives_them_back(void** state) {
  (void)state;
  every_layout_loads_and_gives_back(GSEL_F32, "");
}
static void files_of_16_bits_are_widened_and_given_back(void** state) {
  (void)state;
  every_layout_loads_and_gives_back(GSEL_BF16, "");
  every_layout_loads_and_gives_back(GSEL_F16, "");
}
static void parameters_of_16_bits_get_master_copies(void** state) {
  (void)state;
  every_layout_loads_and_gives_back(GSEL_F32, "precision = \"bf16\"\n");
}

/* ---- what is refused ---- */

/* The trainer stays as it was on all ranks, and goes on. */
static void is_refused(rank_run* run) {
  const struct going* what = (const struct going*)run->user;
  session s;
  gsel_error* err = NULL;
  gsel_config* rules = NULL;
  char text[2048];
  float before[EXACT_ELEMS], after[EXACT_ELEMS];
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, load_config(what, run->rank, &rules, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  read_params(run, s.trainer, before);
  const gsel_status status = gsel_trainer_load_weights(s.trainer, gsel_str_from(what->path), rules, NULL, &err);
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  err = NULL;
  if (status == GSEL_OK || !strstr(text, what->expected_message)) {
    snprintf(run->failure, sizeof run->failure, "rank %d: expected \"%.300s\", got %s: %.500s", (int)run->rank,
             what->expected_message, gsel_status_name(status), text);
    return;
  }
  read_params(run, s.trainer, after);
  rank_check(run, memcmp(before, after, sizeof before) == 0);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  gsel_config_free(rules);
  close_session(&s);
}

static void refused(const char* path, const char* message, const char* map_of_rank_1) {
  char text[1024];
  snprintf(text, sizeof text, "%s%s", kLayouts[TWO_RANKS].sections, kLayouts[TWO_RANKS].train);
  struct going what = {
      .t = plain(text, NULL), .path = path, .expected_message = message, .map_of_rank_1 = map_of_rank_1};
  as_threads(2, is_refused, &what);
}

static void a_file_that_is_not_whole_changes_nothing(void** state) {
  struct stat status;
  (void)state;
  write_source(GSEL_F32);
  assert_int_equal(stat(source, &status), 0);
  BY_FIRST_PROCESS(assert_int_equal(truncate(source, status.st_size - 1), 0));
  refused(source, "source.safetensors, byte", NULL);
  BY_FIRST_PROCESS(assert_int_equal(truncate(source, 100), 0));
  refused(source, "source.safetensors, byte 0", NULL);
  BY_FIRST_PROCESS(assert_int_equal(truncate(source, 3), 0));
  refused(source, "source.safetensors, byte 3", NULL);
  refused("/nowhere/at/all.safetensors", "/nowhere/at/all.safetensors cannot be opened", NULL);
  refused(folder, "is no regular file", NULL);
}

static void a_file_of_another_model_is_refused_in_one_error(void** state) {
  weights_file file;
  const int64_t wrong[] = {WIDTH, VOCAB}, one[] = {1};
  float values[VOCAB * WIDTH] = {0};
  (void)state;
  file = (weights_file){.dtype = GSEL_F32};
  weights_file_add(&file, "wte.weight", wrong, 2, values);
  weights_file_add(&file, "h.1.q", one, 1, values);
  weights_file_add(&file, "another", one, 1, values);
  weights_file_write(&file, source);
  weights_file_free(&file);
  refused(source,
          "4 parameters without a tensor: \"position\" (missing \"wpe.weight\"), \"w1\" (missing \"h.1.k\", "
          "\"h.1.v\"), \"b1\" (missing \"bias.1\"), \"w2\" (missing \"h.2.q\", \"h.2.k\", \"h.2.v\"); 1 tensor "
          "without a parameter: \"another\"; ",
          NULL);
  refused(source, "\"wte.weight\" has shape [4, 8], and \"table\" needs shape [8, 4]", NULL);
}

static void a_copy_that_differs_is_refused(void** state) {
  weights_file file;
  (void)state;
  fill_file(&file, GSEL_F32);
  weights_file_last_value(&file, "lm_head.weight", 99);
  weights_file_write(&file, source);
  weights_file_free(&file);
  refused(source, "\"lm_head.weight\" is another name of \"model.wte.weight\", and differs from byte 126 of it on",
          NULL);
}

static void write_text(const char* path, const char* text) {
  FILE* out = fopen(path, "w");
  assert_non_null(out);
  fputs(text, out);
  assert_int_equal(fclose(out), 0);
}

static void an_index_that_leads_out_of_its_folder_is_refused(void** state) {
  (void)state;
  write_source(GSEL_F32);
  char inner[200], index[300];
  snprintf(inner, sizeof inner, "%s/hub", folder);
  BY_FIRST_PROCESS(assert_int_equal(mkdir(inner, 0700), 0));
  snprintf(index, sizeof index, "%s/model.safetensors.index.json", inner);
  BY_FIRST_PROCESS(write_text(index, "{\"weight_map\": {\"wpe.weight\": \"../source.safetensors\"}}"));
  refused(inner, "\"../source.safetensors\", which is no name of a file in this folder", NULL);
  BY_FIRST_PROCESS(assert_int_equal(remove(index), 0));
  BY_FIRST_PROCESS(assert_int_equal(rmdir(inner), 0));
}

static void ranks_with_different_maps_are_refused(void** state) {
  (void)state;
  write_source(GSEL_F32);
  refused(source, "weights.prefix differs between rank 0 and rank 1",
          "[weights]\nprefix = \"m.\"\n[[weights.map]]\nsource = \"a\"\ntarget = \"b\"\n");
}

static void cannot_be_exported(rank_run* run) {
  const struct going* what = (const struct going*)run->user;
  session s;
  gsel_error* err = NULL;
  gsel_config* rules = NULL;
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, load_config(what, run->rank, &rules, &err), err);
  rank_fails(run, gsel_trainer_export_weights(s.trainer, gsel_str_from(what->export_to), rules, GSEL_F32, NULL, &err),
             err, run->rank == 0 ? GSEL_ERR_IO : GSEL_ERR_PEER, "/no/folder", -2);
  rank_fails(run, gsel_trainer_export_weights(s.trainer, gsel_str_from("x"), rules, GSEL_I32, NULL, &err), err,
             GSEL_ERR_ARG, "dtype is i32; expected f32, bf16 or f16", -2);
  gsel_config_free(rules);
  rank_ok(run,
          gsel_config_parse(gsel_str_from("[[weights.map]]\nsource = \"a\"\ntarget = \"table\"\n"), gsel_str_from("m"),
                            &rules, &err),
          err);
  rank_fails(run, gsel_trainer_export_weights(s.trainer, gsel_str_from("x"), rules, GSEL_F32, NULL, &err), err,
             GSEL_ERR_CONFIG, "no rule of weights.map names 4 parameters: \"position\", \"w1\", \"b1\", \"w2\"", -2);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  gsel_config_free(rules);
  close_session(&s);
}

static void an_export_that_fails_leaves_the_trainer_as_it_is(void** state) {
  char text[1024];
  (void)state;
  snprintf(text, sizeof text, "%s%s", kLayouts[TWO_RANKS].sections, kLayouts[TWO_RANKS].train);
  struct going what = {.t = plain(text, NULL), .export_to = "/no/folder/weights.safetensors"};
  as_threads(2, cannot_be_exported, &what);
}

/* ---- tensors of several reads ---- */

/* Shards of the parameter begin in the middle of a row. */
enum { BIG_ROWS = 3001, BIG_COLUMNS = 2500 };

static gsel_status big_loss(const gsel_call* call, void* user) {
  (void)user;
  *(double*)call->outputs[0].data = 0;
  *(double*)call->outputs[1].data = (double)call->n_samples;
  return GSEL_OK;
}
static gsel_status big_backward(const gsel_call* call, void* user) {
  (void)user;
  if (!call->accumulate) memset(call->d_params[0].data, 0, (size_t)call->d_params[0].n_elems * sizeof(float));
  return GSEL_OK;
}
static gsel_status big_data(const gsel_data_request* r, void* user) {
  (void)user;
  memset(r->dst.data, 0, (size_t)r->n_samples);
  return GSEL_OK;
}

static gsel_status describe_big(gsel_model* model, gsel_error** err) {
  const int64_t dims[] = {BIG_ROWS, BIG_COLUMNS}, one[] = {1};
  gsel_param_options param = GSEL_PARAM_OPTIONS_INIT;
  param.name = gsel_str_from("big");
  param.dims = dims;
  param.n_dims = 2;
  gsel_status status = gsel_model_add_param(model, &param, NULL, err);
  for (int v = 0; v < 3 && !status; ++v) {
    gsel_value_options value = GSEL_VALUE_OPTIONS_INIT;
    value.name = gsel_str_from(v == 0 ? "in" : v == 1 ? "loss" : "weight");
    value.dims = one;
    value.n_dims = v == 0;
    value.dtype = v == 0 ? GSEL_U8 : GSEL_F64;
    value.flags = v == 0 ? GSEL_VALUE_INPUT : GSEL_VALUE_SCALAR;
    status = gsel_model_add_value(model, &value, NULL, err);
  }
  const int32_t in[] = {0}, out[] = {1, 2}, params[] = {0};
  gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
  layer.name = gsel_str_from("loss");
  layer.inputs = in, layer.n_inputs = 1;
  layer.outputs = out, layer.n_outputs = 2;
  layer.params = params, layer.n_params = 1;
  layer.flags = GSEL_LAYER_LOSS;
  layer.forward = big_loss;
  layer.backward_weight = big_backward;
  return status ? status : gsel_model_add_layer(model, &layer, NULL, err);
}

struct big {
  const char *map, *path, *export_to;
  int reads_rows; /* some rank needs less than 4 KiB in a row */
};

static void load_big(rank_run* run) {
  const struct big* big = (const struct big*)run->user;
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_config *config = NULL, *rules = NULL;
  gsel_model* model = NULL;
  gsel_trainer* trainer = NULL;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_weights_report report = GSEL_WEIGHTS_REPORT_INIT;
  char text[200];
  snprintf(text, sizeof text, "%s[train]\noptimizer = \"sgd\"\nbatch = 8\n", ZERO("3", ALL_SHARDED));
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_config_parse(gsel_str_from(text), gsel_str_from("big.toml"), &config, &err), err);
  rank_ok(run, gsel_config_parse(gsel_str_from(big->map), gsel_str_from("map.toml"), &rules, &err), err);
  rank_ok(run, gsel_model_create(&model, &err), err);
  rank_ok(run, describe_big(model, &err), err);
  options.config = config;
  options.data = big_data;
  rank_ok(run, gsel_trainer_create(comm, model, &options, &trainer, &err), err);
  rank_ok(run, gsel_trainer_load_weights(trainer, gsel_str_from(big->path), rules, &report, &err), err);
  rank_check(run, report.needed_bytes == (uint64_t)BIG_ROWS * BIG_COLUMNS * sizeof(float) / (uint64_t)run->world_size);
  if (big->reads_rows) { /* blocks of rows, with what other ranks need of them */
    rank_check(run, report.bytes > 3 * report.needed_bytes && report.bytes < 4.1 * (double)report.needed_bytes);
    rank_check(run, report.reads < 10);
  } else {
    rank_check(run, report.bytes == report.needed_bytes);
  }
  const size_t bytes = sizeof(float) * BIG_ROWS * BIG_COLUMNS;
  float* values = (float*)malloc(bytes);
  rank_ok(run, gsel_trainer_read_param(trainer, 0, values, bytes, &err), err);
  for (int64_t i = 0; i < (int64_t)BIG_ROWS * BIG_COLUMNS; ++i)
    if (values[i] != (float)i) {
      snprintf(run->failure, sizeof run->failure, "rank %d: element %lld is %g", (int)run->rank, (long long)i,
               (double)values[i]);
      break;
    }
  free(values);
  rank_ok(run, gsel_trainer_export_weights(trainer, gsel_str_from(big->export_to), rules, GSEL_F32, NULL, &err), err);
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  gsel_config_free(rules);
  gsel_config_free(config);
  gsel_comm_free(comm);
}

static void large_tensors_are_read_in_pieces(int is_transposed) {
  const char* const rules = is_transposed ? "[[weights.map]]\nsource = \"t\"\ntarget = \"big\"\ntranspose = true\n"
                                          : "[[weights.map]]\nsource = \"t\"\ntarget = \"big\"\n";
  const int64_t shape[] = {is_transposed ? BIG_COLUMNS : BIG_ROWS, is_transposed ? BIG_ROWS : BIG_COLUMNS};
  float* values = (float*)malloc(sizeof(float) * BIG_ROWS * BIG_COLUMNS);
  for (int64_t r = 0; r < shape[0]; ++r)
    for (int64_t c = 0; c < shape[1]; ++c)
      values[r * shape[1] + c] = (float)(is_transposed ? c * BIG_COLUMNS + r : r * BIG_COLUMNS + c);
  weights_file file = {.dtype = GSEL_F32};
  weights_file_add(&file, "t", shape, 2, values);
  weights_file_write(&file, source);
  weights_file_free(&file);
  free(values);
  char path[200];
  snprintf(path, sizeof path, "%s", in_folder("big.safetensors"));
  struct big big = {.map = rules, .path = source, .export_to = path};
  for (int ranks = 1; ranks <= 4; ranks *= 2) { /* of a row 12004, 6004 and 3004 bytes */
    big.reads_rows = is_transposed && ranks == 4;
    as_threads(ranks, load_big, &big);
    assert_int_equal(weights_file_compare(path, source, ""), 1);
  }
  BY_FIRST_PROCESS(assert_int_equal(remove(path), 0));
}
static void a_large_tensor_is_read_in_pieces(void** state) {
  (void)state;
  large_tensors_are_read_in_pieces(0);
}
static void a_large_transposed_tensor_is_read_by_rows_or_in_blocks(void** state) {
  (void)state;
  large_tensors_are_read_in_pieces(1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_layout_has_the_file_s_numbers_and_gives_them_back),
      cmocka_unit_test(files_of_16_bits_are_widened_and_given_back),
      cmocka_unit_test(parameters_of_16_bits_get_master_copies),
      cmocka_unit_test(a_file_that_is_not_whole_changes_nothing),
      cmocka_unit_test(a_file_of_another_model_is_refused_in_one_error),
      cmocka_unit_test(a_copy_that_differs_is_refused),
      cmocka_unit_test(an_index_that_leads_out_of_its_folder_is_refused),
      cmocka_unit_test(ranks_with_different_maps_are_refused),
      cmocka_unit_test(an_export_that_fails_leaves_the_trainer_as_it_is),
      cmocka_unit_test(a_large_tensor_is_read_in_pieces),
      cmocka_unit_test(a_large_transposed_tensor_is_read_by_rows_or_in_blocks),
  };
  return cmocka_run_group_tests_name("weights", tests, begin, end);
}
