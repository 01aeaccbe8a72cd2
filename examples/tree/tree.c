/* tree.c: gradient boosting of regression trees over histograms, on ranks: gsel run -n 4 -- ./tree TEXT [lightgbm]
 * A sample is a byte of TEXT and asks whether a word ends there; its features are the bytes before it. Each rank has a
 * part of the samples and owns a part of the features. For each level of a tree
 *   1. a rank adds its samples to histograms of (gradient, hessian, count) by feature, node and bin;
 *   2. a reduce-scatter of bytes, as many per rank as the bins of its features take, sums the histograms over ranks;
 *   3. a rank finds the best split of each node by its own features, and an allreduce chooses the best of all ranks.
 * The trees are the same, bit for bit, on any number of ranks: sums are of integers, so that their order does not
 * matter; all else is computed from such sums or from one sample; and of equal splits the one by the first feature is
 * better. */
#include <math.h>

#include "lightgbm.h"

enum { FEATURES = 12, BINS = 256, LEVELS = 5, NODES = 1 << (LEVELS - 1), TREES = 20, FEWEST = 20, SAMPLES = 100000 };
static const double unit = 1 << 30, lambda = 1, rate = 0.3;

typedef struct {
  int64_t gradient, hessian, count;
} Bin; /* sums; gradient and hessian in 1/unit */
typedef struct {
  double gain;
  int64_t feature, bin;
  Bin left, right;
} Split; /* feature <= bin is left; -1: all are */

static void add(const char* from, char* to, int type_size, comm_size_t bytes) {
  for (comm_size_t i = 0; i < bytes / type_size * 3; ++i) ((int64_t*)to)[i] += ((const int64_t*)from)[i];
}
static void choose(const char* from, char* to, int type_size, comm_size_t bytes) {
  const Split* a = (const Split*)from;
  Split* best = (Split*)to;
  for (comm_size_t i = 0; i < bytes / type_size; ++i)
    if (a[i].gain > best[i].gain || (a[i].gain == best[i].gain && a[i].feature < best[i].feature)) best[i] = a[i];
}
static int held_out(int64_t sample) {
  return sample / 1000 % 10 == 9;
}
static double score(Bin b) {
  return (b.gradient / unit) * (b.gradient / unit) / (b.hessian / unit + lambda);
}
static double output(Bin b) {
  return -rate * (b.gradient / unit) / (b.hessian / unit + lambda);
}

static void find_split(const Bin* bins, int64_t feature, Split* best) {
  Bin all = {0, 0, 0}, left = all;
  for (int b = 0; b < BINS; ++b) add((const char*)&bins[b], (char*)&all, sizeof all, sizeof all);
  if (best->feature < 0) best->left = all;
  for (int b = 0; b < BINS - 1; ++b) {
    add((const char*)&bins[b], (char*)&left, sizeof left, sizeof left);
    const Bin right = {all.gradient - left.gradient, all.hessian - left.hessian, all.count - left.count};
    const double gain = score(left) + score(right) - score(all);
    if (gain > best->gain && left.count >= FEWEST && right.count >= FEWEST)
      *best = (Split){gain, feature, b, left, right};
  }
}

