"""Work that comes one by one and is cheaper together: whatever waits goes into one batch, without a time window."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Company(Generic[Item, Result]):
    """Greedy batches: while one is worked on, whoever comes waits for the next.

    Args:
        work: all items of a batch to their results, in order. Where it raises, each of the batch is told; the next
            batch may be fine.
    """

    def __init__(self, work: Callable[[list[Item]], Awaitable[list[Result]]]):
        self._work = work
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def join(self, item: Item) -> Result:
        """The item's result, worked out together with whoever else waits."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._serve())
        return await answer

    async def _serve(self) -> None:
        while self._waiting:
            # Once round the loop: what has already arrived comes along.
            await asyncio.sleep(0)
            batch, self._waiting = [(item, answer) for item, answer in self._waiting if not answer.done()], []
            if not batch:
                continue
            try:
                results = await self._work([item for item, _ in batch])
            except Exception as error:
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), result in zip(batch, results, strict=True):
                if not answer.done():
                    answer.set_result(result)
