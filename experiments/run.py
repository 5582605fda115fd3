"""One YAML file = one run: ``python experiments/run.py --config FILE [--set K=V ...] [--run-dir DIR] [--resume]``."""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from trinity_jax import config
from trinity_jax.errors import UserError

# As a script this file sees its own folder only; the studies are a package beside it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

STUDIES = ("ablation", "efficiency", "learners", "pool_change", "recorded", "sample_efficiency", "separability")
"""Each a package here: ``settings.Settings`` says what can be set, ``study.run`` does it."""


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0; 2 for what the user can mend; 130 for Ctrl-C, 143 for SIGTERM.

    A training run goes on with ``--resume``; a study starts anew.
    """
    parser = argparse.ArgumentParser(prog="experiments/run.py", description=__doc__)
    parser.add_argument("--config", required=True, help="YAML file, such as experiments/configs/quickstart.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="such as learning.generations=5")
    parser.add_argument("--run-dir", type=Path, help="where results go; default: runs/<config>-<time>")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --run-dir")
    parser.add_argument("--skip-preflight", action="store_true", help="begin without looking at models and costs first")
    parser.add_argument("--yes", action="store_true", help="do not ask after the preflight")
    options = parser.parse_args(arguments)
    if options.skip_preflight:
        options.set.append("preflight.run=never")
    # A table needs room; where nobody looks through a window, give it some.
    console = Console(width=None if sys.stdout.isatty() else 132)
    resumes = True
    try:
        if options.resume and options.run_dir is None:
            raise UserError("--resume needs --run-dir: the run to go on with")
        data = config.read(options.config, tuple(options.set))
        resumes = data.get("kind", "train") == "train"
        stamp = f"{Path(options.config).stem}-{datetime.now():%Y%m%d-%H%M%S}"
        work = _work(data, options.config, options.yes)
        with _terminable(resumes):
            work(options.run_dir or Path("runs") / stamp, options.resume, console)
    except UserError as error:
        return _error(str(error))
    except OSError as error:
        # A disk that is full, a folder that became read-only: whatever the file, the user's to mend.
        where = f"{error.filename}: " if error.filename else ""
        after = "what was paid for is kept: mend it and add --resume" if resumes else "mend it and start the study anew"
        return _error(f"{where}{error.strerror or error}; {after}")
    except KeyboardInterrupt:
        return _stopped(signal.SIGINT, resumes)
    return 0


def _work(data: dict[str, Any], where: str, yes: bool) -> Callable[[Path, bool, Console], object]:
    """What this run does, once its settings are valid.

    Imported late: a bad config is told before the seconds that JAX and transformers take to load.
    """
    kind = data.get("kind", "train")
    if kind == "train":
        settings = config.parse(data, where)
        with _at_once():
            from trinity_jax.training.hosts import several

        def train_it(folder: Path, resume: bool, console: Console) -> None:
            # First the others, then the import: evosax starts JAX's devices, and then it is too late to meet anybody.
            with several(settings) as hosts:
                with _at_once():
                    from trinity_jax.encoder.compiled import keep_compiled

                    keep_compiled()
                    from trinity_jax.training.train import train
                train(settings, folder, resume=resume, console=console, hosts=hosts, yes=yes)

        return train_it
    if kind not in STUDIES:
        raise UserError(f"{where}: kind: expected one of train, {', '.join(STUDIES)}, got {kind!r}")
    study = importlib.import_module(f"experiments.{kind}.settings")
    chosen = config.parse(data, where, study.Settings)

    def work(folder: Path, resume: bool, console: Console) -> None:
        if resume:
            raise UserError(f"kind: {kind}: a study starts anew each time; leave out --resume")
        with _at_once():
            from trinity_jax.encoder.compiled import keep_compiled

            keep_compiled()
            run = importlib.import_module(f"experiments.{kind}.study").run
            from experiments.results import Results
        with Results.begin(folder, chosen) as results:
            run(chosen, results, console)
            results.check()
            console.print(f"results: {escape(str(folder))}")

    return work


def _error(message: str) -> int:
    Console(stderr=True).print(f"[bold red]error:[/bold red] {escape(message)}", soft_wrap=True, highlight=False)
    return 2


def _stopped(number: int, resumes: bool) -> int:
    after = "what was paid for is kept: go on with --resume" if resumes else "a study starts anew each time"
    Console(stderr=True).print(f"stopped; {after}")
    return 128 + number


@contextmanager
def _terminable(resumes: bool) -> Iterator[None]:
    """SIGTERM ends the process on the spot: a run survives that at any moment, an exception may get lost on its way."""
    before = signal.signal(signal.SIGTERM, lambda number, _: os._exit(_stopped(number, resumes)))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _at_once() -> Iterator[None]:
    """Ctrl-C ends the process while libraries load: raised inside an import it may come out as any other error."""
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    code = main()
    # Nothing is left to stop; a second Ctrl-C would only break into the interpreter's end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)
