"""All arms on the jitted worlds, then singular-value scales through the encoder."""

import time
from typing import Any

import jax
from rich.console import Console

from experiments.ablation import figures, page
from experiments.ablation.arms import Arm, Groups, distinct, plan
from experiments.ablation.ceilings import ceilings
from experiments.ablation.found import Found
from experiments.ablation.runs import Measured, measure, rows, shorter, views
from experiments.ablation.scales import Encoded, Preset, Scaled, evolve
from experiments.ablation.settings import Settings, SmallSettings
from experiments.results import Results
from experiments.study_settings import WorldSettings
from experiments.worlds import build_ground, on_ground
from trinity_jax.config import EncoderSettings
from trinity_jax.coordinator.heads import make
from trinity_jax.encoder.states import decoder_of
from trinity_jax.errors import UserError
from trinity_jax.world.evolve import World
from trinity_jax.world.skills import from_pool

_SCALES = 3  # of the keys, beside those of `runs`


def run(settings: Settings, results: Results, console: Console) -> None:
    """Measure all arms and write the table, the figures and the page.

    Raises:
        UserError: a head that does not fit D or L, a kind that a model has no skill for, or no such encoder.
    """
    groups = plan(settings)
    width = check(settings, groups)
    arms = distinct(groups)
    large = [arm for arm in arms if arm.position is None]
    world = _world(settings, settings.world, console)
    measured = _measured(large, world, settings, settings.world, console)
    best = ceilings(world, dict.fromkeys((arm.max_calls, arm.roles) for arm in large))
    scales: tuple[list[Scaled], list[Scaled]] = [], []
    if settings.small:
        for position in settings.small.positions:
            mine = _at(settings.small.world, position)
            world = _world(settings, mine, console)
            measured |= _measured([arm for arm in arms if arm.position == position], world, settings, mine, console)
            if position == settings.small.world.encoder.read_position:
                scales = _scales(settings, settings.small, world, measured, groups, console)
    models = len(settings.pool.names)
    found = Found(groups, measured, best, width, models, *map(tuple, scales))
    lines = [line for arm, one in measured.items() for line in rows(arm, one)]
    results.table(lines + [_row(one, settings) for part in scales for one in part])
    figures.draw(found, settings, results)
    results.page(page.text(found, settings))


def check(settings: Settings, groups: Groups) -> int:
    """Tell before the work begins what could not be done; D.

    Raises:
        UserError: see `run`.
    """
    for mix in (settings.world.mix, settings.small.world.mix if settings.small else ()):
        from_pool(settings.pool, [task.kind for task in mix])
    own = settings.world
    width = own.synthetic.width if own.states == "synthetic" else decoder_of(own.encoder).config.hidden_size
    outputs = len(settings.pool.names) + 3
    for group, arms in groups.items():
        for name, arm in arms.items():
            try:
                make(arm.head, outputs, width)
            except UserError as error:
                raise UserError(
                    f"{group}, {name}: the head does not fit D = {width}, L + 3 = {outputs}: {error}"
                ) from error
    return width


def _world(settings: Settings, own: WorldSettings, console: Console) -> World:
    with console.status("encoding") as status:
        progress = lambda done, total: status.update(f"encoding {done} of {total} transcripts")  # noqa: E731
        return on_ground(build_ground(own, len(settings.pool.names), progress), settings.pool)


def _measured(
    arms: list[Arm], world: World, settings: Settings, own: WorldSettings, console: Console
) -> dict[Arm, Measured]:
    seen = views(world, settings)
    found = {}
    with console.status("arms") as status:
        for number, arm in enumerate(arms, 1):
            status.update(f"arm {number} of {len(arms)}")
            mine = seen[arm.coordinates]
            mine = (
                mine if arm.max_calls == own.max_calls else shorter(mine, own.transcript, own.max_calls, arm.max_calls)
            )
            found[arm] = measure(arm, mine, settings)
    console.print(f"{len(arms)} arms on {len(world.train)} + {len(world.held_out)} questions")
    return found


def _scales(
    settings: Settings,
    small: SmallSettings,
    world: World,
    measured: dict[Arm, Measured],
    groups: Groups,
    console: Console,
) -> tuple[list[Scaled], list[Scaled]]:
    """The long runs with and without scales of one layer, then the short ones that have ``released`` too."""
    if not small.scales:
        return [], []
    own, position = small.scales, small.world.encoder.read_position
    sigma0 = measured[groups["position, centred"][str(position)]].sigma0
    root = jax.random.fold_in(jax.random.key(settings.seed), _SCALES)

    def runs(preset: Preset, population: int, generations: int, seeds: int) -> list[Scaled]:
        encoded = Encoded(world, small.world, preset, own, population)
        learning = settings.learning.model_copy(
            update={
                "population": population,
                "generations": generations,
                "questions": own.questions,
                "sigma0": sigma0,
            }
        )
        return [evolve(encoded, learning, jax.random.fold_in(root, seed), seed) for seed in range(seeds)]

    long, short = [], []
    for preset in ("none", "layer"):
        began = time.perf_counter()
        long += runs(preset, own.population, own.generations, own.seeds)
        console.print(f"scales: {preset}: {time.perf_counter() - began:.0f} s")
    for preset in ("none", "layer", "released"):
        began = time.perf_counter()
        short += runs(preset, own.released_population, own.released_generations, 1)
        console.print(
            f"scales: {preset}: {time.perf_counter() - began:.0f} s with a population of {own.released_population}, "
            f"{short[-1].seconds:.1f} s a generation once compiled"
        )
    return long, short


def _row(one: Scaled, settings: Settings) -> dict[str, Any]:
    assert settings.small
    assert settings.small.scales
    about = {
        name: value
        for name, value in one._asdict().items()
        if name in ("n", "population", "generations", "sigma0", "seed")
    }
    return about | {
        "world": f"small, token {settings.small.world.encoder.read_position}",
        "head": "linear",
        "coordinates": "centred",
        "decision": "sample",
        "roles": "Worker+Thinker+Verifier",
        "calls": settings.small.world.max_calls,
        "replications": settings.small.scales.questions,
        "purpose": "judged",
        "success": one.drawn,
        "singular values": one.preset,
        "scales": one.scales,
        "pairs encoded a generation": one.pairs,
        "blocks a pair": one.blocks,
    }


def _at(own: WorldSettings, position: int) -> WorldSettings:
    encoder: EncoderSettings = own.encoder.model_copy(update={"read_position": position})
    return own.model_copy(update={"encoder": encoder})
