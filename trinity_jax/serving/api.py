"""A coordinator from Python: open it with its pool, ask, get an answer and how it came about.

    import trinity_jax

    with trinity_jax.open("runs/first/coordinator", pool="pool.yaml") as trinity:
        answer = trinity.ask("What is 6 * 7?")
        print(answer.text, answer.trace)

``async with`` and ``await trinity.ask_async(...)`` do the same without blocking. Everything runs on an event loop of
its own in a thread, so both work inside and outside a running loop, and from several threads at once.
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from trinity_jax.config import PoolFile
from trinity_jax.serving import chat
from trinity_jax.serving.answer import Answer
from trinity_jax.serving.service import Service

Result = TypeVar("Result")


class Trinity:
    """An opened coordinator; see `open`."""

    def __init__(self, coordinator: str | Path, pool: str | Path | PoolFile, journal: str | Path | None = None):
        self._coordinator = Path(coordinator)
        self._pool = pool if isinstance(pool, PoolFile) else Path(pool)
        self._journal = None if journal is None else Path(journal)
        self._service: Service | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="trinity", daemon=True)

    def ask(self, question: str | Sequence[Mapping[str, Any]], **options: Any) -> Answer:
        """The answer to a question; blocks until it is there.

        Args:
            question: a text, or messages as chat completions have them.
            options: ``max_calls``, ``max_cost``, ``max_seconds``, ``models`` (names that may be asked), ``dry_run``;
                and fields of chat completions, such as ``tools``.

        Raises:
            Refused: there is no answer (`serving.refused`).
        """
        answer = self._submit(self._answer(question, options))
        try:
            return answer.result()
        except BaseException:
            answer.cancel()  # Ctrl-C: nobody will read it, so nobody shall go on paying for it
            raise

    async def ask_async(self, question: str | Sequence[Mapping[str, Any]], **options: Any) -> Answer:
        """`ask` for those who have other things to do meanwhile; cancelled, it stops the calls."""
        return await asyncio.wrap_future(self._submit(self._answer(question, options)))

    def close(self) -> None:
        """Stop what is being answered and free everything. A second call does nothing."""
        if self._loop.is_closed():
            return
        if self._thread.is_alive():
            self._submit(self._end()).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def __enter__(self) -> "Trinity":
        if self._loop.is_closed() or self._thread.is_alive():
            raise RuntimeError("this coordinator has been opened already: call trinity_jax.open again")
        self._thread.start()
        try:
            opened = Service.open(self._coordinator, self._pool, self._journal)
            self._service = self._submit(opened).result()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "Trinity":
        entering = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError:
            # The thread goes on loading; whatever it opens is closed once it is there.
            entering.add_done_callback(lambda done: done.exception() or threading.Thread(target=self.close).start())
            raise

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    async def _answer(self, question: str | Sequence[Mapping[str, Any]], options: dict[str, Any]) -> Answer:
        service = self._service
        assert service is not None  # entered
        messages = [{"role": "user", "content": question}] if isinstance(question, str) else list(question)
        known = {*chat.Wishes.model_fields, *chat.FIELDS}
        if unknown := sorted(set(options) - known):
            raise TypeError(f"ask: unknown options {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        wishes = {name: options.pop(name) for name in list(options) if name in chat.Wishes.model_fields}
        name = service.engine.settings.name
        asked, _ = chat.read({"model": name, "messages": messages, "trinity": wishes, **options}, name)
        return await service.answer(asked)

    async def _end(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._service is not None:
            await self._service.close()

    def _submit(self, work: Coroutine[Any, Any, Result]):
        if self._loop.is_closed() or not self._thread.is_alive():
            work.close()
            raise RuntimeError("this coordinator is not open: use `with trinity_jax.open(...) as trinity:`")
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def open(coordinator: str | Path, pool: str | Path | PoolFile, journal: str | Path | None = None) -> Trinity:
    """A coordinator and its pool, to be entered by ``with`` or ``async with``.

    Args:
        coordinator: the folder ``coordinator/`` of a run.
        pool: a YAML file with the groups ``pool``, ``budget`` and ``serving``, or the same as `config.PoolFile`.
        journal: a file that keeps every call; caps then hold over restarts.

    Raises:
        UserError: on entering, what is wrong with any of them.
    """
    return Trinity(coordinator, pool, journal)
