r"""The value of a LaTeX expression: exact where it is rational, else complex; letters take the values they are given.

It knows arithmetic, powers, roots, \pi, e, i, elementary functions, factorials, binomials, absolute values, floors,
mixed numbers, repeating decimals. What it does not know it leaves alone (``None``) for symbolic algebra.
"""

import cmath
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

Value = Fraction | complex

_MOST_BITS = 20_000
_MOST_FACTORIAL = 500
_MOST_DEPTH = 60

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d{1,3}(?:,\d{3})++(?!\d)|\d++)(?:\.\d*+)?(?:[eE][-+]?\d{1,3}(?![\d.a-zA-Z]))?|\.\d++)"
    r"|(?P<command>\\(?:[a-zA-Z]+|[{}|]))|(?P<letter>[a-zA-Z])|(?P<sign>[-+*/^_!|(){}\[\]%]))"
)
_FUNCTIONS: dict[str, Callable[[complex], complex]] = {
    "sin": cmath.sin, "cos": cmath.cos, "tan": cmath.tan, "exp": cmath.exp, "ln": cmath.log,
    "cot": lambda z: 1 / cmath.tan(z), "sec": lambda z: 1 / cmath.cos(z), "csc": lambda z: 1 / cmath.sin(z),
    "arcsin": cmath.asin, "arccos": cmath.acos, "arctan": cmath.atan, "sinh": cmath.sinh, "cosh": cmath.cosh,
    "tanh": cmath.tanh, "log": cmath.log10,
}  # fmt: skip
_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_TIMES = {"*", r"\times", r"\cdot"}


class UnknownError(Exception):
    """The text holds something this evaluator does not know, or a value that is not finite."""


def variables(text: str) -> set[str]:
    """Letters that stand for unknowns: all but e and i, and subscripted ones with their index."""
    text = re.sub(r"\\[a-zA-Z]+", lambda match: " " + match[0][1:] + " " if match[0] in _GREEK else " ", text)
    return {
        re.sub(r"[{}]", "", name)
        for name in re.findall(r"(?:theta|alpha|beta|lambda|[a-zA-Z])(?:_(?:\w|\{\w+\}))?", text)
    } - {"e", "i"}


_GREEK = {r"\theta", r"\alpha", r"\beta", r"\lambda"}


def evaluate(text: str, at: Mapping[str, Value] | None = None) -> Value | None:
    r"""The value of a normalised expression (see ``latex.normalise``), or ``None``.

    >>> evaluate(r"\frac{6}{4}"), evaluate("2x+1", {"x": Fraction(3)})
    (Fraction(3, 2), Fraction(7, 1))
    """
    try:
        parser = _Parser(text, at or {})
        value = parser.sum(0)
        if parser.peek() is not None:
            return None
        return _finite(value)
    except (UnknownError, ArithmeticError, ValueError, IndexError, RecursionError):
        return None


