// client.h: wraps the C interface of libgsel for the commands: handles that free themselves, failures as exceptions.
#pragma once

#include <gsel/gsel.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gsel::cli {

constexpr int kRefused = 2;  // exit status

// An error that ends the command with kRefused.
struct Failure {
  gsel_status code = GSEL_ERR_ARG;
  std::string message;  // with the chain of causes
  std::string token;
  int32_t column = 0;
};

// Throws a Failure unless the call succeeded; frees the error. Takes a pointer, since the call must come first.
void check(gsel_status status, gsel_error** error);

// Throws a Failure that the command itself found.
[[noreturn]] void refuse(gsel_status code, const std::string& message);
// The same for a word of an option's value, with its position: `input`: "token" at column N: `what`.
[[noreturn]] void refuse_at(gsel_status code, const std::string& input, const std::string& token, int32_t column,
                            const std::string& what);

struct Free {
  void operator()(gsel_inventory* p) const { gsel_inventory_free(p); }
  void operator()(gsel_selection* p) const { gsel_selection_free(p); }
  void operator()(gsel_reservation* p) const { gsel_reservation_free(p); }
  void operator()(gsel_config* p) const { gsel_config_free(p); }
  void operator()(gsel_plugin_list* p) const { gsel_plugin_list_free(p); }
  void operator()(gsel_program* p) const { gsel_program_free(p); }
  void operator()(gsel_timeline* p) const { gsel_timeline_free(p); }
  void operator()(gsel_schedule* p) const { gsel_schedule_free(p); }
  void operator()(gsel_simulation* p) const { gsel_simulation_free(p); }
  void operator()(gsel_plan* p) const { gsel_plan_free(p); }
  void operator()(gsel_checkpoint* p) const { gsel_checkpoint_free(p); }
  void operator()(gsel_checkpoint_differences* p) const { gsel_checkpoint_differences_free(p); }
};
template <class T>
using Handle = std::unique_ptr<T, Free>;

inline std::string text(gsel_str s) {
  return s.data ? std::string(s.data, s.len) : std::string();
}
inline gsel_str borrow(const std::string& s) {
  return {s.c_str(), s.size()};
}

// "1 rank", "2 ranks", "8 processes", "2 micro-batches".
std::string noun_text(int64_t n, const std::string& noun);
template <class Number>
std::string with_noun(const Number& n, const std::string& noun) {
  return noun_text(static_cast<int64_t>(n), noun);
}

// The inventory in `file`; without a file nothing, which means this machine.
Handle<gsel_inventory> read_inventory(const std::string& file);

// A timeline of ranks: documents are added, and drawn to a file if a file is named.
Handle<gsel_timeline> new_timeline();
void add(gsel_timeline* timeline, const std::string& json, const std::string& name);
void draw(gsel_timeline* timeline, int32_t format, const std::string& file);

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& content);
// Replaces the file atomically: a reader sees the old or the new content, and a failure keeps the old one. A file that
// is not regular, such as /dev/fd/3, is written to.
void replace_file(const std::string& path, const std::string& content);
// Writes to standard output, or to the file of --output, which the first call creates. Throws a Failure, for example
// when the disk is full.
void print(const std::string& text);
void print_to(const std::string& file);  // empty: standard output
bool prints_to_standard_output();
// The format of the command's JSON documents.
std::string json_text(const nlohmann::ordered_json& json);

}  // namespace gsel::cli
