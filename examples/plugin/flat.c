/* examples/plugin/flat.c: a strategy plugin in one page. "flat" is data parallelism in its plainest form: when the
 * backward pass is over, all gradients are summed over the data axis in one all-reduce. It overlaps nothing, and so
 * it is the measure of what overlapping gains. Use it with
 *
 *     make && GSEL_PLUGIN_PATH=$PWD gsel plugins
 *
 *     [strategy.data]
 *     plugin = "flat"
 *
 * The program it is given computes the whole model on one rank and ends with: loss_allreduce, norm if clipping is on,
 * and a step on the one bucket that holds all trainable parameters. */
#include <gsel/plugin.h>

#define NAME "flat"

static gsel_instr bucket_instr(gsel_instr_kind kind, int32_t bucket, gsel_axis axis, int32_t peer) {
  const gsel_instr instr = {kind, -1, -1, -1, bucket, axis, peer, 0};
  return instr;
}

/* Position of the first instruction of a kind, or -1; the instruction itself in *out. */
static int32_t find(const gsel_pass_api_v1* api, const gsel_pass* pass, gsel_instr_kind kind, gsel_instr* out) {
  const int32_t length = api->length(pass);
  for (int32_t i = 0; i < length; ++i)
    if (api->get(pass, i, out) == GSEL_OK && out->kind == kind) return i;
  return -1;
}

static gsel_status compile(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                           gsel_error** err) {
  gsel_instr step, loss;
  if (api->axis_size(pass, axis) == 1) return GSEL_OK;             /* nobody to sum with */
  if (find(api, pass, GSEL_INSTR_STEP, &step) < 0) return GSEL_OK; /* nothing is trained */
  const int32_t end_of_backward = find(api, pass, GSEL_INSTR_LOSS_ALLREDUCE, &loss);

  const gsel_instr reduce = bucket_instr(GSEL_INSTR_ALLREDUCE, step.bucket, axis, -1);
  const gsel_instr broadcast = bucket_instr(GSEL_INSTR_BROADCAST, step.bucket, axis, 0);
  const gsel_instr wait = bucket_instr(GSEL_INSTR_WAIT, step.bucket, -1, -1);
  gsel_status status = api->setup(pass, &broadcast); /* all start from the parameters of the first */
  if (!status) status = api->setup(pass, &wait);
  if (!status) status = api->insert(pass, end_of_backward, &reduce);
  if (!status) status = api->insert(pass, end_of_backward + 1, &wait);
  if (status && err) *err = host->error_new(status, NAME ": the reduction could not be put behind the backward pass");
  return status;
}

GSEL_STRATEGY_DEFINE(NAME, "1.0", .axes = 1u << GSEL_AXIS_DATA, .compile = compile);
