// base/config.cc: see config.h. Defaults, files and the mesh; config_parse.cc parses the text of a file.
#include "base/config.h"

#include <charconv>
#include <cstdlib>

#include "base/config_keys.h"
#include "base/file.h"
#include "base/text.h"
#include "base/types.h"

namespace gsel {
namespace {

// More than the parser accepts: its message about a text that is too long is better.
constexpr size_t kMaxFileBytes = size_t{1} << 20;

// "mesh.tensor"
std::string size_key(gsel_axis axis) {
  return fmt::format("mesh.{}", axis_name(axis));
}

// a * b, or -1 when the product is more than any number of ranks.
int64_t times(int64_t a, int64_t b) {
  int64_t product = 0;
  if (a < 0 || __builtin_mul_overflow(a, b, &product)) return -1;
  return product;
}

// Names, numbers and product of all axis sizes except that of `left_out` (-1: none), as "mesh.tensor * mesh.pipeline =
// 2 * 3 = 6". A context axis of one rank is omitted.
struct Product {
  std::string text;
  int64_t value = 1;  // -1: more than any number of ranks
};

Product product_of(const Config& config, gsel_axis left_out) {
  std::string names, numbers;
  Product product;
  for (gsel_axis axis : kInnerToOuter) {
    if (axis == left_out || (axis == GSEL_AXIS_CONTEXT && config.mesh[axis] == 1)) continue;
    names += fmt::format("{}{}", names.empty() ? "" : " * ", size_key(axis));
    numbers += fmt::format("{}{}", numbers.empty() ? "" : " * ", config.mesh[axis]);
    product.value = times(product.value, config.mesh[axis]);
  }
  product.text =
      fmt::format("{} = {} = {}", names, numbers, product.value < 0 ? "more than 2^63" : std::to_string(product.value));
  return product;
}

// The place for errors about sizes that do not fit: the first size above 1 in the file.
Place place_of_mesh(const Config& config) {
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    if (const Place place = config.place_of(size_key(axis)); config.mesh[axis] > 1 && place.line > 0) return place;
  return config.place_of("mesh.data");
}

[[noreturn]] void reject_mesh(const Config& config, const std::string& text) {
  const Place place = place_of_mesh(config);
  throw Error(GSEL_ERR_CONFIG, (place.line > 0 ? place_prefix(place) : "") + text).at(place);
}

// " or mesh.data = 4" when changing one size is enough, preferably the data axis.
std::string one_change(const Config& config, int32_t world_size) {
  auto axes = kInnerToOuter;
  std::stable_partition(axes.begin(), axes.end(), [](gsel_axis axis) { return axis == GSEL_AXIS_DATA; });
  for (gsel_axis axis : axes) {
    if (axis == GSEL_AXIS_CONTEXT && config.mesh[axis] == 1) continue;
    const int64_t others = product_of(config, axis).value;
    if (others > 0 && world_size % others == 0) return fmt::format(" or {} = {}", size_key(axis), world_size / others);
  }
  return {};
}

}  // namespace

const char* OwnStrategies::of(std::string_view axis) {
  std::array<const char*, kAxes> names{};
  names[GSEL_AXIS_TENSOR] = tensor, names[GSEL_AXIS_DATA] = data;
  names[GSEL_AXIS_PIPELINE] = pipeline, names[GSEL_AXIS_CONTEXT] = context;
  for (gsel_axis a = 0; a < kAxes; ++a)
    if (axis == axis_name(a)) return names[a];
  return data;
}

std::string ConfigValue::shown() const {
  return type == Type::text ? in_quotes(text) : text;
}

const std::string* Config::get(std::string_view key) const {
  const auto found = texts.find(key);
  return found == texts.end() ? nullptr : &found->second;
}

Place Config::place_of(std::string_view key) const {
  const auto found = places.find(key);
  return found == places.end() ? Place{file, 0, 0, std::string(key)} : found->second;
}

Config default_config() {
  Config config;
  for (const ConfigKey& key : config_keys()) store_value(config, key, default_value(key));
  return config;
}

Config load_config(const std::string& path) {
  const std::string absolute = absolute_path("config file", path);
  return parse_config(read_file("config file", absolute, kMaxFileBytes), absolute);
}

Config environment_config() {
  const char* path = secure_getenv("GSEL_CONFIG");
  return path && *path ? load_config(path) : default_config();
}

std::array<int32_t, kAxes> resolve_mesh(const Config& config, int32_t world_size) {
  if (world_size < 1) fail(GSEL_ERR_ARG, "a mesh for {}; a mesh needs 1 rank or more", with_noun(world_size, "rank"));
  gsel_axis automatic = -1;
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    if (config.mesh[axis] == 0) automatic = axis;
  const Product product = product_of(config, automatic);
  if (automatic >= 0 && (product.value < 1 || world_size % product.value != 0))
    reject_mesh(config, fmt::format("{} does not divide {}; use sizes that do, or another number of ranks",
                                    product.text, with_noun(world_size, "rank")));
  if (automatic < 0 && product.value != world_size) {
    const bool possible = product.value > 0 && product.value <= INT32_MAX;
    reject_mesh(config, fmt::format("{}, but there {} {}; expected {}{}", product.text, world_size == 1 ? "is" : "are",
                                    with_noun(world_size, "rank"),
                                    possible ? with_noun(product.value, "rank") : "smaller sizes",
                                    one_change(config, world_size)));
  }
  std::array<int32_t, kAxes> sizes{};
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    sizes[axis] = static_cast<int32_t>(axis == automatic ? world_size / product.value : config.mesh[axis]);
  if (sizes[GSEL_AXIS_TENSOR] > 1 && sizes[GSEL_AXIS_CONTEXT] > 1)
    throw Error(
        GSEL_ERR_UNSUPPORTED,
        fmt::format(
            "{}mesh.tensor = {} and mesh.context = {}: layers are shared along one of the two; set the other to 1",
            place_prefix(config.place_of("mesh.context")), sizes[GSEL_AXIS_TENSOR], sizes[GSEL_AXIS_CONTEXT]))
        .at(config.place_of("mesh.context"));
  return sizes;
}

// ---- weights --------------------------------------------------------------------------------------------------------

namespace {

// The numbers of a list such as [2, 1.5].
std::vector<double> numbers_of(const std::string& list) {
  std::vector<double> result;
  for (size_t at = 0; (at = list.find_first_not_of("[, ", at)) < list.size() && list[at] != ']';) {
    double number = 0;
    const auto read = std::from_chars(list.data() + at, list.data() + list.size(), number);
    result.push_back(number);
    at = static_cast<size_t>(read.ptr - list.data());
  }
  return result;
}

}  // namespace

std::vector<double> axis_weights(const Config& config, gsel_axis axis, int32_t ranks) {
  const std::string key = fmt::format("strategy.{}.weights", axis_name(axis));
  const std::string* list = config.get(key);
  if (!list) return std::vector<double>(static_cast<size_t>(ranks), 1.0);
  std::vector<double> weights = numbers_of(*list);
  if (weights.size() == static_cast<size_t>(ranks)) return weights;
  const Place place = config.place_of(key);
  throw Error(GSEL_ERR_CONFIG, fmt::format("{}{} = {} has {}, and the {} axis has {}; give one number for each rank",
                                           place_prefix(place), key, *list, with_noun(weights.size(), "number"),
                                           axis_name(axis), with_noun(ranks, "rank")))
      .at(place);
}

}  // namespace gsel
