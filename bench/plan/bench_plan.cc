// bench_plan: what the planner says of examples/gpt on this machine beside what ranks then do: time of a step, memory
// and bytes sent, under many configurations on 1 to 4 ranks. Each round measures the machine for two seconds, prices
// all configurations from that, and runs them. Looks inside the library, since it compares its parts.
//
//     bench_plan [SECONDS [RUNS]]   markdown on standard output; runs that others disturb are made again
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

// ---- the machine -------------------------------------------------------------------------------------------------

// Core-seconds that all have been busy, and of them this program's ranks.
double machine_busy() {
  std::ifstream stat("/proc/stat");
  std::string word;
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0;
  stat >> word >> user >> nice >> system >> idle >> wait >> irq >> soft >> steal;
  return (user + nice + system + irq + soft + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
}
double own_busy() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    sum += static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  }
  return sum;
}

// Cores that others used since it was made.
class Others {
 public:
  double cores() const {
    const double all = machine_busy() - machine_, own = own_busy() - own_;
    return std::max(all - own, 0.0) / (os::now_seconds() - began_);
  }

 private:
  const double machine_ = machine_busy(), own_ = own_busy(), began_ = os::now_seconds();
};

constexpr double kQuiet = 0.25;  // cores of others, at most, while something is measured

// ---- figures -----------------------------------------------------------------------------------------------------

struct Figures {
  std::vector<double> forecast, measured, exposed, waited;
  double memory_error = 0, failed = 0;
  bool bytes_exact = true;
  uint64_t bytes = 0, memory = 0;
};

double median(std::vector<double> numbers) {
  std::ranges::sort(numbers);
  return numbers.empty() ? 0 : numbers[numbers.size() / 2];
}

// Something measured on processors that nobody else has, and that are as fast before as behind; false where they were
// not.
template <class Measure>
bool undisturbed(int32_t ranks, Speed& speed, Measure&& measure) {
  usleep(700'000);  // others get on
  const Others others;
  bool steady = false;
  {
    const Speed before = probe_speed();
    {
      const Cores cores(ranks);
      measure();
    }
    speed = probe_speed();
    steady = speed.is_like(before);
  }
  const double used = others.cores();
  if (used >= kQuiet || !steady)
    fprintf(stderr, "disturbed: others %.2f cores, %s\n", used, steady ? "steady" : "not steady");
  return used < kQuiet && steady;
}

// What one run shows beside its forecast. Times only where they count.
void compare(const Configuration& c, const plan::Measured& machine, const Model& model,
             const std::vector<RankSteps>& ranks, bool with_times, Figures& figures) {
  const Config config = parse_config(toml_of(c), "bench");
  const plan::MeasuredDurations durations(machine);
  const plan::Finalist f = plan::price(model, config, c.ranks, {durations, durations.hosts(c.ranks)});
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto needed = static_cast<double>(total_bytes(f.ranks[i].memory)),
               taken = static_cast<double>(ranks[i].peak_bytes);
    figures.memory_error = std::max(figures.memory_error, std::abs(needed / taken - 1));
    figures.bytes_exact = figures.bytes_exact && f.ranks[i].bytes_sent == ranks[i].bytes_sent;
  }
  figures.memory = f.most_bytes();
  figures.bytes = f.ranks[0].bytes_sent;
  if (!with_times) return;
  std::vector<double> seconds(ranks[0].seconds + kSkipped, ranks[0].seconds + kSteps);
  double exposed = 0;
  for (const RankSteps& r : ranks) exposed += r.exposed_s / static_cast<double>(kSteps * c.ranks);
  figures.forecast.push_back(f.step_s + machine.step_s);
  figures.measured.push_back(median(seconds));
  figures.exposed.push_back(f.exposed + f.bubble);
  figures.waited.push_back(exposed / median(seconds));
  fprintf(stderr, "%s on %d: forecast %.1f ms, measured %.1f ms\n", c.name, c.ranks, 1e3 * f.step_s,
          1e3 * median(seconds));
}