def _finite(value: Value) -> Value:
    if isinstance(value, complex) and not cmath.isfinite(value):
        raise UnknownError
    return value


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str, at: Mapping[str, Value]):
        self.at, self.place = at, 0
        self.tokens: list[tuple[str, str, bool]] = []
        end = 0
        text = text.rstrip()
        while end < len(text):
            match = _TOKEN.match(text, end)
            if match is None:
                raise UnknownError
            kind = match.lastgroup or ""
            self.tokens.append((kind, match[kind], match.start(kind) > end))
            end = match.end()

    def peek(self, ahead: int = 0) -> str | None:
        place = self.place + ahead
        return self.tokens[place][1] if place < len(self.tokens) else None

    def kind(self, ahead: int = 0) -> str | None:
        place = self.place + ahead
        return self.tokens[place][0] if place < len(self.tokens) else None

    def take(self, wanted: str | None = None) -> str:
        token = self.peek()
        if token is None or (wanted is not None and token != wanted):
            raise UnknownError
        self.place += 1
        return token

    def sum(self, depth: int) -> Value:
        if depth > _MOST_DEPTH:
            raise UnknownError
        value = self.product(depth + 1)
        while self.peek() in ("+", "-"):
            sign = self.take()
            right = self.product(depth + 1)
            value = _add(value, right if sign == "+" else _times(Fraction(-1), right))
        return value

    def product(self, depth: int) -> Value:
        value = self.signed(depth)
        while True:
            token = self.peek()
            if token in _TIMES:
                self.take()
                value = _times(value, self.signed(depth))
            elif token == "/":
                self.take()
                value = _times(value, _power(self.signed(depth), Fraction(-1)))
            elif self.starts_factor():
                value = _times(value, self.factor(depth))
            else:
                return value

    def signed(self, depth: int) -> Value:
        sign = Fraction(1)
        while self.peek() in ("+", "-"):
            sign = -sign if self.take() == "-" else sign
        return _times(sign, self.factor(depth))

    def starts_factor(self) -> bool:
        kind, token = self.kind(), self.peek()
        if kind == "command":
            return token not in _TIMES and token not in (r"\rfloor", r"\rceil", r"\}", r"\rangle")
        # A bar closes an absolute value where one is open; juxtaposed bars are read by `factor` alone.
        return kind in ("number", "letter") or token in ("(", "{", "[")

    def factor(self, depth: int) -> Value:
        value = self.atom(depth + 1)
        while (token := self.peek()) in ("^", "!", "%"):
            self.take()
            if token == "!":
                value = _factorial(value)
            elif token == "%":
                value = _times(value, Fraction(1, 100))
            elif self.peek() == r"\circ":
                self.take()
                value = complex(value) * math.pi / 180
            else:
                value = _power(value, self.exponent(depth + 1))
        return value

    def exponent(self, depth: int) -> Value:
        if self.peek() in ("+", "-"):
            sign = -1 if self.take() == "-" else 1
            return _times(Fraction(sign), self.exponent(depth))
        # LaTeX takes one digit (x^12 is x^1 2), people who write text take the number.
        return Fraction(self.take().replace(",", "")) if self.kind() == "number" else self.atom(depth + 1)

    def argument(self, depth: int) -> Value:
        """Of a command: a group, or one token (``latex.normalise`` has put \\frac12 into groups)."""
        if self.peek() == "{":
            return self.bracket("{", "}", depth)
        kind, token = self.kind(), self.peek()
        if kind == "number" and token and token.isdigit():
            return Fraction(int(self.take()))
        return self.atom(depth + 1)

    def bracket(self, opening: str, closing: str, depth: int) -> Value:
        self.take(opening)
        value = self.sum(depth + 1)
        self.take(closing)
        return value

    def atom(self, depth: int) -> Value:
        if depth > _MOST_DEPTH:
            raise UnknownError
        kind, token = self.kind(), self.peek()
        if kind == "number":
            return self.number(depth)
        if kind == "letter":
            return self.letter()
        for opening, closing in (("(", ")"), ("{", "}"), ("[", "]"), (r"\lfloor", r"\rfloor"), (r"\lceil", r"\rceil")):
            if token == opening:
                value = self.bracket(opening, closing, depth)
                return _rounded(value, opening) if opening.startswith("\\") else value
        if token == "|":
            value = self.bracket("|", "|", depth)
            return abs(value) if isinstance(value, Fraction) else complex(abs(value))
        if kind == "command":
            return self.command(self.take()[1:], depth)
        raise UnknownError

    def number(self, depth: int) -> Value:
        token = self.take()
        value = Fraction(token.replace(",", "").rstrip(".") or "0")
        if token.isdigit() and self.peek() == r"\frac" and (mixed := self.proper_fraction(depth)) is not None:
            return value + mixed
        if "." in token and self.peek() in (r"\overline", r"\dot") and self.kind(2) == "number":
            self.take()
            self.take("{")
            digits = self.take()
            self.take("}")
            places = len(token.partition(".")[2])
            value += Fraction(int(digits), (10 ** len(digits) - 1) * 10**places)
        if token.isdigit() and self.kind() == "number" and self.peek(1) == "/" and self.kind(2) == "number":
            top, bottom = int(self.take()), int(self.tokens[self.place + 1][1])
            self.place += 2
            return value + Fraction(top, bottom)
        if self.kind() == "number":
            raise UnknownError
        return value

    def proper_fraction(self, depth: int) -> Fraction | None:
        r"""The fraction of a mixed number: ``\frac{1}{2}`` of whole numbers right after a whole number."""
        tokens = [self.peek(ahead) for ahead in range(1, 7)]
        if tokens[0] == tokens[3] == "{" and tokens[2] == tokens[5] == "}":
            top, bottom = tokens[1] or "", tokens[4] or ""
            if top.isdigit() and bottom.isdigit() and int(bottom):
                self.place += 7
                return Fraction(int(top), int(bottom))
        return None

    def letter(self) -> Value:
        name = self.take()
        if self.peek() == "_":
            self.take()
            name += f"_{self.index()}"
        return self.named(name)

    def index(self) -> str:
        if self.peek() != "{":
            return self.take()
        self.take("{")
        name = self.take()
        self.take("}")
        return name

    def named(self, name: str) -> Value:
        if name in self.at:
            return self.at[name]
        if name == "i":
            return 1j
        if name == "e":
            return complex(math.e)
        raise UnknownError

    def command(self, name: str, depth: int) -> Value:
        if name == "pi":
            return complex(math.pi)
        if "\\" + name in _GREEK:
            return self.named(name)
        if name == "frac":
            top = self.argument(depth)
            return _times(top, _power(self.argument(depth), Fraction(-1)))
        if name == "binom":
            top = self.argument(depth)
            return _binomial(top, self.argument(depth))
        if name == "sqrt":
            root = self.bracket("[", "]", depth) if self.peek() == "[" else Fraction(2)
            return _root(self.argument(depth), root)
        if name in _FUNCTIONS:
            return self.function(name, depth)
        raise UnknownError

    def function(self, name: str, depth: int) -> Value:
        power, base = Fraction(1), None
        while self.peek() in ("^", "_"):
            if self.take() == "^":
                power = self.exponent(depth)
            elif name == "log":
                base = self.argument(depth)
            else:
                raise UnknownError
        if power == -1 and name in _INVERSE:
            name, power = _INVERSE[name], Fraction(1)
        if self.peek() in ("(", "{", "["):
            opening = self.peek() or ""
            argument = self.bracket(opening, {"(": ")", "{": "}", "[": "]"}[opening], depth)
        else:
            argument = self.signed(depth + 1)
            while self.starts_factor() and self.peek() != "(" and (self.peek() or "")[1:] not in _FUNCTIONS:
                argument = _times(argument, self.factor(depth + 1))
            if self.peek() == "/" and (self.peek(1) or "")[1:] not in _FUNCTIONS:
                raise UnknownError  # \sin x/2: which?
        if base is not None:
            return _power(_finite(cmath.log(complex(argument)) / cmath.log(complex(base))), power)
        return _power(_finite(_FUNCTIONS[name](complex(argument))), power)


