// base/config_keys.cc: see config_keys.h. A new key is one row here, one field in Config and one row in docs/config.md
// (a test compares the two).
#include "base/config_keys.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace gsel {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Bounds at_least(double minimum) {
  return {minimum, kInfinity, false, false};
}
constexpr Bounds above(double minimum) {
  return {minimum, kInfinity, true, false};
}
constexpr Bounds kFraction{0, 1, false, true};
constexpr Bounds kAtMostOne{0, 1, false, false};
constexpr Bounds kAny{-kInfinity, kInfinity, false, false};

// ---- rows of [select], [comm] and [mesh] ----------------------------------------------------------------------------

constexpr std::string_view accelerators[] = {"auto", "cuda", "hip", "ze", "habana", "ascend", "mps", "cpu"};
constexpr std::string_view orders[] = {"visible", "pci", "fastest", "most_free", "near"};

template <gsel_axis axis>
void store_size(Config& config, const Scalar& value) {
  config.mesh[axis] = value.type == ConfigValue::Type::text ? 0 : value.integer;
}

constexpr ConfigKey kHostKeys[] = {
    {"select.accelerator", KeyType::word, "auto", kAny, accelerators,
     "kind of device; auto takes the accelerators there are, else the CPU",
     [](Config& c, const Scalar& v) { c.select.accelerator = v.text; }},
    {"select.devices",
     KeyType::text,
     "",
     kAny,
     {},
     "which devices, as gsel_resolve reads it, such as count:2; empty means auto",
     [](Config& c, const Scalar& v) { c.select.devices = v.text; }},
    {"select.order", KeyType::word, "visible", kAny, orders,
     "order in which devices are counted; visible is as the environment orders them, else by bus",
     [](Config& c, const Scalar& v) { c.select.order = v.text; }},
    {"comm.timeout_s",
     KeyType::number,
     "60.0",
     above(0),
     {},
     "bound on each communication call, seconds",
     [](Config& c, const Scalar& v) { c.comm.timeout_s = v.number; }},
    {"comm.trace",
     KeyType::text,
     "",
     kAny,
     {},
     "folder to which each rank that meets a failure writes the last calls of all ranks; empty means none",
     [](Config& c, const Scalar& v) { c.comm.trace = v.text; }},
    {"comm.transport",
     KeyType::text,
     "auto",
     kAny,
     {},
     "the transport for memory of an accelerator, and for memory of the host between hosts: a transport plugin such as "
     "nccl or gloo, mpi for that of the MPI whose launcher started the ranks, host for copies through host memory, or "
     "auto for the first that all ranks can use",
     [](Config& c, const Scalar& v) { c.comm.transport = v.text; }},
    {"mesh.tensor",
     KeyType::size,
     "1",
     at_least(1),
     {},
     "ranks that share one layer's computation",
     store_size<GSEL_AXIS_TENSOR>},
    {"mesh.context",
     KeyType::size,
     "1",
     at_least(1),
     {},
     "ranks that share the positions of each sample; 1 where mesh.tensor is not",
     store_size<GSEL_AXIS_CONTEXT>},
    {"mesh.data",
     KeyType::size,
     "auto",
     at_least(1),
     {},
     "ranks that work on different samples; 1 instead of auto when another size is auto",
     store_size<GSEL_AXIS_DATA>},
    {"mesh.pipeline",
     KeyType::size,
     "1",
     at_least(1),
     {},
     "ranks that hold different layers",
     store_size<GSEL_AXIS_PIPELINE>},
};

std::span<const ConfigKey> host_keys() {
  return kHostKeys;
}

// ---- rows of [train] and [weights] ----------------------------------------------------------------------------------