void print_row(const Configuration& c, const Figures& f) {
  std::vector<double> errors;
  for (size_t i = 0; i < f.forecast.size(); ++i) errors.push_back(f.forecast[i] / f.measured[i] - 1);
  const auto [least, most] = std::ranges::minmax(errors);
  printf(
      "| %s | %d | %zu | %.1f | %.1f | %+.1f %% (%+.1f to %+.1f) | %.0f %% / %.0f %% | %.2f | %+.2f %% | %llu | %s |\n",
      c.name, c.ranks, f.measured.size(), 1e3 * median(f.forecast), 1e3 * median(f.measured), 100 * median(errors),
      100 * least, 100 * most, 100 * median(f.exposed), 100 * median(f.waited), static_cast<double>(f.memory) * 1e-6,
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

void print_summary(const std::vector<Figures>& found) {
  std::vector<Figures> all;
  std::vector<const Configuration*> of;
  for (size_t i = 0; i < found.size(); ++i)
    if (!found[i].measured.empty()) all.push_back(found[i]), of.push_back(&kAll[i]);
  if (all.empty()) return;
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
         of[best_forecast]->name, of[best_forecast]->ranks, of[best_measured]->name, of[best_measured]->ranks,
         100 * (measured[best_forecast] / measured[best_measured] - 1));
  printf("| order | | Spearman %.3f |\n", rank_correlation(forecast, measured));
}

// As many runs of each configuration as the time allows. The machine is measured anew when its processors have become
// faster or slower, and every minute.
int run_for(double seconds, size_t wanted) {
  const Described described;
  std::vector<Figures> all(std::size(kAll));
  const double until = os::now_seconds() + seconds;
  plan::Measured machine;
  Speed of_machine;
  double measured_at = -1e9, took = 0;
  size_t rejected = 0, n_measured = 0;
  while (os::now_seconds() < until) {
    Speed speed;
    if (os::now_seconds() - measured_at > 60) {
      plan::Measured fresh;
      double fresh_took = 0;
      if (!undisturbed(2, speed, [&] { fresh = measure_machine(4, {1, 3, 8}, fresh_took); })) {
        ++rejected;
        continue;
      }
      machine = std::move(fresh);
      took = fresh_took;
      of_machine = speed;
      measured_at = os::now_seconds();
      ++n_measured;
      fprintf(stderr, "measured in %.2f s; %zu at once get done %.2f; products %.0f, %.0f of two\n", took,
              machine.throughput.size(), machine.throughput.back(), speed.one, speed.each_of_two);
    }
    const auto next = std::ranges::min_element(
        all, {}, [](const Figures& f) { return static_cast<double>(f.measured.size()) + f.failed; });
    if (next->measured.size() >= wanted) break;
    const Configuration& c = kAll[next - all.begin()];
    std::vector<RankSteps> ranks;
    const bool quiet = undisturbed(c.ranks, speed, [&] { ranks = run_steps(toml_of(c), c.ranks, kSteps); });
    const bool counts = quiet && speed.is_like(of_machine);
    if (!speed.is_like(of_machine)) measured_at = -1e9;  // it is another machine by now
    compare(c, machine, described.model(), ranks, counts, *next);
    rejected += !counts;
    next->failed += counts ? 0 : 0.25;
  }
  printf(
      "Machine measured %zu times, the last in %.2f s: %zu ranks at once get done %.2f times what one does. Runs that "
      "others disturbed and that do not count: %zu.\n\n",
      n_measured, took, machine.throughput.size(), machine.throughput.back(), rejected);
  printf(
      "| configuration | ranks | runs | forecast ms | measured ms | error (least to most) | waiting: forecast / "
      "measured | "
      "memory MB | error | bytes sent by rank 0 | |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < all.size(); ++i)
    if (!all[i].measured.empty()) print_row(kAll[i], all[i]);
  print_summary(all);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 1 && std::string_view(argv[1]) == "--finalists") return time_finalists();
    const double seconds = argc > 1 ? atof(argv[1]) : 300;
    return run_for(seconds, argc > 2 ? static_cast<size_t>(std::max(atoi(argv[2]), 1)) : 5);
  } catch (const Error& e) {
    for (const Error* at = &e; at; at = at->cause().get()) fprintf(stderr, "bench_plan: %s\n", at->message().c_str());
    return 1;
  }
}
