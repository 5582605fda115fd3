"""What an evaluation compares, settled before anything is paid: coordinators, questions, pool, protocol."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trinity_jax import config
from trinity_jax.config import PoolFile, TrialSettings
from trinity_jax.coordinator.export import Coordinator, load_coordinator
from trinity_jax.errors import UserError
from trinity_jax.evaluation.forecast import trained_episodes
from trinity_jax.learning.population import population_size
from trinity_jax.tasks.audit import known
from trinity_jax.tasks.jsonl import Tasks, load_tasks
from trinity_jax.tasks.offline import offline_tasks
from trinity_jax.tasks.question import Question
from trinity_jax.training.folder import RunFolder


@dataclass(frozen=True)
class Found:
    """A trained coordinator on disk.

    Attributes:
        name: what to call it.
        run: its run folder, where that was named.
        trained: the settings of the run that it was trained in, untouched; None where it lies beside no run.
    """

    name: str
    coordinator: Coordinator
    run: RunFolder | None
    trained: Path | None


@dataclass(frozen=True)
class Trial:
    """What is going to be compared.

    Attributes:
        coordinators: the first is the one that the table is about.
        settings: pool, protocol, budget, rows.
        train: questions that rivals may be chosen on; none where no run or config says which.
        test: questions to compare on.
        seen: how many questions were left out of ``test`` because a coordinator was trained or validated on them.
        taught: for each coordinator the kinds of the questions that it was trained on; none where they are not known.
        unknown: for each coordinator whose training questions are not known, or not all, its name and why.
        search_episodes: about how many episodes the search of fixed policies plays.
    """

    coordinators: tuple[Found, ...]
    settings: TrialSettings
    train: tuple[Question, ...]
    test: tuple[Question, ...]
    seen: int
    taught: tuple[tuple[str, ...], ...]
    unknown: tuple[str, ...]
    search_episodes: int


def find(path: Path) -> Found:
    """The coordinator of a run folder, or a coordinator folder itself.

    Raises:
        UserError: it is neither, or the run has not finished.
    """
    run = RunFolder(path)
    if run.config.is_file():
        if not run.coordinator.is_dir():
            raise UserError(f"{path}: no coordinator yet: the run has not finished; go on with it by --resume")
        return Found(path.resolve().name, load_coordinator(run.coordinator), run, run.config)
    if not (path / "coordinator.json").is_file():
        raise UserError(f"{path}: expected a run folder (with config.yaml) or a coordinator folder")
    place = path.resolve()
    beside = RunFolder(place.parent)
    own = beside.coordinator == place
    trained = beside.config if own and beside.config.is_file() else None
    return Found((place.parent if own else place).name, load_coordinator(path), None, trained)


def plan(
    paths: Sequence[Path],
    run_file: str | None = None,
    tasks: Sequence[str] = (),
    pool_file: str | None = None,
    overrides: Sequence[str] = (),
) -> Trial:
    """Settle what is compared, before anything is paid.

    Args:
        paths: run or coordinator folders.
        run_file: a run's YAML file; default: the first run folder's own.
        tasks: JSONL files or names of offline tasks, to test on instead of that file's test set.
        pool_file: a YAML file with ``pool`` and maybe ``budget``, instead of that file's.
        overrides: ``a.b=value``, which count last.

    Raises:
        UserError: whatever is missing or does not fit together.
    """
    found = tuple(map(find, paths))
    if len({one.name for one in found}) < len(found):
        found = tuple(replace(one, name=str(path)) for one, path in zip(found, paths, strict=True))
    first, described = found[0], found[0].coordinator.description
    source = run_file or (str(first.run.config) if first.run else None)
    if source is None and not (pool_file and tasks):
        raise UserError(f"{paths[0]}: a coordinator alone needs --pool with --task, or the --config of a run")
    data = config.read(source) if source else {}
    # The protocol that it was trained in, unless an override says otherwise.
    data |= {name: getattr(described, name).model_dump(mode="json") for name in ("episode", "policy")}
    if pool_file:
        given = config.parse(config.read(pool_file), pool_file, PoolFile)
        data |= {name: getattr(given, name).model_dump(mode="json") for name in ("pool", "budget")}
    config.override(data, tuple(overrides))
    own, episodes = Tasks((), (), ()), 0
    if source:
        whole = config.parse(data, source)
        settings = TrialSettings(**{name: getattr(whole, name) for name in TrialSettings.model_fields})
        own = load_tasks(whole.tasks)
        episodes = trained_episodes(whole, population_size(whole.learning, described.evolved_n))
    else:
        settings = config.parse(data, str(pool_file), TrialSettings)
    for one in found:
        check_names(one, settings.pool.names)
    runs = [own, *(load_tasks(config.load(one.run.config).tasks) for one in found[1:] if one.run and not run_file)]
    pasts = [past(one) for one in found]
    named = offline_tasks() if tasks else {}
    test = [q for task in tasks for q in known(task, named)] or [q for one in runs for q in one.test]
    # What is tested and what was learned from are two things: a config or an override changes the first alone.
    before = {q.prompt for one in (*runs, *(sets for sets, _ in pasts)) for q in (*one.train, *one.validation)}
    fresh = {q.prompt: q for q in test if q.prompt not in before}
    if not fresh:
        raise UserError("evaluate: no test questions are left: the coordinator was trained or validated on all of them")
    train = {q.prompt: q for one in runs for q in one.train}
    return Trial(
        coordinators=found,
        settings=settings,
        train=tuple(train.values()),
        test=tuple(fresh.values()),
        seen=len({q.prompt for q in test} & before),
        taught=tuple(tuple(dict.fromkeys(q.kind for q in sets.train)) for sets, _ in pasts),
        unknown=tuple(f"{one.name} ({why})" for one, (_, why) in zip(found, pasts, strict=True) if why),
        search_episodes=episodes,
    )


def past(found: Found) -> tuple[Tasks, str]:
    """The questions of the run that a coordinator was trained in, and why that is not all, if it is not.

    A run whose question files are gone can still be evaluated on others: that its questions are not known is said.
    """
    nothing = Tasks((), (), ())
    if found.trained is None:
        return nothing, "it lies beside no run"
    changed = any(step.action in ("add", "renew") for step in found.coordinator.description.lineage)
    try:
        sets = load_tasks(config.load(found.trained).tasks)
    except UserError as error:
        return nothing, str(error)
    return sets, "its pool was changed later, on questions that it does not name" if changed else ""


def check_names(found: Found, names: Sequence[str]) -> None:
    """See that a pool is the coordinator's: the same names in head order.

    Raises:
        UserError: naming what is missing, extra or out of order.
    """
    expected = found.coordinator.description.pool
    missing, extra = ([n for n in one if n not in other] for one, other in ((expected, names), (names, expected)))
    if missing or extra:
        faults = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has besides {', '.join(extra)}"] * bool(extra)
        raise UserError(f"{found.name}: trained on the pool {', '.join(expected)}; this one {' and '.join(faults)}")
    if tuple(names) != expected:
        raise UserError(f"{found.name}: the pool's models must stand in the order {', '.join(expected)}")
