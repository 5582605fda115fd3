"""What the run says about Proposition 1."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from experiments.efficiency import laws
from experiments.efficiency.equal_calls import PAPER_BOX, REPLICATIONS
from experiments.efficiency.gain import LAWFUL
from experiments.efficiency.points import Point, one, within
from experiments.efficiency.settings import Settings
from experiments.efficiency.verdict import STRAIGHT, TOLERANCE, agrees, each, note, together, verdict
from experiments.results import markdown, show

MAIN = "exact ranks"


def exact(points: Sequence[Point], settings: Settings) -> Iterator[str]:
    """Gains, ratio and kbar under exact ranks."""
    P, n, T = settings.population, settings.gain.n, settings.generations[-1]
    kbar = laws.kbar(P)
    fits = within(points, part="fit", measure="slope", ranks="exact")
    main = [fit for fit in fits if fit.n == n and "TPA" not in fit.arm]
    straight = [one(points, part="fit", measure="R2 in T", arm=fit.arm).value for fit in main]
    followed = each(f"{1 + fit.error:.3f} ({fit.arm})" for fit in main)
    yield verdict(
        together([*map(agrees, main), min(straight) > STRAIGHT]),
        f"The ES's gain is a line in T at n = {n:,}: slope over the law followed along the gradient {followed}; R^2 "
        f"at least {min(straight):.4f}.",
    )
    first = [one(points, part="fit", measure="first-order slope", arm=fit.arm) for fit in main]
    yield verdict(
        together(map(agrees, first)),
        f"The slope is that of the start, kbar/2 G = {kbar / 2:.2f} G at the best step size: measured over predicted "
        f"{each(f'{1 + fit.error:.3f}' for fit in first)}. The gradient changes on the way: T kbar / n = "
        f"{T * kbar / n:.2f}.",
    )
    yield _search(points)
    yield from _ratio(points, MAIN, "ratio", f"N = {P // REPLICATIONS} T: twice the ES's replications")
    yield from _ratio(points, MAIN, "ratio at N = P T", f"N = {P} T: equal replications")
    bars = [one(points, part="fit", measure="kbar", arm=fit.arm) for fit in main]
    yield verdict(
        together(map(agrees, bars)),
        f"kbar = n alpha^2 / beta is {kbar:.2f}: measured {each(show(point.estimate, 2) for point in bars)}. "
        "It leaves out the scatter of x'Hx between candidates, which takes a part of the selection.",
    )
    mean, crowd = (one(points, part="gain", measure=name, arm=MAIN, T=T) for name in ("gain", "population"))
    yield note(
        f"Recombination repairs: after {T} generations the mean has gained {show(mean.estimate, 0)} G, its "
        f"candidates on average {show(crowd.estimate, 0)} G. The population's average is no measure of what is "
        "deployed."
    )
    slopes = [fit.value for fit in main]
    yield verdict(
        max(slopes) / min(slopes) - 1 <= 2 * TOLERANCE,
        "To first order neither the condition of the blocks nor eps matters (10 % allowed): slopes from "
        f"{min(slopes):.2f} G to {max(slopes):.2f} G. So these laws do not test separability.",
    )
    yield from _fits(points, fits)


def _search(points: Sequence[Point]) -> str:
    random = within(points, part="gain", measure="gain", arm=f"{MAIN}: gaussian search")
    best = [p.but(predicted=laws.expected_maximum(p.N or 1) ** 2 / 2 * (p.G or 1)) for p in random]
    share = [1 + point.error for point in best]
    fit = {point.measure: point for point in within(points, part="fit", arm=f"{MAIN}: gaussian search")}
    above = all(p.value < (p.G or 1) * math.log(p.N or 1) for p in random)
    slope = fit["slope in ln N"]
    return verdict(
        together([*map(agrees, best), fit["R2 in ln N"].value > STRAIGHT]),
        f"Random search, step size tuned for each N, gains m_N^2 G / 2: measured over predicted {min(share):.3f} to "
        f"{max(share):.3f} for N = {random[0].N} to {random[-1].N} ({random[0].seeds:,} runs each). A line in ln N, "
        f"R^2 {fit['R2 in ln N'].value:.4f}, of slope {slope.value:.3f} G (law {slope.predicted:.3f}); G ln N is "
        f"{'above it everywhere' if above else 'not above it everywhere'}. In N itself R^2 is "
        f"{fit['R2 in N'].value:.2f}.",
    )


def _ratio(points: Sequence[Point], arm: str, name: str, calls: str) -> Iterator[str]:
    ratios = within(points, part="ratio", measure=name, arm=arm)
    bounds = within(points, part="ratio", measure=name.replace("ratio", "bound"), arm=arm)
    if not ratios:
        return
    last = ratios[-1]
    held = sum(p.high >= bound.value for p, bound in zip(ratios, bounds, strict=True))
    shape = np.array([(p.T or 0) / math.log(p.N or 2) for p in ratios])
    values = np.array([p.value for p in ratios])
    scale = shape @ values / (shape @ shape)
    # The form is claimed for exact ranks: noise keeps random search from gaining m_N^2 G / 2.
    follows, form = True, ""
    if len(ratios) > 2 and last.ranks == "exact":
        r2 = 1 - np.sum((values - scale * shape) ** 2) / np.sum((values - values.mean()) ** 2)
        follows, form = r2 > STRAIGHT, f"; as {scale:.2f} T / ln N, R^2 {r2:.4f}"
    yield verdict(
        together([held == len(ratios), agrees(last), bool(follows)]),
        f"{arm}: ratio of gains at equal calls ({calls}) at T = {last.T} {show(last.estimate, 1)}, quotient of the "
        f"laws {last.predicted or math.nan:.1f}, bound {bounds[-1].value:.1f}; the bound holds at {held} of "
        f"{len(ratios)} T{form}.",
    )


def binary(points: Sequence[Point], settings: Settings) -> Iterator[str]:
    """The same under Bernoulli rewards."""
    fits = within(points, part="fit", measure="slope", ranks="bernoulli", model="curved", N=None)
    for fit in fits:
        straight = one(points, part="fit", measure="R2 in T", arm=fit.arm).value
        yield verdict(
            together([agrees(fit), straight > STRAIGHT]),
            f"{fit.arm}, up to T = {fit.T}: the ES gains {show(fit.estimate, 4)} logits a generation, by the law "
            f"followed along the gradient {fit.predicted:.4f} (measured over predicted {1 + fit.error:.3f}), R^2 "
            f"{straight:.4f}.",
        )
        rho = one(points, part="fit", measure="rho", arm=fit.arm)
        counted = one(points, part="fit", measure="rho by counts", arm=fit.arm)
        yield verdict(
            agrees(rho),
            f"{fit.arm}: rank attenuation rho^2 {rho.value**2:.3f} [{rho.low**2:.3f}, {rho.high**2:.3f}], by the "
            f"formula {(rho.predicted or 0) ** 2:.3f}, by the exact law of counts {(counted.predicted or 0) ** 2:.3f}.",
        )
        yield from _noisy_search(points, fit, settings)
    yield from _fits(points, fits)


def _noisy_search(points: Sequence[Point], fit: Point, settings: Settings) -> Iterator[str]:
    random = within(points, part="gain", measure="gain", arm=f"{fit.arm}: gaussian search")
    last = random[-1]
    assert last.N
    assert last.replications
    assert fit.replications
    calls = f"{last.N} candidates of {last.replications} draws"
    if last.low <= 0:
        search, es = (
            laws.search_threshold(last.N, last.replications),
            laws.es_threshold(settings.population, fit.replications),
        )
        yield note(
            f"{fit.arm}: random search ({calls}) gains {show(last.estimate, 4, sign=True)} logits at its best step "
            f"size: nothing to divide by. At p = 1/2 it needs G > {search:.4f}, the ES G > {es:.4f}."
        )
        return
    gaining = [point for point in random if point.low > 0 and point.predicted]
    within_interval = sum(point.low <= (point.predicted or 0) <= point.high for point in gaining)
    worst = max(abs(point.error) for point in gaining)
    yield verdict(
        together(map(agrees, gaining)),
        f"{fit.arm}: random search ({calls}) gains {show(last.estimate, 4)} logits, by its law {last.predicted:.4f}; "
        f"largest deviation over the {len(gaining)} N at which it gains at all {worst:.1%}; {within_interval} "
        "intervals hold the law.",
    )
    yield from _ratio(points, fit.arm, "ratio", "bound with the measured eta")


def failures(points: Sequence[Point], settings: Settings) -> Iterator[str]:
    """Step sizes that are off, short vectors, saturation, no curvature, reported rewards, the paper's box."""
    T = settings.generations[-1]
    for arm in (MAIN, f"{MAIN}, TPA"):
        swept = within(points, part="sweep", arm=arm)
        best = max(point.value for point in swept)
        shares = each(f"{point.value / best:.2f} ({point.multiple:g}; law {_law(point):.2f})" for point in swept)
        yield note(f"Step size, {arm}, T = {T}: gain over the best, at multiples of the law's step size: {shares}.")
    for fit in within(points, part="fit", measure="slope", ranks="exact"):
        if fit.n != settings.gain.n:
            first = one(points, part="fit", measure="first-order slope", arm=fit.arm)
            straight = one(points, part="fit", measure="R2 in T", arm=fit.arm).value
            yield note(
                f"n = {fit.n}, where T kbar / n = {T * laws.kbar(settings.population) / (fit.n or 1):.1f}: slope "
                f"over the first-order law {1 + first.error:.2f}, over the law followed along the gradient "
                f"{1 + fit.error:.2f}; R^2 {straight:.3f}."
            )
    for whole in within(points, part="fit", measure="R2 in T to the end", ranks="bernoulli", model="curved"):
        lawful = one(points, part="fit", measure="R2 in T", arm=whole.arm)
        if (lawful.T or 0) < T:
            bends = "rewards no longer tell candidates apart" if whole.value < STRAIGHT else "no bend yet"
            yield note(
                f"Saturation, {whole.arm}: the mean passes p = {LAWFUL} after {lawful.T} generations; R^2 of the "
                f"line is {lawful.value:.4f} up to there and {whole.value:.4f} up to {T}: {bends}."
            )
    yield from _linear_model(points)
    reported = within(points, part="gain", measure="reported chance", model="curved")
    if reported:
        worst = max(reported, key=lambda point: point.value - (point.predicted or 0.0))
        yield note(
            f"The reward of random search's winner is no estimate of its worth: {worst.arm}, N = {worst.N}: reported "
            f"{worst.value:.3f}, true {worst.predicted:.3f}."
        )
    box = one(points, part="gain", measure="gain", arm=f"{MAIN}: the paper's box search")
    tuned = [
        one(points, part="gain", measure="gain", arm=f"{MAIN}: {name} search", N=box.N) for name in ("box", "gaussian")
    ]
    yield note(
        "The paper's box [-0.5, 0.5]^n where the ES's sigma0 = 0.03 is the best: its standard deviation is "
        f"{PAPER_BOX:.1f} times that and {box.multiple:.0f} times what random search needs at N = {box.N}: gain "
        f"{show(box.estimate, 0)} G instead of {laws.expected_maximum(box.N or 1) ** 2 / 2:.1f} G. Tuned at this N, "
        f"box and Gaussian gain {each(f'{show(point.estimate, 2)} G' for point in tuned)}."
    )


