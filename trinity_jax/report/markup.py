"""What the pages share: templates that escape everything, one style sheet, scripts that are allowed by their hash."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from trinity_jax.report.folder import number

TURN_CHARS = 2_000
_SELF, _NONE = "'self'", "'none'"


def fill(template: str, script: str, *, connect: bool = False, others: Sequence[str] = (), **values: Any) -> str:
    """A page as a string.

    Its Content-Security-Policy lets exactly the style sheet and the script run, whatever text stands in the page, and
    forbids all connections but, where ``connect``, those to where the page came from.

    Args:
        template: its name.
        script: its only script.
        connect: whether the script may ask the page's own server.
        others: scripts of pages that this one opens from memory.
        values: what the template shows.
    """
    style = source("style.css")
    scripts = " ".join(map(_digest, (script, *others)))
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {scripts}; base-uri 'none'; form-action 'none'; "
        f"connect-src {_SELF if connect else _NONE}"
    )
    page = _environment().get_template(template)
    return page.render(policy=policy, style=Markup(style), script=Markup(script), **values)


@cache
def source(name: str) -> str:
    """A style sheet or script of this package."""
    return files("trinity_jax.report").joinpath(name).read_text(encoding="utf-8")


def percent(value: Any, digits: int = 1) -> str:
    """A share in percent; a dash where it is not known."""
    known = number(value)
    return "-" if known is None else f"{100 * known:.{digits}f}"


def points(value: Any) -> str:
    """A difference of shares in percentage points, with its sign."""
    known = number(value)
    return "-" if known is None else f"{round(100 * known, 1) + 0.0:+.1f}"  # no -0.0


def count(value: Any, digits: int = 0) -> str:
    """A number with thousands separated; a dash where it is not known."""
    known = number(value)
    return "-" if known is None else f"{known:,.{digits}f}"


def money(value: Any) -> str:
    """An amount in four significant digits; a dash where it is not known."""
    known = number(value)
    return "-" if known is None else f"{known:,.4g}"


def clip(text: str, limit: int = TURN_CHARS) -> str:
    """The first ``limit`` characters, and how many were left out."""
    return text if len(text) <= limit else f"{text[:limit]} … ({len(text) - limit:,} more characters)"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trinity_jax", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(percent=percent, points=points, clip=clip, count=count, money=money)
    return environment


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
