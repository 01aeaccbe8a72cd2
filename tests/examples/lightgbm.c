/* lightgbm.c: LightGBM itself, data-parallel over gsel through examples/tree/lightgbm.h.
 *   lightgbm LIB_LIGHTGBM TEXT FOLDER PARAMETERS...
 * Every rank has a part of the samples (a byte of TEXT; whether a word ends there; the bytes before it), trains, prints
 * the loss on all samples, and writes its model to FOLDER/model-RANK. */
#include "../../examples/tree/lightgbm.h"

#include <dlfcn.h>

enum { FEATURES = 12, SAMPLES = 20000, TREES = 10 };

static void* library;
static void* symbol(const char* name) {
  void* found = dlsym(library, name);
  if (!found) fprintf(stderr, "%s\n", dlerror()), exit(1);
  return found;
}
/* Declares the function of LightGBM/c_api.h with these parameters as a variable of its name. */
#define FUNCTION(name, ...) int (*name)(__VA_ARGS__) = (int (*)(__VA_ARGS__))symbol("LGBM_" #name)
static void call(int failed) {
  if (failed) fprintf(stderr, "%s\n", ((const char* (*)(void))symbol("LGBM_GetLastError"))()), exit(1);
}

int main(int argc, char** argv) {
  static unsigned char text[FEATURES + SAMPLES];
  static double features[SAMPLES][FEATURES], margins[SAMPLES];
  static float labels[SAMPLES];
  static char model[1 << 22], parameters[1024], path[4096];
  void *dataset, *booster;
  gsel_error* err;
  FILE* file = argc > 4 ? fopen(argv[2], "rb") : NULL;
  if (!file || fread(text, 1, sizeof text, file) != sizeof text) return fprintf(stderr, "no text of that length\n"), 2;
  if (!(library = dlopen(argv[1], RTLD_NOW))) return fprintf(stderr, "%s\n", dlerror()), 2;
  FUNCTION(NetworkInit, const char*, int, int, int);
  FUNCTION(NetworkInitWithFunctions, int, int, void*, void*);
  FUNCTION(DatasetCreateFromMat, const void*, int, int32_t, int32_t, int, const char*, void*, void**);
  FUNCTION(DatasetSetField, void*, const char*, const void*, int, int);
  FUNCTION(BoosterCreate, void*, const char*, void**);
  FUNCTION(BoosterUpdateOneIter, void*, int*);
  FUNCTION(BoosterPredictForMat, void*, const void*, int, int32_t, int32_t, int, int, int, int, const char*, int64_t*,
           double*);
  FUNCTION(BoosterSaveModelToString, void*, int, int, int, int64_t, int64_t*, char*);

  must(gsel_comm_init(NULL, &lightgbm_comm, &err), &err);
  const int rank = gsel_comm_rank(lightgbm_comm), ranks = gsel_comm_world_size(lightgbm_comm);
  const int port = atoi(argv[4]);
  char hosts[64 * 24] = "";
  for (int r = 0; r < ranks && r < 64; ++r) sprintf(hosts + strlen(hosts), "127.0.0.1:%d,", port + r);
  call(port ? NetworkInit(hosts, port + rank, 60, ranks)
            : NetworkInitWithFunctions(ranks, rank, (void*)lightgbm_reduce_scatter, (void*)lightgbm_allgather));
  for (int i = 0; i < SAMPLES; ++i) {
    labels[i] = text[i + FEATURES] <= ' ';
    for (int f = 0; f < FEATURES; ++f) features[i][f] = text[i + FEATURES - 1 - f];
  }
  snprintf(parameters, sizeof parameters,
           "objective=binary num_threads=1 verbosity=-1 num_leaves=15 learning_rate=0.3");
  if (ranks > 1)
    snprintf(parameters + strlen(parameters), 100, " tree_learner=data pre_partition=true num_machines=%d", ranks);
  for (int i = 5; i < argc; ++i) strcat(strcat(parameters, " "), argv[i]);
  const gsel_range mine = gsel_shard_range(SAMPLES, ranks, rank);
  const int n = (int)(mine.end - mine.begin);
  call(DatasetCreateFromMat(features[mine.begin], 1, n, FEATURES, 1, parameters, NULL, &dataset));
  call(DatasetSetField(dataset, "label", labels + mine.begin, n, 0));
  call(BoosterCreate(dataset, parameters, &booster));
  for (int t = 0, finished = 0; t < TREES && !finished; ++t) call(BoosterUpdateOneIter(booster, &finished));

  int64_t length;
  double wrong = 0;
  call(BoosterPredictForMat(booster, features, 1, SAMPLES, FEATURES, 1, 1, 0, -1, "", &length, margins));
  for (int i = 0; i < SAMPLES; ++i) wrong += (margins[i] > 0) != (labels[i] > 0);
  printf("%.4f\n", wrong / SAMPLES);
  call(BoosterSaveModelToString(booster, 0, -1, 0, sizeof model, &length, model));
  snprintf(path, sizeof path, "%s/%d", argv[3], rank);
  if (!(file = fopen(path, "w")) || fputs(model, file) < 0 || fclose(file)) return perror(path), 1;
  gsel_comm_free(lightgbm_comm);
}
