# man3.awk: manual pages of section 3 from the comments of public headers: one page for each group of declarations that
# no empty line divides, one page for each header, and a list of links, "TARGET NAME", from the other functions and types
# of a group to its page. Pages name the exported functions that their text mentions.
#   awk -v out=FOLDER -v links=FILE -v map=VERSION_MAP -v version=V -v date=YYYY-MM-DD -f man3.awk HEADER...
# The comments are written as CONTRIBUTING.md says: text begins at the first column, parameters are indented by two or
# three blanks, with the meaning two blanks behind the name or more; examples by four or more. What plugins fill
# stands on the pages of its headers.

# ---- text ----

function escaped(text) { # as it stands: neither a request nor an escape
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  gsub(/'/, "\\(aq", text)
  gsub(/\^/, "\\(ha", text)
  gsub(/~/, "\\(ti", text)
  if (text ~ /^\./) text = "\\&" text
  return text
}

function prose(text,    parts, n, i, line) { # in lines of at most 78 bytes; `code` is bold
  gsub(/\\/, "\\e", text)
  gsub(/\^/, "\\(ha", text)
  gsub(/~/, "\\(ti", text)
  while (match(text, /`[^`]+`/))
    text = substr(text, 1, RSTART - 1) "\\fB" substr(text, RSTART + 1, RLENGTH - 2) "\\fR" substr(text, RSTART + RLENGTH)
  gsub(/`/, "\\(ga", text)
  n = split(text, parts, / +/)
  text = line = ""
  for (i = 1; i <= n; ++i) {
    if (parts[i] == "") continue
    if (parts[i] ~ /^-./) sub(/^-/, "\\-", parts[i])
    if (line != "" && length(line) + 1 + length(parts[i]) > 78) {
      text = text line "\n"
      line = ""
    }
    if (line == "" && parts[i] ~ /^[.']/) parts[i] = "\\&" parts[i]
    line = line (line == "" ? "" : " ") parts[i]
  }
  return text line (line == "" ? "" : "\n")
}

function wrapped(text, first, indent, width,    parts, n, i, line, done) { # plain, for code
  n = split(text, parts, / +/)
  line = first
  done = ""
  for (i = 1; i <= n; ++i) {
    if (parts[i] == "") continue
    if (line !~ /^ *$/ && length(line) + 1 + length(parts[i]) > width) {
      done = done line "\n"
      line = indent
    }
    line = line (line ~ /^ *$/ ? "" : " ") parts[i]
  }
  return done line "\n"
}

function ended(    s) { # what is open: a paragraph, an item or an example
  s = ""
  if (open == "text") s = ".PP\n" prose(held)
  if (open == "item") s = ".TP\n" bold_term "\n" prose(held)
  if (open == "code") s = ".PP\n.nf\n.RS 4\n" held ".RE\n.fi\n"
  if (open == "bullet") s = ".IP \\(bu 3\n" prose(held)
  open = held = ""
  return s
}

# A comment without its marks, as roff.
function body(text,    rows, n, i, row, blanks, s, at) {
  s = open = held = ""
  n = split(text, rows, "\n")
  for (i = 1; i <= n; ++i) {
    row = rows[i]
    match(row, /^ */)
    blanks = RLENGTH
    row = substr(row, blanks + 1)
    if (row == "") {
      s = s ended()
    } else if (blanks == 0) {
      if (open != "text" || row ~ /^(Errors|Threads|Returns|Since|Source)[:, ]/) s = s ended()
      open = "text"
      held = held " " row
    } else if (blanks < 4 && row ~ /^- /) {
      s = s ended()
      open = "bullet"
      held = substr(row, 3)
    } else if (blanks < 4 && (at = match(row, /[^ ]  +[^ ]/))) {
      s = s ended()
      open = "item"
      bold_term = "\\fB" escaped(substr(row, 1, at)) "\\fR"
      held = substr(row, at + 1)
      if (at = match(held, /   +gsel\/[a-z]+\.h  +/)) { # two to a line
        row = substr(held, at)
        held = substr(held, 1, at - 1)
        s = s ended()
        open = "item"
        sub(/^ +/, "", row)
        at = index(row, " ")
        bold_term = "\\fB" escaped(substr(row, 1, at - 1)) "\\fR"
        held = substr(row, at)
      }
    } else if (open == "item" || open == "bullet") {
      held = held " " row
    } else {
      if (open != "code") s = s ended()
      open = "code"
      held = held escaped(substr("                                        ", 1, blanks - 4) row) "\n"
    }
  }
  return s ended()
}

function sentence(text,    at, quoted) { # the first one, for NAME
  sub(/^ +/, "", text)
  at = match(text, /\n\n|\n +[^ ]+  /)
  if (at) text = substr(text, 1, at - 1)
  gsub(/\n */, " ", text)
  for (at = 1; at < length(text); ++at) {
    if (substr(text, at, 1) == "\"") quoted = !quoted
    if (!quoted && substr(text, at, 2) ~ /^[.:] $/) break
  }
  if (at < length(text)) text = substr(text, 1, at - 1)
  sub(/[.:;]$/, "", text)
  gsub(/`/, "", text)
  return text
}

# ---- code ----

# A declaration, no wider than 76 columns where that is possible.
function shown(code,    rows, n, i, row, s, at, note) {
  if (code ~ /^GSEL_API|^typedef [^{]*$/) {
    sub(/^GSEL_API /, "", code)
    gsub(/\n */, " ", code)
    gsub(/ /, "\001", code) # lines end behind commas alone
    gsub(/,\001/, ", ", code)
    code = wrapped(code, "", "    ", 76)
    gsub(/\001/, " ", code)
    return escaped_rows(code)
  }
  s = ""
  n = split(code, rows, "\n")
  for (i = 1; i <= n; ++i) {
    row = rows[i]
    at = index(row, "/*")
    if (at && row !~ /\\$/) {
      note = substr(row, at)
      while (note !~ /\*\// && i < n) {
        ++i
        at = rows[i]
        sub(/^ *\*? ?/, " ", at)
        if (rows[i] ~ /^ *\*\//) at = " */"
        note = note at
      }
      row = substr(row, 1, index(row, "/*") - 1)
      sub(/ +$/, "", row)
      gsub(/ +/, " ", note)
      if (row ~ /^ *$/)
        s = s wrapped(note, row, row " * ", 76)
      else if (length(row) + 2 + length(note) <= 76)
        s = s row "  " note "\n"
      else
        s = s row "\n" wrapped(note, "        ", "         * ", 76)
    } else {
      s = s row "\n"
    }
  }
  return escaped_rows(s)
}

function escaped_rows(text,    rows, n, i, s) {
  n = split(text, rows, "\n")
  s = ""
  for (i = 1; i < n || (i == n && rows[i] != ""); ++i) s = s escaped(rows[i]) "\n"
  return s
}

# Functions and types that a declaration names.
function names_of(code,    name) {
  if (code ~ /^GSEL_API/) {
    name = code
    sub(/\(.*/, "", name)
    sub(/.*[ *]/, "", name)
    return name
  }
  if (code ~ /^typedef struct [a-z0-9_]+ \{/) {
    split(code, words, " ")
    return words[3]
  }
  if (code ~ /^typedef [^{]*\(\*gsel_[a-z0-9_]+\)/) {
    name = code
    sub(/\).*/, "", name)
    sub(/.*\*/, "", name)
    return name
  }
  if (code ~ /^typedef (u?int(32|64)_t) gsel_/) {
    name = code
    sub(/;.*/, "", name)
    sub(/.* /, "", name)
    return name
  }
  return ""
}

# `row` is the last of `code`; is that a declaration up to its end, with the comment behind it?
function is_whole(code, row,    rest) {
  if (code ~ /^#/ && row ~ /\\$/) return 0
  rest = code
  while (match(rest, /\/\*([^*]|\*+[^*\/])*\*+\//)) rest = substr(rest, 1, RSTART - 1) substr(rest, RSTART + RLENGTH)
  if (rest ~ /\/\*/) return 0
  if (code ~ /^#/) return 1
  if (rest ~ /\{/) return rest ~ /\}[^{}]*;?[ \n]*$/
  return rest ~ /;[ \n]*$/
}

# ---- pages ----

function begin_page(file, name) {
  print ".TH " toupper(escaped(name)) " 3 " date " \"gsel " version "\" \"gsel manual\"\n.nh\n.ad l\n.SH NAME" > file
}

function named(names, summary) { # the line of NAME
  names = prose(names)
  sub(/\n$/, " \\-\n", names)
  return names prose(summary)
}

# Exported functions that a text mentions, but for those of this page.
function mentioned(text,    list, name) {
  list = ""
  while (match(text, /gsel_[a-z0-9_]+/)) {
    name = substr(text, RSTART, RLENGTH)
    text = substr(text, RSTART + RLENGTH)
    if (name in exported && !(name in seen)) list = list " ,\n.BR " escaped(name) " (3)"
    seen[name]
  }
  return list
}

function add_name(name) {
  if (name != "" && !(name in page_of)) block_names = block_names (block_names == "" ? "" : " ") name
}

# Writes the page of a group; elements are comments ("C") and declarations ("D").
function end_block(    i, file, names, n, first, described, list, j, summary) {
  if (elements == 0) return
  if (block_names == "" || no_pages) {
    for (i = 1; i <= elements; ++i) {
      loose = loose (kind[i] == "C" ? body(text_of[i]) : ".PP\n.nf\n" shown(text_of[i]) ".fi\n")
      if (kind[i] == "D" && text_of[i] ~ /^typedef struct gsel_[a-z0-9_]+ gsel_[a-z0-9_]+;/) {
        split(text_of[i], names, " ")
        print header_page, names[3] > links
      }
    }
    clear_block()
    return
  }
  n = split(block_names, names, " ")
  first = names[1]
  for (i = 1; i <= n; ++i) page_of[names[i]] = first
  summary = ""
  for (i = 1; i <= elements; ++i) if (kind[i] == "C" && summary == "") summary = sentence(text_of[i])
  if (summary == "") summary = "of " header
  file = out "/" first ".3"
  begin_page(file, first)
  gsub(/ /, ", ", block_names)
  printf "%s", named(block_names, summary) > file
  print ".SH SYNOPSIS\n.nf\n#include <" header ">\n.fi" > file
  for (i = 1; i <= elements; ++i) if (kind[i] == "D") printf ".PP\n.nf\n%s.fi\n", shown(text_of[i]) > file
  print ".SH DESCRIPTION" > file
  described = 0
  for (i = 1; i <= elements; ++i) {
    if (kind[i] != "C") continue
    list = ""
    for (j = i + 1; j <= elements && kind[j] == "D"; ++j)
      if (names_of(text_of[j]) != "") list = list (list == "" ? "" : ", ") names_of(text_of[j])
    if (described++ && list != "") print ".SS " escaped(list) > file
    s = body(text_of[i])
    sub(/^\.PP\n/, "", s) # behind a heading
    printf "%s", s > file
  }
  if (!described) print "See the page of the header." > file
  if (section_text != "" && section != "") {
    s = body(section_text)
    sub(/^\.PP\n/, "", s)
    print ".SH " toupper(escaped(section)) "\n" s > file
  }
  for (i in seen) delete seen[i]
  for (i = 1; i <= n; ++i) seen[names[i]]
  list = ""
  for (i = 1; i <= elements; ++i) if (kind[i] == "C") list = list mentioned(text_of[i])
  print ".SH SEE ALSO\n.BR " escaped(header_page) " (3)" list > file
  close(file)
  for (i = 2; i <= n; ++i) print first, names[i] > links
  pages = pages ".TP\n\\fB" escaped(block_names) "\\fR\n" prose(summary)
  clear_block()
}

function clear_block() {
  elements = 0
  block_names = ""
}

function end_header(    file) {
  if (header == "") return
  end_block()
  file = out "/" header_page ".3"
  begin_page(file, header_page)
  printf "%s", named(header_page, sentence(substr(header_text, index(header_text, ": ") + 2))) > file
  print ".SH SYNOPSIS\n.nf\n#include <" header ">\n.fi\n.SH DESCRIPTION" > file
  s = body(header_text)
  sub(/^\.PP\n/, "", s)
  printf "%s", s > file
  if (pages != "") printf ".SH FUNCTIONS AND TYPES\n%s", pages > file
  if (loose != "") {
    sub(/^\.PP\n/, "", loose)
    printf ".SH DECLARATIONS\n%s", loose > file
  }
  print ".SH SEE ALSO\n.BR gsel (1)" (header == "gsel/gsel.h" ? "" : " ,\n.BR gsel.h (3)") > file
  close(file)
}

BEGIN {
  while ((getline < map) > 0)
    if ($1 ~ /^gsel_[a-z0-9_]+;$/) exported[substr($1, 1, length($1) - 1)]
}

FNR == 1 {
  end_header()
  header = FILENAME
  sub(/.*\/gsel\//, "gsel/", header)
  header_page = header == "gsel/gsel.h" ? "gsel.h" : "gsel_" substr(header, 6)
  no_pages = header ~ /(plugin|device|transport)\.h$/
  header_text = section = section_text = pages = loose = pending = ""
  clear_block()
  in_comment = blank = 0
  branch = "" # of #if: "skipped" up to #else, then "taken"
}

# Comments that begin a line.
!in_comment && pending == "" && branch != "skipped" && /^\/\*/ {
  in_comment = 1
  comment = ""
}
in_comment {
  row = $0
  if (row ~ /\*\/ *$/) {
    in_comment = 0
    sub(/ *\*\/ *$/, "", row)
  }
  sub(/^(\/\*| \*) ?/, "", row)
  comment = comment (comment == "" ? "" : "\n") row
  if (in_comment) next
  if (header_text == "") {
    header_text = comment
    next
  }
  if (blank && comment !~ /^The same /) end_block()
  blank = 0
  if (comment ~ /^---- /) {
    end_block()
    section = comment
    sub(/^-+ /, "", section)
    sub(/ -.*/, "", section)
    section_text = comment
    sub(/^[^\n]*\n?/, "", section_text)
  } else {
    kind[++elements] = "C"
    text_of[elements] = comment
  }
  next
}

# Of #if the branch for C programs that use the library, which is the last one.
pending == "" && /^#(if |ifdef)/ { branch = "skipped"; next }
pending == "" && /^#else/ { branch = "taken"; next }
pending == "" && /^#endif/ { branch = ""; next }
branch == "skipped" { next }
pending == "" && (/^#(ifndef|include|undef)|^#define GSEL_[A-Z]+_H$/ || /^GSEL_EXTERN_C_/) { next }

pending == "" && /^ *$/ { blank = 1; next }
{
  if (pending == "" && blank && !/^#define |^GSEL_API void gsel_[a-z0-9_]+_init\(/) end_block()
  if (pending == "") blank = 0
  pending = pending (pending == "" ? "" : "\n") $0
  if (!is_whole(pending, $0)) next
  kind[++elements] = "D"
  text_of[elements] = pending
  add_name(names_of(pending))
  pending = ""
}
END { end_header() }
