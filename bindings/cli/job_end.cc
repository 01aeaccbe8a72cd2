// job_end.cc: see job_end.h.
#include "job_end.h"

#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

namespace gsel::cli {
namespace {

nlohmann::ordered_json rank_json(const RankEnd& end) {
  nlohmann::ordered_json json{{"rank", end.rank},     {"host", nullptr},        {"pid", end.pid},
                              {"exit_code", nullptr}, {"signal", nullptr},      {"signal_name", nullptr},
                              {"ended", end.order},   {"seconds", end.seconds}, {"asked_to_end", end.asked_to_end}};
  if (!end.host.empty()) json["host"] = end.host;
  if (end.is_lost) return json;
  if (WIFSIGNALED(end.status)) {
    const char* name = sigabbrev_np(WTERMSIG(end.status));
    json["signal"] = WTERMSIG(end.status);
    if (name) json["signal_name"] = std::string("SIG") + name;
  } else {
    json["exit_code"] = WEXITSTATUS(end.status);
  }
  return json;
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return std::to_string(number) + (name ? " (SIG" + std::string(name) + ")" : "");
}

}  // namespace

std::string ending_text(pid_t pid, int status) {
  return " (pid " + std::to_string(pid) + ") " +
         (WIFSIGNALED(status) ? "was killed by signal " + signal_name(WTERMSIG(status))
                              : "exited with status " + std::to_string(WEXITSTATUS(status)));
}

nlohmann::ordered_json job_json(const std::vector<std::string>& program, int64_t ranks, const JobEnd* end) {
  nlohmann::ordered_json json{{"status", "running"},     {"exit_status", nullptr},
                              {"reason", nullptr},       {"message", nullptr},
                              {"first_failed", nullptr}, {"seconds", nullptr},
                              {"restarts", 0},           {"program", program},
                              {"world_size", ranks},     {"ranks", nlohmann::ordered_json::array()}};
  if (!end) return json;
  json["status"] = end->status == 0 ? "ok" : "failed";
  json["exit_status"] = end->status;
  json["reason"] = end->reason;
  if (!end->message.empty()) json["message"] = end->message;
  if (end->first_failed >= 0) json["first_failed"] = end->first_failed;
  json["seconds"] = end->seconds;
  json["restarts"] = end->restarts;
  for (const RankEnd& rank : end->ranks) json["ranks"].push_back(rank_json(rank));
  return json;
}

}  // namespace gsel::cli
