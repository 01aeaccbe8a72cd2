// job.cc: see job.h.
#include "job.h"

#include <dlfcn.h>
#include <hwloc.h>
#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "client.h"

namespace gsel::cli {
namespace {

struct FreeTopology {
  void operator()(hwloc_topology* t) const { hwloc_topology_destroy(t); }
};
using Topology = std::unique_ptr<hwloc_topology, FreeTopology>;

// Loads cores, hardware threads and their containers; without caches, memory and devices.
Topology load_topology() {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return nullptr;
  Topology topology(made);
  hwloc_topology_set_cache_types_filter(made, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_NONE);
  return hwloc_topology_load(made) == 0 ? std::move(topology) : nullptr;
}

// The cores that this process may use, neighbours next to each other, each with its usable processors.
std::vector<Place> usable_cores(hwloc_topology* topology) {
  std::unique_ptr<hwloc_bitmap_s, void (*)(hwloc_bitmap_t)> ours(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  if (hwloc_get_cpubind(topology, ours.get(), HWLOC_CPUBIND_THREAD) != 0) return {};
  const bool cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t type = cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  std::vector<Place> places;
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, type, object));) {
    Place place;
    int processor = -1;
    while ((processor = hwloc_bitmap_next(object->cpuset, processor)) >= 0)
      if (hwloc_bitmap_isset(ours.get(), static_cast<unsigned>(processor))) place.processors.push_back(processor);
    if (!place.processors.empty()) places.push_back(std::move(place));
  }
  return places;
}

// First threads of all cores, then second threads, and so on.
std::vector<Place> hardware_threads(const std::vector<Place>& cores) {
  std::vector<Place> threads;
  for (size_t turn = 0, found = 1; found > 0; ++turn) {
    found = 0;
    for (const Place& core : cores)
      if (turn < core.processors.size()) threads.push_back({{core.processors[turn]}}), ++found;
  }
  return threads;
}

// The folder of the libgsel in use, if the dynamic linker does not search it by default; else empty.
std::string private_library_folder() {
  Dl_info info{};
  char* found =
      dladdr(reinterpret_cast<void*>(&gsel_version_text), &info) ? realpath(info.dli_fname, nullptr) : nullptr;
  const std::string path = found ? found : "";
  std::free(found);
  for (const char* searched : {"/lib/", "/usr/lib/", "/lib64/", "/usr/lib64/"})
    if (path.starts_with(searched)) return {};
  return path.find(".so") == path.npos ? std::string() : path.substr(0, path.rfind('/'));
}

// Lets a program that was linked without an rpath run from a private prefix, as this command does. Added at the end, so
// that all other library paths take precedence.
void add_library_folder(Environment& environment) {
  const std::string folder = private_library_folder();
  if (folder.empty()) return;
  std::string& path = environment["LD_LIBRARY_PATH"];
  if ((":" + path + ":").find(":" + folder + ":") == path.npos) path += (path.empty() ? "" : ":") + folder;
}

// Sets MASTER_ADDR and MASTER_PORT from "tcp://HOST:PORT", for libraries with their own rendezvous; removes them
// otherwise.
void add_master(Environment& environment, const std::string& rendezvous) {
  environment.erase("MASTER_ADDR");
  environment.erase("MASTER_PORT");
  const size_t begin = rendezvous.find("//"), colon = rendezvous.rfind(':');
  if (begin == rendezvous.npos || colon == rendezvous.npos || colon < begin + 2) return;
  environment["MASTER_ADDR"] = rendezvous.substr(begin + 2, colon - begin - 2);
  environment["MASTER_PORT"] = rendezvous.substr(colon + 1);
}

}  // namespace

std::string own_path() {
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self);
  if (n <= 0) refuse(GSEL_ERR_IO, std::string("/proc/self/exe cannot be read: ") + std::strerror(errno));
  return {self, static_cast<size_t>(n)};
}

Environment own_environment() {
  Environment out;
  for (char** line = environ; *line; ++line)
    if (const char* equals = std::strchr(*line, '='))
      out.emplace(std::string(*line, static_cast<size_t>(equals - *line)), equals + 1);
  return out;
}

Environment job_environment(int64_t ranks, const Nodes& nodes) {
  unsigned char random[16];
  if (getrandom(random, sizeof random, 0) != sizeof random)
    refuse(GSEL_ERR_IO, std::string("no random numbers: ") + std::strerror(errno));
  char job[2 * sizeof random + 1];
  for (size_t i = 0; i < sizeof random; ++i) std::snprintf(job + 2 * i, 3, "%02x", random[i]);

  Environment out = own_environment();
  out["WORLD_SIZE"] = std::to_string(nodes.world_size > 0 ? nodes.world_size : ranks);
  out["LOCAL_WORLD_SIZE"] = std::to_string(ranks);
  out["GROUP_RANK"] = std::to_string(nodes.rank);
  out["MASTER_ADDR"] = "127.0.0.1";
  out["MASTER_PORT"] = std::to_string(20000 + (random[0] << 8 | random[1]) % 10000);
  if (!nodes.rendezvous.empty()) {
    add_master(out, nodes.rendezvous);
    out["GSEL_RENDEZVOUS"] = nodes.rendezvous;
  }
  if (!nodes.job.empty()) out["GSEL_JOB_NAME"] = nodes.job;
  out["GSEL_JOB"] = job;
  add_library_folder(out);
  if (ranks > 1) {
    out.emplace("OMP_NUM_THREADS", "1");
    out.emplace("OPENBLAS_NUM_THREADS", "1");
  }
  return out;
}

void add_rank(Environment& environment, int64_t local, int64_t first_rank) {
  environment["LOCAL_RANK"] = std::to_string(local);
  environment["RANK"] = std::to_string(first_rank + local);
}

std::vector<std::string> lines(const Environment& environment) {
  std::vector<std::string> out;
  for (const auto& [name, value] : environment) out.push_back(name + "=" + value);
  return out;
}

std::vector<Place> place_ranks(int64_t ranks) {
  if (ranks < 2) return {};
  const Topology topology = load_topology();
  if (!topology) return {};
  std::vector<Place> places = usable_cores(topology.get());
  if (static_cast<int64_t>(places.size()) < ranks) places = hardware_threads(places);
  if (static_cast<int64_t>(places.size()) < ranks) return {};
  places.resize(static_cast<size_t>(ranks));
  return places;
}

std::string place_text(const Place& place) {
  std::string text = place.processors.size() == 1 ? "processor " : "processors ";
  for (size_t i = 0; i < place.processors.size(); ++i)
    text += (i == 0 ? "" : i + 1 == place.processors.size() ? " and " : ", ") + std::to_string(place.processors[i]);
  return text;
}

PlaceMask::PlaceMask(const Place& place) {
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  for (int processor : place.processors) {
    const auto bit = static_cast<size_t>(processor);
    words_.resize(std::max(words_.size(), bit / kBits + 1));
    words_[bit / kBits] |= 1ul << bit % kBits;
  }
}

void PlaceMask::apply() const {
  if (!words_.empty())
    sched_setaffinity(0, words_.size() * sizeof words_[0], reinterpret_cast<const cpu_set_t*>(words_.data()));
}

}  // namespace gsel::cli
