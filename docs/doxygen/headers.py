#!/usr/bin/env python3
"""headers.py FILE: a header of include/gsel as Doxygen reads comments; Doxyfile names this file as the filter of *.h.

The comments of the headers are plain C, laid out for readers of the header. Doxygen shows them as they are laid out, and
links the names in them. Which comment belongs to which declaration:
  /* above */ int a;              the comment above; also of the declarations that follow without an empty line
  int a; /* behind it */          the comment behind
  /*   a, b  text */ struct       in the comment of a struct, a line that begins with the names of members and two blanks
  gsel_x_init, GSEL_X_INIT        initialisers, of which gsel/types.h speaks; struct_size and reserved likewise
A member without any of these is one that the comment of its struct describes, and refers to it. Any other declaration
without them has no comment, and Doxygen says so.
"""
import re
import sys

GENERAL = {
    "struct_size": "Bytes of the struct as the caller was compiled, see gsel/types.h.",
    "reserved": "Zero.",
    "reserved2": "Zero.",
    "user_data": "Passed to the callbacks unchanged, see gsel/types.h.",
    "free_user_data": "Called once with user_data when the library no longer uses it, see gsel/types.h.",
}
DECLARATION = re.compile(r"^\s*(?:GSEL_API|typedef|#define|struct|extern|static|[a-z]\w*[ *])")


def name_of(line):
    """The name that a line declares; "" if none."""
    for pattern in (r"#define (\w+)", r"\(\*\s*(\w+)\)\(", r"\b(gsel_\w+)\(", r"typedef .*?\b(\w+);", r"(?:typedef )?struct (\w+) \{", r"\b(\w+)(?:\[[^]]*\])*;"):
        found = re.search(pattern, line)
        if found:
            return found[1]
    return ""


def escape(text):
    for what, instead in (("\\", "\\\\"), ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "\\@"), ("#", "\\#"), ("%", "\\%")):
        text = text.replace(what, instead)
    return text


def comment(text, behind=False):
    """As a comment of Doxygen: the first sentence is the brief description, and the whole stands below as it is."""
    text = text.strip("\n")
    first = re.split(r"(?<=[.:;])\s", " ".join(text.split()), 1)[0]
    brief = escape(first).replace("*", "\\*")
    laid_out = re.sub(r"(?m)^( *)- ", r"\1&ndash; ", escape(text))  # no list: its lines stay as they are
    whole = f"\n\n<pre>{laid_out}</pre>" if " ".join(text.split()) != first else ""
    return f"/**{'<' if behind else ''} @brief {brief}{whole} */"


def table(text):
    """{name: text} of lines "   name, name  text" and those that continue them."""
    found, names, column = {}, [], 0
    for line in text.split("\n"):
        row = re.match(r"^ {1,6}((?:[a-z]\w*(?:\[\])?)(?:, [a-z]\w*)*) {1,}(\S.*)$", line)
        indent = len(line) - len(line.lstrip())
        if row and (not names or indent < column):
            names, column = [name.rstrip("[]") for name in row[1].split(", ")], indent + 1
            for name in names:
                found[name] = row[2]
        elif names and indent >= column:
            for name in names:
                found[name] += " " + line.strip()
        else:
            names = []
    return found


def strip(lines):
    """Text of a comment, without its stars."""
    text = "\n".join(lines)
    text = re.sub(r"^\s*/\*+ ?", "", text)
    text = re.sub(r"\s*\*/\s*$", "", text)
    return re.sub(r"^[ \t]*\* ?", "", text, flags=re.M)


def main():
    lines = open(sys.argv[1], encoding="utf-8").read().split("\n")
    out, above, members, inside, at, last = [], "", {}, "", 0, ""
    file = sys.argv[1][sys.argv[1].rindex("gsel/"):]
    while at < len(lines):
        line = lines[at]
        at += 1
        if re.match(r"^\s*/\*", line):
            block = [line]
            while "*/" not in block[-1]:
                block.append(lines[at])
                at += 1
            text = strip(block)
            if not out:
                out.append(f"/** @file {file.replace('gsel/', '', 1)}\n" + comment(text)[3:])
            elif text.startswith("----"):
                text = re.sub(r"^-+ (.*?) -+\n?", "", text)
                above = text.strip("\n")
            else:
                above = text
            out.append("")
            continue
        if not line.strip():
            above = ""
            out.append(line)
            continue
        code, behind = line, ""
        trailing = re.search(r"\s*/\*(.*)$", line)
        if trailing:
            code = line[:trailing.start()]
            block = [line[trailing.start():]]
            while "*/" not in block[-1]:
                block.append(lines[at])
                at += 1
            behind = " ".join(strip(block).split())
        name = name_of(code) if DECLARATION.match(code) and not code.rstrip().endswith("\\") or "#define" in code else ""
        opens = bool(re.match(r"^(?:typedef )?struct \w+ \{", code))
        text = behind
        if name and not text:
            if inside and name in GENERAL and name not in members:
                text = GENERAL[name]
            elif inside:
                text = members.get(name, "") or (above if above != inside else "")
                if not text:
                    text = "See the description of the struct."
            elif re.search(r"_INIT$|_init$", name) and not above:
                text = "Initialiser, see gsel/types.h."
            else:
                text = above or ("An object of the library, see gsel/types.h." if re.match(r"^typedef struct (\w+) \1;", code) else "")
        if text and name:
            out.append(comment(text))
        out.append(code)
        if opens:
            inside, members, above = above or "struct", table(above), ""
        elif re.match(r"^\}", code):
            inside, above = "", ""
        elif inside:
            above = ""
    print("\n".join(out))


main()
