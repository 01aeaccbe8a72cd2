// nets/generate.cc: makes the table of table.h from the headers, as the preprocessor leaves them:
//
//     cc -E -P -DGSEL_BUILDING gsel/gsel.h -o headers.i && generate headers.i table.c
//
// A declaration of a form it does not know is an error, so that no public function is left out in silence. It knows
// what the headers use: typedefs of numbers, structs and callbacks, structs of fields and arrays, functions.
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

using Tokens = std::vector<std::string>;

const std::set<std::string> numbers = {"int8_t",   "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t",
                                       "uint64_t", "size_t",  "char",    "int",      "float",   "double"};

[[noreturn]] void refuse(const std::string& what, const Tokens& tokens) {
  std::cerr << "generate: " << what << ":";
  for (const std::string& t : tokens) std::cerr << ' ' << t;
  std::cerr << '\n';
  std::exit(1);
}

Tokens tokens_of(const std::string& text) {
  Tokens tokens;
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (is_word(text[i])) {
      while (end < text.size() && is_word(text[end])) ++end;
    } else if (text[i] == '"') {
      end = text.find('"', end) + 1;
    }
    if (!std::isspace(static_cast<unsigned char>(text[i]))) tokens.push_back(text.substr(i, end - i));
    i = end;
  }
  return tokens;
}

// Declarations: what stands between semicolons outside of all brackets. Function bodies are none.
std::vector<Tokens> declarations(const Tokens& tokens) {
  std::vector<Tokens> result(1);
  int depth = 0;
  for (const std::string& t : tokens) {
    if (t == "(" || t == "{") ++depth;
    if (t == ")" || t == "}") --depth;
    if (t == ";" && depth == 0)
      result.emplace_back();
    else
      result.back().push_back(t);
  }
  return result;
}

std::vector<Tokens> split(const Tokens& tokens, size_t from, size_t to, const char* at) {
  std::vector<Tokens> parts(1);
  for (size_t i = from; i < to; ++i) {
    if (tokens[i] == at)
      parts.emplace_back();
    else
      parts.back().push_back(tokens[i]);
  }
  return parts;
}

struct Variable {
  std::string name, base, type;  // `type` with const and stars, as C writes it
  int stars = 0;
  bool points_to_const = false, is_array = false;
};

// `const gsel_str *name` or `int32_t size [ 3 ]`.
Variable variable_of(Tokens tokens) {
  const Tokens whole = tokens;
  Variable v;
  if (!tokens.empty() && tokens.back() == "]") {
    while (!tokens.empty() && tokens.back() != "[") tokens.pop_back();
    if (!tokens.empty()) tokens.pop_back();
    v.is_array = true;
  }
  if (tokens.size() < 2 || !std::isalpha(static_cast<unsigned char>(tokens.back()[0])))
    refuse("a parameter or field of a form that is not known", whole);
  v.name = tokens.back();
  tokens.pop_back();
  for (const std::string& t : tokens) {
    v.type += (v.type.empty() ? "" : " ") + t;
    if (t == "*") {
      ++v.stars;
    } else if (t == "const") {
      v.points_to_const = v.points_to_const || v.stars == 0;
    } else if (t != "struct") {
      if (!v.base.empty() || !(std::isalpha(static_cast<unsigned char>(t[0]))))
        refuse("a type that is not known", whole);
      v.base = t;
    }
  }
  return v;
}

class Headers {
 public:
  explicit Headers(const Tokens& tokens) {
    for (const Tokens& d : declarations(tokens)) read(d);
  }

  void write() {
    std::puts("#include \"nets/table.h\"\n");
    for (const auto& [name, parameters] : callbacks_) write_no_op(name, parameters);
    for (const std::string& name : record_order_)
      if (name.rfind("gsel_", 0) == 0) write_record(name);
    for (const Function& f : functions_) write_function(f);
    std::puts("const net_function net_functions[] = {");
    for (const Function& f : functions_)
      std::printf("    {\"%s\", %s, call_%s, %zu, %s},\n", f.name.c_str(), result_of(f).c_str(), f.name.c_str(),
                  f.parameters.size(), f.parameters.empty() ? "0" : ("parameters_" + f.name).c_str());
    std::puts("};\nconst int net_n_functions = (int)(sizeof net_functions / sizeof *net_functions);");
  }

 private:
  struct Function {
    std::string name;
    Variable result;
    std::vector<Variable> parameters;
  };