def _law(point: Point) -> float:
    """Share of the best gain to first order, 2 x - x^2."""
    return 2 * (point.multiple or 0) - (point.multiple or 0) ** 2


def _linear_model(points: Sequence[Point]) -> Iterator[str]:
    fit = one(points, part="fit", measure="slope", model="linear", N=None)
    straight = one(points, part="fit", measure="R2 in T", arm=fit.arm).value
    yield verdict(
        together([agrees(fit), straight > STRAIGHT]),
        "Linear score model p = 1/2 + gamma <u, x>, no curvature: the ES is a line here too, without any noise "
        f"threshold; slope over law {1 + fit.error:.3f}, R^2 {straight:.4f}.",
    )
    arm = f"{fit.arm}: gaussian search"
    random = within(points, part="gain", measure="gain", arm=arm)
    forms = {point.measure: point.value for point in within(points, part="fit", arm=arm)}
    worst = max(abs(point.error) for point in random)
    alike = abs(forms["R2 in m_N"] - forms["R2 in ln N"]) < 1 - STRAIGHT
    yield verdict(
        together(map(agrees, random)),
        "There, at one step size for all N, random search gains gamma sigma rho m_N, so grows as sqrt(2 ln N) and "
        f"not as ln N: largest deviation {worst:.1%}; R^2 in m_N {forms['R2 in m_N']:.4f}, in ln N "
        f"{forms['R2 in ln N']:.4f}" + (": these N tell the constants apart, not the two forms." if alike else "."),
    )
    ratios = within(points, part="ratio", measure="ratio", arm=fit.arm)
    bounds = within(points, part="ratio", measure="bound", arm=fit.arm)
    if ratios:
        held = sum(point.high >= bound.value for point, bound in zip(ratios, bounds, strict=True))
        yield verdict(
            held == len(ratios),
            f"The bound of Proposition 1 there: at T = {ratios[-1].T} the ratio is {show(ratios[-1].estimate, 1)}, "
            f"the bound {bounds[-1].value:.1f}; it holds at {held} of {len(ratios)} T. The bound needs the curvature "
            "that makes a step size best.",
        )


def _fits(points: Sequence[Point], fits: Sequence[Point]) -> Iterator[str]:
    """The fits as a table."""
    rows = []
    for fit in fits:
        first = one(points, part="fit", measure="first-order slope", arm=fit.arm).predicted
        forms = [one(points, part="fit", measure=f"R2 in {x}", arm=fit.arm).value for x in ("T", "ln T")]
        numbers = [f"{fit.c_mu_T:.3f}", show(fit.estimate, 4), f"{fit.predicted:.4f}", f"{first:.4f}"]
        rows.append([fit.arm, fit.T, fit.multiple, *numbers, *(round(form, 4) for form in forms)])
    header = ["arm", "T", "sigma0 over the law's", "c_mu T", "slope, logits", "law along the gradient", "first order"]
    if rows:
        yield "\n" + markdown([*header, "R^2 in T", "R^2 in ln T"], rows)
