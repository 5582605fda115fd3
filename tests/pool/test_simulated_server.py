"""The server that other tests lean on: its luck follows from the requests, its distributions are what they say."""

import asyncio
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import aiohttp
import numpy as np
import pytest
from scipy import stats

from trinity_jax.pool.simulated_server import Latency, SimulatedServer

ROLES = {"worker": "You are the Worker.", "thinker": "<suggested_role>", "verifier": "VERDICT: ACCEPT"}


def body(number: int, role: str = "worker") -> dict:
    said = [{"role": "system", "content": ROLES[role]}, {"role": "user", "content": f"What is 3 + {number}?"}]
    return {"model": "m", "messages": said}


def posted(bodies, **options) -> list[tuple[int, str]]:
    async def go():
        async with SimulatedServer(**options) as server, aiohttp.ClientSession() as session:

            async def post(one):
                async with session.post(f"{server.url}/chat/completions", json=one) as response:
                    return response.status, await response.text()

            return await asyncio.gather(*map(post, bodies))

    return asyncio.run(go())


@pytest.mark.parametrize(
    "latency, reference",
    [
        (Latency("exponential", 0.3), stats.expon(scale=0.3)),
        (Latency("lognormal", 0.2, 0.8), stats.lognorm(0.8, scale=0.2 * np.exp(-0.32))),
    ],
)
def test_latency_distributions(latency, reference):
    shares = np.array([1e-6, 0.01, 0.2, 0.5, 0.9, 0.999])
    np.testing.assert_allclose([latency.draw(share) for share in shares], reference.ppf(shares), rtol=1e-9)
    assert reference.mean() == pytest.approx(latency.mean)


@pytest.mark.parametrize("text", ["gamma:1", "lognormal", "constant:x", "constant:-1", "exponential:inf"])
def test_a_bad_latency_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 (argparse says which argument)
        Latency.parse(text)


def test_luck_follows_the_request_and_not_its_order():
    bodies = [body(number) for number in range(40)] * 2
    faults = {"500": 0.2, "429": 0.2, "html": 0.1}
    one = posted(bodies, faults=faults, seed=5)
    other = posted(bodies[::-1], faults=faults, seed=5)
    assert sorted(one) == sorted(other)
    assert {status for status, _ in one} == {200, 429, 500}
    assert one[:40] != one[40:]  # asked again, another draw
    assert one != posted(bodies, faults=faults, seed=6)


def test_roles():
    [(_, worker), (_, thinker)] = posted([body(4), body(4, "thinker")])
    assert "<answer>4</answer>" in worker
    assert "<suggested_role>worker</suggested_role>" in thinker
    verdicts = [json.loads(text) for _, text in posted([body(n, "verifier") for n in range(200)], accepts=0.25)]
    accepted = sum("ACCEPT" in one["choices"][0]["message"]["content"] for one in verdicts)
    assert stats.binomtest(accepted, 200, 0.25).pvalue > 1e-3


def test_requests_beyond_the_slots_are_refused():
    statuses = [status for status, _ in posted([body(n) for n in range(12)], slots=5, latency=Latency(mean=0.2))]
    assert sorted(statuses) == [200] * 5 + [429] * 7


def test_as_a_process():
    command = [sys.executable, "-m", "trinity_jax.pool.simulated_server", "--latency", "constant:0", "--fault", "500=1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body(1)).encode())
        with pytest.raises(urllib.error.HTTPError, match="500"):
            urllib.request.urlopen(request, timeout=10)
        process.send_signal(signal.SIGTERM)
        assert json.loads(process.stdout.readline()) == {"most": 1, "500": 1}
        assert process.wait(10) == 0


def test_chances_are_checked():
    command = [sys.executable, "-m", "trinity_jax.pool.simulated_server", "--fault", "500=0.7", "--fault", "hang=0.7"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "sum to more than 1" in ended.stderr
