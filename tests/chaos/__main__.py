"""``python -m chaos``: try all cases, or go on where the last time ended; say how many held."""

import argparse
import hashlib
import json
import os
import select
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from chaos import faults

BATCH = 40  # cases that one child tries
SHARE = 120  # with --quick, one case of so many


def main() -> None:
    """Parse, start again with the library of faults, try."""
    words = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    words.add_argument("--quick", action="store_true", help=f"one case of {SHARE}, evenly over all kinds")
    words.add_argument("--only", default="", help="cases whose name contains this, also those that were tried before")
    words.add_argument("--fresh", action="store_true", help="forget what was tried before")
    words.add_argument("--folder", type=Path, default=Path(".chaos"), help="where runs and the journal are kept")
    words.add_argument("--soak", type=float, metavar="MINUTES", help="instead: run, kill and resume for so long")
    told = words.parse_args()
    faults.begin_again_with_faults()
    folder = told.folder.resolve()
    if told.soak is not None:
        from chaos.soak import soak

        raise SystemExit(soak(folder / "soak", 60 * told.soak))
    if told.fresh or told.quick:
        shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(try_all(folder, told.quick, told.only))


def try_all(folder: Path, quick: bool, only: str) -> int:
    """Try what the journal does not know yet, or whatever was named; 0 if all in the journal held."""
    from chaos import damage, file_events, hostile, processes
    from chaos.world import Case, World

    world, journal = World(folder), folder / "journal.jsonl"
    known = dict(map(json.loads, journal.read_text("utf-8").splitlines())) if journal.is_file() else {}
    kinds = [file_events.cases(world), damage.cases(world), hostile.cases(world), processes.cases(world)]

    def wanted() -> Iterator[Case]:
        for cases in kinds:
            for case in cases:
                mine = only in case.name and (not quick or _number(case.name) % SHARE == 0)
                if mine and (only or case.name not in known):
                    yield case

    begun, told = time.monotonic(), 0.0
    with journal.open("a", encoding="utf-8") as file:
        for name, complaint in _tried(wanted()):
            known[name] = complaint
            file.write(json.dumps([name, complaint]) + "\n")
            file.flush()
            if complaint:
                print(f"FAILED {name}: {complaint}", flush=True)
            if time.monotonic() - told > 30:
                told = time.monotonic()
                print(f"{len(known)} tried, {told - begun:.0f} s", file=sys.stderr, flush=True)
    _print(known)
    return int(any(known.values()))


def _number(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def _print(known: dict[str, str | None]) -> None:
    tried = Counter(name.split("/")[0] for name in known)
    failed = Counter(name.split("/")[0] for name, complaint in known.items() if complaint)
    print(f"{'':<12} {'tried':>7} {'held':>7} {'failed':>7}")
    for kind in tried:
        print(f"{kind:<12} {tried[kind]:>7} {tried[kind] - failed[kind]:>7} {failed[kind]:>7}")
    total, bad = sum(tried.values()), sum(failed.values())
    print(f"{'all':<12} {total:>7} {total - bad:>7} {bad:>7}")


def _tried(cases: "Iterable[object]") -> Iterator[tuple[str, str | None]]:
    """Name and complaint of every case. A child tries many; one that kills it or hangs has failed."""
    left = iter(cases)
    while batch := list(islice(left, BATCH)):
        while batch:
            done = 0
            for result in _in_child(batch):
                done += 1
                yield result
            if done < len(batch):
                yield batch[done].name, "killed the process or hung"
                done += 1
            batch = batch[done:]


def _in_child(batch: list) -> Iterator[tuple[str, str | None]]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _try_batch(batch, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as results:
        while select.select([results], [], [], faults.PATIENCE_SECONDS)[0] and (line := results.readline()):
            yield tuple(json.loads(line))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _try_batch(batch: list, writing: int) -> None:
    """In the child; never comes back."""
    try:
        faults.limit_memory()
        for case in batch:
            try:
                complaint = case.held()
            except BaseException as error:
                complaint = f"{type(error).__name__}: {str(error)[:300]}"
            os.write(writing, json.dumps([case.name, complaint]).encode() + b"\n")
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
