// plan.cc: `gsel plan`: the best strategy for a model on a cluster, whether it fits, how fast it is, and why.
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client.h"
#include "commands.h"
#include "usage.h"

namespace gsel::cli {
namespace {

constexpr int32_t kMostNodes = 1'000'000;
constexpr int32_t kMostShown = 32;
constexpr int kNothingFits = 1;
constexpr int64_t kMostSamples = 1'000'000'000'000;

const CommandText kPlanText{
    .name = "plan",
    .summary = "Say which strategy trains a model on a cluster fastest, what fits, and why",
    .description =
        "Tries every layout of the devices (axes, stage of ZeRO, offload, schedule, micro-batch, recomputation), drops "
        "those that do not fit the memory, and ranks the others by the forecast time of a step. No accelerator is "
        "needed. Without --cluster and --inventory the devices are those of this machine.",
    .examples = {{"gsel plan --model config.json --cluster 8xH100 --nodes 4 --batch 1024 --seq 4096",
                  "Plans for a config.json of the Hugging Face hub."},
                 {"gsel plan --model config.json --cluster 2xA100-80GB+1xRTX4090 --batch 64",
                  "Plans for unequal devices."},
                 {"gsel plan --model config.json --cluster 8xA100-40GB --estimate",
                  "Memory of each strategy, whether it fits or not."},
                 {"gsel plan --model config.json --cluster 8xH100 --batch 256 --toml gsel.toml",
                  "Writes the first choice for gsel run --config."},
                 {"gsel plan --rows measured.tsv --json", "Forecasts beside measurements."}},
    .sections = {{"JSON",
                  "docs/plan.md lists all keys.",
                  {{"model, cluster, batch, sequence, precision", "What was planned for."},
                   {"decision", "The questions that decide, each with question and answer."},
                   {"candidates", "Fastest first: name, layout, step_s, its parts time_s, memory, stages, lost_by."},
                   {"tried, dropped", "How many layouts were looked at, and which rule dropped how many."},
                   {"rows",
                    "Of --estimate: strategy, bytes, parts, fits; of --rows: row, metric, value, forecast, "
                    "error, fitted_error."}}}},
    .statuses = {{"1", "Nothing that was tried fits."}},
    .related = {"gsel-run(1)", "gsel-program(1)", "gsel_plan_create(3)", "docs/plan.md"}};

struct PlanOptions {
  Parser parser;
  std::string model, cluster, inventory, link, network, memory, batch, sequence, precision, fixed;
  std::string rows, calibrate, toml, svg, chrome, breakdown;
  std::vector<std::string> compare;
  int32_t nodes = 1, shown = 10, candidate = 1;
  bool estimate = false;
};

// Parses "80GiB", "24GB", or bytes.
double bytes_from(const std::string& text) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(result.ptr, text.data() + text.size());
  const double factor = unit.empty() ? 1 : unit == "GiB" ? 1 << 30 : unit == "GB" ? 1e9 : unit == "MiB" ? 1 << 20 : 0;
  if (result.ec != std::errc() || factor == 0 || !(value > 0) || !std::isfinite(value))
    refuse(GSEL_ERR_ARG, "--memory " + text + ": a positive amount is needed, such as 80GiB or 24GB");
  return value * factor;
}

// Shows the progress of a long search, on a terminal only.
class Progress {
 public:
  static int32_t tell(int64_t n_tried, void* self) {
    auto& progress = *static_cast<Progress*>(self);
    if (std::chrono::steady_clock::now() < progress.next_) return 0;
    progress.next_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    progress.shown_ = true;
    std::fprintf(stderr, "\r%lld layouts tried", static_cast<long long>(n_tried));
    return 0;
  }
  void end() {
    if (shown_) std::fprintf(stderr, "\r\033[K");
    shown_ = false;
  }
  ~Progress() { end(); }

