"""Units of measurement: is "m/s" what "meters per second" means, and how many metres are a kilometre."""

import re
from collections import Counter
from fractions import Fraction
from typing import NamedTuple

_BASE = {
    "m": ("m meter metre", "m"),
    "g": ("g gram gramme", "g"),
    "s": ("s sec second", "s"),
    "A": ("A amp ampere", "A"),
    "K": ("K kelvin", "K"),
    "mol": ("mol mole", "mol"),
    "rad": ("rad radian", "rad"),
    "bit": ("bit", "bit"),
}
# Unit: (names, factor, in base units). A name takes a plural s.
_DERIVED = [
    ("min minute", "60", "s"), ("h hr hour", "3600", "s"), ("day d", "86400", "s"), ("week wk", "604800", "s"),
    ("year yr", "31557600", "s"),
    ("in inch inche", "0.0254", "m"), ("ft foot feet", "0.3048", "m"), ("yd yard", "0.9144", "m"),
    ("mi mile", "1609.344", "m"),
    ("lb lbs pound", "453.59237", "g"), ("oz ounce", "28.349523125", "g"), ("t ton tonne", "1000000", "g"),
    ("L l liter litre", "0.001", "m^3"),
    ("N newton", "1000", "g m s^-2"), ("J joule", "1000", "g m^2 s^-2"), ("W watt", "1000", "g m^2 s^-3"),
    ("Pa pascal", "1000", "g m^-1 s^-2"), ("atm atmosphere", "101325000", "g m^-1 s^-2"),
    ("bar", "100000000", "g m^-1 s^-2"),
    ("Hz hertz", "1", "s^-1"), ("C coulomb", "1", "A s"), ("V volt", "1000", "g m^2 s^-3 A^-1"),
    ("ohm Ω Ω ohms", "1000", "g m^2 s^-3 A^-2"), ("F farad", "0.001", "A^2 s^4 g^-1 m^-2"),
    ("T tesla", "1000", "g s^-2 A^-1"), ("Wb weber", "1000", "g m^2 s^-2 A^-1"), ("H henry", "1000", "g m^2 s^-2 A^-2"),
    ("eV electronvolt", "1.602176634e-16", "g m^2 s^-2"), ("cal calorie", "4184", "g m^2 s^-2"),
    ("mph", "0.44704", "m s^-1"), ("M molar", "1000", "mol m^-3"), ("B byte", "8", "bit"),
    ("degree deg °", "1", "degree"), ("celsius °C", "1", "celsius"), ("fahrenheit °F", "1", "fahrenheit"),
    ("percent %", "1", "percent"), ("dollar usd $", "1", "dollar"), ("cent", "0.01", "dollar"),
    ("euro eur €", "1", "euro"),
]  # fmt: skip
_PREFIXES = {
    "f": -15, "p": -12, "n": -9, "μ": -6, "µ": -6, "u": -6, "m": -3, "c": -2, "d": -1, "k": 3, "M": 6, "G": 9, "T": 12,
    "femto": -15, "pico": -12, "nano": -9, "micro": -6, "milli": -3, "centi": -2, "deci": -1, "kilo": 3, "mega": 6,
    "giga": 9, "tera": 12,
}  # fmt: skip
_PREFIXED = (
    "m g s A K mol L l N J W Pa Hz C V ohm Ω F T Wb H eV cal bit B bar M meter metre gram second liter litre newton "
    "joule watt pascal hertz coulomb volt ohms farad tesla ampere amp kelvin mole byte calorie electronvolt"
)
_FACTOR = re.compile(r"([A-Za-zΩΩμµ°$€%]+)\s?(?:\^\s?\{?\s?(-?\d)\s?\}?|([²³]))?")
_POWER_WORDS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cubed": 3}


class Unit(NamedTuple):
    """``scale`` in base units (metre, gram, second, ...) and their powers, sorted."""

    scale: Fraction
    powers: tuple[tuple[str, int], ...]


def _table() -> dict[str, Unit]:
    known: dict[str, Unit] = {}
    for base, (names, _) in _BASE.items():
        known |= {name: Unit(Fraction(1), ((base, 1),)) for name in names.split()}
    for names, factor, made_of in _DERIVED:
        powers = []
        for part in made_of.split():
            base, _, power = part.partition("^")
            powers.append((base, int(power or 1)))
        known |= {name: Unit(Fraction(factor), tuple(sorted(powers))) for name in names.split()}
    for prefix, power in _PREFIXES.items():
        for name in _PREFIXED.split():
            if (len(prefix) > 1) == (len(name) > 3) and prefix + name not in known:
                known[prefix + name] = Unit(known[name].scale * Fraction(10) ** power, known[name].powers)
    return known


_KNOWN = _table()


def read(text: str) -> Unit | None:
    """The unit that a short text names, or ``None``: ``m/s``, ``meters per second``, ``kg m^2``, ``square feet``.

    >>> read("km") == read("kilometers"), read("apples")
    (True, None)
    """
    text = re.sub(r"\bdegrees?\s+(?=[CFcf]\w)", "", text)
    text = re.sub(r"\bper\b", "/", text.strip(" .()[]{}")).replace("·", " ").replace("*", " ").replace("⋅", " ")
    if not text or len(text) > 60:
        return None
    scale, powers, sign, pending = Fraction(1), Counter[str](), 1, 1
    at = 0
    last: Unit | None = None
    while at < len(text):
        if text[at] in " /()":
            sign = -1 if text[at] == "/" else sign
            at += 1
            continue
        match = _FACTOR.match(text, at)
        if not match:
            return None
        at = match.end()
        word, power = match[1], int(match[2] or {"²": 2, "³": 3}.get(match[3] or "", 1))
        if word.lower() in _POWER_WORDS:
            if word.lower().endswith("d") and last is not None:
                word, power = "", _POWER_WORDS[word.lower()] - 1
            else:
                pending = _POWER_WORDS[word.lower()]
                continue
        unit = last if word == "" else _lookup(word)
        if unit is None:
            return None
        power, pending, last = sign * power * pending, 1, unit
        scale *= unit.scale**power
        for base, exponent in unit.powers:
            powers[base] += exponent * power
    return Unit(scale, tuple(sorted((base, power) for base, power in powers.items() if power))) if last else None


def _lookup(word: str) -> Unit | None:
    for form in (word, word.lower()):
        if form in _KNOWN:
            return _KNOWN[form]
        if len(form) > 3 and form.endswith("s") and form[:-1] in _KNOWN:
            return _KNOWN[form[:-1]]
    return None