int main(int argc, char** argv) {
  static unsigned char text[FEATURES + SAMPLES];
  static Split best[256 * NODES]; /* [rank][node]; row 0 alone without LightGBM's functions */
  static double margin[SAMPLES];
  static int node[SAMPLES];
  const int through_lightgbm = argc == 3 && !strcmp(argv[2], "lightgbm");
  const ReduceFunction add_function = add;
  Reduction add_bins = {add, sizeof(Bin)}, choose_split = {choose, sizeof(Split)};
  FILE* file = argc > 1 ? fopen(argv[1], "rb") : NULL;
  const int64_t n = file ? (int64_t)fread(text, 1, sizeof text, file) - FEATURES : 0;
  if (n < 10000) return fprintf(stderr, "usage: tree TEXT [lightgbm]; TEXT is a file of 10,012 bytes or more\n"), 2;
  uint64_t bytes[256];
  comm_size_t start[257], len[256];
  Bin* bins; /* [feature][node][bin] */
  gsel_op add_op, choose_op;
  gsel_error* err;
  must(gsel_comm_init(NULL, &lightgbm_comm, &err), &err);
  gsel_comm* const comm = lightgbm_comm;
  must(gsel_op_create(gsel_str_from("add bins"), sizeof(Bin), reduce, &add_bins, NULL, &add_op, &err), &err);
  must(gsel_op_create(gsel_str_from("choose split"), sizeof(Split), reduce, &choose_split, NULL, &choose_op, &err),
       &err);
  must(gsel_mem_alloc(comm, FEATURES * NODES * BINS * sizeof(Bin), (void**)&bins, &err), &err);
  const int rank = gsel_comm_rank(comm), ranks = gsel_comm_world_size(comm);
  const gsel_range mine = gsel_shard_range(n, ranks, rank), owned = gsel_shard_range(FEATURES, ranks, rank);

  for (int t = 0; t < TREES; ++t) {
    memset(node, 0, sizeof node);
    for (int level = 0, nodes = 1; level < LEVELS; ++level, nodes *= 2) {
      memset(bins, 0, (size_t)(FEATURES * nodes * BINS) * sizeof *bins);
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        const double p = 1 / (1 + exp(-margin[i])), y = text[i + FEATURES] <= ' ';
        const int64_t gradient = llrint((p - y) * unit), hessian = llrint(p * (1 - p) * unit);
        for (int f = 0; f < FEATURES && !held_out(i); ++f) {
          Bin* b = &bins[(f * nodes + node[i]) * BINS + text[i + FEATURES - 1 - f]];
          b->gradient += gradient, b->hessian += hessian, b->count += 1;
        }
      }
      for (int r = start[0] = 0; r < ranks; ++r) {
        const gsel_range features = gsel_shard_range(FEATURES, ranks, r);
        bytes[r] = (uint64_t)(features.end - features.begin) * (uint64_t)(nodes * BINS) * sizeof *bins;
        start[r + 1] = start[r] + (len[r] = (comm_size_t)bytes[r]);
      }
      char* own = (char*)bins + start[rank];
      if (through_lightgbm)
        lightgbm_reduce_scatter((char*)bins, start[ranks], sizeof(Bin), start, len, ranks, own, len[rank],
                                &add_function);
      else
        must(gsel_reduce_scatterv(comm, bins, own, bytes, NULL, GSEL_U8, add_op, &err), &err);

      const size_t row = (size_t)nodes * sizeof *best;
      for (int k = 0; k < nodes; ++k) {
        best[k] = (Split){.feature = -1};
        for (int64_t f = owned.begin; f < owned.end; ++f)
          find_split((const Bin*)own + ((f - owned.begin) * nodes + k) * BINS, f, &best[k]);
      }
      if (through_lightgbm) { /* gathers the splits of all ranks in place and chooses, as its Network::Allreduce does */
        for (int r = 0; r < ranks; ++r) start[r] = r * (comm_size_t)row, len[r] = (comm_size_t)row;
        lightgbm_allgather((char*)best, len[0], start, len, ranks, (char*)best, ranks * len[0]);
        for (int r = 1; r < ranks; ++r) choose((char*)best + start[r], (char*)best, sizeof *best, len[0]);
      } else {
        must(gsel_allreduce(comm, best, best, row, GSEL_U8, choose_op, &err), &err);
      }
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        const Split* s = &best[node[i]];
        const int right = s->feature >= 0 && text[i + FEATURES - 1 - s->feature] > s->bin;
        node[i] = 2 * node[i] + right;
        if (level == LEVELS - 1) margin[i] += output(right ? s->right : s->left);
      }
      for (int k = 0; k < nodes && !rank; ++k)
        if (best[k].feature >= 0)
          printf("tree %d node %d: byte -%d <= %d, gain %.17g, %.17g or %.17g\n", t, nodes + k,
                 (int)best[k].feature + 1, (int)best[k].bin, best[k].gain, output(best[k].left), output(best[k].right));
    }
    int64_t loss[4] = {0}; /* of samples trained on and held out: sum in 1/unit, count */
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      int64_t* of = loss + 2 * held_out(i);
      of[0] += llrint(log1p(exp(text[i + FEATURES] <= ' ' ? -margin[i] : margin[i])) * unit), of[1] += 1;
    }
    must(gsel_allreduce(comm, loss, loss, 4, GSEL_I64, GSEL_SUM, &err), &err);
    if (!rank) printf("tree %d: loss %.6f, held out %.6f\n", t, loss[0] / unit / loss[1], loss[2] / unit / loss[3]);
  }
  must(gsel_mem_free(comm, bins, &err), &err);
  gsel_op_free(add_op), gsel_op_free(choose_op), gsel_comm_free(comm);
}
