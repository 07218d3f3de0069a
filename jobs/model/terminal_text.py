"""Makes text from outside safe to show on a terminal."""

from __future__ import annotations

import re

# Terminal commands: window titles and the like (ended by BEL or ESC \), cursor and colour codes, two-character codes.
# A title that never ends loses only its first two characters, so that it cannot hide the rest of a line.
ESCAPE = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b\x9c\r\n]{0,1000}(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|\x1b[ -/]{0,8}[0-~]"
)
BLANK = re.compile(r"[\t\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")
# Control codes, invisible and direction-changing characters, line separators, lone surrogates.
HIDDEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff"
    r"\u0890\u0891\u08e2\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a]"
)
# Letters without a shape: two names that differ only in these look the same.
SHAPELESS = re.compile(r"[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]")


def hidden_character(text: str) -> str | None:
    """Return the first character that nobody sees or that changes a terminal or the direction of text: U+202E."""
    found = HIDDEN.search(text) or SHAPELESS.search(text)
    return f"U+{ord(found[0]):04X}" if found else None


def clean(text: str) -> str:
    """Return the text without anything that controls a terminal; tabs become spaces."""
    if text.isprintable():
        return text
    text = ESCAPE.sub("", text)
    return HIDDEN.sub("", BLANK.sub(" ", text))
