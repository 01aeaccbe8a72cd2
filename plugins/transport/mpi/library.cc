// plugins/transport/mpi/library.cc: see library.h.
#include "library.h"

#include <dlfcn.h>
#include <gsel/log.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

#include "ending.h"

namespace gsel_mpi {

#ifdef OPEN_MPI
const char* const kName = "Open MPI";
const char* const kPlugin = "mpi_openmpi";
const char* const kFile = "libmpi.so.40";
const int kVersion = OMPI_MAJOR_VERSION * 10000 + OMPI_MINOR_VERSION * 100 + OMPI_RELEASE_VERSION;
#else
const char* const kName = "MPICH";
const char* const kPlugin = "mpi_mpich";
const char* const kFile = "libmpich.so.12";
const int kVersion = MPICH_NUMVERSION / 1000;
#endif

namespace {

using gsel_between::fail;

#ifdef OPEN_MPI
constexpr const char *kOther = "libmpich.so", *kOtherName = "MPICH";
constexpr const char *kOwnLauncher = "OMPI_COMM_WORLD_SIZE", *kOtherLauncher = "MPI_LOCALNRANKS";
constexpr const char* kStart = "mpirun.openmpi";
#else
constexpr const char *kOther = "libmpi.so.40", *kOtherName = "Open MPI";
constexpr const char *kOwnLauncher = "PMI_SIZE", *kOtherLauncher = "OMPI_COMM_WORLD_SIZE";
constexpr const char* kStart = "mpirun.mpich";
#endif

// Path of a loaded library whose file name starts with `file`; empty: none.
std::string mapped(const char* file) {
  struct Search {
    const char* file;
    std::string found;
  } search{file, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* user) {
        auto& s = *static_cast<Search*>(user);
        const char* slash = strrchr(info->dlpi_name, '/');
        const std::string_view name = slash ? slash + 1 : info->dlpi_name;
        if (name.starts_with(s.file)) s.found = info->dlpi_name;
        return 0;
      },
      &search);
  return search.found;
}

void refuse_the_other() {
  if (const std::string path = mapped(kOther); !path.empty())
    fail(GSEL_ERR_PLUGIN, std::string(kPlugin) + ": " + path + " is in this process, which is " + kOtherName +
                              "; use the transport of that");
  if (secure_getenv(kOtherLauncher) && !secure_getenv(kOwnLauncher))
    fail(GSEL_ERR_PLUGIN, std::string(kPlugin) + ": the launcher is one of " + kOtherName + " (" + kOtherLauncher +
                              " is set) and this transport one of " + kName + "; start it by " + kStart +
                              ", or take the other transport");
}

bool is_set(const char* name) {
  const char* value = secure_getenv(name);
  return value && *value;
}

#ifdef OPEN_MPI
// An Open MPI that was configured with Slurm's PMI has a component for it beside the library.
bool can_start_under_srun(const Library& mpi) {
  if (is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_NAMESPACE")) return true;
  const std::string folder = mpi.path.substr(0, mpi.path.rfind('/') + 1) + "openmpi/mca_pmix_s";
  return is_set("PMI_FD") &&
         (access((folder + "1.so").c_str(), R_OK) == 0 || access((folder + "2.so").c_str(), R_OK) == 0);
}
constexpr const char *kWhatMissing = "srun gives it no PMIx, without which Open MPI ends the process",
                     *kSrun = "srun --mpi=pmix";
#else
bool can_start_under_srun(const Library&) {
  return is_set("PMI_FD") || is_set("PMI_PORT") || is_set("PMIX_NAMESPACE");
}
constexpr const char *kWhatMissing = "srun gives it no PMI, without which MPICH makes each process a world of its own",
                     *kSrun = "srun --mpi=pmi2";
#endif

// MPI_Init of a process that srun has started fails without the protocol of that MPI, and ends the process.
void refuse_srun(const Library& mpi) {
  if (!is_set("SLURM_PROCID") || !is_set("SLURM_STEP_ID") || can_start_under_srun(mpi)) return;
  fail(GSEL_ERR_PLUGIN, std::string(kPlugin) + ": this process is a task of srun (SLURM_PROCID is set), and " +
                            kWhatMissing + "; start it with " + kSrun + ", or " + kStart);
}

// RTLD_GLOBAL, since components of Open MPI do not link to it and take its symbols from the global scope.
Library load() {
  Library mpi;
  void* file = dlopen(kFile, RTLD_NOW | RTLD_GLOBAL);
  if (!file) fail(GSEL_ERR_NOT_FOUND, std::string(kPlugin) + ": there is no " + kName + ": " + dlerror());
  const auto find = [&](const char* name) {
    void* symbol = dlsym(file, name);
    if (!symbol) fail(GSEL_ERR_NOT_FOUND, std::string(kPlugin) + ": " + kFile + " has no " + name);
    return symbol;
  };
#define GSEL_MPI_FIND(name) mpi.name = reinterpret_cast<decltype(mpi.name)>(find(#name));
  GSEL_MPI_FUNCTIONS(GSEL_MPI_FIND)
#undef GSEL_MPI_FIND
#ifdef OPEN_MPI  // handles are addresses of objects, which may be copied into a program that links to it
  const auto object = [&](const char* name) {
    void* in_program = dlsym(RTLD_DEFAULT, name);
    return in_program ? in_program : find(name);
  };
  mpi.world = static_cast<MPI_Comm>(object("ompi_mpi_comm_world"));
  mpi.byte = static_cast<MPI_Datatype>(object("ompi_mpi_byte"));
  mpi.errors_return = static_cast<MPI_Errhandler>(object("ompi_mpi_errors_return"));
  mpi.no_request = static_cast<MPI_Request>(object("ompi_request_null"));
#else
  mpi.world = MPI_COMM_WORLD, mpi.byte = MPI_BYTE, mpi.errors_return = MPI_ERRORS_RETURN;
  mpi.no_request = MPI_REQUEST_NULL;
#endif
  Dl_info info{};
  mpi.path = dladdr(reinterpret_cast<void*>(mpi.MPI_Init_thread), &info) && info.dli_fname ? info.dli_fname : kFile;
  return mpi;
}

const Library* ours;  // initialised by this plugin
pid_t initialised_by;

constexpr const char* kOver = ": the program has called MPI_Finalize, after which MPI cannot be used; join before it";

// A launcher treats a process that exits without MPI_Finalize as failed.
void finalize() {
  if (ours && getpid() == initialised_by && !is_finalised(*ours)) end(*ours);
}

const char* level_name(int level) {
  if (level == MPI_THREAD_MULTIPLE) return "multiple";
  if (level == MPI_THREAD_SERIALIZED) return "serialized";
  return level == MPI_THREAD_FUNNELED ? "funneled" : "single";
}

std::string note_of(const Library& mpi) {
  std::string note = std::string(kName) + ", threads " + level_name(mpi.level);
  if (mpi.level != MPI_THREAD_MULTIPLE)
    note += ": the program makes no call of MPI while a gsel call or request is under way";
  return note + "; its launcher ends all ranks when one dies";
}

// gsel has a thread that advances requests and buffered messages.
void warn_about_level(const gsel_host_v1* host, const Library& mpi) {
  if (mpi.level == MPI_THREAD_MULTIPLE || mpi.level == MPI_THREAD_SERIALIZED) return;
  const std::string line = std::string("the program has initialised ") + kName + " with threads " +
                           level_name(mpi.level) +
                           ", where no second thread may call it; gsel has one for requests and for messages that wait "
                           "for their receiver; initialise it with MPI_THREAD_MULTIPLE";
  host->log(GSEL_LOG_WARN, kPlugin, line.c_str());
}

// A failing MPI_Init_thread ends the process, and one that waits for a rank has no timeout.
void initialise(const gsel_host_v1* host, Library& mpi) {
  int is_there = 0;
  check(mpi, mpi.MPI_Initialized(&is_there), "MPI_Initialized");
  if (is_there) {
    check(mpi, mpi.MPI_Query_thread(&mpi.level), "MPI_Query_thread");
  } else {
    const std::string before = "initialising " + mpi.path +
                               ": waits for all ranks of its launcher, without a timeout of "
                               "gsel's; if this fails, MPI ends the process";
    host->log(GSEL_LOG_INFO, kPlugin, before.c_str());
    check(mpi, mpi.MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &mpi.level), "MPI_Init_thread");
    mpi.MPI_Comm_set_errhandler(mpi.world, mpi.errors_return);
    initialised_by = getpid();
    ours = &mpi;
    atexit(finalize);
  }
  mpi.note = note_of(mpi);
  const std::string line = mpi.path + (is_there ? ", initialised by the program: " : ", initialised here: ") + mpi.note;
  host->log(GSEL_LOG_INFO, kPlugin, line.c_str());
  warn_about_level(host, mpi);
}

bool is_initialised(const Library& mpi) {
  int is_there = 0;
  return mpi.MPI_Initialized(&is_there) == MPI_SUCCESS && is_there;
}

std::mutex mutex;
Library* found;  // lives as long as the process, like MPI itself
bool is_started;

}  // namespace

