// job.cc: see job.h.
#include "plan/job.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "api/handles.h"
#include "base/os.h"

extern "C" {
#include <cblas.h>

#include "layers.h"
}

namespace bench {

using namespace gsel;

namespace {

const gpt_sizes kSizes = GPT_DEFAULT_SIZES;
constexpr size_t kTextBytes = 1 << 20;

gsel_status fill(const gsel_data_request* request, void*) {
  auto* to = static_cast<uint8_t*>(request->dst.data);
  const int64_t n = request->dst.n_elems / std::max<int64_t>(request->n_samples, 1);
  for (int64_t i = 0; i < request->n_samples; ++i)
    for (int64_t k = 0; k < n; ++k)
      to[i * n + k] = static_cast<uint8_t>((request->sample_ids[i] * 131 + k * k * 7) % 97);
  return GSEL_OK;
}

template <class T>
T* shared(size_t n) {
  void* memory = mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail(GSEL_ERR_NOMEM, "no memory to share with ranks");
  return static_cast<T*>(memory);
}

void check(gsel_status status, gsel_error* const* err) {
  throw_if_failed(status, err ? *err : nullptr);
}

enum class Pin { where_there_are_enough, in_turn };

// A core for each rank: as `gsel run` does, where there are enough; or the cores in turn.
void pin(int32_t rank, int32_t ranks, Pin how) {
  const auto cores = static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN));
  if (ranks > cores && how == Pin::where_there_are_enough) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(rank % cores), &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Each rank in a process of its own; what fails is the rank's failure.
void fork_ranks(int32_t ranks, Pin how, char* failures, size_t stride,
                const std::function<void(int32_t, gsel_comm*)>& body) {
  gsel_unique_id id;
  check(gsel_unique_id_create(&id, nullptr), nullptr);
  fflush(nullptr);
  std::vector<pid_t> children;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) fail(GSEL_ERR_IO, "no process for rank {}", rank);
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    try {
      pin(rank, ranks, how);
      openblas_set_num_threads(1);
      gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
      options.rank = rank;
      options.world_size = ranks;
      options.id = &id;
      gsel_comm* comm = nullptr;
      gsel_error* err = nullptr;
      check(gsel_comm_init(&options, &comm, &err), &err);
      body(rank, comm);
      gsel_comm_free(comm);
      _exit(0);
    } catch (const Error& e) {
      snprintf(failures + static_cast<size_t>(rank) * stride, 512, "%s", e.message().c_str());
      _exit(1);
    }
  }
  for (pid_t child : children) waitpid(child, nullptr, 0);
  for (int32_t rank = 0; rank < ranks; ++rank)
    if (const char* failure = failures + static_cast<size_t>(rank) * stride; *failure)
      fail(GSEL_ERR_INTERNAL, "rank {}: {}", rank, failure);
}

gpt_model describe_gpt() {
  gpt_model gpt{};
  gsel_error* err = nullptr;
  check(gpt_model_create(&kSizes, &gpt_layers, &gpt, &err), &err);
  return gpt;
}

}  // namespace

Described::Described() : gpt_(describe_gpt()) {}
Described::~Described() {
  gpt_model_free(&gpt_);
}
const Model& Described::model() const {
  return *gpt_.model->impl;
}

std::vector<RankSteps> run_steps(const std::string& toml, int32_t ranks, int steps) {
  auto* results = shared<RankSteps>(static_cast<size_t>(ranks));
  fork_ranks(ranks, Pin::where_there_are_enough, results[0].failure, sizeof(RankSteps),
             [&](int32_t rank, gsel_comm* comm) {
               RankSteps& result = results[rank];
               gpt_model gpt = describe_gpt();
               gsel_error* err = nullptr;
               gsel_config* config = nullptr;
               check(gsel_config_parse({toml.c_str(), GSEL_NUL}, {"bench", 5}, &config, &err), &err);
               gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
               options.config = config;
               options.data = fill;
               gsel_trainer* trainer = nullptr;
               check(gsel_trainer_create(comm, gpt.model, &options, &trainer, &err), &err);
               double before = os::now_seconds();
               for (int i = 0; i < steps; ++i) {
                 gsel_step_report report = GSEL_STEP_REPORT_INIT;
                 check(gsel_trainer_step(trainer, &report, &err), &err);
                 const double now = os::now_seconds();
                 result.seconds[i] = now - before;
                 before = now;
                 result.exposed_s += report.exposed_comm_s;
                 result.peak_bytes = report.peak_bytes;
                 result.bytes_sent = report.bytes_sent;
               }
               gsel_trainer_free(trainer);
               gpt_model_free(&gpt);
               gsel_config_free(config);
             });
  std::vector<RankSteps> all(results, results + ranks);
  munmap(results, sizeof(RankSteps) * static_cast<size_t>(ranks));
  return all;
}

