// comm/launch/pmix.cc: see pmix.h. Types and numbers are those of pmix_common.h of PMIx 3 and 4, which are a stable
// ABI. Members that this file does not use are `room`.
#include "comm/launch/pmix.h"

#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/os.h"
#include "comm/launch/launcher.h"

namespace gsel::pmix {
namespace {

constexpr const char* kFile = "libpmix.so.2";
constexpr uint32_t kAnyRank = UINT32_MAX - 1;
constexpr uint8_t kForAll = 3;
constexpr int kPauseMs = 1;

struct Process {
  char job[256];
  uint32_t rank;
};
struct Value {
  enum : uint16_t { text = 3, number = 14 };
  uint16_t type;
  union {
    char* text;
    uint32_t number;
    char room[120];
  } data;
};

struct Client {
  int (*PMIx_Init)(Process* self, void* info, size_t n);
  int (*PMIx_Finalize)(const void* info, size_t n);
  int (*PMIx_Put)(uint8_t scope, const char* key, Value* value);
  int (*PMIx_Commit)();
  int (*PMIx_Fence_nb)(const Process* of, size_t n, const void* info, size_t infos, void (*over)(int, void*),
                       void* user_data);
  int (*PMIx_Get)(const Process* of, const char* key, const void* info, size_t n, Value** value);
  const char* (*PMIx_Error_string)(int status);
  Process self;
  pid_t pid;
};

void check(const Client& client, int status, const char* call) {
  if (status == 0) return;
  throw about_variable(
      "PMIX_NAMESPACE",
      fmt::format("{} of {} failed: {}; start the ranks by the launcher that set PMIX_NAMESPACE={}, or "
                  "set GSEL_RENDEZVOUS",
                  call, kFile, client.PMIx_Error_string(status), variable("PMIX_NAMESPACE")));
}

const Client* started;

// A manager treats a process that exits without PMIx_Finalize as failed.
void finalize() {
  if (started && started->pid == getpid()) started->PMIx_Finalize(nullptr, 0);
}

Client* load() {
  void* file = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (!file)
    throw about_variable("PMIX_NAMESPACE", fmt::format("the launcher speaks PMIx (PMIX_NAMESPACE={}), and its library "
                                                       "cannot be loaded: {}; install libpmix2, or set GSEL_RENDEZVOUS",
                                                       variable("PMIX_NAMESPACE"), dlerror()));
  auto client = std::make_unique<Client>();
  const auto find = [&](auto& function, const char* name) {
    void* symbol = dlsym(file, name);
    if (!symbol) throw about_variable("PMIX_NAMESPACE", fmt::format("{} has no {}", kFile, name));
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  find(client->PMIx_Init, "PMIx_Init");
  find(client->PMIx_Finalize, "PMIx_Finalize");
  find(client->PMIx_Put, "PMIx_Put");
  find(client->PMIx_Commit, "PMIx_Commit");
  find(client->PMIx_Fence_nb, "PMIx_Fence_nb");
  find(client->PMIx_Get, "PMIx_Get");
  find(client->PMIx_Error_string, "PMIx_Error_string");
  check(*client, client->PMIx_Init(&client->self, nullptr, 0), "PMIx_Init");
  client->pid = getpid();
  return client.release();
}

// The library counts PMIx_Init: an MPI in this process may be a client, too.
const Client& client() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (started) return *started;
  started = load();
  std::atexit(finalize);
  return *started;
}

Process of(uint32_t rank) {
  Process process = client().self;
  process.rank = rank;
  return process;
}

// The value is from malloc of the library, which this process shares.
int32_t number_of(const char* key) {
  const Process job = of(kAnyRank);
  Value* value = nullptr;
  check(client(), client().PMIx_Get(&job, key, nullptr, 0, &value), key);
  if (!value || value->type != Value::number)
    throw about_variable("PMIX_NAMESPACE", fmt::format("{} of the process manager is no number", key));
  const auto number = static_cast<int32_t>(value->data.number);
  std::free(value);
  return number;
}

}  // namespace

bool is_there() {
  if (!variable("PMIX_NAMESPACE") || !variable("PMIX_RANK")) return false;
  for (const char* name : {"PMIX_SERVER_URI", "PMIX_SERVER_URI2", "PMIX_SERVER_URI21", "PMIX_SERVER_URI3",
                           "PMIX_SERVER_URI4", "PMIX_SERVER_URI41"})
    if (variable(name)) return true;
  return false;
}

int32_t ranks() {
  return number_of("pmix.job.size");
}

int32_t ranks_here() {
  return number_of("pmix.local.size");
}

void put(const std::string& key, const std::string& value) {
  std::string text = value;
  Value own{};
  own.type = Value::text;
  own.data.text = text.data();
  check(client(), client().PMIx_Put(kForAll, key.c_str(), &own), "PMIx_Put");
  check(client(), client().PMIx_Commit(), "PMIx_Commit");
}

void fence(int64_t deadline_ns) {
  struct Over {
    std::atomic<bool> is_over{false};
    int status = 0;
  };
  auto over = std::make_unique<Over>();
  const auto tell = [](int status, void* user_data) {
    auto& told = *static_cast<Over*>(user_data);
    told.status = status;
    told.is_over.store(true, std::memory_order_release);
  };
  check(client(), client().PMIx_Fence_nb(nullptr, 0, nullptr, 0, tell, over.get()), "PMIx_Fence_nb");
  while (!over->is_over.load(std::memory_order_acquire)) {
    if (os::now_ns() >= deadline_ns) {
      static_cast<void>(over.release());  // the library may still call back
      fail(GSEL_ERR_TIMEOUT, "timed out: some ranks of PMIX_NAMESPACE={} have not come to gsel_comm_init",
           variable("PMIX_NAMESPACE"));
    }
    poll(nullptr, 0, kPauseMs);
  }
  check(client(), over->status, "PMIx_Fence_nb");
}

std::string get(int32_t rank, const std::string& key) {
  const Process whose = of(static_cast<uint32_t>(rank));
  Value* value = nullptr;
  check(client(), client().PMIx_Get(&whose, key.c_str(), nullptr, 0, &value), "PMIx_Get");
  std::string text = value && value->type == Value::text && value->data.text ? value->data.text : "";
  if (value && value->type == Value::text) std::free(value->data.text);
  std::free(value);
  return text;
}

}  // namespace gsel::pmix