void find() {
  const std::lock_guard lock(mutex);
  if (!found) {
    refuse_the_other();
    found = new Library(load());
  }
  if (is_finalised(*found)) fail(GSEL_ERR_STATE, std::string(kPlugin) + kOver);
  if (!is_initialised(*found)) refuse_srun(*found);
}

const Library& started(const gsel_host_v1* host) {
  const std::lock_guard lock(mutex);
  if (!is_started) initialise(host, *found);
  is_started = true;
  return *found;
}

bool is_finalised(const Library& mpi) {
  int is_over = 0;
  return mpi.MPI_Finalized(&is_over) != MPI_SUCCESS || is_over;
}

void require_running(const Library& mpi) {
  if (is_finalised(mpi))
    fail(GSEL_ERR_STATE,
         std::string(kPlugin) + ": MPI was finalised before gsel_comm_free; free the communicator before MPI_Finalize");
}

void check(const Library& mpi, int result, const char* call, int32_t peer) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int bytes = 0;
  mpi.MPI_Error_string(result, text, &bytes);
  fail(peer >= 0 ? GSEL_ERR_PEER : GSEL_ERR_IO, std::string(kPlugin) + ": " + call +
                                                    (peer >= 0 ? " with rank " + std::to_string(peer) : "") +
                                                    " failed: " + text);
}

}  // namespace gsel_mpi
