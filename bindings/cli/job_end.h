// job_end.h: how a job and each of its ranks ended, also as the JSON that `gsel run --json` writes.
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
  int status = 0;             // as from waitpid
  double seconds = 0;         // since the start of the job
  int order = -1;             // position in the order of ends, from 0; -1: still running
  bool asked_to_end = false;  // ended after a request to end
  bool is_lost = false;       // lost with its host; its status is unknown
};

struct JobEnd {
  int status = 0;                    // exit status of gsel run
  std::string reason = "completed";  // or "rank failed", "timed out", "interrupted", "not started", "host lost"
  std::string message;               // of the first failure; empty if none
  int32_t first_failed = -1;         // rank; -1: none failed on its own
  double seconds = 0;
  int32_t restarts = 0;        // before this end
  std::vector<RankEnd> ranks;  // ranks that were started
};

// " (pid 4711) exited with status 3"; `status` as from waitpid.
std::string ending_text(pid_t pid, int status);

// `end` is nullptr while the job runs: the keys are the same, and unknown values are null.
nlohmann::ordered_json job_json(const std::vector<std::string>& program, int64_t ranks, const JobEnd* end);

}  // namespace gsel::cli
