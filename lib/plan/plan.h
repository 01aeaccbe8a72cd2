// plan/plan.h: the answer to "which strategy, will it fit, how fast, and why": a search with the request it was made
// for, as text, JSON and gsel.toml. Does not know the C API and the command.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "plan/search.h"

namespace gsel::plan {

inline constexpr int32_t kMostCompiled = 16'384;  // ranks whose programs are compiled

// What is to be planned, owned by the plan.
struct Request {
  Workload workload;
  Cluster cluster;
  Recipe recipe{};
  int64_t batch = 0;  // samples of a step
  Fixed fixed;
  Constants constants;
  std::string calibrated_on = {};           // own measurements; empty: none
  size_t shown = 10;                        // candidates in text
  bool reorder = true;                      // unequal devices may change places; false: ranks have theirs already
  std::vector<int32_t> order = {};          // then of devices by rank, as the cluster names them; empty: as named
  std::shared_ptr<const Model> model = {};  // what strategies compile; none: layers are known by their costs alone
};

// What the program of a rank needs, beside the context of its device.
struct RankMemory {
  int32_t rank = 0;
  uint64_t bytes = 0;
};

class Plan {
 public:
  Plan(Request request, const std::function<bool(int64_t)>& progress);

  const Request& request() const { return request_; }
  const std::vector<Candidate>& candidates() const { return result_.best; }
  const SearchResult& result() const { return result_; }
  std::string text() const;  // decision, ranked table, the first choice in parts
  std::string json() const;
  // An error where a run refuses the candidate's programs: GSEL_ERR_NOMEM, or as strategies and the verifier say. Very
  // large programs are not looked at.
  void verify(const Candidate& candidate) const;
  // "too large: ...", "known by its costs alone"; empty: programs of such a candidate are compiled.
  std::string why_not_compiled(const Candidate& candidate) const;
  // The schedule of a candidate, simulated: a document that gsel_timeline_add draws. GSEL_ERR_ARG without a pipeline.
  std::string simulation_json(size_t i) const;

  SearchInput input() const {
    return {request_.workload,
            request_.cluster,
            request_.recipe,
            request_.constants,
            request_.batch,
            request_.fixed,
            32,
            {}};
  }

 private:
  void search_orders(const std::function<bool(int64_t)>& progress);
  Candidate compiled(Candidate candidate) const;
  // The largest share of its device's memory that a rank needs. GSEL_ERR_NOMEM where it needs more.
  double check_ranks(const Candidate& candidate, const std::vector<RankMemory>& ranks) const;
  bool check_in_short(const Candidate& candidate) const;
  void check_others();
  void check_first();
  void drop(size_t candidate, const Error& error);
  void compile_finalists();

  Request request_;
  SearchResult result_;
};

// Fits the constants of a request to measurements (plan/rows.h) of its class of device. GSEL_ERR_CONFIG where there are
// none of it.
void calibrate(Request& request, std::string_view rows, const std::string& file);

// Memory of each rank under each strategy, fits or not, without a search.
struct EstimateRow {
  struct Ranks {  // that need as much
    int32_t first = 0, count = 1;
    StageMemory memory;
    bool fits = false;
  };
  std::string strategy;
  Layout layout;
  StageMemory memory;  // of the rank that needs most
  bool fits = false;
  std::vector<Ranks> ranks;  // all of them
};
std::vector<EstimateRow> estimate(const Request& request);
std::string estimate_text(const Request& request);
std::string estimate_json(const Request& request);

// explain.cc
// How a program that keeps its states like this runs a step.
Runtime runtime_of(const Recipe& recipe);
// band.cc: the step of a candidate is forecast within the band on average: the mean error of the measurements, and half
// of the share of the step that they do not cover.
struct ErrorBand {
  double spread = 0, uncovered = 0;
  std::vector<std::string> parts;  // that are not covered
  double all() const { return spread + uncovered / 2; }
};
ErrorBand band_of(const Request& request, const Candidate& candidate);
// What the times of a plan rest on: "within 8 % ..." or "uncalibrated ...".
std::string confidence(const Request& request);
// The questions of the Hugging Face guide, each with its answer for this model on this cluster.
struct Answer {
  std::string question, answer;
};
std::vector<Answer> decision(const Request& request, const SearchResult& result);
// The term by which a candidate lost to the first: "tensor +12.3 ms".
std::string lost_by(const Candidate& first, const Candidate& other);
// "tensor 2, data 4, ZeRO-1": without what is 1 or none.
std::string name_of(const Layout& layout);
// A search for the fastest layout alone, of the same request on other devices or with other decisions.
SearchInput search_of(const Request& request, const Cluster& cluster, const Fixed& fixed);
// change.cc: the smallest change of the request under which something fits; empty: none was found.
std::string smallest_change(const Request& request, const SearchResult& result);

// Numbers of a candidate that people compare.
struct Rates {
  double step_s, tokens_per_s, samples_per_s, mfu, hfu, bubble, exposed;
};
Rates rates_of(const Request& request, const Candidate& candidate);

std::string gib(double bytes);                    // "12.3"
std::string first_line(const std::string& text);  // of a message whose other lines are a table
// "912 ms", "11.43 s", with so many digits.
std::string duration_text(double seconds, int32_t digits = 4);
// What is accepted in place of n: "8 and its multiples", "multiples of 8, such as 8 and 16".
std::string multiples_near(int64_t n, int64_t unit);
// "note: ...", a line for each thing that was taken for granted; empty: nothing was.
std::string notes_text(const Request& request);
// Unequal devices by rank, and those that have none: "rank 0: H100, rank 1: A10; idle: T4". Empty: devices are alike.
std::string devices_text(const Request& request, const Candidate& candidate);

// Config files beside each other: the forecast of each, whether it fits or not, by part.
struct Compared {
  std::string name;
  Candidate candidate;
  Request request;  // with its batch and its devices
};
// Which files have which batch, where these differ; else empty.
std::string unlike_batches(const std::vector<Compared>& all);
std::string compared_text(const Request& request, const std::vector<Compared>& all);
std::string compared_json(const Request& request, const std::vector<Compared>& all);

}  // namespace gsel::plan
