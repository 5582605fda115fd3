"""Words between the processes of a run, and the watch that ends a process when another is lost."""

import hashlib
import json
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape

from trinity_jax.config import HostsSettings, Settings
from trinity_jax.errors import UserError

RESUME = "what was paid for is kept: go on with --resume"


def join(settings: Settings) -> dict[int, Connection]:
    """Connections to the others: process 0's to each, each one's to process 0."""
    chosen, deadline = settings.hosts, time.monotonic() + settings.hosts.timeout_seconds
    # Not a secret, but a stranger, or a process that was started with other settings, does not get in.
    told = settings.model_dump_json(exclude={"hosts"}) + str(chosen.processes)
    key = hashlib.sha256(told.encode()).digest()
    if chosen.process == 0:
        return _await_all(chosen, key, deadline)
    host, port = chosen.address
    while True:
        try:
            connection = Client((host, port), authkey=key)
        except AuthenticationError as error:
            raise UserError(f"hosts: {host}:{port} refuses process {chosen.process}: other settings there") from error
        except (OSError, EOFError) as error:
            if time.monotonic() > deadline:
                raise UserError(
                    f"hosts: process 0 was not at {host}:{port} within {chosen.timeout_seconds:g} s ({error})"
                ) from error
            time.sleep(0.1)
            continue
        connection.send_bytes(json.dumps(chosen.process).encode())
        # Others may still be awaited: process 0's own limit is the one that counts, this one only if it is lost.
        if not connection.poll(max(deadline - time.monotonic(), 0) + chosen.timeout_seconds):
            raise UserError(f"hosts: process 0 at {host}:{port} does not answer")
        try:
            answer = json.loads(connection.recv_bytes())
        except (OSError, EOFError) as error:
            raise UserError("hosts: process 0 stopped before all had joined") from error
        if answer is not None:
            raise UserError(answer)
        return {0: connection}


def _await_all(chosen: HostsSettings, key: bytes, deadline: float) -> dict[int, Connection]:
    host, port = chosen.address
    try:
        listener = Listener(("", port), backlog=chosen.processes, authkey=key)
    except OSError as error:
        raise UserError(f"hosts: port {port} cannot be listened on ({error.strerror})") from error
    arrived: queue.SimpleQueue[tuple[int, Connection]] = queue.SimpleQueue()

    def accept() -> None:
        while True:
            try:
                connection = listener.accept()
                arrived.put((json.loads(connection.recv_bytes()), connection))
            except (AuthenticationError, EOFError, ConnectionError, ValueError):
                continue  # a stranger
            except OSError:
                return  # closed

    threading.Thread(target=accept, name="hosts", daemon=True).start()
    joined: dict[int, Connection] = {}
    try:
        while len(joined) < chosen.processes - 1:
            try:
                process, connection = arrived.get(timeout=max(deadline - time.monotonic(), 0.0))
            except queue.Empty:
                missing = [p for p in range(1, chosen.processes) if p not in joined]
                message = (
                    f"hosts: within {chosen.timeout_seconds:g} s process {', '.join(map(str, missing))} of "
                    f"{chosen.processes} did not join at {host}:{port} "
                    f"(there: process {', '.join(map(str, sorted({0, *joined})))})"
                )
                _answer(joined, message)
                raise UserError(message) from None
            joined[process] = connection
    finally:
        listener.close()
    _answer(joined, None)
    return joined


def _answer(joined: dict[int, Connection], message: str | None) -> None:
    for connection in joined.values():
        with suppress(OSError):
            connection.send_bytes(json.dumps(message).encode())


def end(message: str, code: int = 2) -> NoReturn:
    """Say why and be gone, from whatever thread; the journals survive that at any moment."""
    Console(stderr=True).print(f"[bold red]error:[/bold red] {escape(message)}", soft_wrap=True, highlight=False)
    sys.stderr.flush()
    os._exit(code)


class Wire:
    """Words between process 0 and each other process, and a watch that ends this process when one is lost.

    Every word is a JSON pair of kind and content: ``word``, ``alive``, ``stop`` (with the reason) or ``bye``.
    """

    def __init__(self, process: int, peers: dict[int, Connection], seconds: float):
        self._process = process
        self._peers = peers
        self._seconds = seconds
        self._sending = threading.Lock()
        self._words: dict[int, queue.SimpleQueue[Any]] = {peer: queue.SimpleQueue() for peer in peers}
        self._closing = False
        self._thread = threading.Thread(target=self._watch, name="hosts", daemon=True)
        self._thread.start()

    def meet(self, word: Any) -> list[Any]:
        """Process 0 hears all and tells each what all said."""
        if self._process:
            self._send(0, "word", word)
            return self._words[0].get()
        words = [word, *(self._words[peer].get() for peer in sorted(self._peers))]
        for peer in self._peers:
            self._send(peer, "word", words)
        return words

    def stop(self, message: str) -> None:
        """Tell all why this process ends."""
        self._closing = True
        for peer in self._peers:
            self._send(peer, "stop", f"process {self._process} stopped the run: {message}")

    def close(self) -> None:
        """Part in peace."""
        self._closing = True
        for peer in self._peers:
            self._send(peer, "bye", None)
        self._thread.join(self._seconds)
        for connection in self._peers.values():
            connection.close()

    def _send(self, peer: int, kind: str, content: Any) -> None:
        # One that is gone is noticed by the watch.
        with self._sending, suppress(OSError):
            self._peers[peer].send_bytes(json.dumps((kind, content)).encode())

    def _watch(self) -> None:
        here, heard = dict(self._peers), dict.fromkeys(self._peers, time.monotonic())
        beat, beaten = self._seconds / 5, 0.0
        while here:
            of = {connection: peer for peer, connection in here.items()}
            for connection in wait(list(of), timeout=beat):
                peer = of[connection]  # type: ignore[index]
                try:
                    kind, content = json.loads(here[peer].recv_bytes())
                except (OSError, EOFError):
                    self._lost(peer, "is gone")
                    del here[peer]
                    continue
                heard[peer] = time.monotonic()
                if kind == "word":
                    self._words[peer].put(content)
                elif kind == "stop" and not self._closing:
                    self.stop(content)
                    end(content)
                elif kind == "bye":
                    del here[peer]
            if time.monotonic() - beaten > beat:
                beaten = time.monotonic()
                for peer in here:
                    self._send(peer, "alive", None)
            for peer in here:
                if time.monotonic() - heard[peer] > self._seconds:
                    self._lost(peer, f"was not heard of for {self._seconds:g} s")

    def _lost(self, peer: int, how: str) -> None:
        if self._closing:
            return
        message = f"hosts: process {peer} {how}; {RESUME}"
        self.stop(message)
        end(message)
