// program/stages.h: what a pipeline rank has of a model: the layers of its stages and the parameters that they use.
// Other pipeline ranks may have some of these parameters too. Pure functions of a program's outline.
#pragma once

#include <vector>

#include "program/program.h"

namespace gsel {

// Stages must be nonempty runs of layers in order, on existing pipeline ranks; each pipeline rank has at least one
// stage. GSEL_ERR_PROGRAM otherwise.
void check_stages(const Program& program);

// Pipeline rank of a layer; whether it is this rank.
int32_t pipeline_rank_of_layer(const Program& program, int32_t layer);
bool is_here(const Program& program, int32_t layer);

// Pipeline ranks with a layer that uses the parameter, ascending; the first pipeline rank if no layer does. With
// several, the parameter is tied over them.
std::vector<int32_t> holders(const Program& program, int32_t param);
std::vector<std::vector<int32_t>> all_holders(const Program& program);  // by parameter
bool holds(const Program& program, int32_t param);                      // whether this rank holds it

// Sets of several pipeline ranks that hold the same trainable parameters, in order of their first parameter. A
// parameter's tie is an index in this list, or -1 if it has one holder or is frozen.
std::vector<std::vector<int32_t>> ties(const Program& program);
std::vector<int32_t> tie_of_params(const Program& program);  // by parameter
int32_t tie_of(const Program& program, int32_t param);
// By parameter: a class for bucketing, from its tie and whether its gradient is partial on the sharing axis; -1 for
// neither.
std::vector<int32_t> class_of_params(const Program& program);
// Whether ranks of the sharing axis sum their gradients of what this rank steps of a bucket.
bool sums_partial(const Program& program, int32_t bucket);
// Holders of a bucket's parameters; whether this rank is the first holder, whose gradients count in norms.
std::vector<int32_t> bucket_holders(const Program& program, int32_t bucket);
bool counts_for_tie(const Program& program, int32_t bucket);
// Ranks that hold a bucket's parameters and have this rank's coordinates on the other axes, by pipeline rank.
std::vector<int32_t> tied_ranks(const Program& program, int32_t bucket);
// Whether this rank sums the bucket's gradients with other pipeline ranks: tied, and stepped here.
bool sums_tied(const Program& program, int32_t bucket);
std::vector<bool> sums_tied(const Program& program);  // by bucket

// Pipeline ranks that produce or read the value, in order of their first such stage. The value is sent along this
// chain, its gradient back. Inputs are not sent: every reader fills them.
std::vector<int32_t> chain(const Program& program, int32_t value);
// Whether a gradient of the value comes back from a pipeline rank of its chain: if a layer there, or later in the
// chain, adds to it. Readers that do not lead to the loss add nothing. True for a pipeline rank outside the chain.
bool gradient_returns(const Program& program, int32_t value, int32_t pipeline_rank);

// Whether each rank of the sharing axis has the losses of its own positions only.
bool has_partial_loss(const Program& program);

// Trainable parameters of this rank, one bucket per dtype and class, before a strategy regroups them.
std::vector<ProgramBucket> plain_buckets(const Program& program);

}  // namespace gsel
