// plan/toml.cc: see toml.h.
#include "plan/toml.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace gsel::plan {
namespace {

const char* precision_of(const Recipe& recipe) {
  if (recipe.element_bytes >= 4) return "f32";
  return std::string_view(recipe.name).ends_with("fp16") ? "fp16" : "bf16";
}

std::string weights_line(const std::vector<double>& weights) {
  return weights.empty() ? "" : fmt::format("weights = [{}]\n", fmt::join(weights, ", "));
}

std::string sharing_section(const Layout& layout, const Shares& shares) {
  if (layout.tensor > 1 && layout.context > 1)
    fail(GSEL_ERR_ARG, "tensor = {} and context = {} were asked for together; gsel divides layers along one of them",
         layout.tensor, layout.context);
  std::string text;
  if (layout.tensor > 1) {
    text = "\n[strategy.tensor]\nplugin = \"tp\"\n";
    if (layout.sequence_parallel) text += "sequence_parallel = true\n";
  }
  if (layout.context > 1) text = "\n[strategy.context]\nplugin = \"cp\"\n";
  return text.empty() ? text : text + weights_line(shares.tensor_weights);
}

std::string pipeline_section(const Layout& layout, const TomlNames& names) {
  if (layout.pipeline == 1) return "";
  std::string text = fmt::format("\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"{}\"\n", schedule_of(layout));
  if (layout.schedule == ScheduleKind::interleaved) text += fmt::format("chunks = {}\n", layout.chunks);
  if (!names.cuts.empty()) text += fmt::format("cuts = \"{}\"\n", fmt::join(names.cuts, ","));
  return text;
}

std::string data_section(const Layout& layout, const Shares& shares) {
  if (layout.zero_stage == 0) return "\n[strategy.data]\nplugin = \"ddp\"\n" + weights_line(shares.data_weights);
  std::string text = fmt::format("\n[strategy.data]\nplugin = \"zero\"\nstage = {}\n", layout.zero_stage);
  if (layout.offload != Offload::none) text += fmt::format("offload = \"{}\"\n", name_of(layout.offload));
  return text + weights_line(shares.data_weights);
}

std::string recompute_of(const Layout& layout, const TomlNames& names) {
  if (layout.recompute != Recompute::selective) return name_of(layout.recompute);
  if (names.selective.empty())
    fail(GSEL_ERR_ARG, "selective recomputation was asked for, and no layer is named that it runs again");
  return fmt::format("{}", fmt::join(names.selective, ","));
}

}  // namespace

const char* schedule_of(const Layout& layout) {
  return layout.schedule == ScheduleKind::interleaved ? "interleaved-1f1b" : name_of(layout.schedule);
}

std::string toml_of(const Layout& layout, const Shares& shares, const Recipe& recipe, const TomlNames& names) {
  std::string text;
  for (size_t at = 0; at < names.head.size();) {
    const size_t end = std::min(names.head.find('\n', at), names.head.size());
    text += "# " + names.head.substr(at, end - at) + "\n";
    at = end + 1;
  }
  text += fmt::format("[mesh]\ntensor = {}\ncontext = {}\ndata = {}\npipeline = {}\n", layout.tensor, layout.context,
                      layout.data, layout.pipeline);
  text += sharing_section(layout, shares) + pipeline_section(layout, names) + data_section(layout, shares);
  text += fmt::format("\n[train]\noptimizer = \"{}\"\nprecision = \"{}\"\nbatch = {}\n", names.optimizer,
                      precision_of(recipe), layout.batch());
  // A pipeline is told how many; else their size says how many.
  text += layout.pipeline > 1 ? fmt::format("microbatches = {}\n", layout.microbatches)
                              : fmt::format("microbatch = {}\n", layout.microbatch);
  if (layout.recompute != Recompute::none) text += fmt::format("recompute = \"{}\"\n", recompute_of(layout, names));
  return text;
}

}  // namespace gsel::plan