 private:
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  bool shown_ = false;
};

// Owns what the options borrow.
struct Request {
  std::string model, measured;
  Handle<gsel_inventory> inventory;
  gsel_plan_options options = GSEL_PLAN_OPTIONS_INIT;
};

Request request_from(const PlanOptions& options) {
  if (options.model.empty())
    refuse(GSEL_ERR_ARG,
           "--model FILE is needed: a config.json of the Hugging Face hub, or a list of layers (docs/plan.md)");
  Request out{read_file(options.model), {}, read_inventory(options.inventory)};
  gsel_plan_options& o = out.options;
  o.model = borrow(out.model), o.model_name = borrow(options.model);
  o.inventory = out.inventory.get();
  const auto set = [](const std::string& value, gsel_str& field) {
    if (!value.empty()) field = borrow(value);
  };
  set(options.cluster, o.cluster);
  set(options.link, o.link);
  set(options.network, o.network);
  set(options.precision, o.precision);
  set(options.fixed, o.fixed);
  if (!options.memory.empty()) o.memory_bytes = bytes_from(options.memory);
  if (!options.batch.empty()) o.batch = number_from("--batch", options.batch, 1, kMostSamples);
  if (!options.sequence.empty()) o.sequence = number_from("--seq", options.sequence, 1, kMostSamples);
  if (!options.calibrate.empty()) {
    out.measured = read_file(options.calibrate);
    o.measured = borrow(out.measured);
  }
  o.nodes = options.nodes, o.n_shown = options.shown;
  return out;
}

int print_report(const gsel_plan* plan, bool json, const std::string& calibrate = {}) {
  std::string report = text(json ? gsel_plan_json(plan) : gsel_plan_text(plan));
  if (!calibrate.empty() && json) report.insert(1, "\n \"measured\": " + nlohmann::json(calibrate).dump() + ",");
  if (!calibrate.empty() && !json) report += "Measured rows are those of " + calibrate + ".\n";
  print(report);
  return 0;
}

// Adds the file name to an error in measured rows.
void check_measured(gsel_status status, gsel_error** error, const PlanOptions& options) {
  try {
    check(status, error);
  } catch (Failure& failure) {
    constexpr std::string_view kName = "measured";
    if (options.parser.given("--calibrate") && failure.message.starts_with(kName) &&
        (failure.message[kName.size()] == ':' || failure.message[kName.size()] == ' '))
      failure.message.replace(0, kName.size(), options.calibrate);
    throw;
  }
}

int print_rows(const std::string& file, bool json) {
  const std::string content = read_file(file);
  gsel_plan* plan = nullptr;
  gsel_error* error = nullptr;
  check(gsel_plan_rows(borrow(content), borrow(file), &plan, &error), &error);
  return print_report(Handle<gsel_plan>(plan).get(), json);
}

int print_estimate(const PlanOptions& options, bool json) {
  const Request request = request_from(options);
  gsel_plan* plan = nullptr;
  gsel_error* error = nullptr;
  check_measured(gsel_plan_estimate(&request.options, &plan, &error), &error, options);
  return print_report(Handle<gsel_plan>(plan).get(), json, options.calibrate);
}

int print_comparison(const PlanOptions& options, bool json) {
  const Request request = request_from(options);
  std::vector<Handle<gsel_config>> configs;
  std::vector<const gsel_config*> list;
  gsel_error* error = nullptr;
  for (const std::string& file : options.compare) {
    gsel_config* config = nullptr;
    check(gsel_config_load(borrow(file), &config, &error), &error);
    configs.emplace_back(config);
    list.push_back(config);
  }
  gsel_plan* plan = nullptr;
  check_measured(gsel_plan_compare(&request.options, list.data(), static_cast<int32_t>(list.size()), &plan, &error),
                 &error, options);
  return print_report(Handle<gsel_plan>(plan).get(), json, options.calibrate);
}

void write_toml(gsel_plan* plan, const PlanOptions& options) {
  if (options.toml.empty()) return;
  gsel_str toml{};
  gsel_error* error = nullptr;
  check(gsel_plan_toml(plan, options.candidate - 1, &toml, &error), &error);
  replace_file(options.toml, text(toml));
}

void draw_schedule(gsel_plan* plan, const PlanOptions& options) {
  if (options.svg.empty() && options.chrome.empty()) return;
  gsel_str json{};
  gsel_error* error = nullptr;
  check(gsel_plan_simulation(plan, options.candidate - 1, &json, &error), &error);
  const Handle<gsel_timeline> timeline = new_timeline();
  add(timeline.get(), text(json), "candidate " + std::to_string(options.candidate));
  draw(timeline.get(), GSEL_TIMELINE_SVG, options.svg);
  draw(timeline.get(), GSEL_TIMELINE_CHROME, options.chrome);
}

void draw_breakdown(gsel_plan* plan, const PlanOptions& options) {
  if (options.breakdown.empty()) return;
  gsel_str picture{};
  gsel_error* error = nullptr;
  check(gsel_plan_picture(plan, &picture, &error), &error);
  write_file(options.breakdown, text(picture));
}

// Refuses combinations: each of these reports excludes all other results.
void check_pairs(const PlanOptions& options) {
  const char* const reports[] = {"--estimate", "--compare", "--rows"};
  const char* const results[] = {"--toml", "--svg", "--chrome", "--breakdown", "--candidate", "--top"};
  for (const char* asked : {"--model", "--cluster", "--inventory", "--nodes", "--link", "--network", "--memory",
                            "--batch", "--seq", "--precision", "--fix", "--calibrate"})
    if (options.parser.given("--rows") && options.parser.given(asked))
      refuse(GSEL_ERR_ARG, std::string("--rows forecasts what the columns of its file say, and ") + asked +
                               " is of a plan; leave one out");
  for (const char* report : reports) {
    if (!options.parser.given(report)) continue;
    for (const char* other : reports)
      if (other != report && options.parser.given(other))
        refuse(GSEL_ERR_ARG, std::string(report) + " and " + other + " are two reports; take one of them");
    for (const char* result : results)
      if (options.parser.given(result))
        refuse(GSEL_ERR_ARG, std::string(report) + " makes no plan, of which " + result + " is; leave one out");
  }
}

int print_plan(const PlanOptions& options, bool json) {
  check_pairs(options);
  if (!options.rows.empty()) return print_rows(options.rows, json);
  if (options.estimate) return print_estimate(options, json);
  if (!options.compare.empty()) return print_comparison(options, json);
  Request request = request_from(options);
  gsel_plan* made = nullptr;
  gsel_error* error = nullptr;
  Progress progress;
  if (isatty(STDERR_FILENO)) request.options.progress = Progress::tell, request.options.user_data = &progress;
  const gsel_status status = gsel_plan_create(&request.options, &made, &error);
  progress.end();
  check_measured(status, &error, options);
  const Handle<gsel_plan> plan(made);
  const bool found = gsel_plan_candidate_count(made) > 0;
  if (found) {  // files first: if one is refused, nothing is printed
    draw_schedule(made, options);
    draw_breakdown(made, options);
    write_toml(made, options);
  }
  print_report(made, json, options.calibrate);
  return found ? 0 : kNothingFits;
}

}  // namespace

