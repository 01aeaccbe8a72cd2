// trace.cc: `gsel trace`: why does a job hang, and where does the time go? Reads recordings of live processes, and
// files of recordings (docs/trace.md) and steps (docs/step.md), distinguished by their content.
#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "client.h"
#include "commands.h"
#include "recordings.h"
#include "trace_calls.h"
#include "trace_hosts.h"
#include "trace_remote.h"
#include "trace_steps.h"

namespace gsel::cli {
namespace {

using Json = nlohmann::ordered_json;

const CommandText kTraceText{
    .name = "trace",
    .summary = "Say what the ranks of a job wait for, or where the time of a training step went",
    .description =
        "Given the pid of any rank, or the files that GSEL_TRACE=folder made when a call failed, says for each "
        "communicator what its ranks are in and who holds them up. The pid of gsel run --hosts stands for all ranks of "
        "all hosts; of a job that was started otherwise, HOST:PID names a rank of each host, which ssh reaches.\n\n"
        "Given the folder of train.timeline, says for each rank where the time of a step went, and how much of the "
        "communication ran beside computing. All sources must belong to one job; they are taken together.",
    .examples = {{"gsel trace $(pgrep -n -f ./app)", "Who waits for whom."},
                 {"gsel trace $(pgrep -n -f 'gsel run --hosts')", "The same, with the ranks of all hosts."},
                 {"gsel trace node1:4711 node2:5120", "The same, of a job that mpirun, srun or torchrun has started."},
                 {"gsel trace steps --svg step.svg", "A picture of a training step."}},
    .sections = {{"JSON",
                  "An object with what the sources have, the first, the second or both:",
                  {{"communicators", "Recordings of calls, as docs/trace.md lists them."},
                   {"steps", "Steps of ranks, as docs/step.md lists them."}}}},
    .related = {"gsel-run(1)", "gsel_trace_process(3)", "gsel_trainer_step_json(3)", "docs/trace.md", "docs/step.md"}};

struct TraceOptions {
  std::vector<std::string> sources;
  std::string chrome, svg, rsh, remote_gsel;
  size_t last = 5;
  bool parts = false;
};

// ---- reading ----

bool is_number(const std::string& text, int32_t& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

std::string of_process(int32_t pid) {
  gsel_trace* trace = nullptr;
  gsel_error* error = nullptr;
  check(gsel_trace_process(pid, &trace, &error), &error);
  std::string json = text(gsel_trace_json(trace));
  gsel_trace_free(trace);
  return json;
}

// Validates a document: the library can only draw documents in the right format.
Json checked(const std::string& content, const std::string& source) {
  add(new_timeline().get(), content, source);
  return Json::parse(content);
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// The files in the folder that a trainer or a failed call wrote, sorted.
std::vector<std::string> files_of(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (!open)
    refuse(GSEL_ERR_IO, folder + ": cannot be opened: " + std::strerror(errno) + "; expected a readable folder");
  std::vector<std::string> files;
  while (const dirent* entry = readdir(open.get())) {
    const std::string_view name = entry->d_name;
    if ((name.starts_with("step-") || name.starts_with("gsel-")) && name.ends_with(".json"))
      files.push_back(folder + "/" + entry->d_name);
  }
  if (files.empty()) refuse(GSEL_ERR_NOT_FOUND, folder + ": has no step-RANK.json and no gsel-PID-RANK.json");
  std::ranges::sort(files);
  return files;
}

struct Documents {
  std::vector<Json> recordings, steps;
};

// A number is a pid; a file of that name needs a '/', as does one with a ':'.
Documents read_all(const TraceOptions& options) {
  Documents documents;
  const auto take = [&](Json document) {
    if (document.contains("steps")) documents.steps.push_back(document);
    if (document.contains("communicators")) documents.recordings.push_back(std::move(document));
  };
  std::vector<SourcesOfHost> hosts;
  for (const std::string& source : options.sources) {
    int32_t pid = 0;
    if (const auto other = on_other_host(source)) {
      auto host = std::ranges::find(hosts, other->first, &SourcesOfHost::host);
      if (host == hosts.end()) host = hosts.insert(host, {other->first, {}});
      host->sources.push_back(other->second);
    } else if (is_number(source, pid)) {
      if (const auto told = recordings_of_launcher(pid))
        for (const std::string& json : *told) take(checked(json, source));
      else
        take(checked(of_process(pid), source));
    } else if (is_folder(source))
      for (const std::string& file : files_of(source)) take(checked(read_file(file), file));
    else
      take(checked(read_file(source), source));
  }
  if (hosts.empty()) return documents;
  const std::vector<std::string> told = trace_on_hosts(remote_shell_of(options.rsh, options.remote_gsel), hosts);
  for (size_t h = 0; h < hosts.size(); ++h) take(checked(told[h], "host " + hosts[h].host));
  return documents;
}

// ---- output ----

int print_trace(const TraceOptions& options, bool as_json) {
  try {
    const Documents documents = read_all(options);
    std::vector<Json> communicators = merge_recordings(documents.recordings);
    if (!options.parts || !as_json) communicators = join_parts(std::move(communicators));
    const std::vector<Json> steps = merge_steps(documents.steps);
    Json all;
    if (!documents.recordings.empty()) all["communicators"] = communicators;
    if (!documents.steps.empty()) all["steps"] = steps;
    if (!options.chrome.empty() || !options.svg.empty()) {
      const Handle<gsel_timeline> timeline = new_timeline();
      add(timeline.get(), all.dump(-1, ' ', false, Json::error_handler_t::replace), "what was read");
      draw(timeline.get(), GSEL_TIMELINE_SVG, options.svg);
      draw(timeline.get(), GSEL_TIMELINE_CHROME, options.chrome);
    }
    if (as_json) {
      print(json_text(all));
    } else if (options.chrome.empty() && options.svg.empty()) {
      print(steps_text(steps));
      for (size_t i = 0; i < communicators.size(); ++i)
        print((i > 0 || !steps.empty() ? "\n" : "") + communicator_text(communicators[i], options.last));
    }
    return 0;
  } catch (const Json::exception& e) {
    refuse(GSEL_ERR_PARSE, std::string("a file lacks what docs/trace.md or docs/step.md lists: ") + e.what());
  }
}

}  // namespace

Command trace_command(CommandLine& line) {
  auto options = std::make_shared<TraceOptions>();
  Parser parser = line.subcommand(kTraceText);
  parser.list("source", options->sources, "[HOST:]PID|FILE|FOLDER...",
              "Pids, files and folders of one job; with HOST: of another host.");
  parser.require("source");
  parser.option("--last", options->last, "N", "Calls to list of each rank.", Parser::Default::shown);
  parser.option("--svg", options->svg, "FILE", "Write a picture to this file, and no text.");
  parser.option("--chrome", options->chrome, "FILE",
                "Write a timeline for Perfetto or chrome://tracing to this file, and no text.");
  parser.flag("--parts", options->parts,
              "With --json, do not take the parts of a communicator over several hosts together.");
  parser.option("--rsh", options->rsh, "COMMAND",
                "The remote shell for HOST:, with its options; default: GSEL_RSH, or ssh, which must not ask for "
                "anything.");
  parser.option("--remote-gsel", options->remote_gsel, "COMMAND",
                "gsel on these hosts; default: the path of this one.");
  return {parser, [options, &common = line.common()] { return print_trace(*options, common.json); }};
}

}  // namespace gsel::cli
