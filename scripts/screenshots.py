"""Pictures for the README and docs, light and dark: of a run's report and, where its address is given, of a dashboard.

python scripts/screenshots.py RUN docs/img --dashboard http://127.0.0.1:8080/dashboard
"""

import argparse
import io
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from PIL import Image

from scripts.browser import Tab, chromium
from trinity_jax.report import write_report

COLOURS = 256

# name -> (what is shown, from there down; most pixels high; what is done before)
REPORT = {
    "report": ("header", 1340, ""),
    "selection": ("section:has(> #choice)", 1040, ""),
    "conversations": (
        "section:has(> #conversations)",
        900,
        "form.elements.outcome.value = 'wrong'; filter();"
        "[...list.children].find(item => !item.hidden).querySelector('details').open = true",
    ),
}
DASHBOARD = {
    "dashboard": ("header", 1200, "list.children[0]?.querySelector('details').setAttribute('open', '')"),
    "runs": ("section:has(> #runs)", 600, ""),
}


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dashboard", metavar="URL")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    pages = [(write_report(options.run).resolve().as_uri(), REPORT)]
    pages += [(options.dashboard, DASHBOARD)] if options.dashboard else []
    with chromium() as browser:
        for url, pictures in pages:
            for scheme in ("light", "dark"):
                tab = Tab(browser, url, dark=scheme == "dark")
                if pictures is DASHBOARD:
                    time.sleep(3)  # what it asks for has come
                for name, (shown, most, before) in pictures.items():
                    (options.out / f"{name}-{scheme}.png").write_bytes(picture(tab, shown, most, before))
                tab.close()


def picture(tab: Tab, shown: str, most: int, before: str) -> bytes:
    """From the top of an element down, as wide as the window."""
    tab.run(before or "0")
    tab.run("document.querySelector('.nav').style.position = 'static'")
    top, bottom = tab.run(
        f"(r => [scrollY + r.top, scrollY + r.bottom])(document.querySelector({shown!r}).getBoundingClientRect())"
    )
    whole = tab.run("document.documentElement.scrollHeight")
    height = min(most, whole - top) if shown == "header" else min(most, bottom - top + 16)
    clip = {"x": 0, "y": top, "width": 1280, "height": height, "scale": 1}
    shot = Image.open(io.BytesIO(tab.screenshot(clip=clip, captureBeyondViewport=True)))
    small = io.BytesIO()
    shot.convert("RGB").quantize(COLOURS, kmeans=1).save(small, "PNG", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    main()
