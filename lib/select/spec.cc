// select/spec.cc: see spec.h. A bare number is a count to one framework and an index to another; here it is refused.
#include "select/spec.h"

#include <set>

namespace gsel {
namespace {

constexpr const char* kForms = "count:N, index:a,b, uuid:GPU-...,..., all, cpu and auto work";

Token whole(const Input& input) {
  return {input.value, 1, false};
}

void read_count(Spec& spec) {
  const Token& token = spec.tokens.front();
  if (spec.tokens.size() > 1) refuse(GSEL_ERR_SYNTAX, spec.input, spec.tokens[1], "count takes one number");
  if (!is_number(token.text)) refuse(GSEL_ERR_SYNTAX, spec.input, token, "a count is decimal digits, such as count:2");
  spec.count = number_of(token.text);
  if (spec.count == 0)
    refuse(GSEL_ERR_OUT_OF_RANGE, spec.input, token, "a count is at least 1; cpu selects no accelerator");
}

void check_index(const Spec& spec, const Token& token) {
  if (is_uuid_form(token.text))
    refuse(GSEL_ERR_TYPE, spec.input, token, "an index is needed here; a uuid is written uuid:GPU-...");
  if (!is_number(token.text))
    refuse(GSEL_ERR_SYNTAX, spec.input, token,
           "an index is decimal digits; ranges and signs are not read, write index:0,1,2");
}

void check_uuid(const Spec& spec, const Token& token) {
  if (is_number(token.text))
    refuse(GSEL_ERR_TYPE, spec.input, token, "a uuid such as GPU-... is needed here; an index is written index:N");
  if (!is_uuid_form(token.text))
    refuse(GSEL_ERR_SYNTAX, spec.input, token, "a uuid is GPU- and at least one hexadecimal digit");
}

void check_list(const Spec& spec) {
  std::set<int64_t> seen;
  for (const Token& token : spec.tokens) {
    if (token.text.empty()) refuse(GSEL_ERR_SYNTAX, spec.input, token, "an entry of the list is empty");
    if (spec.kind == Spec::Kind::uuid) {
      check_uuid(spec, token);
      continue;
    }
    check_index(spec, token);
    if (!seen.insert(number_of(token.text)).second)
      refuse(GSEL_ERR_DUPLICATE, spec.input, token, "this index stands in the list before");
  }
}

}  // namespace

Spec parse_spec(const std::optional<std::string>& text) {
  Spec spec;
  spec.input = {"devices", text.value_or("auto")};
  const std::string& value = spec.input.value;
  if (value == "auto") return spec;
  if (value == "all" || value == "cpu") {
    spec.kind = value == "all" ? Spec::Kind::all : Spec::Kind::cpu;
    return spec;
  }
  if (is_number(value))
    refuse(GSEL_ERR_SYNTAX, spec.input, whole(spec.input),
           "a bare number is a count to some programs and an index to others; write count:N or index:N");
  const size_t colon = value.find(':');
  const std::string head = value.substr(0, colon);
  if (colon == value.npos || (head != "count" && head != "index" && head != "uuid"))
    refuse(GSEL_ERR_SYNTAX, spec.input, {head, 1, false}, fmt::format("is no form of request; {}", kForms));
  spec.kind = head == "count" ? Spec::Kind::count : head == "index" ? Spec::Kind::index : Spec::Kind::uuid;
  spec.tokens = split_list(spec.input, colon + 1);
  if (spec.kind == Spec::Kind::count)
    read_count(spec);
  else
    check_list(spec);
  return spec;
}

}  // namespace gsel
