// program/stages.h: what a pipeline rank has of a model: the layers of its stages and the parameters that these use.
// Other pipeline ranks may have some of these parameters, too. Pure functions of a program's outline.
#pragma once

#include <vector>

#include "program/program.h"

namespace gsel {

// Stages are runs of layers in order, none empty, each on a pipeline rank that exists; each pipeline rank has
// one at least.
// GSEL_ERR_PROGRAM says what is wrong.
void check_stages(const Program& program);

// Pipeline rank of a layer, and whether it is this rank's.
int32_t pipeline_rank_of_layer(const Program& program, int32_t layer);
bool is_here(const Program& program, int32_t layer);

// Pipeline ranks that have a layer which uses the parameter, ascending; the first one where none does. One: it is that
// one's alone; several: it is tied over them.
std::vector<int32_t> holders(const Program& program, int32_t param);
std::vector<std::vector<int32_t>> all_holders(const Program& program);  // by parameter
bool holds(const Program& program, int32_t param);                      // this rank

// Sets of several holders of trainable parameters, in order of their first parameter: a parameter's tie is its index
// in this list, or -1 where it has one holder or is frozen, so that no gradient is summed.
std::vector<std::vector<int32_t>> ties(const Program& program);
std::vector<int32_t> tie_of_params(const Program& program);  // by parameter
int32_t tie_of(const Program& program, int32_t param);
// By parameter: what those of one bucket have in common, its tie and whether its gradient is partial on the sharing
// axis; -1 for neither.
std::vector<int32_t> class_of_params(const Program& program);
// Whether ranks of the sharing axis sum the gradients of what this rank steps of a bucket.
bool sums_partial(const Program& program, int32_t bucket);
// Holders of a bucket's parameters, and whether this rank is the first of them: it counts for all.
std::vector<int32_t> bucket_holders(const Program& program, int32_t bucket);
bool counts_for_tie(const Program& program, int32_t bucket);
// Ranks that hold a bucket's parameters, with the same coordinates on the other axes as this one, in order of their
// pipeline rank.
std::vector<int32_t> tied_ranks(const Program& program, int32_t bucket);
// Whether this rank sums the bucket's gradients with other pipeline ranks: it is tied, and stepped here.
bool sums_tied(const Program& program, int32_t bucket);
std::vector<bool> sums_tied(const Program& program);  // by bucket

// Pipeline ranks on which a layer produces or reads the value, in order of the first such stage: a value goes
// along this chain, its gradient back. Inputs are filled where they are read and go nowhere.
std::vector<int32_t> chain(const Program& program, int32_t value);
// Whether a gradient of the value comes back from a pipeline rank of its chain: a layer there, or on a later one of the
// chain, adds to it. A reader that does not lead to the loss adds nothing. From a pipeline rank that neither produces
// nor reads the value all is expected back.
bool gradient_returns(const Program& program, int32_t value, int32_t pipeline_rank);

// Whether each rank of the sharing axis has the losses of its own positions alone.
bool has_partial_loss(const Program& program);

// Trainable parameters that are here, one bucket per dtype and class: what buckets are before a strategy deals them.
std::vector<ProgramBucket> plain_buckets(const Program& program);

}  // namespace gsel
