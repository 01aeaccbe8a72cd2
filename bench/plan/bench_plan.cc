// bench_plan: what the planner says of examples/gpt on this machine beside what ranks then do: time of a step, memory
// and bytes sent, under many configurations on 1 to 4 ranks. Each round measures the machine for two seconds, prices
// all configurations from that, and runs them. Looks inside the library, since it compares its parts.
//
//     bench_plan [ROUNDS]           markdown on standard output
//     bench_plan --finalists        how long pricing takes
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "base/os.h"
#include "plan/job.h"

namespace {

using namespace gsel;
using namespace bench;

constexpr int kSteps = 10, kSkipped = 2;

#define PIPELINE(schedule, ranks) \
  "[mesh]\ndata = 1\npipeline = " ranks "\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"" schedule "\"\n"
struct Configuration {
  const char* name;
  int32_t ranks;
  const char* toml;
  const char* train;
};
const Configuration kAll[] = {
    {"one rank", 1, "", ""},
    {"one rank, 4 micro-batches", 1, "", "microbatch = 2\n"},
    {"one rank, recompute", 1, "", "recompute = \"all\"\n"},
    {"dp", 2, "[strategy.data]\nplugin = \"dp\"\n", ""},
    {"ddp", 2, "[strategy.data]\nplugin = \"ddp\"\n", ""},
    {"zero 1", 2, "[strategy.data]\nplugin = \"zero\"\nstage = 1\n", ""},
    {"zero 2", 2, "[strategy.data]\nplugin = \"zero\"\nstage = 2\n", ""},
    {"zero 3", 2, "[strategy.data]\nplugin = \"zero\"\nstage = 3\npersist_elems = 2000\n", ""},
    {"pp gpipe", 2, PIPELINE("gpipe", "2"), "microbatches = 4\n"},
    {"pp 1f1b", 2, PIPELINE("1f1b", "2"), "microbatches = 4\n"},
    {"pp 1f1b, 8 micro-batches", 2, PIPELINE("1f1b", "2"), "microbatches = 8\n"},
    {"pp interleaved", 2, PIPELINE("interleaved-1f1b", "2"), "microbatches = 4\n"},
    {"pp zb-h1", 2, PIPELINE("zb-h1", "2"), "microbatches = 4\n"},
    {"tp", 2, "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\n", ""},
    {"tp, sequence parallel", 2, "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\nsequence_parallel = true\n",
     ""},
    {"cp", 2, "[mesh]\ncontext = 2\n[strategy.context]\nplugin = \"cp\"\n", ""},
    {"ddp", 4, "[strategy.data]\nplugin = \"ddp\"\n", ""},
    {"zero 2", 4, "[strategy.data]\nplugin = \"zero\"\nstage = 2\n", ""},
    {"pp 1f1b", 4, PIPELINE("1f1b", "4"), "microbatches = 8\n"},
    {"pp 1f1b x zero 1", 4,
     "[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\n[strategy.data]\nplugin = \"zero\"\nstage = 1\n",
     "microbatches = 4\n"},
    {"tp x ddp", 4, "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\n", ""},
    {"pp 1f1b x tp", 4,
     "[mesh]\npipeline = 2\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\n[strategy.pipeline]\nplugin = \"pp\"\n",
     "microbatches = 4\n"},
};

std::string toml_of(const Configuration& c) {
  return std::string(c.toml) + "[train]\nbatch = 8\nclip_norm = 1.0\nnon_finite = \"off\"\n" + c.train;
}

// ---- the machine ----------------------------------------------------------------------------------------------------

// Core-seconds that all have been busy, and of them this program's ranks.
double machine_busy() {
  std::ifstream stat("/proc/stat");
  std::string word;
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0;
  stat >> word >> user >> nice >> system >> idle >> wait >> irq >> soft >> steal;
  return (user + nice + system + irq + soft + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
}
double children_busy() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// Until others use less than a tenth of a core for half a second, or for so many seconds.
void wait_for_quiet(double most) {
  const double begin = os::now_seconds();
  while (os::now_seconds() - begin < most) {
    const double busy = machine_busy(), at = os::now_seconds();
    usleep(500'000);
    if (machine_busy() - busy < 0.1 * (os::now_seconds() - at)) return;
  }
}

// ---- figures --------------------------------------------------------------------------------------------------------

struct Figures {
  std::vector<double> forecast, measured, bubble, exposed, waited;
  double memory_error = 0;
  bool bytes_exact = true;
  uint64_t bytes = 0, memory = 0;
};

double median(std::vector<double> numbers) {
  std::ranges::sort(numbers);
  return numbers.empty() ? 0 : numbers[numbers.size() / 2];
}

void compare(const Configuration& c, const plan::Measured& machine, const Model& model, Figures& figures) {
  const Config config = parse_config(toml_of(c), "bench");
  const plan::MeasuredDurations durations(machine);
  const plan::Finalist f = plan::price(model, config, c.ranks, {durations, durations.hosts(c.ranks)});
  const std::vector<RankSteps> ranks = run_steps(toml_of(c), c.ranks, kSteps);
  std::vector<double> seconds(ranks[0].seconds, ranks[0].seconds + kSteps), waited;
  seconds.erase(seconds.begin(), seconds.begin() + kSkipped);
  figures.forecast.push_back(f.step_s + machine.step_s);
  figures.measured.push_back(median(seconds));
  figures.bubble.push_back(f.bubble);
  figures.exposed.push_back(f.exposed + f.bubble);
  double exposed = 0;
  for (const RankSteps& r : ranks) exposed += r.exposed_s / static_cast<double>(kSteps * c.ranks);
  figures.waited.push_back(exposed / median(seconds));
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto needed = static_cast<double>(total_bytes(f.ranks[i].memory)),
               taken = static_cast<double>(ranks[i].peak_bytes);
    figures.memory_error = std::max(figures.memory_error, std::abs(needed / taken - 1));
    figures.bytes_exact = figures.bytes_exact && f.ranks[i].bytes_sent == ranks[i].bytes_sent;
  }
  figures.memory = f.most_bytes();
  figures.bytes = f.ranks[0].bytes_sent;
}

void print_row(const Configuration& c, const Figures& f) {
  std::vector<double> errors;
  for (size_t i = 0; i < f.forecast.size(); ++i) errors.push_back(f.forecast[i] / f.measured[i] - 1);
  const auto [least, most] = std::ranges::minmax(errors);
  printf("| %s | %d | %.1f | %.1f | %+.1f %% (%+.1f to %+.1f) | %.0f %% / %.0f %% | %.2f | %+.2f %% | %llu | %s |\n",
         c.name, c.ranks, 1e3 * median(f.forecast), 1e3 * median(f.measured), 100 * median(errors), 100 * least,
         100 * most, 100 * median(f.exposed), 100 * median(f.waited), static_cast<double>(f.memory) * 1e-6,
         100 * f.memory_error, static_cast<unsigned long long>(f.bytes), f.bytes_exact ? "exact" : "WRONG");
  fflush(stdout);
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto ranks = [](const std::vector<double>& x) {
    std::vector<double> r(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      r[i] = static_cast<double>(std::ranges::count_if(x, [&](double v) { return v < x[i]; }));
    return r;
  };
  const std::vector<double> ra = ranks(a), rb = ranks(b);
  double ma = 0, mb = 0, ab = 0, aa = 0, bb = 0;
  const auto n = static_cast<double>(a.size());
  for (size_t i = 0; i < a.size(); ++i) ma += ra[i] / n, mb += rb[i] / n;
  for (size_t i = 0; i < a.size(); ++i)
    ab += (ra[i] - ma) * (rb[i] - mb), aa += (ra[i] - ma) * (ra[i] - ma), bb += (rb[i] - mb) * (rb[i] - mb);
  return ab / std::sqrt(aa * bb);
}

void print_summary(const std::vector<Figures>& all, double others) {
  std::vector<double> forecast, measured, errors;
  size_t within = 0, exact = 0;
  double memory = 0;
  for (const Figures& f : all) {
    forecast.push_back(median(f.forecast));
    measured.push_back(median(f.measured));
    std::vector<double> e;
    for (size_t i = 0; i < f.forecast.size(); ++i) e.push_back(f.forecast[i] / f.measured[i] - 1);
    errors.push_back(std::abs(median(e)));
    within += errors.back() <= 0.1;
    exact += f.bytes_exact;
    memory = std::max(memory, f.memory_error);
  }
  const auto best_forecast = static_cast<size_t>(std::ranges::min_element(forecast) - forecast.begin());
  const auto best_measured = static_cast<size_t>(std::ranges::min_element(measured) - measured.begin());
  double mean = 0;
  for (double e : errors) mean += e / static_cast<double>(errors.size());
  printf("\n| what | target | found |\n|---|---|---|\n");
  printf("| bytes sent, by each rank | exact | exact in %zu of %zu |\n", exact, all.size());
  printf("| memory of each rank | within 2 %% | within %.2f %% |\n", 100 * memory);
  printf("| time of a step | within 10 %% | %zu of %zu; mean %.1f %%, largest %.1f %% |\n", within, all.size(),
         100 * mean, 100 * *std::ranges::max_element(errors));
  printf("| the first choice | the best, or within 3 %% of it | %s on %d; the best was %s on %d: %.1f %% slower |\n",
         kAll[best_forecast].name, kAll[best_forecast].ranks, kAll[best_measured].name, kAll[best_measured].ranks,
         100 * (measured[best_forecast] / measured[best_measured] - 1));
  printf("| order | | Spearman %.3f |\n", rank_correlation(forecast, measured));
  printf("\nOthers used %.2f cores meanwhile.\n", others);
}

int run_rounds(int rounds) {
  const Described described;
  std::vector<Figures> all(std::size(kAll));
  double others = 0;
  std::vector<std::string> machines;
  for (int round = 0; round < rounds; ++round) {
    wait_for_quiet(20);
    const double busy = machine_busy(), own = children_busy(), began = os::now_seconds();
    double took = 0;
    const plan::Measured machine = measure_machine(4, {1, 2, 8}, took);
    machines.push_back(fmt::format("measured in {:.2f} s; {} ranks at once get done {:.2f} times what one does", took,
                                   machine.throughput.size(), machine.throughput.back()));
    for (size_t i = 0; i < std::size(kAll); ++i) compare(kAll[i], machine, described.model(), all[i]);
    others += (machine_busy() - busy - (children_busy() - own)) / (os::now_seconds() - began) / rounds;
    fprintf(stderr, "round %d: %s\n", round + 1, machines.back().c_str());
  }
  printf("Rounds: %d. %s.\n\n", rounds, machines.back().c_str());
  printf(
      "| configuration | ranks | forecast ms | measured ms | error (least to most) | waiting: forecast / measured | "
      "memory MB "
      "| error | bytes sent by rank 0 | |\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < all.size(); ++i) print_row(kAll[i], all[i]);
  print_summary(all, std::max(others, 0.0));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 1 && std::string_view(argv[1]) == "--finalists") return time_finalists();
    return run_rounds(argc > 1 ? std::max(atoi(argv[1]), 1) : 5);
  } catch (const Error& e) {
    for (const Error* at = &e; at; at = at->cause().get()) fprintf(stderr, "bench_plan: %s\n", at->message().c_str());
    return 1;
  }
}