  void read(const Tokens& d) {
    size_t i = 0;
    while (i < d.size() && d[i] == "extern" && i + 1 < d.size() && d[i + 1][0] == '"') i += 2;
    if (i < d.size() && d[i] == "typedef") return read_typedef(d, i + 1);
    if (i + 2 == d.size() && d[i] == "struct") opaque_.insert(d[i + 1]);
    if (i + 1 < d.size() && d[i] == "__attribute__" && is_exported(d)) return read_function(d, i);
  }

  static bool is_exported(const Tokens& d) {
    for (const std::string& t : d)
      if (t == "visibility") return true;
    return false;
  }

  void read_typedef(const Tokens& d, size_t i) {
    const std::string& name = d.back();
    if (d[i] == "struct" && d.size() > i + 2 && d[i + 2] == "{") return read_record(d, i + 1);
    if (d[i] == "struct" && d.size() == i + 3) {
      opaque_.insert(name);
      return;
    }
    for (size_t k = i; k + 3 < d.size(); ++k)
      if (d[k] == "(" && d[k + 1] == "*" && d[k + 3] == ")") {
        callbacks_[d[k + 2]] = d;
        return;
      }
    if (d.size() == i + 2) aliases_[name] = d[i];
  }

  void read_record(const Tokens& d, size_t i) {
    const std::string& name = d[i];
    if (name.rfind("gsel_", 0) != 0) return;
    std::vector<Variable> fields;
    for (const Tokens& field : split(d, i + 2, d.size() - 2, ";")) {
      bool is_table = false;  // of functions, written out: a plugin's
      for (const std::string& t : field) is_table = is_table || t == "(";
      if (!field.empty() && !is_table) fields.push_back(variable_of(field));
    }
    record_order_.push_back(name);
    records_[name] = fields;
    opaque_.erase(name);
  }

  // __attribute__ ( ( visibility ( "default" ) ) ) type name ( parameters )
  void read_function(const Tokens& d, size_t i) {
    int depth = 0;
    do {
      ++i;
      depth += d[i] == "(" ? 1 : d[i] == ")" ? -1 : 0;
    } while (depth > 0);
    ++i;
    size_t open = i;
    while (open < d.size() && d[open] != "(") ++open;
    if (open >= d.size() || d.back() != ")") refuse("a function of a form that is not known", d);
    Function f;
    f.result = variable_of(Tokens(d.begin() + static_cast<long>(i), d.begin() + static_cast<long>(open)));
    f.name = f.result.name;
    for (const Tokens& p : split(d, open + 1, d.size() - 1, ","))
      if (!(p.size() == 1 && p[0] == "void")) f.parameters.push_back(variable_of(p));
    functions_.push_back(f);
  }

  std::string plain(std::string type) const {
    for (auto it = aliases_.find(type); it != aliases_.end() && !numbers.count(type); it = aliases_.find(type))
      type = it->second;
    return type;
  }

  bool is_number(const std::string& base) const { return numbers.count(plain(base)) > 0; }

  std::string kind_of(const Variable& v) const {
    const bool is_real = v.base == "double" || v.base == "float";
    if (v.stars == 0 && v.base == "gsel_str") return "NET_STR";
    if (v.stars == 0 && callbacks_.count(v.base)) return "NET_FUNCTION";
    if (v.stars == 0 && is_number(v.base)) return is_real ? "NET_REAL" : "NET_NUMBER";
    if (v.stars == 1 && v.base == "char" && v.points_to_const) return "NET_TEXT";
    if (v.stars == 1 && records_.count(v.base)) return "NET_RECORD";
    if (v.stars == 1 && opaque_.count(v.base)) return "NET_HANDLE";
    if (v.stars == 1 && (v.base == "void" || v.base == "gsel_str" || is_number(v.base))) return "NET_BUFFER";
    if (v.stars == 2 && v.base == "gsel_error") return "NET_ERROR";
    if (v.stars == 2 && v.type.find("* const *") != std::string::npos) return "NET_LIST";
    if (v.stars == 2) return "NET_OUT";
    refuse("a parameter or field of a kind that is not known", {v.type, v.name});
  }

