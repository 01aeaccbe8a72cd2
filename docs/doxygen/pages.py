#!/usr/bin/env python3
"""pages.py FILE: README.md or a page of docs/ as Doxygen reads Markdown; Doxyfile names this file as the filter of *.md.

Headings get the anchors that GitHub makes of their text. Links to pages and headers become references, which Doxygen
checks; of a link to something that is not in the documentation, such as an example, the text stays, with the path.
"""
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def label(page, heading=""):
    name = os.path.splitext(os.path.basename(page))[0].lower()
    name = "index" if page == "docs/README.md" else "readme" if page == "README.md" else name
    return f"page-{name}-{heading}" if heading else f"page-{name}"


def slug(heading):
    text = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r" ", "-", re.sub(r"[^\w\- ]", "", text))


def link(page, found):
    text, target = found[1], found[2]
    if re.match(r"[a-z]+:", target):
        return found[0]
    path, _, heading = target.partition("#")
    path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    if path.startswith("include/gsel/") and path.endswith(".h"):
        return f"[{text}](@ref {os.path.basename(path)})"
    if path == "README.md" or os.path.dirname(path) == "docs" and path.endswith(".md"):
        return f"[{text}](@ref {label(path, heading)})"
    return text if text == path or path.endswith(text) else f"{text} (`{path}`)"


def code(found):
    """A code span of a table, where Doxygen reads stars and commands inside it."""
    text = found[1]
    for what, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "\\@"), ("*", "\\*"), ("#", "\\#")):
        text = text.replace(what, instead)
    return f"<code>{text}</code>"


def main():
    page = os.path.relpath(os.path.abspath(sys.argv[1]), TOP)
    text = open(sys.argv[1], encoding="utf-8").read()
    text = re.sub(r"^ *<!-- .* -->\n", "", text, flags=re.M)
    parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.M | re.S)
    first = True
    for at in range(0, len(parts), 2):
        prose = re.sub(r"!\[[^]]*\]\([^)]*\)", "", parts[at])
        prose = re.sub(r"(?<!!)\[([^][]*)\]\(([^()\s]+)\)", lambda found: link(page, found), prose)
        lines = prose.split("\n")
        for number, line in enumerate(lines):
            if line.startswith("| "):
                lines[number] = re.sub(r"`([^`]+)`", code, line)
            heading = re.match(r"^(#+) (.*)$", line)
            if heading:
                lines[number] = f"{line} {{#{label(page) if first else label(page, slug(heading[2]))}}}"
                first = False
        parts[at] = "\n".join(lines)
    for at in range(1, len(parts), 2):
        parts[at] = re.sub(r"^( *```)[^ \n]+.*$", r"\1", parts[at], count=1, flags=re.M)
    print("".join(parts))


main()
