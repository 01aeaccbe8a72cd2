// plan/rows_read.cc: parses the table of rows.h. Quotation marks have no meaning, as in the source files: a field ends
// at a tab, a line at its end.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "plan/rows.h"

namespace gsel::plan {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;

[[noreturn]] void refuse_at(const std::string& file, int32_t line, int32_t column, std::string_view token,
                            const std::string& why) {
  Place place{file, line, column, std::string(token)};
  const std::string message = fmt::format("{}column {}: {}", place_prefix(place), column, why);
  throw Error(GSEL_ERR_PARSE, message).at(std::move(place));
}

std::vector<std::string_view> cells(std::string_view line) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t tab = std::min(line.find('\t'), line.size());
    out.push_back(line.substr(0, tab));
    if (tab == line.size()) return out;
    line.remove_prefix(tab + 1);
  }
}

bool parsed(std::string_view text, double& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && std::isfinite(value);
}

}  // namespace

const std::string& PublishedRow::text(std::string_view column) const {
  static const std::string kNone;
  const auto found = fields.find(column);
  return found == fields.end() ? kNone : found->second;
}

void PublishedRow::refuse(std::string_view column, const std::string& why) const {
  const auto found = columns.find(column);
  refuse_at(file, line, found == columns.end() ? 1 : found->second, column, fmt::format("{} {}", column, why));
}

double PublishedRow::number(std::string_view column, double least, double absent) const {
  const std::string& given = text(column);
  if (given.empty()) return absent;
  double value = 0;
  if (!parsed(given, value) || value < least)
    refuse(column, fmt::format("is \"{}\"; a number from {} is needed", given, least));
  return value;
}

int64_t PublishedRow::whole(std::string_view column, int64_t least, int64_t absent, int64_t most) const {
  const double value = number(column, static_cast<double>(least), static_cast<double>(absent));
  if (value != std::floor(value) || (has(column) && value > static_cast<double>(most)))
    refuse(column, fmt::format("is \"{}\"; a whole number from {} to {} is needed", text(column), least, most));
  return static_cast<int64_t>(value);
}

int64_t PublishedRow::sum(std::string_view column, int64_t most) const {
  std::string_view rest = text(column);
  double total = 0;
  while (!rest.empty()) {
    const size_t plus = std::min(rest.find('+'), rest.size());
    double value = 0;
    if (!parsed(trimmed(rest.substr(0, plus)), value) || value < 1 || value != std::floor(value) ||
        (total += value) > static_cast<double>(most))
      refuse(column, fmt::format("is \"{}\"; a whole number from 1 to {} is needed, or several joined by +",
                                 text(column), most));
    rest.remove_prefix(std::min(plus + 1, rest.size()));
  }
  return static_cast<int64_t>(total);
}

std::vector<PublishedRow> read_rows(std::string_view text, const std::string& file) {
  if (text.size() > kMostBytes)
    fail(GSEL_ERR_PARSE, "{}: {} bytes; at most {} are read", file, text.size(), kMostBytes);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<std::string> names;
  std::vector<PublishedRow> rows;
  int32_t line = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line;
    if (one.ends_with('\r')) one.remove_suffix(1);
    if (trimmed(one).empty() || one.starts_with('#')) continue;
    const auto parts = cells(one);
    if (names.empty()) {
      int32_t at = 1;
      for (const std::string_view part : parts) {
        const std::string name(trimmed(part));
        for (const std::string& before : names)
          if (!name.empty() && name == before)
            refuse_at(file, line, at, name, fmt::format("\"{}\" names a second column; each has its own name", name));
        names.push_back(name);
        at += static_cast<int32_t>(part.size()) + 1;
      }
      for (const char* needed : {"metric", "value"})
        if (std::find(names.begin(), names.end(), needed) == names.end())
          refuse_at(
              file, line, 1, needed,
              fmt::format("no column is named \"{}\"; the first line names the columns, separated by tabs", needed));
      continue;
    }
    PublishedRow row{file, line, {}, {}};
    int32_t at = 1;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string_view part = trimmed(parts[i]);
      if (i >= names.size() && !part.empty())
        refuse_at(file, line, at, part,
                  fmt::format("\"{}\" is in field {}; the first line names {}", part, i + 1,
                              with_noun(names.size(), "column")));
      if (i < names.size() && !names[i].empty()) {
        row.fields[names[i]] = std::string(part);
        row.columns[names[i]] = at;
      }
      at += static_cast<int32_t>(parts[i].size()) + 1;
    }
    for (const char* needed : {"metric", "value"})
      if (!row.has(needed)) row.refuse(needed, "is empty; what was measured, and its number, are needed");
    row.number("value", 0, 0);
    rows.push_back(std::move(row));
  }
  if (names.empty())
    fail(GSEL_ERR_PARSE,
         "{}: no line names columns; tab-separated text is needed whose first line names its columns, such as gpu, "
         "gpus, layers, hidden, metric and value",
         file);
  return rows;
}

}  // namespace gsel::plan
