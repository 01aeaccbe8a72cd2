// manual.cc: see manual.h; also `gsel manual`, which prints the pages.
#include "manual.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "client.h"
#include "commands.h"
#include "help.h"

#ifndef GSEL_MANUAL_DATE
#define GSEL_MANUAL_DATE ""
#endif

namespace gsel::cli {
namespace {

const CommandText kManualText{
    .name = "manual",
    .summary = "Print the manual page of a subcommand",
    .description = "The page is in the language of man(7). Without a subcommand it is that of gsel itself.",
    .examples = {{"gsel manual run | man -l -", "Shows a page where no pages are installed."},
                 {"gsel manual --json", "Lists every subcommand and option for other programs."}},
    .sections =
        {{"JSON",
          "The table of all subcommands and options, whichever page is asked for:",
          {{"commands",
            "Each with name (empty: options of gsel itself), summary, usage and options. An option has names, "
            "value (null: a flag), help, default, words (values that can be completed), required and common."}}}},
    .related = {"gsel-completion(1)"}};

bool is_whole(const CommandSpec& command) {
  return command.text.name == std::string("gsel");
}

// Escapes text so that it contains no roff request or escape.
std::string escaped(const std::string& text, bool keep_hyphens = false) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-' && keep_hyphens)
      out += "\\-";
    else if (c == '"')
      out += "\\(dq";
    else if (c == '\'')
      out += "\\(aq";
    else if (c == '~')
      out += "\\(ti";
    else if (c == '^')
      out += "\\(ha";
    else
      out += c;
  }
  return out.empty() || out[0] != '.' ? out : "\\&" + out;
}

// Escapes running text, but keeps the hyphens of options and double hyphens: "--json", "-n".
std::string escaped_text(const std::string& text) {
  std::string out = escaped(text);
  for (size_t at = 0; (at = out.find('-', at)) != out.npos;) {
    const bool begins = at == 0 || std::string(" (\"[|").find(out[at - 1]) != std::string::npos || out[at - 1] == '-';
    if (begins) out.insert(at++, "\\");
    ++at;
  }
  return out;
}

std::string bold(const std::string& text) {
  return "\\fB" + escaped(text, true) + "\\fR";
}

// Wraps into lines of at most 80 bytes, each of which begins with text.
std::string filled_text(const std::string& text) {
  std::istringstream words(escaped_text(text));
  std::string out, line;
  const auto end_line = [&] {
    if (!line.empty()) out += (line[0] == '.' ? "\\&" : "") + line + "\n";
    line.clear();
  };
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > 78) end_line();
    line += (line.empty() ? "" : " ") + word;
  }
  end_line();
  return out;
}

std::string body(const std::string& text) {
  std::string out;
  for (const Paragraph& paragraph : paragraphs(text)) {
    if (!out.empty()) out += ".PP\n";
    if (!paragraph.literal) {
      std::string joined;
      for (const std::string& line : paragraph.lines) joined += line + " ";
      out += filled_text(joined);
      continue;
    }
    out += ".nf\n";
    for (const std::string& line : paragraph.lines) out += escaped(line, true) + "\n";
    out += ".fi\n";
  }
  return out;
}

std::string term(const std::string& head, const std::string& text) {
  return ".TP\n" + head + "\n" + filled_text(text);
}

std::string option_term(const OptionSpec& option) {
  std::string head;
  for (const std::string& name : option.spellings()) head += (head.empty() ? "" : ", ") + bold(name);
  if (option.is_positional()) head.clear();
  if (!option.value.empty())
    head += std::string(head.empty() ? "" : " ") + "\\fI" + escaped(option.value, true) + "\\fR";
  return term(head, option_help(option));
}

std::string options_part(const CommandSpec& command) {
  std::string out = ".SH OPTIONS\n", group;
  for (const bool positional : {true, false})
    for (const OptionSpec& option : command.options) {
      if (option.is_positional() != positional) continue;
      if (option.group != group) out += ".SS " + escaped(option.group) + "\n";
      group = option.group;
      out += option_term(option);
    }
  if (!group.empty()) out += ".SS Common options\n";
  for (const OptionSpec& option : command.common) out += option_term(option);
  return out;
}

std::string statuses_part(const CommandSpec& command) {
  std::string out = ".SH EXIT STATUS\n" + term("0", "Success.");
  for (const auto& [status, text] : command.text.statuses) out += term(escaped(status), text);
  out += term("2", "Something was refused; standard error says what, and what would work.");
  if (is_whole(command)) return out;
  return out + ".PP\n" +
         filled_text(
             "A refusal as JSON has the keys status (\"error\"), kind, code (its name in gsel/error.h), message, token "
             "and column (the word at fault and its position, from 1; 0 where there is none).");
}