constexpr std::string_view optimizers[] = {"adamw", "adam", "adamw_8bit", "lion", "sgd", "sign_sgd"};
constexpr std::string_view schedules[] = {"constant", "linear", "cosine", "wsd"};
constexpr std::string_view precisions[] = {"f32", "bf16", "fp16"};
constexpr std::string_view non_finites[] = {"auto", "skip", "error", "off"};
constexpr std::string_view norms[] = {"auto", "always"};
constexpr std::string_view lendings[] = {"direct", "moved"};
constexpr std::string_view graphs[] = {"off", "auto", "on"};
constexpr std::string_view switches[] = {"off", "on"};
constexpr std::string_view checks[] = {"none", "kernels"};

constexpr std::string_view plans[] = {"none", "auto"};

constexpr ConfigKey kTrainKeys[] = {
    {"strategy.plan", KeyType::word, "none", kAny, plans,
     "auto: measure the machine for two seconds when the trainer is made, and take the strategy that is fastest for "
     "this model on these ranks; [strategy.AXIS] is refused in the file, and sizes of [mesh] in the file are kept",
     [](Config& c, const Scalar& v) { c.plan = v.text; }},
    {"train.optimizer", KeyType::word, "adamw", kAny, optimizers, "rule of the optimizer step",
     [](Config& c, const Scalar& v) { c.train.optimizer = v.text; }},
    {"train.learning_rate",
     KeyType::number,
     "0.001",
     at_least(0),
     {},
     "size of the optimizer step",
     [](Config& c, const Scalar& v) { c.train.learning_rate = v.number; }},
    {"train.weight_decay",
     KeyType::number,
     "0.01",
     at_least(0),
     {},
     "decay of every parameter that is not flagged GSEL_PARAM_NO_DECAY, also by this default; 0 means none; decoupled, "
     "but sgd and adam add it to the gradient",
     [](Config& c, const Scalar& v) { c.train.weight_decay = v.number; }},
    {"train.momentum",
     KeyType::number,
     "0.0",
     kFraction,
     {},
     "momentum of sgd",
     [](Config& c, const Scalar& v) { c.train.momentum = v.number; }},
    {"train.beta1",
     KeyType::number,
     "0.9",
     kFraction,
     {},
     "decay of the first moment of adam, adamw and lion",
     [](Config& c, const Scalar& v) { c.train.beta1 = v.number; }},
    {"train.beta2",
     KeyType::number,
     "0.999",
     kFraction,
     {},
     "decay of the second moment of adam and adamw; lion's decay of its one moment",
     [](Config& c, const Scalar& v) { c.train.beta2 = v.number; }},
    {"train.epsilon",
     KeyType::number,
     "1e-08",
     above(0),
     {},
     "added to the denominator of adam and adamw",
     [](Config& c, const Scalar& v) { c.train.epsilon = v.number; }},
    {"train.clip_norm",
     KeyType::number,
     "0.0",
     at_least(0),
     {},
     "largest norm of the whole mean gradient; 0 means no clipping",
     [](Config& c, const Scalar& v) { c.train.clip_norm = v.number; }},
    {"train.gradient_norm", KeyType::word, "auto", kAny, norms,
     "always: every step reports the norm of the mean gradient, at the cost of a pass over gradients; auto: where "
     "clip_norm needs it",
     [](Config& c, const Scalar& v) { c.train.gradient_norm = v.text; }},
    {"train.elastic", KeyType::word, "off", kAny, switches,
     "on: a step changes parameters only after all gradients are reduced, so that a rank that fails leaves the others "
     "the state before or after the step, whole, for gsel_trainer_rebind",
     [](Config& c, const Scalar& v) { c.train.elastic = v.text == "on"; }},
    {"train.redundancy",
     KeyType::integer,
     "0",
     kAtMostOne,
     {},
     "1: each rank keeps in host memory what it and one other rank hold, of another host if there is one, so that "
     "gsel_trainer_rebind needs no checkpoint after one rank is lost",
     [](Config& c, const Scalar& v) { c.train.redundancy = v.integer; }},
    {"train.redundancy_every",
     KeyType::integer,
     "1",
     at_least(1),
     {},
     "steps from one such copy to the next; as many steps are repeated at most",
     [](Config& c, const Scalar& v) { c.train.redundancy_every = v.integer; }},
    {"train.batch",
     KeyType::integer,
     "8",
     at_least(1),
     {},
     "samples per step over all ranks",
     [](Config& c, const Scalar& v) { c.train.batch = v.integer; }},
    {"train.microbatch",
     KeyType::integer,
     "0",
     at_least(0),
     {},
     "samples per micro-batch of one rank; 0 means the rank's whole shard of the batch",
     [](Config& c, const Scalar& v) { c.train.microbatch = v.integer; }},
    {"train.microbatches",
     KeyType::integer,
     "0",
     at_least(0),
     {},
     "number of micro-batches of a rank; 0: use train.microbatch",
     [](Config& c, const Scalar& v) { c.train.microbatches = v.integer; }},
    {"train.seed",
     KeyType::integer,
     "1",
     at_least(0),
     {},
     "seed of initial parameters and of noise",
     [](Config& c, const Scalar& v) { c.train.seed = v.integer; }},
    {"train.schedule", KeyType::word, "constant", kAny, schedules,
     "how the learning rate decays after warm-up: constant, linear or cosine, to final_learning_rate; wsd stays "
     "constant and decays linearly in the last decay_steps",
     [](Config& c, const Scalar& v) { c.train.schedule = v.text; }},
    {"train.warmup_steps",
     KeyType::integer,
     "0",
     at_least(0),
     {},
     "steps in which the learning rate rises in a line to learning_rate",
     [](Config& c, const Scalar& v) { c.train.warmup_steps = v.integer; }},
    {"train.total_steps",
     KeyType::integer,
     "0",
     at_least(0),
     {},
     "step at which a falling schedule has arrived; needed by linear, cosine and wsd",
     [](Config& c, const Scalar& v) { c.train.total_steps = v.integer; }},
    {"train.decay_steps",
     KeyType::integer,
     "0",
     at_least(0),
     {},
     "steps before total_steps in which wsd falls; needed by wsd",
     [](Config& c, const Scalar& v) { c.train.decay_steps = v.integer; }},
    {"train.final_learning_rate",
     KeyType::number,
     "0.0",
     at_least(0),
     {},
     "learning rate at the end of a falling schedule",
     [](Config& c, const Scalar& v) { c.train.final_learning_rate = v.number; }},
    {"train.precision", KeyType::word, "f32", kAny, precisions,
     "how f32 parameters are kept and sent; bf16 and fp16 have an f32 master copy, gradients are f32",
     [](Config& c, const Scalar& v) { c.train.precision = v.text; }},
    {"train.loss_scale",
     KeyType::number,
     "0.0",
     at_least(0),
     {},
     "factor of the loss under fp16; 0 means dynamic",
     [](Config& c, const Scalar& v) { c.train.loss_scale = v.number; }},
    {"train.loss_scale_initial",
     KeyType::number,
     "65536.0",
     above(0),
     {},
     "dynamic loss scale of the first step",
     [](Config& c, const Scalar& v) { c.train.loss_scale_initial = v.number; }},
    {"train.loss_scale_minimum",
     KeyType::number,
     "1.0",
     above(0),
     {},
     "smallest dynamic loss scale",
     [](Config& c, const Scalar& v) { c.train.loss_scale_minimum = v.number; }},
    {"train.loss_scale_window",
     KeyType::integer,
     "1000",
     at_least(1),
     {},
     "steps without overflow after which the dynamic loss scale doubles",
     [](Config& c, const Scalar& v) { c.train.loss_scale_window = v.integer; }},
    {"train.loss_scale_hysteresis",
     KeyType::integer,
     "2",
     at_least(1),
     {},
     "overflows after which the dynamic loss scale halves",
     [](Config& c, const Scalar& v) { c.train.loss_scale_hysteresis = v.integer; }},
    {"train.non_finite", KeyType::word, "auto", kAny, non_finites,
     "what a gradient that is not finite does: skip its step on every rank, end training with an error, or nothing; "
     "auto skips where clip_norm or fp16 look at all gradients anyway",
     [](Config& c, const Scalar& v) { c.train.non_finite = v.text; }},
    {"train.recompute",
     KeyType::text,
     "none",
     kAny,
     {},
     "layers whose forward runs again before their backward, to save memory: none, all (each that may be recomputed), "
     "or layer names separated by commas",
     [](Config& c, const Scalar& v) { c.train.recompute = v.text; }},
    {"train.device",
     KeyType::text,
     "auto",
     kAny,
     {},
     "device of a trainer that is made without a communicator: cpu, cuda for this rank's own, or cuda:1, with cpu "
     "behind "
     "a bar for the CPU where there is no such device (docs/devices.md); a trainer has its communicator's otherwise, "
     "and "
     "another device here is an error; auto: the communicator's, else the CPU",
     [](Config& c, const Scalar& v) { c.train.device = v.text; }},
    {"train.memory_bytes",
     KeyType::size,
     "auto",
     at_least(0),
     {},
     "memory that one rank's trainer may take; auto: what its accelerator has free, and no bound on the host; 0 means "
     "no bound",
     [](Config& c, const Scalar& v) {
       c.train.memory_bytes = v.integer;
       c.train.takes_free_memory = v.type == ConfigValue::Type::text;
     }},
    {"train.offload_folder",
     KeyType::text,
     "",
     kAny,
     {},
     "folder for what is offloaded from host memory; empty means that of temporary files",
     [](Config& c, const Scalar& v) { c.train.offload_folder = v.text; }},
    {"train.offload_buffer_bytes",
     KeyType::integer,
     "25165824",
     at_least(0),
     {},
     "device memory in bytes for buffers through which offloaded state is stepped while the device computes; 0: "
     "kernels access host memory directly",
     [](Config& c, const Scalar& v) { c.train.offload_buffer_bytes = v.integer; }},
    {"train.lending", KeyType::word, "direct", kAny, lendings,
     "moved: lends each callback copies at new places and poisons them afterwards, to find kernels that keep pointers",
     [](Config& c, const Scalar& v) { c.train.lending = v.text; }},
    {"train.graph", KeyType::word, "off", kAny, graphs,
     "whether steps on a device are recorded and launched as graphs; callbacks are then called in a few steps only; "
     "auto: where possible, on one rank; on: an error where not",
     [](Config& c, const Scalar& v) { c.train.graph = v.text; }},
    {"train.check", KeyType::word, "none", kAny, checks,
     "kernels: runs every layer's callbacks against their contract when the trainer is made, as gsel_model_check does",
     [](Config& c, const Scalar& v) { c.train.check = v.text; }},
    {"train.progress_steps",
     KeyType::integer,
     "0",
     at_least(0),
     {},
     "steps from one line of progress to the next, which rank 0 gives to the log at level info; 0 means none",
     [](Config& c, const Scalar& v) { c.train.progress_steps = v.integer; }},
    {"train.timeline",
     KeyType::text,
     "",
     kAny,
     {},
     "folder to which each rank writes when the instructions of its last step began and ended; empty means none",
     [](Config& c, const Scalar& v) { c.train.timeline = v.text; }},
    {"weights.prefix",
     KeyType::text,
     "",
     kAny,
     {},
     "what names of tensors in a file of weights may have in front; an export writes them without it",
     [](Config& c, const Scalar& v) { c.weights.prefix = v.text; }},
};

