#!/usr/bin/env python3
"""A picture of a report, taken by headless Chromium through chromedriver.

    .venv/bin/python tools/screenshot.py report.html report.png [--width 1180] [--height 2330] [--dark] [--wait S] [--part CSS]

Pictures in docs/images: report.png is from the report of `quell compare lte --html report.html`, with `--height 2375`.
household.png (`--part .felt`) and front.png (`--width 560 --part '#scatter'`) are from the report of README's `quell
compare household ... --html household.html`.

Needs Debian's packages chromium and chromium-driver, and selenium (`make test` installs them).
"""

import argparse
import base64
import pathlib
import tempfile
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-quic", "--hide-scrollbars"]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("html", help="a file, or http://...")
    parser.add_argument("png", type=pathlib.Path)
    parser.add_argument("--width", type=int, default=1180)
    parser.add_argument("--height", type=int, default=2330, help="0: the whole page")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds until the page has drawn what it works out")
    parser.add_argument("--part", help="only the section around what this CSS selector finds")
    args = parser.parse_args()
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as profile:
        for flag in [*FLAGS, f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        try:
            screen = {"width": args.width, "height": 844, "deviceScaleFactor": 1, "mobile": args.width < 600}
            scheme = {"name": "prefers-color-scheme", "value": "dark" if args.dark else "light"}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
            is_address = args.html.startswith("http://")
            driver.get(args.html if is_address else pathlib.Path(args.html).resolve().as_uri())
            time.sleep(args.wait)
            whole = driver.execute_script("return document.documentElement.scrollHeight")
            clip = {"x": 0, "y": 0, "width": args.width, "height": min(args.height or whole, whole), "scale": 1}
            if args.part:
                rect = "const r = document.querySelector(arguments[0]).closest('section').getBoundingClientRect();"
                x, y, width, height = driver.execute_script(rect + "return [r.x, r.y, r.width, r.height]", args.part)
                clip |= {"x": x - 16, "y": y - 16, "width": width + 32, "height": height + 32}
            shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
            args.png.write_bytes(base64.b64decode(shot["data"]))
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
