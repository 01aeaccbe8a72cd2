// api/select_request.cc: see select_request.h.
#include "api/select_request.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/options.h"
#include "base/text.h"
#include "select/reserve/reserve.h"
#include "select/resolve.h"
#include "select/words/tokens.h"

namespace gsel {
namespace {

constexpr uint32_t kFlags = GSEL_RESOLVE_NO_ENV | GSEL_RESOLVE_PER_RANK;
constexpr size_t kMaxHostfileBytes = 16 << 20;

Environment own_environment() {
  Environment out;
  for (char** line = environ; line && *line; ++line)
    if (const char* equals = std::strchr(*line, '='))
      out.emplace(std::string(*line, static_cast<size_t>(equals - *line)), equals + 1);
  return out;
}

Environment given_environment(const gsel_resolve_options& options) {
  Environment out;
  if (!options.env && options.n_env) fail(GSEL_ERR_ARG, "env is NULL, n_env is {}", options.n_env);
  for (size_t i = 0; i < options.n_env; ++i) {
    const std::string name = text(options.env[i].name);
    if (name.empty()) fail(GSEL_ERR_ARG, "env[{}] has no name", i);
    if (!out.emplace(name, text(options.env[i].value)).second)
      fail(GSEL_ERR_ARG, "env names {} twice", printable(name));
  }
  return out;
}

std::optional<std::string> optional_text(gsel_str s) {
  return given(s) ? std::optional(text(s)) : std::nullopt;
}

void read_hostfile(const gsel_resolve_options& full, Request& request) {
  request.hostfile_name = given(full.hostfile) ? text(full.hostfile) : "hostfile";
  if (given(full.hostfile_text)) {
    request.hostfile = text(full.hostfile_text);
    return;
  }
  if (!given(full.hostfile)) return;
  const std::string path = absolute_path("hostfile", request.hostfile_name);
  // DeepSpeed treats a missing hostfile as none.
  if (request.compat == "deepspeed" && access(path.c_str(), F_OK) != 0) return;
  request.hostfile = read_file("hostfile", path, kMaxHostfileBytes);
  request.hostfile_name = path;
}

}  // namespace

FullRequest::FullRequest(const gsel_resolve_options* given_request) {
  const gsel_resolve_options full = read_struct(given_request, "gsel_resolve_options");
  check_flags(full.flags, kFlags, "gsel_resolve_options.flags");
  request.devices = optional_text(full.devices);
  request.accelerator = optional_text(full.accelerator);
  request.compat = optional_text(full.compat);
  request.order = optional_text(full.order);
  request.include = optional_text(full.include);
  request.exclude = optional_text(full.exclude);
  request.per_rank = full.flags & GSEL_RESOLVE_PER_RANK;
  read_hostfile(full, request);

  const bool env_given = full.env || full.n_env;
  const bool own = !env_given && !(full.flags & GSEL_RESOLVE_NO_ENV);
  if (own) environment = own_environment();
  if (env_given) environment = given_environment(full);
  inventory = full.inventory ? full.inventory->impl : std::make_shared<const Inventory>(detect_with_reservations());
  own_ = own && !full.inventory;
}

void FullRequest::check(const Selection& selection) const {
  const auto is_nvidia = [&](const Unit& unit) {
    return selection.inventory->devices[static_cast<size_t>(unit.device)].vendor == "nvidia";
  };
  if (own_ && std::any_of(selection.units.begin(), selection.units.end(), is_nvidia))
    check_driver_state(*inventory, environment);
}

}  // namespace gsel