std::span<const ConfigKey> train_keys() {
  return kTrainKeys;
}

// ---- what a key accepts ---------------------------------------------------------------------------------------------

std::string listed(std::span<const std::string_view> words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += fmt::format("{}\"{}\"", i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  return text;
}

// "a number of at least 0 and below 1"
std::string with_bounds(std::string_view noun, const Bounds& b) {
  std::string text(noun);
  if (std::isfinite(b.minimum)) text += fmt::format(" {} {}", b.above ? "above" : "of at least", b.minimum);
  if (std::isfinite(b.maximum)) text += fmt::format(" and {} {}", b.below ? "below" : "at most", b.maximum);
  return text;
}

std::string_view type_text(ConfigValue::Type type) {
  switch (type) {
    case ConfigValue::Type::integer:
      return "is an integer";
    case ConfigValue::Type::number:
      return "is a decimal number";
    case ConfigValue::Type::boolean:
      return "is a boolean";
    default:
      return "is text";
  }
}

bool accepts_type(const ConfigKey& key, const Scalar& value) {
  using Type = ConfigValue::Type;
  switch (key.type) {
    case KeyType::integer:
      return value.type == Type::integer;
    case KeyType::number:
      return value.type == Type::integer || value.type == Type::number;
    case KeyType::size:
      return value.type == Type::integer || (value.type == Type::text && value.text == "auto");
    default:
      return value.type == Type::text;
  }
}

}  // namespace