std::string related_part(const CommandSpec& command, const Commands& commands) {
  std::vector<std::string> pages, documents;
  if (is_whole(command))
    for (const auto& one : commands) pages.push_back(std::string("gsel-") + one->text.name + "(1)");
  else
    pages.emplace_back("gsel(1)");
  for (const std::string related : command.text.related)
    (related.starts_with("docs/") ? documents : pages).push_back(related);
  std::string out = ".SH SEE ALSO\n", sentence;
  for (size_t i = 0; i < pages.size(); ++i) {
    const size_t open = pages[i].find('(');
    out += ".BR " + escaped(pages[i].substr(0, open), true) + " " + pages[i].substr(open) +
           (i + 1 < pages.size() ? " ,\n" : "\n");
  }
  for (const std::string& document : documents) sentence += (sentence.empty() ? "" : ", ") + document;
  return sentence.empty() ? out : out + ".PP\n" + filled_text("In the sources of gsel: " + sentence + ".");
}

}  // namespace

std::string manual_page(const CommandSpec& command, const Commands& commands) {
  const std::string name = is_whole(command) ? "gsel" : std::string("gsel-") + command.text.name;
  std::string upper = name;
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string out = ".TH " + escaped(upper, true) + " 1 " + GSEL_MANUAL_DATE + " \"gsel " + gsel_version_text() +
                    "\" \"gsel manual\"\n.nh\n.ad l\n.SH NAME\n" + escaped(name, true) + " \\-\n" +
                    filled_text(command.text.summary) + ".SH SYNOPSIS\n" + bold(command.usage()) + "\n";
  if (*command.text.description || is_whole(command)) out += ".SH DESCRIPTION\n" + body(command.text.description);
  if (is_whole(command)) {
    for (const auto& one : commands) out += term(bold(one->text.name), std::string(one->text.summary) + ".");
  }
  out += options_part(command);
  for (const TermList& list : command.tails) {
    out += ".SS " + escaped_text(list.title) + "\n";
    for (const auto& [word, text] : list.terms) out += term(bold(word), text);
  }
  for (const Section& section : command.text.sections) {
    out += std::string(".SH ") + section.title + "\n" + body(section.text);
    for (const auto& [word, text] : section.terms) out += term(bold(word), text);
  }
  out += statuses_part(command);
  if (!command.text.examples.empty()) out += ".SH EXAMPLES\n";
  for (const auto& [line, says] : command.text.examples) out += term(bold(line), says);
  return out + related_part(command, commands);
}

nlohmann::ordered_json table_json(const CommandSpec& whole, const Commands& commands) {
  using Json = nlohmann::ordered_json;
  const auto option_json = [](const OptionSpec& option, bool common) {
    return Json{{"names", option.spellings()},
                {"value", option.value.empty() ? Json() : Json(option.value)},
                {"help", option.help},
                {"default", option.initial.empty() ? Json() : Json(option.initial)},
                {"words", option.words},
                {"required", option.required},
                {"common", common}};
  };
  Json list = Json::array();
  const auto add = [&](const CommandSpec& command) {
    Json options = Json::array();
    for (const OptionSpec& option : command.options) options.push_back(option_json(option, false));
    for (const OptionSpec& option : command.common) options.push_back(option_json(option, true));
    list.push_back({{"name", is_whole(command) ? "" : command.text.name},
                    {"summary", command.text.summary},
                    {"usage", command.usage()},
                    {"options", std::move(options)}});
  };
  add(whole);
  for (const auto& command : commands) add(*command);
  return {{"commands", std::move(list)}};
}

Command manual_command(CommandLine& line) {
  auto name = std::make_shared<std::string>();
  Parser parser = line.subcommand(kManualText);
  parser.option("subcommand", *name, "SUBCOMMAND", "Whose page; default: that of gsel itself.");
  std::vector<std::string> names;
  for (const auto& command : line.commands()) names.emplace_back(command->text.name);
  parser.words("subcommand", names);
  return {parser, [name, &line] {
            const CommandSpec* command = name->empty() ? &line.whole() : nullptr;
            for (const auto& one : line.commands())
              if (one->text.name == *name) command = one.get();
            if (!command) refuse(GSEL_ERR_ARG, *name + " is no command; see gsel --help");
            print(line.common().json ? json_text(table_json(line.whole(), line.commands()))
                                     : manual_page(*command, line.commands()));
            return 0;
          }};
}

}  // namespace gsel::cli
