"""The page as Chromium shows it: no network, no complaints, keyboard, names for a screen reader, contrast."""

import json

import pytest

from tests.report.conftest import KINDS, episode
from trinity_jax.report import write_report

OWN = "document.title='owned'"
EVIL = f'</script><script>{OWN}</script><img src=x onerror="{OWN}"> \u202e \ud800 \x00 \'"'
SHOWN = "[...document.querySelectorAll('#conversation-list > li')].filter(li => li.checkVisibility()).length"

# Of every text in view: the lowest contrast with what is painted behind it (WCAG 2.2, 1.4.3), and where.
CONTRAST = r"""
(() => {
  const parse = c => c.match(/[\d.]+/g).map(Number);
  const luminance = c => parse(c).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  let worst = [21, ""];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("script")) continue;
    let behind = element;
    while (behind && (parse(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
    const style = getComputedStyle(element);
    const ink = luminance(element.closest("svg") ? style.fill : style.color);
    const paper = luminance(getComputedStyle(behind ?? document.body).backgroundColor);
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (ratio < worst[0]) worst = [ratio, element.outerHTML.slice(0, 200)];
  }
  return worst;
})()
"""


@pytest.fixture
def page(make_run):
    def page(**options):
        return write_report(make_run(**options)).resolve().as_uri()

    return page


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_fetched_nothing_complains_and_all_can_be_read(page, open_page, dark):
    tab = open_page(url := page(), dark=dark)
    tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    ratio, where = tab.run(CONTRAST)
    assert ratio >= 4.5, where
    assert tab.run("getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)"
    )
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    assert tab.complaints() == []
    assert tab.requests() == [url]


def test_a_narrow_window_does_not_scroll_sideways(page, open_page):
    assert open_page(page(), width=360).run("document.documentElement.scrollWidth") == 360


def test_filters_by_keyboard(page, open_page):
    tab = open_page(page())
    assert tab.run(SHOWN) == 40
    tab.run("document.querySelector('select[name=kind]').focus()")
    tab.press("w")  # a closed list takes the option that begins so
    assert tab.run("document.querySelector('select[name=kind]').value") == "words"
    assert tab.run(SHOWN) == 20
    tab.press("Tab", "w")
    assert tab.run("document.activeElement.name") == "outcome"
    assert tab.run(SHOWN) == 10
    assert tab.run("document.querySelector('output').textContent") == "10 of 40 shown"
    tab.press("Tab", "Tab", "Tab", *"Question 7?")
    assert tab.run(SHOWN) == 1
    tab.press("Tab", "Enter")
    assert tab.run(SHOWN) == 40
    tab.press("Tab")
    assert tab.run("document.activeElement.tagName") == "SUMMARY"
    assert not tab.run("document.activeElement.parentElement.open")
    tab.press("Enter")
    assert tab.run("document.activeElement.parentElement.open")
    assert tab.run("document.querySelector('#conversation-list .accepts').checkVisibility()")


def test_model_and_role_are_those_of_one_turn(make_run, open_page):
    said = [{"model": m, "role": r, "text": m, "verdict": None} for m, r in (("small", "thinker"), ("large", "worker"))]
    tab = open_page(write_report(make_run(1, transcripts=[episode(0) | {"turns": said}])).resolve().as_uri())
    for model, role, shown in (("small", "thinker", 1), ("small", "worker", 0), ("large", "", 1), ("", "worker", 1)):
        for name, value in (("model", model), ("role", role)):
            tab.run(f"document.querySelector('select[name={name}]').value = {json.dumps(value)}")
        tab.run("form.dispatchEvent(new Event('input'))")
        assert tab.run(SHOWN) == shown, (model, role)


def test_hostile_text_stays_text_and_can_be_filtered(make_run, open_page):
    turns = [{"model": EVIL, "role": EVIL, "text": EVIL, "verdict": True}]
    evil = {"question": EVIL, "kind": EVIL, "answer": EVIL, "reward": 0.0, "grade": EVIL, "turns": turns}
    tab = open_page(write_report(make_run(1, transcripts=[evil, episode(0)])).resolve().as_uri())
    assert tab.run("document.title").startswith("my run")
    assert tab.run("document.querySelectorAll('img, script').length") == 1
    for name in ("kind", "outcome", "model", "role"):
        assert tab.run(f"document.querySelector('select[name={name}]').selectedIndex = 1") == 1
        tab.run("form.dispatchEvent(new Event('input'))")
        assert tab.run(SHOWN) == 1, name
    assert "<img src=x" in tab.run("document.querySelector('#conversation-list .said').textContent")
    assert tab.complaints() == []


def test_a_screen_reader_hears_names(page, open_page):
    tab = open_page(page())
    nodes = tab.send("Accessibility.getFullAXTree")["nodes"]
    heard = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n["ignored"]]
    for role in (
        "image",
        "combobox",
        "searchbox",
        "button",
        "link",
        "navigation",
        "main",
        "table",
        "DisclosureTriangle",
    ):
        names = [name for r, name in heard if r == role]
        assert names, role
        # The landmark of the whole page needs no name.
        assert role == "main" or all(names), role
    assert ("combobox", "Task") in heard
    assert any(r == "image" and name.startswith("Learning curve") for r, name in heard)
    assert any(r == "image" and name.startswith(KINDS[0]) for r, name in heard)


def test_a_long_run_stays_small(make_run, open_page):
    long = episode(0) | {"turns": [{"model": "small", "role": "worker", "text": "x<y & " * 600, "verdict": None}] * 4}
    path = write_report(make_run(60, transcripts=[long] * 96))
    assert path.stat().st_size < 2_000_000
    assert open_page(path.resolve().as_uri()).run(SHOWN) == 96