  void write_no_op(const std::string& name, const Tokens& d) const {
    size_t open = 0;
    while (d[open] != "(") ++open;
    const Variable result = variable_of([&] {
      Tokens t(d.begin() + 1, d.begin() + static_cast<long>(open));
      t.push_back("result");
      return t;
    }());
    std::string text;
    for (size_t i = open + 4; i < d.size(); ++i) text += " " + d[i];
    const bool answers = !(result.base == "void" && result.stars == 0);
    std::printf("static %s no_op_%s%s {\n", result.type.c_str(), name.c_str(), text.c_str());
    for (const Tokens& p : split(d, open + 5, d.size() - 1, ","))
      if (p.size() > 1) std::printf("  (void)%s;\n", p.back().c_str());
    std::printf("%s}\n\n", answers ? "  return 0;\n" : "");
  }

  // Fields by value are written as their own fields, "dst.data".
  std::vector<Variable> flat(const std::string& record, const std::string& prefix = "") const {
    std::vector<Variable> fields;
    for (Variable v : records_.at(record)) {
      v.name = prefix + v.name;
      if (v.stars == 0 && v.base != "gsel_str" && records_.count(v.base)) {
        if (v.is_array) v.name += "[0]";
        for (const Variable& inner : flat(v.base, v.name + ".")) fields.push_back(inner);
      } else {
        fields.push_back(v);
      }
    }
    return fields;
  }

  void write_variable(const Variable& v, const std::string& where) const {
    const std::string kind = kind_of(v), base = plain(v.base);
    const bool is_signed = base[0] != 'u' && base != "size_t";
    const std::string bytes = base == "void" || v.stars > 1 || opaque_.count(base) ? "1" : "sizeof(" + v.base + ")";
    const bool has_record = (kind == "NET_RECORD" || kind == "NET_LIST") && records_.count(v.base) > 0;
    std::printf("    {\"%s\", \"%s\", %s, %s, %s, %d, %s, %s},\n", v.name.c_str(), v.base.c_str(), kind.c_str(),
                bytes.c_str(), where.empty() ? "0" : ("offsetof(" + where + ", " + v.name + ")").c_str(), is_signed,
                has_record ? ("&record_" + v.base).c_str() : "0",
                kind == "NET_FUNCTION" ? ("(void (*)(void))no_op_" + v.base).c_str() : "0");
  }

  void write_record(const std::string& name) const {
    const std::vector<Variable> fields = flat(name);
    std::printf("extern const net_record record_%s;\nstatic const net_variable fields_%s[] = {\n", name.c_str(),
                name.c_str());
    for (const Variable& v : fields) write_variable(v, name);
    std::printf("};\nconst net_record record_%s = {\"%s\", sizeof(%s), %zu, fields_%s};\n\n", name.c_str(),
                name.c_str(), name.c_str(), fields.size(), name.c_str());
  }

  std::string result_of(const Function& f) const {
    const Variable& r = f.result;
    if (r.stars == 0 && r.base == "void") return "NET_VOID";
    if (r.stars == 0 && r.base == "gsel_status") return "NET_STATUS";
    if (r.stars == 0 && r.base == "gsel_str") return "NET_GSEL_STR";
    return r.stars == 1 && r.base == "char" ? "NET_C_TEXT" : "NET_ANSWER";
  }

  void write_function(const Function& f) const {
    if (!f.parameters.empty()) {
      std::printf("static const net_variable parameters_%s[] = {\n", f.name.c_str());
      for (const Variable& v : f.parameters) write_variable(v, "");
      std::puts("};");
    }
    static const std::map<std::string, std::string> stores = {{"NET_VOID", ""},
                                                              {"NET_STATUS", "answer->status = "},
                                                              {"NET_GSEL_STR", "answer->text = "},
                                                              {"NET_C_TEXT", "answer->c_text = "},
                                                              {"NET_ANSWER", "(void)"}};
    std::printf(
        "static void call_%s(void* const* arguments, net_answer* answer) {\n  (void)arguments, (void)answer;\n  %s%s(",
        f.name.c_str(), stores.at(result_of(f)).c_str(), f.name.c_str());
    for (size_t i = 0; i < f.parameters.size(); ++i)
      std::printf("%s*(%s*)arguments[%zu]", i ? ", " : "", f.parameters[i].type.c_str(), i);
    std::puts(");\n}\n");
  }

  std::map<std::string, std::string> aliases_;
  std::map<std::string, Tokens> callbacks_;
  std::set<std::string> opaque_;
  std::map<std::string, std::vector<Variable>> records_;
  std::vector<std::string> record_order_;
  std::vector<Function> functions_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::ifstream in(argv[1]);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  Headers headers(tokens_of(text));
  if (!std::freopen(argv[2], "w", stdout)) return 1;
  headers.write();
  return std::fclose(stdout) ? 1 : 0;
}
