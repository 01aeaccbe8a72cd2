// job_end.cc: see job_end.h.
#include "job_end.h"

#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

namespace gsel::cli {
namespace {

nlohmann::ordered_json rank_json(size_t rank, const RankEnd& end) {
  nlohmann::ordered_json json{{"rank", rank},           {"pid", end.pid},           {"exit_code", nullptr},
                              {"signal", nullptr},      {"signal_name", nullptr},   {"ended", end.order},
                              {"seconds", end.seconds}, {"asked_to_end", end.asked}};
  if (WIFSIGNALED(end.status)) {
    const char* name = sigabbrev_np(WTERMSIG(end.status));
    json["signal"] = WTERMSIG(end.status);
    if (name) json["signal_name"] = std::string("SIG") + name;
  } else {
    json["exit_code"] = WEXITSTATUS(end.status);
  }
  return json;
}

}  // namespace

nlohmann::ordered_json job_json(const std::vector<std::string>& program, int64_t ranks, const JobEnd* end) {
  nlohmann::ordered_json json{
      {"status", "running"}, {"exit_status", nullptr},  {"reason", nullptr},
      {"message", nullptr},  {"first_failed", nullptr}, {"seconds", nullptr},
      {"program", program},  {"world_size", ranks},     {"ranks", nlohmann::ordered_json::array()}};
  if (!end) return json;
  json["status"] = end->status == 0 ? "ok" : "failed";
  json["exit_status"] = end->status;
  json["reason"] = end->reason;
  if (!end->message.empty()) json["message"] = end->message;
  if (end->first_failed >= 0) json["first_failed"] = end->first_failed;
  json["seconds"] = end->seconds;
  for (size_t rank = 0; rank < end->ranks.size(); ++rank) json["ranks"].push_back(rank_json(rank, end->ranks[rank]));
  return json;
}

}  // namespace gsel::cli
