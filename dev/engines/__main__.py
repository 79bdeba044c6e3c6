"""`python -m dev.engines up redis kafka`: engines by hand, until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from types import FrameType

from dev.engines.engine import EngineMissing
from dev.engines.registry import ENGINES
from dev.engines.shared import Answer, Shared, variable

QUICK = ["redis", "postgres"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m dev.engines", description="Real engines on 127.0.0.1. See docs/engines.md.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, help in (
        ("up", f"start them and keep them up until Ctrl-C (no name: {' and '.join(QUICK)})"),
        ("install", "have them installed"),
        ("list", "what is installed, and where each comes from"),
    ):
        one = verbs.add_parser(verb, help=help, description=help)
        if verb != "list":
            one.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ENGINES)}")
            one.add_argument("--all", action="store_true", help="every engine (Consul is built from source, for minutes)")
        one.add_argument("--json", action="store_true", help="a JSON object a line")
    asked = parser.parse_args()
    if asked.verb == "list":
        return _list(as_json=asked.json)
    names = list(ENGINES) if asked.all else asked.names or QUICK
    if unknown := [name for name in names if name not in ENGINES]:
        parser.error(f"there is no engine {unknown[0]!r}; there are: {', '.join(ENGINES)}")
    return _up(names, as_json=asked.json) if asked.verb == "up" else _install(names, as_json=asked.json)


def _list(*, as_json: bool) -> int:
    for name, engine in ENGINES.items():
        if as_json:
            print(json.dumps({"name": name, "installed": engine.source.is_installed, "from": engine.source.told}))
        else:
            print(f"{name:15}{'installed' if engine.source.is_installed else '-':12}{engine.source.told}")
    return 0


def _install(names: list[str], *, as_json: bool) -> int:
    missing = 0
    for name in names:
        problem = None
        try:
            ENGINES[name].source.install()
        except EngineMissing as error:
            problem = str(error)
        missing += problem is not None
        if as_json:
            print(json.dumps({"name": name, "installed": problem is None, "problem": problem}), flush=True)
        else:
            print(f"{name:15}{problem or 'installed'}", flush=True)
    return 1 if missing else 0


def _up(names: list[str], *, as_json: bool) -> int:
    signal.signal(signal.SIGTERM, _interrupt)
    shared = Shared(ENGINES, {}, lambda text: print(text, file=sys.stderr, flush=True))
    failed = 0
    try:
        if not as_json:
            print(f"{'ENGINE':15}{'URL':48}{'PID':>8}{'READY IN':>11}", flush=True)
        with ThreadPoolExecutor(len(names)) as pool:
            begun = {pool.submit(shared.need, (frozenset([name]), frozenset())): name for name in names}
            for done in as_completed(begun):
                name = begun[done]
                answer = done.result()[name]
                failed += answer.url is None
                print(_json(name, answer) if as_json else _row(name, answer), flush=True)
        if failed == len(names):
            return 1
        if not as_json:
            print(f"\nTests use one of these when told so: {variable(names[0])}=… make test\nCtrl-C ends them.", flush=True)
        while True:
            signal.pause()
    except KeyboardInterrupt:
        return 0
    finally:
        shared.close()


def _row(name: str, answer: Answer) -> str:
    if answer.url is None:
        return f"{name:15}{answer.missing or answer.failed}"
    assert answer.ready_in is not None
    return f"{name:15}{answer.url:48}{answer.pid:>8}{answer.ready_in.total_seconds():>9.1f} s"


def _json(name: str, answer: Answer) -> str:
    problem = answer.missing or answer.failed
    seconds = answer.ready_in.total_seconds() if answer.ready_in else None
    return json.dumps({"name": name, "url": answer.url, "pid": answer.pid, "ready_in_seconds": seconds, "problem": problem})


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