def _add(a: Value, b: Value) -> Value:
    return a + b if isinstance(a, Fraction) and isinstance(b, Fraction) else complex(a) + complex(b)


def _times(a: Value, b: Value) -> Value:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        if max(_bits(a), _bits(b)) > _MOST_BITS:
            raise UnknownError
        return a * b
    return complex(a) * complex(b)


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _power(base: Value, exponent: Value) -> Value:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            if _bits(base) * abs(exponent.numerator) > _MOST_BITS:
                raise UnknownError
            return base**exponent.numerator
        if base >= 0 and exponent.numerator == 1:
            return _root(base, Fraction(exponent.denominator))
    if base == 0:
        if complex(exponent).real > 0:
            return Fraction(0)
        raise UnknownError
    return complex(base) ** complex(exponent)


def _root(value: Value, degree: Value) -> Value:
    if not isinstance(degree, Fraction) or degree.denominator != 1 or not 2 <= degree <= 100:
        raise UnknownError
    if isinstance(value, Fraction):
        if value < 0 and degree % 2:
            return _times(Fraction(-1), _root(-value, degree))
        if value >= 0 and _bits(value) < 500:
            roots = [round(part ** (1 / int(degree))) for part in (value.numerator, value.denominator)]
            exact = Fraction(roots[0], roots[1])
            if exact ** int(degree) == value:
                return exact
    return cmath.sqrt(complex(value)) if degree == 2 else complex(value) ** complex(1 / degree)


def _factorial(value: Value) -> Value:
    if not isinstance(value, Fraction) or value.denominator != 1 or not 0 <= value <= _MOST_FACTORIAL:
        raise UnknownError
    return Fraction(math.factorial(int(value)))


def _binomial(n: Value, k: Value) -> Value:
    if not isinstance(n, Fraction) or not isinstance(k, Fraction):
        raise UnknownError
    if any(part.denominator != 1 or not 0 <= part <= _MOST_FACTORIAL for part in (n, k)):
        raise UnknownError
    return Fraction(math.comb(int(n), int(k)))


def _rounded(value: Value, bracket: str) -> Value:
    number = value if isinstance(value, Fraction) else value.real
    if isinstance(value, complex) and abs(value.imag) > 1e-12:
        raise UnknownError
    return Fraction(math.floor(number) if bracket == r"\lfloor" else math.ceil(number))