bool Bounds::hold(double value) const {
  return std::isfinite(value) && (above ? value > minimum : value >= minimum) &&
         (below ? value < maximum : value <= maximum);
}

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> all = [] {
    std::vector<ConfigKey> joined;
    for (const auto& keys : {host_keys(), train_keys()}) joined.insert(joined.end(), keys.begin(), keys.end());
    return joined;
  }();
  return all;
}

const ConfigKey* find_config_key(std::string_view name) {
  for (const ConfigKey& key : config_keys())
    if (key.name == name) return &key;
  return nullptr;
}

std::string expectation(const ConfigKey& key) {
  switch (key.type) {
    case KeyType::integer:
      return with_bounds("an integer", key.bounds);
    case KeyType::number:
      return with_bounds("a number", key.bounds);
    case KeyType::size:
      return with_bounds("an integer", key.bounds) + " or \"auto\"";
    case KeyType::word:
      return listed(key.words);
    default:
      return "text";
  }
}

std::string objection(const ConfigKey& key, const Scalar& value) {
  using Type = ConfigValue::Type;
  if (!accepts_type(key, value)) return std::string(type_text(value.type));
  const bool numeric = value.type == Type::integer || value.type == Type::number;
  if (numeric && !key.bounds.hold(value.type == Type::integer ? static_cast<double>(value.integer) : value.number))
    return "is out of bounds";
  if (key.type != KeyType::word) return {};
  for (std::string_view word : key.words)
    if (word == value.text) return {};
  return "is not known";
}

