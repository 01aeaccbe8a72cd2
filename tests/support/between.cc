// support/between.cc: see between.h.
#include "support/between.h"

#include <dlfcn.h>
#include <unistd.h>

#include <chrono>

namespace between {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

const gsel_transport_v2* table_of(const std::string& name) {
  const std::string path = std::string(getenv("GSEL_TEST_BIN")) + "/lib/gsel/plugins-1/" + name + ".so";
  if (access(path.c_str(), F_OK) != 0) return nullptr;
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module) fail_msg("%s", dlerror());
  const auto* plugin = static_cast<const gsel_plugin_v1*>(dlsym(module, "gsel_plugin_v1"));
  if (!plugin || name != plugin->name) fail_msg("%s is another plugin", path.c_str());
  return static_cast<const gsel_transport_v2*>(plugin->table);
}

Rank::Rank(rank_run* run, const gsel_transport_v2& of, gsel_comm* comm) : table(of), run_(run), comm_(comm) {
  control_ = {sizeof control_, 0, this, exchange, nullptr, look, await_break};
}

gsel_status Rank::open(gsel_error** err) {
  return table.open(&gsel::host_services(), &ctx, err);
}

gsel_status Rank::join(gsel_error** err) {
  gsel_join how{};
  how.struct_size = sizeof how;
  how.rank = run_->rank, how.world_size = run_->world_size;
  how.timeout_s = how.join_timeout_s = 20;
  how.control = &control_;
  return table.link_join(ctx, &how, &link, err);
}

gsel_posted* Rank::send(int32_t peer, uint32_t tag, const void* memory, uint64_t bytes, gsel_error** err) {
  static const char nothing = 0;
  return post({peer, tag, memory ? memory : &nothing, nullptr, bytes}, err);
}

gsel_posted* Rank::recv(int32_t peer, uint32_t tag, void* memory, uint64_t bytes, gsel_error** err) {
  static char nothing;
  return post({peer, tag, nullptr, memory ? memory : &nothing, bytes}, err);
}

bool Rank::finish(gsel_posted* posted, gsel_status* status, std::string* text) const {
  const double end = seconds() + 60;
  int32_t done = 0;
  gsel_error* err = nullptr;
  gsel_status got = posted ? GSEL_OK : GSEL_ERR_INTERNAL;
  while (got == GSEL_OK && !done && seconds() < end) got = table.test(posted, 0.5, &done, &err);
  char line[500] = "";
  gsel_error_format(err, line, sizeof line);
  gsel_error_free(err);
  if (text) *text = line;
  if (status) *status = got;
  if (done) table.release(posted);
  return done != 0;
}

gsel_posted* Rank::post(const gsel_transfer& transfer, gsel_error** err) {
  gsel_posted* posted = nullptr;
  gsel_error* own = nullptr;
  table.post(link, &transfer, &posted, err ? err : &own);
  gsel_error_free(own);
  return posted;
}

gsel_status Rank::exchange(void* ctx, const void* mine, void* all, uint64_t bytes, gsel_error** err) {
  return gsel_allgather(static_cast<Rank*>(ctx)->comm_, mine, all, bytes, GSEL_U8, err);
}

gsel_status Rank::look(void* ctx, gsel_error**) {
  return static_cast<Rank*>(ctx)->broken ? GSEL_ERR_PEER : GSEL_OK;
}

int32_t Rank::await_break(void* ctx, double wait_s) {
  auto& self = *static_cast<Rank*>(ctx);
  for (const double end = seconds() + wait_s; !self.broken && seconds() < end;) usleep(1000);
  return self.broken;
}

Bytes pattern(size_t n, unsigned seed) {
  Bytes bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<unsigned char>((i * 131 + i / 251 + seed * 17) & 255);
  return bytes;
}

}  // namespace between
