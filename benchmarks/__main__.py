"""``python -m benchmarks``: all of them, or those named."""

import argparse
from importlib import import_module
from pathlib import Path

from benchmarks.machine import Goal, Options, goals_table, keep, machine_facts

NAMES = ("round", "run", "server", "memory")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; none: all")
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything still work?")
    parser.add_argument("--no-peers", action="store_true", help="round, run: without the other simulators")
    parser.add_argument("--repeats", type=int, help="round, run: turns of each contestant (5; with --quick 1)")
    parser.add_argument(
        "--skip", metavar="TEXT", help='round, run: without such settings, e.g. "2 threads" on a busy machine'
    )
    parser.add_argument(
        "--page", type=Path, help="put the tables into their places in this page: docs/results/benchmarks.md"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the results")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown or (arguments.repeats is not None and arguments.repeats < 1):
        parser.error(f"no such benchmark: {', '.join(unknown)}" if unknown else "--repeats must be at least 1")
    repeats = arguments.repeats or (1 if arguments.quick else 5)
    options = Options(arguments.quick, not arguments.no_peers, repeats, arguments.skip)
    goals: list[Goal] = []
    for name in arguments.names or NAMES:
        print(f"## {name}\n", flush=True)
        facts = machine_facts()
        report = import_module(f"benchmarks.{name}").run(options)
        keep(arguments.out, arguments.page, name, facts, report)
        goals += report.goals
    print(f"## goals\n\n{goals_table(goals)}", flush=True)


if __name__ == "__main__":
    main()
