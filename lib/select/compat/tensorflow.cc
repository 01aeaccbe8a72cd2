// select/compat/tensorflow.cc: the devices that TensorFlow uses: of those that CUDA leaves, the devices of
// set_visible_devices, always in physical order, with TensorFlow's rules for memory growth.
// The request lists the calls in order; a list has indexes of list_physical_devices("GPU"):
//
//     [1, 0]                        tf.config.set_visible_devices([gpus[1], gpus[0]], "GPU")
//     [0, 1] growth [0, 1]          and set_memory_growth(gpu, True) of each
//     limit [0] growth [0]          set_logical_device_configuration(gpus[0], [... memory_limit ...]) before that
//
// Source: tensorflow/python/eager/context.py (set_visible_devices, set_memory_growth, _compute_gpu_options) and
// tensorflow/core/common_runtime/gpu/gpu_process_state.cc (TF_FORCE_GPU_ALLOW_GROWTH) of TensorFlow.
#include <algorithm>
#include <optional>

#include "select/compat/compat.h"
#include "select/compat/numbers.h"

namespace gsel {
namespace {

constexpr const char* kTensorFlowLayer = "TensorFlow";
constexpr const char* kForce = "TF_FORCE_GPU_ALLOW_GROWTH";

// The calls of a request, for `count` physical GPUs.
class Calls {
 public:
  Calls(size_t count, Input input, const Inventory& inventory, const std::vector<Unit>& gpus, Trace& trace)
      : input_(std::move(input)),
        inventory_(inventory),
        gpus_(gpus),
        trace_(trace),
        visible_(count, true),
        growth_(count),
        limited_(count) {}

  std::vector<Unit> run() {
    skip_blanks();
    if (!at_end() && !is_word()) set_visible(read_list());
    while (!at_end()) {
      const Token word = read_word();
      if (word.text == "growth")
        set_growth(read_list());
      else if (word.text == "limit")
        set_limit(read_list());
      else
        refuse(GSEL_ERR_SYNTAX, input_, word, "a list such as [0, 1], then growth or limit with a list, is needed");
    }
    check_growth();
    std::vector<Unit> out;
    for (size_t i = 0; i < gpus_.size(); ++i)
      if (visible_[i]) out.push_back(gpus_[i]);
    return out;
  }

 private:
  struct Index {
    Token token;
    size_t gpu;
  };

  bool at_end() const { return at_ == input_.value.size(); }
  char here() const { return at_end() ? '\0' : input_.value[at_]; }
  bool is_word() const { return (here() >= 'a' && here() <= 'z') || (here() >= 'A' && here() <= 'Z'); }
  void skip_blanks() {
    while (here() == ' ' || here() == '\t') ++at_;
  }
  Token from(size_t start) const {
    return {input_.value.substr(start, at_ - start), static_cast<int32_t>(start) + 1, false};
  }

  Token read_word() {
    const size_t start = at_;
    while (is_word()) ++at_;
    if (at_ == start && !at_end()) ++at_;
    const Token word = from(start);
    skip_blanks();
    return word;
  }

  // A list of indexes, or one index alone.
  std::vector<Index> read_list() {
    std::vector<Index> out;
    if (here() != '[') return {read_index()};
    ++at_;
    skip_blanks();
    while (here() != ']') {
      out.push_back(read_index());
      if (here() == ',')
        ++at_;
      else if (here() != ']')
        refuse(GSEL_ERR_SYNTAX, input_, next(), "SyntaxError: a comma or ] is needed here");
      skip_blanks();
    }
    ++at_;
    skip_blanks();
    return out;
  }

  Token next() const {
    return {std::string(1, here()).substr(0, at_end() ? 0 : 1), static_cast<int32_t>(at_) + 1, false};
  }

  // A Python index: negative ones count from the end.
  Index read_index() {
    const size_t start = at_;
    if (here() == '-' || here() == '+') ++at_;
    while (here() >= '0' && here() <= '9') ++at_;
    const Token token = from(start);
    const Leading number = leading_number(token.text);
    if (number.kind != Leading::Kind::number)
      refuse(GSEL_ERR_SYNTAX, input_, token.text.empty() ? next() : token, "SyntaxError: an index is needed here");
    skip_blanks();
    const auto count = static_cast<int64_t>(gpus_.size());
    const int64_t gpu = number.negative ? count - number.value : number.value;
    if (gpu < 0 || gpu >= count)
      refuse(GSEL_ERR_OUT_OF_RANGE, input_, token,
             fmt::format("IndexError: list index out of range: list_physical_devices(\"GPU\") has {}", count));
    return {token, static_cast<size_t>(gpu)};
  }