// Uses from_chars and not strtod: the embedder's locale must not matter.
Scalar default_value(const ConfigKey& key) {
  Scalar value;
  value.text = key.default_text;
  if (key.type == KeyType::number) {
    value.type = ConfigValue::Type::number;
    std::from_chars(value.text.data(), value.text.data() + value.text.size(), value.number);
  } else if (key.type == KeyType::integer || (key.type == KeyType::size && value.text != "auto")) {
    value.type = ConfigValue::Type::integer;
    std::from_chars(value.text.data(), value.text.data() + value.text.size(), value.integer);
  }
  return value;
}

std::string as_text(const Scalar& value) {
  switch (value.type) {
    case ConfigValue::Type::integer:
      return std::to_string(value.integer);
    case ConfigValue::Type::boolean:
      return value.boolean ? "true" : "false";
    case ConfigValue::Type::text:
      return value.text;
    default:
      break;
  }
  std::string text = fmt::format("{}", value.number);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

void store_value(Config& config, const ConfigKey& key, const Scalar& given) {
  Scalar value = given;
  if (key.type == KeyType::number && value.type == ConfigValue::Type::integer) {
    value.type = ConfigValue::Type::number;
    value.number = static_cast<double>(value.integer);
  }
  key.store(config, value);
  config.texts[std::string(key.name)] = as_text(value);
}

}  // namespace gsel
