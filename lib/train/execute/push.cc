// train/execute/push.cc: see push.h.
#include "train/execute/push.h"

#include <algorithm>

#include "base/foreign.h"

namespace gsel {
namespace {

gsel_status call_embedder(const Model& model, const gsel_work& work, const DataSource& data) {
  if (work.kind == GSEL_INPUT) return data.fill(work.input, data.user_data);
  const Layer& layer = model.layers()[work.call->layer];
  switch (work.kind) {
    case GSEL_FORWARD:
      return layer.forward(work.call, layer.user_data);
    case GSEL_BACKWARD_INPUT:
      return layer.backward_input(work.call, layer.user_data);
    case GSEL_BACKWARD_WEIGHT:
      return layer.backward_weight(work.call, layer.user_data);
    default:
      return layer.backward(work.call, layer.user_data);
  }
}

}  // namespace

void push(Executor& executor, const Model& model, const DataSource& data) {
  for (;;) {
    const gsel_work work = executor.next();
    if (work.kind == GSEL_WORK_DONE) return;
    std::string thrown;
    const gsel_status status =
        call_foreign([&] { return call_embedder(model, work, data); }, GSEL_ERR_CALLBACK, thrown);
    if (!thrown.empty()) executor.write_message(thrown);
    executor.complete(work.ticket, status, executor.callback_message());
  }
}

const Layer* find_pull_only(const Model& model) {
  const auto found = std::ranges::find_if(model.layers(), &Layer::pull_only);
  return found == model.layers().end() ? nullptr : &*found;
}

}  // namespace gsel