Command plan_command(CommandLine& line) {
  auto options = std::make_shared<PlanOptions>();
  Parser parser = line.subcommand(kPlanText);
  options->parser = parser;
  parser.option("--model", options->model, "FILE",
                "The model: a config.json of the Hugging Face hub, or a list of layers.");
  Parser devices = parser.group("Devices");
  devices.option("--cluster", options->cluster, "DEVICES",
                 "Of one node: 8xH100, or unequal ones: 2xA100-80GB+1xRTX4090.");
  devices.option("--inventory", options->inventory, "FILE",
                 "The devices of this file, as gsel devices --json writes it.");
  devices.exclude("--inventory", "--cluster");
  devices.option("--nodes", options->nodes, 1, kMostNodes, "N", "Nodes like this one. Default: 1.");
  devices.option("--link", options->link, "LINK",
                 "Between devices of a node: NV4, PIX, PHB, SYS, p2p-off, or 300GB/s.");
  devices.option("--network", options->network, "NETWORK", "Of each node: 8x400Gb/s, or 50GB/s.");
  devices.option("--memory", options->memory, "BYTES", "Of each device: 80GiB, 24GB.");
  Parser work = parser.group("Training");
  work.option("--batch", options->batch, "SAMPLES", "Of a step over all ranks. Default: one for each device.");
  work.option("--seq", options->sequence, "TOKENS", "Of a sample. Default: the longest that the model was made for.");
  work.option("--precision", options->precision, "NAME",
              "How parameters and states are kept: gsel-bf16, gsel-f32, megatron-bf16, fsdp2-bf16, deepspeed-fp16, "
              "ddp-f32, paper-fp16 or adam-bf16. Default: gsel-bf16.");
  work.option("--fix", options->fixed, "KEY=VALUE,...",
              "What is decided already: tensor, context, data, pipeline, zero, microbatch, chunks, devices, recompute, "
              "offload, schedule, sequence_parallel.");
  work.option("--calibrate", options->calibrate, "FILE",
              "Fit one scalar for the class of device to these measured steps, in the columns of --rows.");
  Parser what = parser.group("What to do, in place of a plan");
  what.flag("--estimate", options->estimate, "Print the memory of each rank under each strategy.");
  what.list("--compare", options->compare, "FILE...", "Forecast these config files beside each other.");
  what.option("--rows", options->rows, "FILE", "Forecast the rows of a table of measurements.");
  Parser results = parser.group("Results");
  results.option("--top", options->shown, 1, kMostShown, "N", "Candidates in the table. Default: 10.");
  results.option("--candidate", options->candidate, 1, kMostShown, "N",
                 "Which one the files below are of. Default: 1, the first.");
  results.option("--toml", options->toml, "FILE", "Write it as gsel.toml.");
  results.option("--svg", options->svg, "FILE", "Draw its pipeline.");
  results.option("--chrome", options->chrome, "FILE", "The same for Perfetto and chrome://tracing.");
  results.option("--breakdown", options->breakdown, "FILE", "Draw the parts of a step of each candidate as SVG.");
  parser.words("--link", {"NV4", "NV8", "NV12", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS", "p2p-off"});
  parser.words("--precision", {"gsel-bf16", "gsel-f32", "megatron-bf16", "fsdp2-bf16", "deepspeed-fp16", "ddp-f32",
                               "paper-fp16", "adam-bf16"});
  return {parser, [options, &common = line.common()] { return print_plan(*options, common.json); }};
}

}  // namespace gsel::cli
