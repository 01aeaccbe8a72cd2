"""document.py: the code blocks of a Markdown file, each with the mark that stands in the line before it.

A mark is a comment: <!-- block: WORDS -->. blocks.py says which marks there are. Knows nothing of what blocks mean.
"""
import re
from dataclasses import dataclass

MARK = re.compile(r"^ *<!-- block: (.*) -->$")
FENCE = re.compile(r"^( *)```([^ `]*) *(.*)$")


@dataclass
class Block:
    page: str      # path from the top of the source
    line: int      # of the first line of text, from 1
    language: str
    mark: str      # "" without one
    lines: list

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"

    @property
    def place(self):
        return f"{self.page}:{self.line}"


class Fault(Exception):
    """What is wrong with a block; the text begins with its place."""


def blocks(page, text):
    """All blocks of a page in order. A block by indentation or without a language is a fault, as is a mark that no block follows."""
    found, block, mark, before, in_list, indent = [], None, None, "", False, 0
    for number, line in enumerate(text.split("\n"), 1):
        fence = FENCE.match(line)
        if block:
            if fence and not fence[2]:
                found.append(block)
                block = None
            else:
                block.lines.append(line[indent:])
        elif fence:
            if not fence[2]:
                raise Fault(f"{page}:{number}: a block without a language; text, if it is none")
            indent = len(fence[1])
            block, mark = Block(page, number + 1, fence[2], mark or "", []), None
        else:
            if mark is not None:
                raise Fault(f"{page}:{number - 1}: no block follows this mark")
            marked = MARK.match(line)
            mark = marked[1] if marked else None
            if line and not line.startswith(" "):
                in_list = bool(re.match(r"([-*]|\d+\.) ", line))
            if line.startswith("    ") and before == "" and not in_list:
                raise Fault(f"{page}:{number}: a block by indentation; use ``` and its language")
        before = line
    if block:
        raise Fault(f"{block.place}: this block does not end")
    return found
