// program.cc: `gsel program`: reads programs from files, checks those of all ranks together, or prints one.
#include "client.h"
#include "commands.h"

namespace gsel::cli {
namespace {

struct Options {
  std::vector<std::string> verify;
  std::string print;
};

Handle<gsel_program> read_program(const std::string& path) {
  const std::string content = read_file(path);
  gsel_program* program = nullptr;
  gsel_error* error = nullptr;
  check(gsel_program_parse(borrow(content), borrow(path), &program, &error), &error);
  return Handle<gsel_program>(program);
}

int verify(const std::vector<std::string>& files) {
  std::vector<Handle<gsel_program>> programs;
  std::vector<const gsel_program*> borrowed;
  int64_t instructions = 0;
  for (const std::string& file : files) {
    programs.push_back(read_program(file));
    borrowed.push_back(programs.back().get());
    instructions += gsel_program_length(borrowed.back());
  }
  gsel_error* error = nullptr;
  check(gsel_program_verify(borrowed.data(), static_cast<int32_t>(borrowed.size()), &error), &error);
  print("ok: " + std::to_string(files.size()) + " ranks, " + std::to_string(instructions) + " instructions\n");
  return 0;
}

int run(const Options& options) {
  if (!options.verify.empty()) return verify(options.verify);
  print(text(gsel_program_text(read_program(options.print).get())));
  return 0;
}

}  // namespace

Command program_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* parser = app.add_subcommand("program", "Check the programs of all ranks together, or print one");
  CLI::Option_group* what = parser->add_option_group("what");
  what->add_option("--verify", options->verify, "Check these programs, one file per rank, in rank order")
      ->type_name("FILE...")
      ->expected(1, 1 << 20);
  what->add_option("--print", options->print, "Read this program and print its canonical text")->type_name("FILE");
  what->require_option(1);
  return {parser, [options] { return run(*options); }};
}

}  // namespace gsel::cli
