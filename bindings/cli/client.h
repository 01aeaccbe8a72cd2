// client.h: the C interface of libgsel for the commands: handles that free themselves, failures as exceptions.
// Does not know: any one command.
#pragma once

#include <gsel/gsel.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gsel::cli {

constexpr int kRefused = 2;  // exit status

// A refusal: ends the command with that status.
struct Failure {
  gsel_status code = GSEL_ERR_ARG;
  std::string message;  // with the chain of causes
  std::string token;
  int32_t column = 0;
};

// Throws a Failure unless the call succeeded; frees the error. By pointer, as the call must have been made before.
void check(gsel_status status, gsel_error** error);

// Throws a Failure of the command's own.
[[noreturn]] void refuse(gsel_status code, const std::string& message);
// The same for a word of an option's value, with its place: `input`: "token" at column N: `what`.
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

// The inventory in `file`, or nothing when no file is named, which means this machine.
Handle<gsel_inventory> read_inventory(const std::string& file);

// What ranks did when, to be drawn: documents are added, and a picture is written to a file when one is named.
Handle<gsel_timeline> new_timeline();
void add(gsel_timeline* timeline, const std::string& json, const std::string& name);
void draw(gsel_timeline* timeline, int32_t format, const std::string& file);

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& content);
// Puts `content` in place of the file at once. A reader sees the old or the new one; a failure leaves the old one. What
// is no regular file, such as /dev/fd/3, is written to.
void replace_file(const std::string& path, const std::string& content);
// Writes to standard output, or to the file of --output, which the first call makes; a failure, such as a full disk, is
// a Failure.
void print(const std::string& text);
void print_to(const std::string& file);  // empty: to standard output
bool prints_to_standard_output();
// As JSON documents of the command are printed.
std::string json_text(const nlohmann::ordered_json& json);

}  // namespace gsel::cli
