// client.cc: see client.h.
#include "client.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

namespace gsel::cli {

void check(gsel_status status, gsel_error** error) {
  if (status == GSEL_OK) return;
  Failure failure{status, gsel_status_text(status), text(gsel_error_token(*error)), gsel_error_column(*error)};
  if (*error) {
    std::vector<char> buffer(gsel_error_format(*error, nullptr, 0));
    gsel_error_format(*error, buffer.data(), buffer.size());
    failure.message = buffer.data();
  }
  gsel_error_free(*error);
  *error = nullptr;
  throw failure;
}

void refuse(gsel_status code, const std::string& message) {
  throw Failure{code, message, {}, 0};
}

void refuse_at(gsel_status code, const std::string& input, const std::string& token, int32_t column,
               const std::string& what) {
  throw Failure{code, input + ": \"" + token + "\" at column " + std::to_string(column) + ": " + what, token, column};
}

Handle<gsel_inventory> read_inventory(const std::string& file) {
  if (file.empty()) return nullptr;
  gsel_inventory* inventory = nullptr;
  gsel_error* error = nullptr;
  check(gsel_inventory_load(borrow(file), &inventory, &error), &error);
  return Handle<gsel_inventory>(inventory);
}

Handle<gsel_timeline> new_timeline() {
  gsel_timeline* timeline = nullptr;
  gsel_error* error = nullptr;
  check(gsel_timeline_create(&timeline, &error), &error);
  return Handle<gsel_timeline>(timeline);
}

void add(gsel_timeline* timeline, const std::string& json, const std::string& name) {
  gsel_error* error = nullptr;
  check(gsel_timeline_add(timeline, borrow(json), borrow(name), &error), &error);
}

void draw(gsel_timeline* timeline, int32_t format, const std::string& file) {
  gsel_str drawn{};
  gsel_error* error = nullptr;
  if (file.empty()) return;
  check(gsel_timeline_draw(timeline, format, &drawn, &error), &error);
  write_file(file, text(drawn));
}

std::string noun_text(int64_t n, const std::string& noun) {
  const auto ends = [&](std::string_view end) { return noun.size() > end.size() && noun.ends_with(end); };
  return std::to_string(n) + " " + noun + (n == 1 ? "" : ends("s") || ends("x") || ends("ch") ? "es" : "s");
}

std::string read_file(const std::string& path) {
  constexpr size_t kMaxBytes = 256 << 20;
  // Opening a pipe without a writer would block.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) refuse(GSEL_ERR_IO, path + ": cannot be opened: " + std::strerror(errno) + "; expected a readable file");
  std::unique_ptr<FILE, int (*)(FILE*)> file(fdopen(fd, "rb"), std::fclose);
  struct stat info {};
  if (!file || fstat(fd, &info) != 0) refuse(GSEL_ERR_IO, path + ": cannot be read: " + std::strerror(errno));
  if (!S_ISREG(info.st_mode)) refuse(GSEL_ERR_IO, path + ": is not a regular file; expected a readable file");
  std::string content;
  char buffer[1 << 16];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, file.get())) {
    content.append(buffer, n);
    if (content.size() > kMaxBytes)
      refuse(GSEL_ERR_IO, path + ": has more than " + std::to_string(kMaxBytes) + " bytes; expected a shorter file");
  }
  if (std::ferror(file.get())) refuse(GSEL_ERR_IO, path + ": cannot be read: " + std::strerror(errno));
  return content;
}

void write_file(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  if (!file) refuse(GSEL_ERR_IO, path + ": cannot be written: " + std::strerror(errno));
}

void replace_file(const std::string& path, const std::string& content) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) return write_file(path, content);
  const std::string fresh = path + ".new";
  write_file(fresh, content);
  if (std::rename(fresh.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  std::remove(fresh.c_str());
  refuse(GSEL_ERR_IO, path + ": cannot be written: " + std::strerror(error));
}

namespace {
std::string g_output;           // of --output
FILE* g_output_file = nullptr;  // set by the first print
}  // namespace

void print_to(const std::string& file) {
  g_output = file;
}

bool prints_to_standard_output() {
  return g_output.empty();
}

void print(const std::string& text) {
  const std::string name = g_output.empty() ? "standard output" : g_output + ":";
  if (!g_output_file) g_output_file = g_output.empty() ? stdout : std::fopen(g_output.c_str(), "we");
  if (!g_output_file || std::fwrite(text.data(), 1, text.size(), g_output_file) != text.size() ||
      std::fflush(g_output_file) != 0)
    refuse(GSEL_ERR_IO, name + " cannot be written: " + std::strerror(errno));
}

std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace gsel::cli