plan::Measured measure_machine(int32_t ranks, const std::vector<int64_t>& samples, double& took) {
  struct Result {
    double took;
    char text[kTextBytes];
    char failures[8][512];
  };
  auto* result = shared<Result>(1);
  fork_ranks(ranks, Pin::in_turn, result->failures[0], sizeof result->failures[0], [&](int32_t rank, gsel_comm* comm) {
    gpt_model gpt = describe_gpt();
    const Config config = parse_config("[train]\nbatch = 8\nclip_norm = 1.0\nnon_finite = \"off\"\n", "bench");
    const double began = os::now_seconds();
    const plan::Measured measured = plan::measure(comm->impl, gpt.model->impl, {fill, nullptr}, config, {samples, 1.4});
    if (rank == 0) {
      result->took = os::now_seconds() - began;
      snprintf(result->text, kTextBytes, "%s", plan::to_json(measured).c_str());
    }
    gpt_model_free(&gpt);
  });
  plan::Measured measured = plan::read_measured(result->text, "measured");
  took = result->took;
  munmap(result, sizeof(Result));
  return measured;
}

namespace {

constexpr double kProbeSeconds = 0.06;

// Products in a second, on a core of its own; both begin at `begin`.
void probe(int32_t core, double begin, double* out) {
  pin(core, 2, Pin::in_turn);
  openblas_set_num_threads(1);
  constexpr int kSize = 256;
  std::vector<float> a(kSize * kSize, 1), b(a), c(a);
  const auto product = [&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, kSize, kSize, kSize, 1, a.data(), kSize, b.data(), kSize, 0,
                c.data(), kSize);
  };
  product();
  while (os::now_seconds() < begin) continue;
  int n = 0;
  const double at = os::now_seconds();
  while (os::now_seconds() - at < kProbeSeconds) {
    product();
    ++n;
  }
  *out = n / (os::now_seconds() - at);
}

double probe_on(int32_t processes) {
  auto* rates = shared<double>(2);
  const double begin = os::now_seconds() + 0.02;
  std::vector<pid_t> children;
  for (int32_t i = 0; i < processes; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      probe(i, begin, rates + i);
      _exit(0);
    }
    children.push_back(child);
  }
  for (pid_t child : children) waitpid(child, nullptr, 0);
  const double rate = processes == 1 ? rates[0] : (rates[0] + rates[1]) / 2;
  munmap(rates, 2 * sizeof(double));
  return rate;
}

}  // namespace

Cores::Cores(int32_t ranks) {
  const auto cores = static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN));
  for (int32_t core = 0; core < cores; ++core) {
    const pid_t child = fork();
    if (child > 0) keepers_.push_back(child);
    if (child != 0) continue;
    pin(core, cores, Pin::in_turn);
    const sched_param none{};
    if (core < ranks) sched_setscheduler(0, SCHED_IDLE, &none);
    for (;;) core < ranks ? static_cast<void>(sched_yield()) : __builtin_ia32_pause();  // a rank has it back at once
  }
}

Cores::~Cores() {
  for (pid_t keeper : keepers_) kill(keeper, SIGKILL);
  for (pid_t keeper : keepers_) waitpid(keeper, nullptr, 0);
}

bool Speed::is_like(const Speed& other) const {
  const auto close = [](double a, double b) { return a < 1.06 * b && b < 1.06 * a; };
  return close(one, other.one) && close(each_of_two, other.each_of_two);
}

Speed probe_speed() {
  return {probe_on(1), probe_on(2)};
}

}  // namespace bench
