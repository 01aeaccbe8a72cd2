// plan/plan.h: the answer to "which strategy, will it fit, how fast, and why": a search result with its request, as
// text, JSON and gsel.toml. Does not know the C API or the command line.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "plan/search.h"

namespace gsel::plan {

inline constexpr int32_t kMostCompiled = 16'384;  // most ranks whose programs are compiled

// The request of a plan, owned by the plan.
struct Request {
  Workload workload;
  Cluster cluster;
  Recipe recipe{};
  int64_t batch = 0;  // samples per step
  Fixed fixed;
  Constants constants;
  std::string calibrated_on = {};           // the user's own measurements; empty: none
  size_t shown = 10;                        // number of candidates in the text
  bool reorder = true;                      // whether unequal devices may be reordered; false: ranks have fixed devices
  std::vector<int32_t> order = {};          // then the device of each rank, by cluster index; empty: cluster order
  std::shared_ptr<const Model> model = {};  // model to compile; null: only the costs of layers are known
};

// Memory of a rank's program, without the context of its device.
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
  std::string text() const;  // decision, ranked table, details of the first choice
  std::string json() const;
  // Throws when a run would refuse the candidate's programs: GSEL_ERR_NOMEM, or the error of the strategy or verifier.
  // Skips very large programs.
  void verify(const Candidate& candidate) const;
  // "too large: ...", "known by its costs alone"; empty: the programs of such a candidate are compiled.
  std::string why_not_compiled(const Candidate& candidate) const;
  // The simulated schedule of a candidate, as a document for gsel_timeline_add. GSEL_ERR_ARG without a pipeline.
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
  // The largest share of its device's memory that a rank needs. GSEL_ERR_NOMEM when a rank does not fit.
  double check_ranks(const Candidate& candidate, const std::vector<RankMemory>& ranks) const;
  bool check_in_short(const Candidate& candidate) const;
  void check_others();
  void check_first();
  void drop(size_t candidate, const Error& error);
  void compile_finalists();

  Request request_;
  SearchResult result_;
};

// Fits the constants of a request to measurements (plan/rows.h) of its class of devices. GSEL_ERR_CONFIG when there are
// none of that class.
void calibrate(Request& request, std::string_view rows, const std::string& file);

// Memory of each rank under each strategy, whether it fits or not, without a search.
struct EstimateRow {
  struct Ranks {  // with equal memory
    int32_t first = 0, count = 1;
    StageMemory memory;
    bool fits = false;
  };
  std::string strategy;
  Layout layout;
  StageMemory memory;  // of the rank that needs most
  bool fits = false;
  std::vector<Ranks> ranks;  // all ranks
};
std::vector<EstimateRow> estimate(const Request& request);
std::string estimate_text(const Request& request);
std::string estimate_json(const Request& request);

// The Runtime of a program with this recipe.
Runtime runtime_of(const Recipe& recipe);
// The mean error of a candidate's forecast: the mean error of the measurements, plus half of the part of the
// step that the measurements do not cover.
struct ErrorBand {
  double spread = 0, uncovered = 0;
  std::vector<std::string> parts;  // not covered by measurements
  double all() const { return spread + uncovered / 2; }
};
ErrorBand band_of(const Request& request, const Candidate& candidate);
// The basis of a plan's times: "within 8 % ..." or "uncalibrated ...".
std::string confidence(const Request& request);
// The questions of the Hugging Face guide, with their answers for this model on this cluster.
struct Answer {
  std::string question, answer;
};
std::vector<Answer> decision(const Request& request, const SearchResult& result);
// The term in which a candidate lost most to the first: "tensor +12.3 ms".
std::string lost_by(const Candidate& first, const Candidate& other);
// "tensor 2, data 4, ZeRO-1": omits sizes of 1 and unused features.
std::string name_of(const Layout& layout);
// Input of a search for the fastest layout only, with other devices or decisions than the request.
SearchInput search_of(const Request& request, const Cluster& cluster, const Fixed& fixed);
// change.cc: the smallest change of the request with which something fits; empty: none found.
std::string smallest_change(const Request& request, const SearchResult& result);

// Rates of a candidate, for comparison.
struct Rates {
  double step_s, tokens_per_s, samples_per_s, mfu, hfu, bubble, exposed;
};
Rates rates_of(const Request& request, const Candidate& candidate);

// breakdown_svg.cc: a self-contained chart, readable on light and dark backgrounds, with as many candidates as the
// text.
std::string breakdown_svg(const Plan& plan);

std::string gib(double bytes);                    // "12.3"
std::string first_line(const std::string& text);  // first line of a message with a table
// "912 ms", "11.43 s", with `digits` digits.
std::string duration_text(double seconds, int32_t digits = 4);
// Accepted values near n: "8 and its multiples", "multiples of 8, such as 8 and 16".
std::string multiples_near(int64_t n, int64_t unit);
// "note: ...", one line for each assumption; empty without assumptions.
std::string notes_text(const Request& request);
// Unequal devices by rank, and idle ones: "rank 0: H100, rank 1: A10; idle: T4". Empty: devices are equal.
std::string devices_text(const Request& request, const Candidate& candidate);

// Comparison of config files: the forecast of each by parts, whether it fits or not.
struct Compared {
  std::string name;
  Candidate candidate;
  Request request;  // with its batch and its devices
};
// Lists the batch of each file if they differ; else empty.
std::string unlike_batches(const std::vector<Compared>& all);
std::string compared_text(const Request& request, const std::vector<Compared>& all);
std::string compared_json(const Request& request, const std::vector<Compared>& all);

}  // namespace gsel::plan
