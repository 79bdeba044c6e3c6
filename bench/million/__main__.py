"""`python -m bench.million`: what each cost becomes at a thousand, ten thousand, a hundred thousand and a million letters.

One store is filled step by step. At each stop everything is measured beside bare statements on the same tables, over a connection
of their own, in rounds that alternate; the medians count. It takes long, and is no part of `python -m bench`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sqlite3
import traceback
from datetime import UTC, datetime
from pathlib import Path

from msgspec import json
from rich.console import Console

from bench.harness import OUT, Effort, fsync_milliseconds
from bench.million.chart import chart
from bench.million.grounds import GROUNDS
from bench.million.growth import Growth, markdown, table, waits_table
from bench.million.stops import INDEX_ALL_UP_TO, grown
from redrive import __version__

CHART = Path(__file__).parent.parent.parent / "docs" / "million.svg"


def main() -> None:
    options = _options()
    os.environ["REDRIVE_TELEMETRY"] = "false"
    options.place.mkdir(exist_ok=True, parents=True)
    console = Console(width=None if Console().is_terminal else 180)
    sizes = sorted(options.sizes)[-1:] if options.only_captures else sorted(options.sizes)
    setting = (
        f"redrive {__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores"
    )
    setting += f", fsync {fsync_milliseconds(Effort(place=options.place)):.2f} ms"
    done: dict[str, Growth] = {}

    def keep(growth: Growth) -> None:
        done[growth.engine] = growth
        report = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "setting": setting, "engines": list(done.values())}
        (options.place / "million.json").write_bytes(json.format(json.encode(report)))

    for engine in GROUNDS if options.engine == "both" else [options.engine]:
        try:
            asyncio.run(grown(engine, sizes, options, keep))
        except Exception:
            # What was measured until then is told all the same, and the other engine has its turn.
            traceback.print_exc()
    for growth in done.values():
        if growth.stops:
            console.print(table(growth, setting))
        console.print(waits_table(growth))
        if growth.space is not None:
            console.print(growth.space.text)
        if options.markdown:
            print(markdown(growth))
    if options.only_captures:
        return
    for path in (options.place / "million.svg", *([CHART] if options.save else [])):
        path.write_text(chart(list(done.values()), setting))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.million", description=__doc__)
    parser.add_argument("--engine", choices=[*GROUNDS, "both"], default="both", help="default: %(default)s")
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(size) for size in text.split(",")],
        default=[1_000, 10_000, 100_000, 1_000_000],
        metavar="N,N,…",
        help="where to stop and measure, default: 1000,10000,100000,1000000",
    )
    parser.add_argument("--groups", type=int, default=10_000, help="failures that the letters are of, default: %(default)s")
    parser.add_argument(
        "--place", type=Path, default=OUT, help="the folder for SQLite's file and the report, default: %(default)s"
    )
    parser.add_argument("--index-all", action="store_true", help=f"index all bodies, beyond {INDEX_ALL_UP_TO:,} letters too")
    parser.add_argument(
        "--purge-seconds", type=float, default=1200.0, metavar="N", help="how long the large purge may take, default: %(default)s"
    )
    parser.add_argument("--only-captures", action="store_true", help="fill the store, and measure captures beside a purge alone")
    parser.add_argument("--markdown", action="store_true", help="print the tables in markdown too")
    parser.add_argument("--save", action="store_true", help="write the chart to docs/million.svg too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
