// select/compat/numbers.h: how lenient programs read the fields of a list: blanks are kept until some code strips them,
// a number is the leading digits, a list may end silently. Does not know devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "select/words/tokens.h"

namespace gsel {

// The fields of a text, unchanged, with their blanks.
std::vector<Token> split_fields(std::string_view text, char separator);
// The same as std::getline splits: no field after a final separator, and no field in an empty text.
std::vector<Token> split_lines(std::string_view text, char separator);

// The text without the white space of C and Python at both ends.
std::string_view stripped(std::string_view text);

// The leading number of a text, after at most one sign, as int(text[:n]) or strtoul reads it.
struct Leading {
  enum class Kind : int8_t { none, sign_alone, number };
  Kind kind = Kind::none;
  bool negative = false;  // below zero; -0 is not
  std::string digits;     // without leading zeros, at least one
  int64_t value = 0;      // saturates
};
Leading leading_number(std::string_view text);

// The outcome for one field of a list.
struct Fate {
  enum class What : int8_t { kept, skipped, ends, voids };
  What what = What::kept;
  std::string became;
  std::string rule;
};
Fate kept(std::string became, std::string rule);
Fate skipped(std::string rule);
Fate ends(std::string rule);
Fate voids(std::string rule);

// Reads fields until one ends or voids the list, and adds each to the trace. The
// trace has the first few fields that are never read, and one step for the rest. Returns false when the list is void.
template <class Read>
bool read_fields(const char* layer, const Input& input, const std::vector<Token>& fields, Trace& trace, Read read) {
  constexpr size_t kMostUnread = 64;
  bool over = false, valid = true;
  size_t unread = 0;
  for (const Token& field : fields) {
    if (over && ++unread > kMostUnread) {
      trace.add(layer, input, field, "nothing", "comes after the end of the list, as does all that follows");
      break;
    }
    if (over) {
      trace.add(layer, input, field, "nothing", "comes after the end of the list");
      continue;
    }
    Fate fate = read(field);
    over = fate.what == Fate::What::ends || fate.what == Fate::What::voids;
    valid = valid && fate.what != Fate::What::voids;
    trace.add(layer, input, field, std::move(fate.became), std::move(fate.rule));
  }
  return valid;
}

}  // namespace gsel
