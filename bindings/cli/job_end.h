// job_end.h: how a job and each of its ranks ended, and the same as JSON, which `gsel run --json` writes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gsel::cli {

struct RankEnd {
  int32_t rank = 0;
  std::string host = {};  // empty: this one
  pid_t pid = -1;
  int status = 0;        // as waitpid tells it
  double seconds = 0;    // from the start of the job
  int order = -1;        // 0: the first that ended; -1: it runs
  bool asked = false;    // it ended after it was asked to
  bool is_lost = false;  // with its host, and nobody knows how it ended
};

struct JobEnd {
  int status = 0;                    // exit status of gsel run
  std::string reason = "completed";  // or "rank failed", "timed out", "interrupted", "not started", "host lost"
  std::string message;               // of the first failure; empty where there is none
  int32_t first_failed = -1;         // rank; -1: none failed by itself
  double seconds = 0;
  std::vector<RankEnd> ranks;  // those that were started
};

// " (pid 4711) exited with status 3"; `status` as waitpid tells it.
std::string ending_text(pid_t pid, int status);

// While the job runs, `end` is nullptr: keys are the same, and what is not known is null.
nlohmann::ordered_json job_json(const std::vector<std::string>& program, int64_t ranks, const JobEnd* end);

}  // namespace gsel::cli
