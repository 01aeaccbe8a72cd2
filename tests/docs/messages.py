"""messages.py: whether the source has the words of a message, for messages that no short command can bring about.

A format is a string literal of the source, adjacent literals joined, in which {...} or %... stands for a value. A message
is known if the words of formats cover it but for values of a few words each. So a word that has changed is found where its
format is long, as those of errors are. Knows nothing of when a message is given.
"""
import re

LITERALS = re.compile(r'"((?:[^"\\\n]|\\.)*)"(?:\s*"((?:[^"\\\n]|\\.)*)")*')
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
VALUE = re.compile(r"\{[^{}]*\}|%[-+ #0-9.]*[hlzjt]*[a-zA-Z]")
LEAST = 8          # characters of a format without its values; shorter ones say nothing
VALUE_WORDS = 5    # of a value, such as a call; what stands in quotes is one


class Messages:
    def __init__(self, folders):
        self.formats = set()
        for folder in folders:
            for file in sorted(folder.rglob("*")):
                if file.suffix in (".c", ".cc", ".h"):
                    self.formats.update(formats(file.read_text()))

    def unknown(self, line):
        """The first words of the line that are neither of a format nor a value; "" if there are none."""
        covered = [False] * len(line)
        for pieces in self.formats:
            if max(pieces, key=len) not in line:
                continue
            found = re.search(".*?".join(f"({re.escape(piece)})" for piece in pieces), line)
            for group in range(1, len(pieces) + 1) if found else []:
                covered[found.start(group):found.end(group)] = [True] * (found.end(group) - found.start(group))
        left = "".join("\n" if is_covered else char for char, is_covered in zip(line, covered))
        for run in left.split("\n"):
            if len(re.findall(r'"[^"]*"|\S+', run)) > VALUE_WORDS:
                return run.strip()
        return ""


def formats(source):
    for found in LITERALS.finditer(source):
        text = "".join(LITERAL.findall(found[0]))
        text = text.replace('\\"', '"').replace("\\n", "").replace("{{", "{").replace("}}", "}").replace("%%", "%")
        pieces = tuple(piece for piece in VALUE.split(text) if piece.strip())
        if sum(map(len, pieces)) >= LEAST and any(" " in piece for piece in pieces):
            yield pieces
