# replay.awk: copies a document, with the output of every command in it written anew.
#   ```console         lines "$ COMMAND" are run; the lines below one, up to the next or the fence, are its output
#   <!-- block: ... -->   the block below is left alone: blocks.py has it
#   <!-- rows: COMMAND -->   in the table below, the first cell of a row holds in `...` what is added to COMMAND; the
#                      second cell becomes the indexes chosen, or the kind and message of the refusal
# Does not know: what the output should be.

function run(command,    line, text) {
  text = ""
  command = command " 2>&1"
  while ((command | getline line) > 0) {
    sub(/[ \t]+$/, "", line)
    gsub(/by process [0-9]+/, "by process 4711", line)  # another one each time
    gsub(/\(pid [0-9]+\)/, "(pid 4712)", line)
    text = text line "\n"
  }
  close(command)
  return text
}

# The value of a line of JSON, without its quotes.
function value(line) {
  sub(/^[^:]*: /, "", line)
  sub(/,$/, "", line)
  gsub(/^"|"$/, "", line)
  gsub(/\\"/, "\"", line)
  return line
}

function cell(command,    lines, n, i, listing, several, entry, host, kind, message, out) {
  n = split(run(command " --json"), lines, "\n")
  several = 0
  out = ""
  for (i = 1; i <= n; ++i) {
    if (lines[i] ~ /^  "devices": \[$/) listing = 1
    if (lines[i] ~ /^  \]/) listing = 0
    if (lines[i] ~ /^  "kind": /) kind = value(lines[i])
    if (lines[i] ~ /^  "message": /) message = value(lines[i])
    if (listing && lines[i] ~ /^      "index": /) entry = value(lines[i])
    if (listing && lines[i] ~ /^      "host": /) host = value(lines[i])
    if (listing && lines[i] ~ /^      "partition": /) entry = entry ":" substr(value(lines[i]), 1, 8)
    if (listing && lines[i] ~ /^      "tile": /) entry = entry "." value(lines[i])
    if (listing && lines[i] ~ /^    }/) out = out (out == "" ? "" : ",") (command ~ /two_hosts/ ? host "/" : "") entry
  }
  gsub(/\|/, "\\|", message)
  if (kind != "") return kind ": " message
  return out == "" ? "none" : "`" out "`"
}

/^<!-- block: / { marked = 1; print; next }
marked && /^```/ { if (marked++ == 2) marked = 0; print; next }
marked { print; next }
/^```console$/ { console = 1; print; next }
console && /^```$/ { console = 0; print; next }
console && /^\$ / { print; printf "%s", run(substr($0, 3)); next }
console { next }

/^<!-- rows: / { base = $0; sub(/^<!-- rows: /, "", base); sub(/ -->.*$/, "", base); print; next }
base != "" && /^\| `/ {
  split($0, ticks, "`")
  first = "| `" ticks[2] "` |"
  gsub(/\\\|/, "|", ticks[2])  # a bar is written \| there too
  rest = $0
  sub(/^\| `[^`]*` \|/, "", rest)
  # What stands behind the second cell is kept; a bar in a message is written \|.
  gsub(/\\\|/, "\001", rest)
  third = index(rest, "|")
  third = substr(rest, third)
  gsub("\001", "\\|", third)
  print first " " cell(base " " ticks[2]) " " third
  next
}
base != "" && /^$/ && seen { base = ""; seen = 0 }
base != "" && /^\|/ { seen = 1 }
{ print }
