"""``report.html``: one page, no network, no script, light and dark, made from the run folder alone."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from trinity_jax.errors import UserError
from trinity_jax.report.figures import Chart, Point, line_chart, share_chart
from trinity_jax.report.folder import RunRecord, column, number, read

PHASES = ("ask", "rollout", "decide", "tell", "validate")
ROLES = ("worker", "thinker", "verifier")
COLOURS = 8
CONVERSATIONS = 12
CONVERSATION_CHARS = 12_000
TURN_CHARS = 2_000


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
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trinity_jax", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(percent=percent, points=points, clip=clip, count=count)
    summary = run.summary or {}
    return environment.get_template("report.html.j2").render(
        name=run.name,
        headline=headline(run),
        notices=run.notices,
        facts=facts(run),
        rows=[_row(row) for row in _dicts(summary.get("rows"))],
        kinds=list(dict.fromkeys(kind for row in _dicts(summary.get("rows")) for kind in _dict(row.get("by_kind")))),
        search=_dict(summary.get("fixed_policy_search")),
        sections=sections(run),
        seconds=_seconds(run),
        alarms=[(line.get("generation"), alarm) for line in run.metrics for alarm in _list(line.get("alarms"))],
        conversations=[_conversation(episode, run.model_names) for episode in choose(run.transcripts)],
        episodes=len(run.transcripts),
        config=run.config_text,
    )


def headline(run: RunRecord) -> str:
    """What the run showed: the verdict of its summary, or that there is none yet."""
    if run.summary and run.summary.get("verdict"):
        return str(run.summary["verdict"])
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
    if source := _dict(run.config.get("encoder")).get("source"):
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


def sections(run: RunRecord) -> list[tuple[str, str, list[Chart]]]:
    """(heading, introduction, figures) in reading order; a figure without data is left out."""
    m = run.metrics
    models = _names(run.model_names, [_dict(line.get("model_share")) for line in m])
    kinds = list(dict.fromkeys(kind for line in m for kind in _dict(line.get("model_share_by_kind"))))
    styles = {name: i % COLOURS for i, name in enumerate(models)}
    learning = [
        line_chart(
            "learning",
            "Learning curve",
            "Fitness is noisy and is measured on each generation's own questions; validation is the mean vector on "
            "fixed questions and is the curve to trust.",
            {
                "fitness, mean of the population": column(m, "fitness_mean"),
                "fitness, best of the generation": column(m, "fitness_best"),
                "validation accuracy of the mean": column(m, "validation_accuracy"),
            },
            "%",
            include=(0.0, 1.0),
        )
    ]
    choices = [
        _shares("models", "Models chosen", "Share of all calls, all candidates.", m, ("model_share",), models, styles),
        _shares(
            "roles",
            "Roles chosen",
            "Share of all calls, all candidates.",
            m,
            ("role_share",),
            ROLES,
            {role: i for i, role in enumerate(ROLES)},
        ),
        *(
            _shares(
                f"kind-{i}",
                f"Models chosen: {kind}",
                "Share of the calls on questions of this kind.",
                m,
                ("model_share_by_kind", kind),
                models,
                styles,
            )
            for i, kind in enumerate(kinds)
        ),
    ]
    state = [
        line_chart(key, title, caption, {title: column(m, key)}, height=200)
        for key, title, caption in (
            ("sigma", "Step size sigma", "The width of the search distribution."),
            ("mean_norm", "Norm of the mean", "Under pure noise it grows too: growth alone is not learning."),
            ("diagonal_spread", "Spread of the diagonal", "Near its start: no coordinate was told apart from others."),
        )
    ]
    spending = [
        line_chart(
            "calls",
            "Calls per generation",
            "The gap is what sharing equal calls between candidates saved.",
            {"made": column(m, "calls"), "without sharing": column(m, "calls_without_sharing")},
            include=(0.0,),
        ),
        line_chart("cost", "Cost per generation", "In the currency of the prices in the configuration.", _nonzero(m)),
        line_chart(
            "failures",
            "Episodes without a plain outcome",
            "Failed: a call could not be completed. Undecided: no answer was found in the reply.",
            {"failed": column(m, "failed_share"), "undecided": column(m, "undecided_share")},
            "%",
            include=(0.0,),
        ),
        line_chart(
            "transcripts",
            "Transcripts read by the encoder",
            "Distinct ones since the process began, and those that were new in the generation.",
            {"distinct": column(m, "distinct_transcripts"), "new": column(m, "new_transcripts")},
            include=(0.0,),
        ),
    ]
    parts = (
        ("Learning", "", learning),
        ("What it chose", "A line of one colour for every kind means that the question is not looked at.", choices),
        ("State of the search", "These tell learning from drift.", state),
        ("Calls, cost and failures", "", spending),
    )
    return [(h, text, [f for f in figures if f]) for h, text, figures in parts if any(figures)]


def choose(transcripts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A dozen episodes to read, taken in turn from every (kind, outcome), in the order of the file within each."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for episode in transcripts:
        groups.setdefault((str(episode.get("kind")), outcome(episode)), []).append(episode)
    depth = max(map(len, groups.values()), default=0)
    return [group[i] for i in range(depth) for group in groups.values() if i < len(group)][:CONVERSATIONS]


def outcome(episode: Mapping[str, Any]) -> str:
    """``right``, ``wrong``, ``undecided`` or ``failed``."""
    return "failed" if episode.get("reward") is None else str(episode.get("grade") or "no answer")


def percent(value: Any, digits: int = 1) -> str:
    """A share in percent; a dash where it is not known."""
    known = number(value)
    return "-" if known is None else f"{100 * known:.{digits}f}"


def points(value: Any) -> str:
    """A difference of shares in percentage points, with its sign."""
    known = number(value)
    return "-" if known is None else f"{100 * known:+.1f}"


def count(value: Any, digits: int = 0) -> str:
    """A number with thousands separated; a dash where it is not known."""
    known = number(value)
    return "-" if known is None else f"{known:,.{digits}f}"


def clip(text: str, limit: int = TURN_CHARS) -> str:
    """The first ``limit`` characters, and how many were left out."""
    return text if len(text) <= limit else f"{text[:limit]} … ({len(text) - limit:,} more characters)"


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": str(row.get("name", "?")),
        "note": str(row.get("note") or ""),
        "accuracy": {"mean": None, "low": None, "high": None} | _dict(row.get("accuracy")),
        "difference": {"mean": None, "low": None, "high": None} | _dict(row.get("difference")),
        "by_kind": _dict(row.get("by_kind")),
        **{key: row.get(key) for key in ("calls_per_question", "calls", "undecided_share", "incomplete_share")},
    }


def _conversation(episode: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    turns = _dicts(episode.get("turns"))
    limit = min(TURN_CHARS, CONVERSATION_CHARS // max(1, len(turns)))
    return {
        "question": clip(str(episode.get("question", ""))),
        "kind": str(episode.get("kind", "")),
        "answer": clip(str(episode.get("answer", "")), 300),
        "outcome": outcome(episode),
        "end": str(episode.get("end") or "").replace("_", " "),
        "turns": [
            {
                "model": _speaker(turn.get("model"), names),
                "role": str(turn.get("role", "")),
                "text": clip(str(turn.get("text") or ""), limit),
                "verdict": turn.get("verdict"),
            }
            for turn in turns
        ],
    }


def _speaker(model: Any, names: Sequence[str]) -> str:
    return names[model] if isinstance(model, int) and 0 <= model < len(names) else str(model)


def _shares(
    id: str,
    title: str,
    caption: str,
    metrics: Sequence[dict[str, Any]],
    path: tuple[str, ...],
    names: Sequence[str],
    styles: Mapping[str, int],
) -> Chart | None:
    return share_chart(id, title, caption, {n: column(metrics, *path, n) for n in names}, styles)


def _names(known: Sequence[str], shares: Sequence[dict[str, Any]]) -> list[str]:
    seen = dict.fromkeys(name for share in shares for name in share)
    return [name for name in known if name in seen] + [name for name in seen if name not in known]


def _nonzero(metrics: Sequence[dict[str, Any]]) -> dict[str, list[Point]]:
    cost = column(metrics, "cost")
    return {"cost": cost} if any(value for _, value in cost) else {}


def _seconds(run: RunRecord) -> list[tuple[str, float]]:
    totals = [(phase, sum(v for _, v in column(run.metrics, "seconds", phase))) for phase in (*PHASES, "total")]
    return [(phase, seconds) for phase, seconds in totals if seconds > 0]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in _list(value) if isinstance(item, dict)]
