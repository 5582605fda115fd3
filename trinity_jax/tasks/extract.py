"""Where in a reply the answer stands. Every pattern is linear in the length of the reply."""
# ruff: noqa: RUF001 (replies hold typographic quotes, dashes and signs)

import re
from collections import deque

_TAG = re.compile(r"<(/?)answer\s{0,3}>", re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,3}(?=\{)|(?<!\\)[{}]")
_NEAR = r"(?:[^\n.:=]|\.(?=\d)){0,60}?"
_ANCHOR = re.compile(
    rf"\banswers?\b(?:{_NEAR}\b(?:is|are|be|was|equals)\b|{_NEAR}[:=]|[*_#]{{0,4}}[ ]{{0,4}}\n)|\#\#\#\#", re.IGNORECASE
)
_DECORATION = re.compile(r"[\s:*_#>=`]*")
_NEGATED = re.compile(r"(?:\bnot|n['’]t|\bnever|\bcannot)\s+(?:\w+\s+){0,2}$", re.IGNORECASE)
_SEGMENT_CHARS = 400
_LAST = 32

_WRAPPER = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|boxed|fbox|mbox)\s{0,3}\{([^{}]*)\}")
_NOISE = re.compile(
    r"\\(?:left|right|displaystyle|(?:big|Big|bigg|Bigg)[lr]?)(?![a-zA-Z])|\\[()\[\]!]|(?<!\\)\$|(?<![\w)])\*\*|\*\*|__|`"
)


def tagged(text: str, unclosed: bool = False) -> str | None:
    """Content of the last ``<answer>...</answer>`` that is not blank; with ``unclosed``, else of a last open tag."""
    found, opened = None, None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            opened = tag.end()
        elif opened is not None:
            found, opened = text[opened : tag.start()].strip() or found, None
    if found is None and unclosed and opened is not None:
        found = text[opened:].strip() or None
    return found


def boxed(text: str) -> list[tuple[int, str]]:
    r"""Position and content of the last few ``\boxed{...}`` that close, in order of position."""
    found: list[tuple[int, str]] = []
    stack: list[tuple[int, int | None]] = []
    command: int | None = None
    for token in _BOX.finditer(text):
        if token[0] == "{":
            stack.append((token.end(), command))
            command = None
        elif token[0] == "}":
            if stack:
                start, box = stack.pop()
                if box is not None:
                    found.append((box, text[start : token.start()]))
        else:
            command = token.start()
    return sorted(found)[-_LAST:]


def anchored(text: str, anchor: re.Pattern[str] = _ANCHOR) -> list[tuple[int, str]]:
    """Position and rest of the line after the last few "answer is", "Answer:", "####" (or another ``anchor``)."""
    found = []
    for match in deque(anchor.finditer(text), maxlen=_LAST):
        if _NEGATED.search(text, max(0, match.start() - 40), match.start()):
            continue
        skip = _DECORATION.match(text, match.end(), match.end() + _SEGMENT_CHARS)
        start = skip.end() if skip else match.end()
        line = text[start : start + _SEGMENT_CHARS].partition("\n")[0].strip()
        if line:
            found.append((match.start(), line))
    return found


def candidates(text: str) -> list[str]:
    """Boxed and anchored pieces of a reply, last first."""
    return [piece for _, piece in sorted(boxed(text) + anchored(text), key=lambda found: found[0], reverse=True)]


def after_last(pattern: re.Pattern[str], line: str) -> str | None:
    """What follows the last match in a line, or ``None`` if there is no match or nothing after it."""
    last = deque(pattern.finditer(line), maxlen=1)
    return (line[last[0].end() :].strip() or None) if last else None


def plain(text: str) -> str:
    """Without Markdown emphasis and the LaTeX that only dresses a word or number."""
    for _ in range(3):
        text, changes = _WRAPPER.subn(r" \1 ", text)
        if not changes:
            break
    return _NOISE.sub("", text).strip()


def lines(text: str) -> list[str]:
    """Lines that are not blank, stripped."""
    return [line for line in map(str.strip, text.splitlines()) if line]
