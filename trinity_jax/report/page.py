"""``report.html``: one page, no network, light and dark, made from the run folder alone."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trinity_jax.errors import UserError
from trinity_jax.report.conversations import conversations, filters
from trinity_jax.report.figures import Chart, Interval, Point, line_chart, share_chart
from trinity_jax.report.folder import RunRecord, as_dict, as_list, column, number, read
from trinity_jax.report.markup import fill, source
from trinity_jax.report.table import evaluation

PHASES = ("ask", "rollout", "decide", "tell", "validate")
ROLES = ("worker", "thinker", "verifier")
COLOURS = 8
MOST_KINDS = 24
"""More kinds of question than this get no figure of their own."""


def write_report(run_dir: str | Path) -> Path:
    """Write ``report.html`` into a run folder, finished or not, and return its path.

    Raises:
        UserError: there is no run folder, a file in it cannot be read, or the page cannot be written.
    """
    run = Path(run_dir)
    html = render(read(run))
    path, unfinished = run / "report.html", run / ".report.html.part"
    try:
        unfinished.write_text(html, encoding="utf-8", errors="replace")
        os.replace(unfinished, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
    return path


def render(run: RunRecord) -> str:
    """The page as a string."""
    shown = conversations(run.transcripts, run.model_names)
    found = evaluation(run)
    return fill(
        "report.html.j2",
        source("page.js"),
        name=run.name,
        headline=found.verdict or headline(run),
        notices=run.notices,
        facts=facts(run),
        result=found,
        sections=sections(run),
        models=list(enumerate(_models(run))),
        colours=COLOURS,
        roles=ROLES,
        seconds=_seconds(run),
        failures=_failures(run),
        alarms=[(line.get("generation"), alarm) for line in run.metrics for alarm in as_list(line.get("alarms"))],
        conversations=shown,
        filters=filters(shown),
        episodes=len(run.transcripts),
        config=run.config_text,
    )


def headline(run: RunRecord) -> str:
    """What can be said of a run without a verdict."""
    generations = len(run.metrics)
    done = f"{generations} generation{'' if generations == 1 else 's'}"
    return f"This run has completed {done} and has not been compared with anything on held-out questions."


def facts(run: RunRecord) -> list[tuple[str, str]]:
    """Short facts for the head of the page."""

    def total(*path: str) -> float:
        return sum(value for _, value in column(run.metrics, *path))

    summary = run.summary or {}
    found = [("Generations", f"{len(run.metrics):,}")]
    if run.model_names:
        found.append(("Pool", ", ".join(run.model_names)))
    if source := as_dict(run.config.get("encoder")).get("source"):
        found.append(("Encoder", str(source)))
    if run.metrics:
        found += [
            ("Calls in training", f"{total('calls'):,.0f}"),
            ("Calls without sharing", f"{total('calls_without_sharing'):,.0f}"),
            ("Tokens in / out", f"{total('input_tokens'):,.0f} / {total('output_tokens'):,.0f}"),
            ("Cost in training", f"{total('cost'):,.4g}"),
            ("Minutes in training", f"{total('seconds', 'total') / 60:.1f}"),
        ]
    for key, label in (("n", "Numbers evolved"), ("compilations", "Compilations")):
        if (value := number(summary.get(key))) is not None:
            found.append((label, f"{value:,.0f}"))
    return found


def sections(run: RunRecord) -> list[tuple[str, str, str, list[Chart]]]:
    """(id, heading, introduction, figures) in reading order; a figure without data is left out."""
    parts = (
        ("learning-part", "Learning", "", [_learning(run)]),
        (
            "choice",
            "What it chose, by kind of question",
            "Shares of all calls of a generation, all candidates. Panels that look alike mean that the question is not "
            "looked at.",
            _choices(run),
        ),
        ("search", "State of the search", "These tell learning from drift.", _state(run)),
        ("spending", "Calls, cost and failures", "", _spending(run)),
    )
    return [(id, heading, text, kept) for id, heading, text, figures in parts if (kept := [f for f in figures if f])]


def wilson(share: float, n: float) -> tuple[float, float]:
    """The 95 % interval of a share of ``n`` trials (Wilson 1927): it stays inside [0, 1] and has width at 0 and 1."""
    z2 = 1.959964**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def _learning(run: RunRecord) -> Chart | None:
    m = run.metrics
    mean, best, validation = (
        "candidates\N{RIGHT SINGLE QUOTATION MARK} fitness, mean",
        "candidates\N{RIGHT SINGLE QUOTATION MARK} fitness, best",
        "validation accuracy of the mean vector",
    )
    low, high, n = (dict(column(m, key)) for key in ("fitness_low", "fitness_high", "validation_episodes"))
    accuracy = column(m, "validation_accuracy")
    return line_chart(
        "learning",
        "Learning curve",
        "Validation plays the mean vector on fixed questions and is the curve to trust; its bars are 95 % Wilson "
        "intervals over these questions. Fitness is noisy; the band holds the middle four fifths of the candidates, "
        "which is their spread and no interval; the best is chosen by luck too.",
        {validation: accuracy, mean: column(m, "fitness_mean"), best: column(m, "fitness_best")},
        "%",
        "right answers",
        include=(0.0, 1.0),
        intervals={validation: [Interval(x, *wilson(y, n[x])) for x, y in accuracy if n.get(x) and 0 <= y <= 1]},
        bands={mean: [Interval(x, low[x], high[x]) for x in low if x in high]},
        size=(900, 320),
    )


def _choices(run: RunRecord) -> list[Chart | None]:
    m = run.metrics
    models = _models(run)
    styles = {name: i % COLOURS for i, name in enumerate(models)}
    kinds = list(dict.fromkeys(kind for line in m for kind in as_dict(line.get("model_share_by_kind"))))[:MOST_KINDS]
    pairs = [(name, role) for role in ROLES for name in models]
    by_kind: list[Chart | None] = []
    for i, kind in enumerate(kinds):
        # A pair that was not chosen is not in the line: 0 there, unless the run is older than the whole record.
        lines = [line for line in m if kind in as_dict(line.get("choice_share_by_kind"))]
        if lines:
            found = {pair: _pair(lines, kind, *pair) for pair in pairs}
            found = {pair: points for pair, points in found.items() if any(y for _, y in points)}
            shares = {f"{name} as {role}": points for (name, role), points in found.items()}
            colours = {f"{name} as {role}": styles[name] for name, role in found}
            patterns = {f"{name} as {role}": role for name, role in found}
            labels = {f"{name} as {role}": f"{role[0].upper()} {name}" for name, role in found}
        else:
            shares = {name: column(m, "model_share_by_kind", kind, name) for name in models}
            colours, patterns, labels = styles, {}, {}
        by_kind.append(share_chart(f"kind-{i}", kind, "", shares, colours, patterns, labels))
    models_over_all = {name: column(m, "model_share", name) for name in models}
    roles_over_all = {role: column(m, "role_share", role) for role in ROLES}
    return [
        *by_kind,
        share_chart("models", "Models, all kinds", "", models_over_all, styles),
        share_chart("roles", "Roles, all kinds", "", roles_over_all, dict.fromkeys(ROLES, 7), {r: r for r in ROLES}),
    ]


def _pair(lines: Sequence[dict[str, Any]], kind: str, model: str, role: str) -> list[Point]:
    """(generation, share) of a model in a role."""
    shares = [as_dict(as_dict(line["choice_share_by_kind"][kind]).get(model)).get(role) for line in lines]
    generations = [number(line.get("generation")) or 0.0 for line in lines]
    return [(x, number(share) or 0.0) for x, share in zip(generations, shares, strict=True)]


def _state(run: RunRecord) -> list[Chart | None]:
    return [
        line_chart(key, title, caption, {title: column(run.metrics, key)}, "", label, size=(370, 200))
        for key, title, caption, label in (
            ("sigma", "Step size sigma", "The width of the search distribution.", "sigma"),
            (
                "mean_norm",
                "Norm of the mean",
                "Under pure noise it grows too: growth alone is not learning.",
                "|mean|, Euclidean",
            ),
            (
                "diagonal_spread",
                "Spread of the diagonal",
                "Of the diagonal scales. Near 0: no coordinate was told apart from others.",
                "standard deviation over mean",
            ),
        )
    ]


def _spending(run: RunRecord) -> list[Chart | None]:
    m = run.metrics
    tokens = {"input": column(m, "input_tokens"), "output": column(m, "output_tokens")}
    shares = {key: column(m, f"{key}_share") for key in ("failed", "undecided", "no_response")}
    cost = column(m, "cost")
    return [
        line_chart(
            "calls",
            "Calls per generation",
            "The gap is what sharing equal calls between candidates saved.",
            {"made": column(m, "calls"), "without sharing": column(m, "calls_without_sharing")},
            "",
            "calls",
            include=(0.0,),
        ),
        line_chart("tokens", "Tokens per generation", "Of the calls that were made.", tokens, "", "tokens", (0.0,)),
        line_chart(
            "cost",
            "Cost per generation",
            "In the currency of the prices in the configuration.",
            {"cost": cost} if any(value for _, value in cost) else {},
            "",
            "currency of the prices",
            include=(0.0,),
        ),
        line_chart(
            "failures",
            "Episodes without a plain outcome",
            "Failed: a call could not be completed. Undecided: no answer was found in the reply. No response: a "
            "Verifier came before there was anything to verify.",
            {key.replace("_", " "): points for key, points in shares.items()},
            "%",
            "share of episodes",
            include=(0.0,),
        ),
        line_chart(
            "transcripts",
            "Transcripts read by the encoder",
            "Distinct ones since the process began, and those that were new in the generation.",
            {"distinct": column(m, "distinct_transcripts"), "new": column(m, "new_transcripts")},
            "",
            "transcripts",
            include=(0.0,),
        ),
    ]


def _models(run: RunRecord) -> list[str]:
    seen = dict.fromkeys(name for line in run.metrics for name in as_dict(line.get("model_share")))
    known = run.model_names
    return [name for name in known if name in seen] + [name for name in seen if name not in known]


def _failures(run: RunRecord) -> list[tuple[str, int]]:
    """Replies that failed in training, by outcome, most first; those of shared calls count for each episode."""
    totals: dict[str, float] = {}
    for line in run.metrics:
        for outcome, times in as_dict(line.get("failures")).items():
            totals[outcome] = totals.get(outcome, 0.0) + (number(times) or 0.0)
    return sorted(((o.replace("_", " "), int(n)) for o, n in totals.items() if n), key=lambda pair: -pair[1])


def _seconds(run: RunRecord) -> list[tuple[str, float]]:
    totals = [(phase, sum(v for _, v in column(run.metrics, "seconds", phase))) for phase in (*PHASES, "total")]
    return [(phase, seconds) for phase, seconds in totals if seconds > 0]
