"""What models cost: from their own settings or from a dated price file; a price that nobody knows is no price of zero.

    date: 2026-01-31            # when the prices were looked up
    currency: USD
    models:                     # by the name that the server calls the model; money per million tokens
      my-org/big-model: {input: 1.25, output: 10.0}
      my-org/small-model: {input: 0.1, output: 0.4}

All input counts at its full price, reasoning as output: where a provider charges less, a cap stops early, never late.
"""

import datetime
import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field

from trinity_jax import config
from trinity_jax.config import BudgetSettings, Group, ModelSettings, PoolSettings, PriceSettings
from trinity_jax.errors import UserError

_LOCAL_NAMES = (".localhost", ".local", ".internal", ".lan", ".home.arpa")


class ListedPrice(Group):
    """Money per million tokens; both must be said, 0 is a price too."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)


class PriceTable(Group):
    """A price file."""

    date: datetime.date
    currency: str = Field(min_length=1)
    models: dict[str, ListedPrice] = Field(min_length=1)


def read_prices(path: Path) -> PriceTable:
    """Read a price file.

    Raises:
        UserError: it cannot be read, has a model twice, or lacks a part.
    """
    return config.parse(config.read(path), str(path), PriceTable)


def priced(pool: PoolSettings, budget: BudgetSettings) -> tuple[ModelSettings, ...]:
    """The pool's models, each with its price: its own (other than zero), else the price file's, else none.

    None is allowed at a local address, and elsewhere with ``pool.unknown_price: free``.

    Raises:
        UserError: a price is not known, the price file is of no use, or ``budget.cost`` would cap nothing.
    """
    listed = read_prices(pool.prices).models if pool.prices else {}
    models, unknown = [], []
    for model in pool.models:
        found = listed.get(model.model)
        if found and not _costs(model.price):
            model = model.model_copy(update={"price": PriceSettings(input=found.input, output=found.output)})
        elif not _costs(model.price) and not is_local(model.base_url):
            unknown.append(f"{model.name} ({model.model})")
        models.append(model)
    if unknown and pool.unknown_price == "refuse":
        where = f"list it in {pool.prices}" if pool.prices else "name a price file in pool.prices"
        raise UserError(
            f"pool.models: no price is known for {', '.join(unknown)}: set its price: {{input: ..., output: ...}} per "
            f"million tokens, {where}, or set pool.unknown_price: free"
        )
    if budget.cost is not None and pool.unknown_price == "refuse" and not any(_costs(m.price) for m in models):
        raise UserError("budget.cost: caps nothing, since no model of the pool has a price; cap calls or tokens")
    return tuple(models)


def is_local(base_url: str) -> bool:
    """Whether an address is on this machine or a private network: such a server bills nobody by itself.

    Those are addresses that are not global, and names without a dot or under a name that is never public. A proxy there
    that passes calls on to somebody who bills needs a price like any other; nothing tells it from here.
    """
    try:
        host = urlsplit(base_url).hostname or ""
    except ValueError:
        host = ""  # no address at all: the client will say so
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(_LOCAL_NAMES)


def _costs(price: PriceSettings) -> bool:
    return bool(price.input or price.output)
