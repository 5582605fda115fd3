"""Screenshots of a run's report, light and dark, as small PNG files: ``python scripts/screenshots.py RUN docs/img``."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.browser import Tab, chromium
from trinity_jax.report import write_report

LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def main() -> None:
    """Write them, and print how long the page took to load and how large it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=0, help="of the picture; 0: the whole page")
    options = parser.parse_args()
    page = write_report(options.run)
    options.out.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for scheme in ("light", "dark"):
            tab = Tab(browser, page.resolve().as_uri(), dark=scheme == "dark", width=options.width)
            print(f"{scheme}: {page.stat().st_size / 1e6:.2f} MB, loaded in {tab.run(LOADED):.0f} ms")
            height = options.height or tab.run("document.documentElement.scrollHeight")
            size = {"width": options.width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            tab.send("Emulation.setDeviceMetricsOverride", **size)
            (options.out / f"report-{scheme}.png").write_bytes(tab.screenshot())
            tab.close()


if __name__ == "__main__":
    main()