  void tell(const Index& index, const char* rule) {
    trace_.add(kTensorFlowLayer, input_, index.token, unit_text(inventory_, gpus_[index.gpu]), rule);
  }

  void set_visible(const std::vector<Index>& list) {
    visible_.assign(visible_.size(), false);
    bool in_order = true;
    for (size_t i = 0; i < list.size(); ++i) {
      tell(list[i], "set_visible_devices takes a set: devices stay in physical order");
      in_order = in_order && (i == 0 || list[i].gpu > list[i - 1].gpu);
      visible_[list[i].gpu] = true;
    }
    if (!in_order)
      trace_.warn(fmt::format("{}: TensorFlow keeps physical order and merges repeated devices", input_.shown()));
  }

  void set_growth(const std::vector<Index>& list) {
    for (const Index& index : list) {
      if (limited_[index.gpu])
        refuse(GSEL_ERR_CONFLICT, input_, index.token,
               "ValueError: Cannot set memory growth on device when virtual devices configured");
      tell(index, "set_memory_growth(gpu, True)");
      growth_[index.gpu] = true;
      grown_ = index.token;
    }
  }

  void set_limit(const std::vector<Index>& list) {
    for (const Index& index : list) {
      tell(index, "set_logical_device_configuration with a memory limit");
      limited_[index.gpu] = true;
      if (growth_[index.gpu])
        trace_.warn(
            fmt::format("{}: a device with a memory limit does not grow", unit_text(inventory_, gpus_[index.gpu])));
    }
  }

  // Growth must be equal on all devices if no logical device is configured.
  void check_growth() const {
    if (!grown_ || std::find(limited_.begin(), limited_.end(), true) != limited_.end()) return;
    bool with = false, without = false;
    for (size_t i = 0; i < gpus_.size(); ++i)
      if (visible_[i]) (growth_[i] ? with : without) = true;
    if (with && without)
      refuse(GSEL_ERR_CONFLICT, input_, *grown_,
             "ValueError: Memory growth cannot differ between GPU devices: it is set on some of the visible ones");
  }

  Input input_;
  size_t at_ = 0;
  const Inventory& inventory_;
  const std::vector<Unit>& gpus_;
  Trace& trace_;
  std::vector<bool> visible_, growth_, limited_;
  std::optional<Token> grown_;  // where growth was set last
};

void note_forced_growth(const Environment& environment, Trace& trace) {
  const std::string* value = find_variable(environment, kForce);
  if (!value) return;
  const bool known = *value == "true" || *value == "false";
  trace.add(kTensorFlowLayer, {kForce, *value}, {*value, 1, false},
            !known             ? "nothing"
            : *value == "true" ? "memory growth on every GPU"
                               : "no memory growth on any GPU",
            known ? "overrides what the program sets; unequal growth is refused all the same"
                  : "only true and false are read; anything else is logged and left out");
  if (!known) trace.warn(fmt::format("{}={} is neither true nor false and has no effect", kForce, printable(*value)));
}

}  // namespace

Reading read_tensorflow(const Case& asked, Trace& trace) {
  Visible visible = cuda_driver(group_of(asked.inventory, asked.host, "nvidia"), asked.environment, trace);
  note_forced_growth(asked.environment, trace);
  Reading out;
  out.hidden_by = std::move(visible.hidden_by);
  if (asked.request.devices) {
    const Input input{"devices", *asked.request.devices};
    out.units = Calls(visible.units.size(), input, asked.inventory, visible.units, trace).run();
    if (out.units.size() < visible.units.size()) out.hidden_by = "not visible to TensorFlow by " + input.shown();
  } else {
    out.units = std::move(visible.units);
  }
  if (out.units.empty())
    trace.warn("list_logical_devices(\"GPU\") is empty: TensorFlow computes on the CPU without an error");
  return out;
}

}  // namespace gsel
