// checkpoint.cc: `gsel checkpoint`: what is in a checkpoint, whether it is whole, how two differ, and the same state in
// one file or in others.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client.h"
#include "commands.h"
#include "table.h"
#include "usage.h"

namespace gsel::cli {
namespace {

using Json = nlohmann::ordered_json;

struct CheckpointOptions {
  std::string task, files = "1";
  std::vector<std::string> paths;
  bool params = false;
};

// Shows how far a long call is, on a terminal only.
class Meter {
 public:
  Meter() {
    if (isatty(STDERR_FILENO)) options.progress = tell, options.user_data = this;
  }
  ~Meter() {
    if (shown_) std::fprintf(stderr, "\r\033[K");
  }
  Meter(const Meter&) = delete;

  gsel_checkpoint_tool_options options = GSEL_CHECKPOINT_TOOL_OPTIONS_INIT;

 private:
  static int32_t tell(uint64_t done, uint64_t total, void* self) {
    auto& meter = *static_cast<Meter*>(self);
    if (std::chrono::steady_clock::now() < meter.next_) return 0;
    meter.next_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    meter.shown_ = true;
    std::fprintf(stderr, "\r%s of %s", megabytes(static_cast<double>(done)).c_str(),
                 megabytes(static_cast<double>(total)).c_str());
    return 0;
  }

  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  bool shown_ = false;
};

Handle<gsel_checkpoint> open_checkpoint(const std::string& path) {
  gsel_checkpoint* checkpoint = nullptr;
  gsel_error* error = nullptr;
  check(gsel_checkpoint_open(borrow(path), &checkpoint, &error), &error);
  return Handle<gsel_checkpoint>(checkpoint);
}

gsel_checkpoint_info info_of(const gsel_checkpoint* checkpoint) {
  gsel_checkpoint_info info = GSEL_CHECKPOINT_INFO_INIT;
  gsel_error* error = nullptr;
  check(gsel_checkpoint_inspect(checkpoint, &info, &error), &error);
  return info;
}

// Item i of a list, by one of the _get functions.
template <class Item, class Get, class Checkpoint, class... Indices>
Item item(Get get, Checkpoint* checkpoint, Item empty, Indices... indices) {
  gsel_error* error = nullptr;
  check(get(checkpoint, indices..., &empty, &error), &error);
  return empty;
}

Json entry_json(const gsel_checkpoint* checkpoint, int32_t i) {
  const auto entry = item(gsel_checkpoint_entry_get, checkpoint, GSEL_CHECKPOINT_ENTRY_INIT, i);
  Json pieces = Json::array();
  for (int32_t p = 0; p < entry.n_pieces; ++p) {
    const auto piece = item(gsel_checkpoint_piece_get, checkpoint, GSEL_CHECKPOINT_PIECE_INIT, i, p);
    pieces.push_back(
        {{"file", text(piece.file)}, {"key", text(piece.key)}, {"first", piece.first}, {"count", piece.count}});
  }
  return {{"name", text(entry.name)},
          {"role", text(entry.role)},
          {"dtype", gsel_dtype_name(entry.dtype)},
          {"shape", std::vector<int64_t>(entry.shape, entry.shape + entry.n_dims)},
          {"bytes", entry.bytes},
          {"pieces", std::move(pieces)}};
}

// Of each rank's own a piece for each rank.
Json own_json(gsel_checkpoint* checkpoint, int32_t i, int32_t n_ranks) {
  Json pieces = Json::array();
  gsel_checkpoint_own own = GSEL_CHECKPOINT_OWN_INIT;
  for (int32_t rank = 0; rank == 0 || (own.scope == GSEL_STATE_OF_RANK && rank < n_ranks); ++rank) {
    own = item(gsel_checkpoint_own_get, checkpoint, own, i, rank);
    pieces.push_back({{"rank", rank}, {"file", text(own.file)}, {"key", text(own.key)}, {"bytes", own.bytes}});
  }
  return {{"name", text(own.name)},
          {"scope", own.scope == GSEL_STATE_OF_RANK ? "rank" : "shared"},
          {"pieces", std::move(pieces)}};
}

Json contents_json(gsel_checkpoint* checkpoint) {
  const gsel_checkpoint_info info = info_of(checkpoint);
  Json entries = Json::array(), own = Json::array(), files = Json::array();
  for (int32_t i = 0; i < info.n_entries; ++i) entries.push_back(entry_json(checkpoint, i));
  for (int32_t i = 0; i < info.n_own; ++i) own.push_back(own_json(checkpoint, i, info.n_ranks));
  for (int32_t i = 0; i < info.n_files; ++i) {
    const auto file = item(gsel_checkpoint_file_get, checkpoint, GSEL_CHECKPOINT_FILE_INIT, i);
    files.push_back({{"name", text(file.name)}, {"bytes", file.bytes}, {"xxh3_128", text(file.sum)}});
  }
  return {{"path", text(info.path)},
          {"step", info.step},
          {"updates", info.updates},
          {"ranks", info.n_ranks},
          {"optimizer", text(info.optimizer)},
          {"learning_rate", info.learning_rate < 0 ? Json() : Json(info.learning_rate)},
          {"loss_scale", info.loss_scale},
          {"entry_bytes", info.entry_bytes},
          {"file_bytes", info.file_bytes},
          {"entries", std::move(entries)},
          {"own", std::move(own)},
          {"files", std::move(files)}};
}

std::string shape_text(const Json& shape) {
  std::string out;
  for (const Json& n : shape) out += (out.empty() ? "" : ", ") + n.dump();
  return "[" + out + "]";
}

std::string contents_text(const Json& all) {
  const auto amount = [](const Json& bytes) { return megabytes(bytes.get<double>()); };
  std::string out = all.at("path").get<std::string>() + ": step " + all.at("step").dump() + ", " +
                    all.at("optimizer").get<std::string>() + ", " + with_noun(all.at("entries").size(), "tensor") +
                    " of " + amount(all.at("entry_bytes")) + "\n\n";
  std::vector<Row> rows{{"tensor", "type", "shape", "pieces"}};
  for (const Json& entry : all.at("entries"))
    rows.push_back({entry.at("name"), entry.at("dtype"), shape_text(entry.at("shape")),
                    std::to_string(entry.at("pieces").size())});
  out += table(rows) + "\n";
  rows = {{"state of the program", "scope", "rank", "bytes"}};
  for (const Json& own : all.at("own"))
    for (const Json& piece : own.at("pieces"))
      rows.push_back({own.at("name"), own.at("scope"), own.at("scope") == "rank" ? piece.at("rank").dump() : "all",
                      piece.at("bytes").dump()});
  if (rows.size() > 1) out += table(rows) + "\n";
  rows = {{"file", "bytes", "XXH3-128"}};
  for (const Json& file : all.at("files"))
    rows.push_back({file.at("name"), file.at("bytes").dump(), file.at("xxh3_128")});
  return out + table(rows);
}

int inspect(const CheckpointOptions& options, bool json) {
  const auto checkpoint = open_checkpoint(options.paths[0]);
  const Json all = contents_json(checkpoint.get());
  print(json ? json_text(all) : contents_text(all));
  return 0;
}

int verify_checkpoint(const CheckpointOptions& options, bool json) {
  const auto checkpoint = open_checkpoint(options.paths[0]);
  const gsel_checkpoint_info info = info_of(checkpoint.get());
  {
    Meter meter;
    gsel_error* error = nullptr;
    check(gsel_checkpoint_verify(checkpoint.get(), &meter.options, &error), &error);
  }
  if (json)
    print(json_text({{"verified", text(info.path)}, {"step", info.step}, {"file_bytes", info.file_bytes}}));
  else
    print("ok: " + text(info.path) + ", " + with_noun(info.n_files, "file") + ", " +
          megabytes(static_cast<double>(info.file_bytes)) + "\n");
  return 0;
}

// ---- diff -----------------------------------------------------------------------------------------------------------

const char* kind_name(int32_t kind) {
  switch (kind) {
    case GSEL_CHECKPOINT_DIFFERS_NUMBER:
      return "number";
    case GSEL_CHECKPOINT_DIFFERS_ONLY_FIRST:
      return "only first";
    case GSEL_CHECKPOINT_DIFFERS_ONLY_SECOND:
      return "only second";
    case GSEL_CHECKPOINT_DIFFERS_SHAPE:
      return "shape";
    case GSEL_CHECKPOINT_DIFFERS_SCOPE:
      return "scope";
    case GSEL_CHECKPOINT_DIFFERS_SIZE:
      return "size";
    case GSEL_CHECKPOINT_DIFFERS_BYTES:
      return "bytes";
    default:
      return "values";
  }
}

Json difference_json(const gsel_checkpoint_difference& of) {
  Json one{
      {"kind", kind_name(of.kind)}, {"name", text(of.name)}, {"first", text(of.first)}, {"second", text(of.second)}};
  if (of.kind != GSEL_CHECKPOINT_DIFFERS_VALUES && of.kind != GSEL_CHECKPOINT_DIFFERS_BYTES) return one;
  one["element"] = of.element;
  one["count"] = of.count;
  if (of.kind == GSEL_CHECKPOINT_DIFFERS_VALUES) one["largest"] = of.largest;  // null where it is infinite
  return one;
}

std::string differences_text(const Json& all) {
  if (all.empty()) return "equal\n";
  std::vector<Row> rows{{"what", "name", "first", "second", "element", "count", "largest"}};
  for (const Json& one : all) {
    rows.push_back({one.at("kind"), one.at("name"), one.at("first"), one.at("second")});
    for (const char* field : {"element", "count"})
      if (one.contains(field)) rows.back().push_back(one.at(field).dump());
    if (one.contains("largest")) rows.back().push_back(formatted("%g", one.at("largest").get<double>()));
  }
  return table(rows);
}

int diff(const CheckpointOptions& options, bool json) {
  const auto first = open_checkpoint(options.paths[0]), second = open_checkpoint(options.paths[1]);
  gsel_checkpoint_differences* made = nullptr;
  {
    Meter meter;
    gsel_error* error = nullptr;
    check(gsel_checkpoint_diff(first.get(), second.get(), &meter.options, &made, &error), &error);
  }
  const Handle<gsel_checkpoint_differences> differences(made);
  Json all = Json::array();
  for (int32_t i = 0; i < gsel_checkpoint_difference_count(made); ++i) {
    gsel_checkpoint_difference one = GSEL_CHECKPOINT_DIFFERENCE_INIT;
    gsel_error* error = nullptr;
    check(gsel_checkpoint_difference_get(made, i, &one, &error), &error);
    all.push_back(difference_json(one));
  }
  const bool is_equal = all.empty();
  if (json)
    print(json_text({{"first", text(info_of(first.get()).path)},
                     {"second", text(info_of(second.get()).path)},
                     {"differences", std::move(all)}}));
  else
    print(differences_text(all));
  return is_equal ? 0 : 1;
}

// ---- new files ------------------------------------------------------------------------------------------------------

int say_written(const std::string& path, bool json) {
  print(json ? json_text({{"written", path}}) : path + "\n");
  return 0;
}

int consolidate(const CheckpointOptions& options, bool json) {
  const auto checkpoint = open_checkpoint(options.paths[0]);
  {
    Meter meter;
    if (options.params) meter.options.flags = GSEL_CHECKPOINT_PARAMS_ONLY;
    gsel_error* error = nullptr;
    check(gsel_checkpoint_consolidate(checkpoint.get(), borrow(options.paths[1]), &meter.options, &error), &error);
  }
  return say_written(options.paths[1], json);
}

int reshard(const CheckpointOptions& options, bool json) {
  const auto n = static_cast<int32_t>(number_from("--files", options.files, 1, 65536));
  const auto checkpoint = open_checkpoint(options.paths[0]);
  {
    Meter meter;
    gsel_error* error = nullptr;
    check(gsel_checkpoint_reshard(checkpoint.get(), borrow(options.paths[1]), n, &meter.options, &error), &error);
  }
  char name[32];
  std::snprintf(name, sizeof name, "/step-%012lld", static_cast<long long>(info_of(checkpoint.get()).step));
  return say_written(options.paths[1] + name, json);
}

struct Task {
  const char* name;
  size_t n_paths;
  int (*run)(const CheckpointOptions&, bool json);
};
constexpr Task kTasks[] = {{"inspect", 1, inspect},
                           {"verify", 1, verify_checkpoint},
                           {"diff", 2, diff},
                           {"consolidate", 2, consolidate},
                           {"reshard", 2, reshard}};

int run_task(const CheckpointOptions& options, bool json) {
  for (const Task& task : kTasks) {
    if (options.task != task.name) continue;
    if (options.paths.size() != task.n_paths)
      refuse(GSEL_ERR_ARG, options.task + ": " + with_noun(options.paths.size(), "path") + " given, " +
                               std::to_string(task.n_paths) + " needed");
    return task.run(options, json);
  }
  refuse(GSEL_ERR_ARG, options.task + ": inspect, verify, diff, consolidate or reshard is needed");
}

const CommandText kCheckpointText{
    .name = "checkpoint",
    .summary = "Look into checkpoints, verify, compare and rewrite them",
    .description =
        "A checkpoint is a folder that a trainer saved. Where a folder of several is given, its newest whole one is "
        "taken. "
        "inspect FOLDER lists tensors, states of the program's own and files; verify FOLDER compares the sums of all "
        "files; diff FOLDER FOLDER "
        "compares "
        "two checkpoints, whatever layouts they were saved under; consolidate FOLDER FILE writes one safetensors file "
        "with "
        "whole tensors and states of the program's own; reshard FOLDER FOLDER writes the same state in other files.",
    .examples = {{"gsel checkpoint inspect run7", "Says what the newest checkpoint of run7 has."},
                 {"gsel checkpoint verify run7/step-000000000500", "Reads all of its files."},
                 {"gsel checkpoint consolidate run7 model.safetensors --params", "For other programs."},
                 {"gsel checkpoint reshard run7 run7-8 --files 8", "The same state in 8 files."}},
    .sections =
        {{"JSON",
          "",
          {{"inspect",
            "path, step, updates, ranks (that saved), optimizer, learning_rate (null: as configured), loss_scale, "
            "entry_bytes, file_bytes; entries: name, role, dtype, shape, bytes and pieces (file, key, first, count) of "
            "each; own, the program's: name, scope (shared, or rank: each rank's own) and pieces (rank, file, key, "
            "bytes) of each; files: name, bytes and xxh3_128 of each."},
           {"verify", "verified (the path), step, file_bytes."},
           {"diff",
            "first, second (paths); differences: kind, name, first and second of each, of kinds values and bytes also "
            "element and count, of values largest (null: infinite)."},
           {"consolidate, reshard", "written (the path)."}}}},
    .statuses = {{"1", "diff: the checkpoints differ."}},
    .related = {"gsel_checkpoint_open(3)", "docs/checkpoints.md"}};

}  // namespace

Command checkpoint_command(CommandLine& line) {
  auto options = std::make_shared<CheckpointOptions>();
  Parser parser = line.subcommand(kCheckpointText);
  parser.option("task", options->task, "inspect|verify|diff|consolidate|reshard", "What to do.");
  parser.require("task");
  parser.words("task", {"inspect", "verify", "diff", "consolidate", "reshard"});
  parser.list("paths", options->paths, "FOLDER|FILE...", "The checkpoint, and what it is compared with or written to.",
              2);
  parser.require("paths");
  parser.flag(
      "--params", options->params,
      "consolidate: parameters alone, by their own names, without the states of the optimizer and of the program.");
  parser.option("--files", options->files, "N", "reshard: number of files.", Parser::Default::shown);
  return {parser, [options, &common = line.common()] { return run_task(*options, common.json); }};
}

}  // namespace gsel::cli
