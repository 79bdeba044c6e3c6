"""`python -m bench`: measure, print the table, write JSON and SVG. The exit status is always 0: figures are reports.

How costs grow up to a million letters takes long, and is measured by itself: `python -m bench.million`.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from msgspec import json
from rich.console import Console

from bench import back, busy, capture, claim, find, guard, judge, load, opensearch, postgres, processor, put, redis
from bench.chart import chart
from bench.harness import OUT, Effort, Row, fsync_milliseconds
from bench.table import markdown, table
from redrive import __version__

BENCHES: dict[str, Callable[[Effort], Iterator[Row]]] = {
    "guard": guard.rows,
    "judge": judge.rows,
    "put": put.rows,
    "claim": claim.rows,
    "busy": busy.rows,
    "load": load.rows,
    "capture": capture.rows,
    "back": back.rows,
    "find": find.rows,
    "postgres": postgres.rows,
    "redis": redis.rows,
    "processor": processor.rows,
    "opensearch": opensearch.rows,
}
CHART = Path(__file__).parent.parent / "docs" / "bench.svg"


def main() -> None:
    options = _options()
    # What we measure against reports to nobody either. OpenTelemetry's API costs some 13 µs a call even without its SDK.
    os.environ["REDRIVE_TELEMETRY"] = "false"
    console = Console(width=None if Console().is_terminal else 150)
    effort = Effort(rounds=5, scale=0.2, place=options.place) if options.quick else Effort(place=options.place)
    before = fsync_milliseconds(effort)
    rows: list[Row] = []
    for name in options.only or BENCHES:
        with console.status(f"measuring {name}"):
            rows.extend(BENCHES[name](effort))
    setting = f"redrive {__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, synchronous=FULL"
    setting += f", fsync {before:.2f} ms before and {fsync_milliseconds(effort):.2f} ms after"
    console.print(table(rows, setting))
    for row in rows:
        if row.is_met is not None:
            sign = "[green]✓[/]" if row.is_met else "[red]✗[/]"
            console.print(f"{sign} {row.name}: {row.figure_text}, goal {row.goal_text}")
    if options.markdown:
        print(markdown(rows))
    OUT.mkdir(exist_ok=True)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    report = {"at": when, "setting": setting, "rows": [row.report() for row in rows]}
    (OUT / "bench.json").write_bytes(json.format(json.encode(report)))
    for path in (OUT / "bench.svg", *([CHART] if options.save else [])):
        path.parent.mkdir(exist_ok=True)
        path.write_text(chart(rows, setting))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=BENCHES, metavar="NAME", help=f"some of: {', '.join(BENCHES)}")
    parser.add_argument("--quick", action="store_true", help="shorter runs, rougher figures")
    parser.add_argument("--place", type=Path, default=OUT, help="the folder for databases, default: %(default)s")
    parser.add_argument("--markdown", action="store_true", help="print the table in markdown too")
    parser.add_argument("--save", action="store_true", help="write the chart to docs/bench.svg too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
