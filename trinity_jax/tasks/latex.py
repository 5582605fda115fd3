r"""One spelling for LaTeX and plain-text mathematics: \dfrac and a/b, \left(, {,}, units in \text, unicode signs."""
# ruff: noqa: RUF001 (replies hold typographic quotes, dashes and signs)

import re

MOST_CHARS = 1000

_UNICODE = {
    "−": "-", "–": "-", "‐": "-", "‑": "-", "π": r"\pi ", "∞": r"\infty ", "°": r"^\circ ", "∅": r"\emptyset ",
    "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "×": r"\times ", "·": r"\cdot ",
    "⋅": r"\cdot ",
    "÷": "/", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "±": r"\pm ", "∓": r"\mp ", "√": r"\sqrt ", "’": "'",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "λ": r"\lambda ",
    "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⟨": r"\langle ", "⟩": r"\rangle ", "\t": " ",
    "\n": " ",
}  # fmt: skip
_UNICODE_TABLE = str.maketrans(_UNICODE)
_SUPERSCRIPT = re.compile("[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_FROM_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")

_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|mbox|mathrm|mathbf|mathit|mathsf|mathtt|operatorname\*?|bm|boldsymbol)\s{0,3}\{([^{}]*)\}"
)
_BOX = re.compile(r"\\(?:boxed|fbox|num|ensuremath|overbrace|underbrace|phantom)\s{0,3}\{([^{}]*)\}")
_SIZE = re.compile(
    r"\\(?:left|right|middle|displaystyle|textstyle|limits|nolimits|(?:big|Big|bigg|Bigg)[lrm]?)(?![a-zA-Z])\s{0,3}\.?(?=\W|\s|$|\d|[a-zA-Z])"
)
_ROW_SPACE = re.compile(r"\\\\\s{0,3}\[[^\][]{0,12}\]")
_SPACE = re.compile(r"(?<!\\)\\[,;:> ]|\\!|\\(?:q?quad|enspace|thinspace|hfill|hspace\{[^{}]*\}|notag)(?![a-zA-Z])|~")
_THOUSANDS_SPACE = re.compile(r"(?<![\d.])\d{1,3}(?:(?:\\[,;:! ]|~| |\\!,)\d{3})++(?!\d)")
_ALIASES = [
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\[dt]binom(?![a-zA-Z])"), r"\\binom"),
    (re.compile(r"\\(?:leqslant|leq|leqq)(?![a-zA-Z])|<="), r"\\le "),
    (re.compile(r"\\(?:geqslant|geq|geqq)(?![a-zA-Z])|>="), r"\\ge "),
    (re.compile(r"\\neq(?![a-zA-Z])|!="), r"\\ne "),
    (re.compile(r"\\lt(?![a-zA-Z])"), "<"),
    (re.compile(r"\\gt(?![a-zA-Z])"), ">"),
    (re.compile(r"\\varnothing(?![a-zA-Z])|\\\{\s*\\\}"), r"\\emptyset "),
    (re.compile(r"\\[lr]?[vV]ert(?![a-zA-Z])|\\mid(?![a-zA-Z])|\\\|"), "|"),
    (re.compile(r"\\lbrace(?![a-zA-Z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![a-zA-Z])"), r"\\}"),
    (re.compile(r"\\lbrack(?![a-zA-Z])"), "["),
    (re.compile(r"\\rbrack(?![a-zA-Z])"), "]"),
    (re.compile(r"\\bigcup(?![a-zA-Z])"), r"\\cup "),
    (re.compile(r"\\div(?![a-zA-Z])"), "/"),
    (re.compile(r"\\ast(?![a-zA-Z])"), "*"),
    (re.compile(r"\\(?:to|rightarrow|implies|Rightarrow)(?![a-zA-Z])"), r"\\to "),
    (re.compile(r"\^\s?\{\s?\\circ\s?\}|\\degree(?![a-zA-Z])|\^\s?\\circ(?![a-zA-Z])"), r"^\\circ "),
    (re.compile(r"\\begin\{(?:bmatrix|matrix|smallmatrix|array)\}(?:\{[lcr|]*\})?"), r"\\begin{pmatrix}"),
    (re.compile(r"\\end\{(?:bmatrix|matrix|smallmatrix|array)\}"), r"\\end{pmatrix}"),
    (re.compile(r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}"), r"\\frac{\1}{\2}"),
    (re.compile(r"\{([^{}]*)\\choose(?![a-zA-Z])([^{}]*)\}"), r"\\binom{\1}{\2}"),
    (re.compile(r"\\root\s*(\d+)\s*\\of\s*(\{[^{}]*\}|\w)"), r"\\sqrt[\1]{\2}"),
    (re.compile(r"\{\}\s?\^\{?(\d+)\}?\s?/\s?_\{?(\d+)\}?"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac\s?(\d)\s?(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac\s?(\d)\s?(?=\{|\\)"), r"\\frac{\1}"),
    (re.compile(r"(\\frac\{[^{}]*\})\s?(\d|[a-zA-Z]|\\pi)(?![a-zA-Z])"), r"\1{\2}"),
    (re.compile(r"\*\*"), "^"),
]
_NAMES = "arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|pi|infty|infinity|inf|theta|gcd|lcm|max|min"
_PLAIN_NAME = re.compile(rf"(?<![\\a-zA-Z])({_NAMES})(?![a-zA-Z])")
_PLAIN_SQRT = re.compile(r"\\sqrt\s*\(((?:[^()]|\([^()]*\))*)\)")
_COMMAND_LETTER = re.compile(r"\\(?:mathrm|text|mathit|mathbf)\s?\{\s?([eidxn])\s?\}")
_WORD = re.compile(
    r"(?<![\\a-zA-Z{])[A-Za-z]{3,}(?:['’.-][A-Za-z]+)*(?![a-zA-Z}])|(?<![\\a-zA-Z{])(?:[ap]\.?m\b\.?|(?:no|or|to|of|is|in|at|on|by)(?![a-zA-Z]))",
    re.IGNORECASE,
)
_EMPTY = re.compile(
    r"\\text\{(?:there (?:is|are) )?(?:no|none|the empty|empty)(?: real| such| integer)?"
    r"(?: (?:solutions?|values?|set|number|numbers))?\}",
    re.IGNORECASE,
)
_INFINITE = re.compile(r"\\text\{(?:infinity|infinite|infinitely many)\}|\\(?:inf|infinity)(?![a-zA-Z])", re.IGNORECASE)
_TEXT_RUN = re.compile(r"\\text\{([^{}]*)\}(\s*)\\text\{([^{}]*)\}")
_DOLLAR = re.compile(r"\\?\$|\\text\{\s?\}|[€£]")
_END = re.compile(r"^[\s,;:]+|[\s.,;:]+$")


def normalise(text: str) -> str:
    r"""The same mathematics in one spelling; words and units stand in ``\text{...}``. For up to 1,000 characters.

    >>> normalise(r"\left(\dfrac12,\; 3\pi\right)")
    '(\\frac{1}{2}, 3\\pi)'
    """
    text = _THOUSANDS_SPACE.sub(lambda match: re.sub(r"\D", "", match[0]), text.strip())
    text = _SUPERSCRIPT.sub(lambda match: "^{" + match[0].translate(_FROM_SUPERSCRIPT) + "}", text)
    text = text.translate(_UNICODE_TABLE).replace("{,}", ",").replace("{:}", ":").replace(r"\!", "").replace("`", "")
    text = text.replace(r"\%", "%").replace(r"\(", " ").replace(r"\)", " ").replace(r"\text{\%}", "%")
    text = text.replace(r"\text{-}", "-")
    text = _ROW_SPACE.sub(r"\\\\ ", text)
    text = _SIZE.sub("", text)
    text = re.sub(r"(?<=\d)\\,(?=\d{3})", "", text)
    text = _SPACE.sub(" ", text)
    text = _COMMAND_LETTER.sub(r" \1 ", text)
    for _ in range(4):
        before = text
        text = _BOX.sub(r" \1 ", _TEXT.sub(_worded, text))
        for pattern, replacement in _ALIASES:
            text = pattern.sub(replacement, text)
        if text == before:
            break
    text = _DOLLAR.sub(" ", text)
    text = _wrap_words(text)
    text = _INFINITE.sub(r"\\infty ", text)
    text = _PLAIN_SQRT.sub(r"\\sqrt{\1}", text)
    for _ in range(6):
        text, changes = _TEXT_RUN.subn(r"\\text{\1 \3}", text)
        if not changes:
            break
    text = _EMPTY.sub(r"\\emptyset ", text)
    text = re.sub(r"\\text\{\s*(.*?)[\s.]*\}", r"\\text{\1}", text)
    text = re.sub(r"(\\[a-zA-Z]+)\s+(?![a-zA-Z\s])", r"\1", text)
    return _END.sub("", " ".join(text.split()))


def split(text: str, separators: str = ",;") -> list[str]:
    """Pieces between separators that stand in no bracket; half-open intervals count as brackets."""
    pieces, depth, start, at = [], 0, 0, 0
    while at < len(text):
        mark = text[at]
        if mark == "\\":
            nested = text[at + 1 : at + 2]
            depth += (nested == "{") - (nested == "}")
            depth += text.startswith("langle", at + 1) - text.startswith("rangle", at + 1)
            at += 2
            continue
        depth += (mark in "([{") - (mark in ")]}")
        if depth == 0 and mark in separators:
            pieces.append(text[start:at].strip())
            start = at + 1
        at += 1
    return [*pieces, text[start:].strip()]


def ungroup(text: str) -> str:
    """Without braces or parentheses that hold the whole text."""
    while len(text) > 1 and text[0] + text[-1] in ("{}", "()") and _closes(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _closes(text: str) -> int:
    """Where the bracket that opens the text closes, or -1."""
    depth = 0
    for at, mark in enumerate(text):
        depth += (mark in "([{") - (mark in ")]}")
        if depth == 0:
            return at
    return -1


def _worded(match: re.Match[str]) -> str:
    """A text command: kept as ``\text`` where it holds words, gone where it holds a number or sign."""
    inner = match[1]
    if re.fullmatch(r"\s*\(?[A-Z]\)?\.?\s*", inner) or not re.search(r"[A-Za-z]", inner):
        return f" {inner.strip()} "
    head = re.match(r"\s*[\d.,/]+(?=\s)", inner)
    if head:
        return rf" {head[0].strip()} \text{{{inner[head.end() :].strip()}}}"
    if match[0].startswith((r"\mathrm", r"\operatorname")) and re.fullmatch(rf"\s*(?:{_NAMES})\s*", inner):
        return rf"\{inner.strip()} "
    power = re.fullmatch(r"(.*[A-Za-z])\s*\^\s*(-?\d)\s*", inner)
    return rf"\text{{{power[1]}}}^{power[2]}" if power else r"\text{" + inner + "}"


def _wrap_words(text: str) -> str:
    r"""Words of three letters and more that stand bare become ``\text{...}``; names of functions do not."""
    kept = []
    for piece in re.split(r"(\\(?:text|begin|end)\{[^{}]*\})", text):
        if piece.startswith((r"\text{", r"\begin{", r"\end{")):
            kept.append(piece)
        else:
            kept.append(_PLAIN_NAME.sub(r"\\\1 ", _WORD.sub(_wrap, piece)))
    return "".join(kept)


def _wrap(match: re.Match[str]) -> str:
    word = match[0]
    if re.fullmatch(rf"{_NAMES}|abc|xyz|pqr|uvw|rst", word):
        return word
    return r"\text{" + word + "}"
