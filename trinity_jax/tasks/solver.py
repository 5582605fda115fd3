"""The symbolic worker: a program of its own, so that it can be killed. One JSON line in, one verdict out.

Run by path (``symbolic.py`` does), it imports nothing of trinity_jax: an interpreter with sympy is all it needs.
"""

import json
import os
import signal
import sys
import warnings

MOST_MEMORY = 4 << 30
"""Bytes of address space: a tower of powers must not take the machine down before its time is up."""


def main() -> None:
    """Read ``[gold, said, seconds]``, write ``true``, ``false`` or ``null`` (not shown), until the input ends."""
    # Libraries print; only verdicts may reach the parent.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(2000)
    _limit_memory()
    import logging

    logging.disable(logging.CRITICAL)
    import math_verify  # noqa: F401 (loaded before the first clock starts)

    print('"ready"', file=out, flush=True)
    for line in sys.stdin:
        gold, said, seconds = json.loads(line)
        _alarm(seconds)
        verdict = same(gold, said)
        _alarm(0)
        print(json.dumps(verdict), file=out, flush=True)


def same(gold: str, said: str) -> bool | None:
    """Whether two LaTeX expressions are equal; ``None`` where one cannot be read or the comparison breaks down."""
    from math_verify import LatexExtractionConfig, parse, verify

    try:
        wanted, given = (
            parse(f"${text}$", [LatexExtractionConfig()], "no_fallback", parsing_timeout=None, raise_on_error=True)  # type: ignore[arg-type]
            for text in (gold, said)
        )
        if not wanted or not given:
            return None
        return bool(verify(wanted, given, timeout_seconds=None, raise_on_error=True))
    except Exception:  # whatever sympy trips over is no verdict
        return None


def _alarm(seconds: float) -> None:
    """The kernel ends this process after that time, should the parent be gone; 0 calls it off."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = MOST_MEMORY if hard == resource.RLIM_INFINITY else min(MOST_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
