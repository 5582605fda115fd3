"""Prices: dated, never guessed, never twice."""

import asyncio
import datetime

import pytest
import yaml

from trinity_jax import config
from trinity_jax.config import BudgetSettings, PoolSettings, PriceSettings
from trinity_jax.errors import UserError
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.pool import build_pool
from trinity_jax.pool.prices import is_local, priced, read_prices

FILE = """
date: 2026-01-31
currency: USD
models:
  my-org/big-model: {input: 1.25, output: 10.0}
  my-org/small-model: {input: 0, output: 0}
"""
REMOTE, LOCAL = "https://example.org/v1", "http://127.0.0.1:8000/v1"


def pool(*models, **more) -> PoolSettings:
    entries = [{"name": f"m{i}", "base_url": REMOTE, **model} for i, model in enumerate(models)]
    return config.parse({"kind": "endpoints", "models": entries, **more}, "test", PoolSettings)


@pytest.fixture
def prices(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text(FILE)
    return path


def test_a_price_file_is_read(prices):
    table = read_prices(prices)
    assert (table.date, table.currency) == (datetime.date(2026, 1, 31), "USD")
    assert table.models["my-org/big-model"].output == 10.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE + "  my-org/big-model: {input: 2, output: 2}\n", "my-org/big-model stands there twice"),
        (FILE.replace(", output: 10.0", ""), "output: Field required"),
        (FILE.replace("date: 2026-01-31\n", ""), "date: Field required"),
        (FILE.replace("2026-01-31", "lately"), "date:"),
        (FILE.replace("1.25", "-1"), "input"),
        (FILE.replace("currency: USD", "currency: USD\nunit: cents"), "unit: unknown key"),
        ("date: 2026-01-31\ncurrency: USD\nmodels: {}\n", "models"),
        ("- 1\n", "expected a mapping"),
    ],
)
def test_what_a_price_file_lacks_is_named(tmp_path, text, message):
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read_prices(path)
    assert str(path) in str(caught.value)


def test_a_price_comes_from_the_entry_then_from_the_file(prices):
    own = {"model": "my-org/big-model", "price": {"input": 3.0}}
    found = priced(pool({"model": "my-org/big-model"}, own, prices=str(prices)), BudgetSettings(cost=1.0))
    assert [model.price for model in found] == [PriceSettings(input=1.25, output=10.0), PriceSettings(input=3.0)]


def test_an_unknown_price_is_refused_unless_it_is_free_by_name_or_by_address(prices):
    unknown, none = {"model": "their/model"}, BudgetSettings()
    for settings in (pool(unknown), pool(unknown, {"model": "my-org/big-model"}, prices=str(prices))):
        with pytest.raises(UserError, match=r"no price is known for m0 \(their/model\): .*pool.unknown_price: free"):
            priced(settings, none)
    assert priced(pool({"model": "my-org/small-model"}, prices=str(prices)), none)  # listed at nothing: known
    assert priced(pool(unknown, unknown_price="free"), none)[0].price == PriceSettings()
    assert priced(pool({"model": "qwen", "base_url": LOCAL}), none)[0].price == PriceSettings()


def test_a_cap_on_money_that_nothing_can_reach_is_refused():
    local = {"model": "qwen", "base_url": LOCAL}
    with pytest.raises(UserError, match=r"budget.cost: caps nothing"):
        priced(pool(local), BudgetSettings(cost=1.0))
    assert priced(pool(local, {"model": "big", "price": {"output": 1}}), BudgetSettings(cost=1.0))


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True), ("127.0.0.1", True), ("[::1]", True), ("10.1.2.3", True), ("192.168.0.9", True),
        ("vllm", True), ("gpu.lan", True), ("host.docker.internal", True), ("api.openai.com", False),
        ("8.8.8.8", False), ("[2001:4860:4860::8888]", False), ("localhost.example.org", False),
    ],
)  # fmt: skip
def test_local_addresses(host, local):
    assert is_local(f"http://{host}:8000/v1") is local


def test_no_connection_is_opened_before_prices_are_known(tmp_path):
    # Nothing answers at this name; the price is what is complained about.
    settings = pool({"model": "m", "base_url": "http://nowhere.invalid/v1"})
    with Journal.open(tmp_path / "j.sqlite") as journal, pytest.raises(UserError, match="no price is known"):
        asyncio.run(build_pool(settings, journal, BudgetSettings()))


def test_prices_are_for_models_behind_an_address(prices):
    with pytest.raises(UserError, match=r"pool.prices"):
        config.parse(yaml.safe_load(f"{{simulated: [{{name: a, worker: {{}}}}], prices: {prices}}}"), "t", PoolSettings)
