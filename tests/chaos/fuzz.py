"""Coverage-guided fuzzing of the readers with Atheris: ``make fuzz``, or ``python -m chaos.fuzz toml 60``.

Atheris changes bytes, watches which lines of fedclade they reach, and goes on from those that reach new ones. A reader
reads them, or refuses them with a UserError; anything else is a crash, whose bytes Atheris keeps in the folder it runs
in. Needs the extra ``fuzz``.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["fedclade.config", "fedclade.data", "fedclade.edge", "fedclade.runs"]):
    from fedclade import UserError
    from fedclade import config as configuration
    from fedclade.data.files import read_path
    from fedclade.edge.traces import read_trace
    from fedclade.runs.checkpoint import _read_facts
    from fedclade.runs.reader import Run

SECONDS = 60
FOLDER = Path(tempfile.mkdtemp(prefix="chaos-fuzz-"))
POPULATION = configuration.load(None, ["population.memory_limit_gb=0.01"]).population


def _toml(path: Path) -> object:
    return configuration.load(path)


def _data(path: Path) -> object:
    return read_path(path, POPULATION, "population.source")


def _trace(path: Path) -> object:
    return read_trace("edge.trace", str(path), ("gain_db", "rate_bps"), 3, "repeat", 5)


def _run(path: Path) -> object:
    run = Run(path.parent)
    return run.summary, run.tree


TARGETS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "toml": ("mine.toml", _toml),
    "npz": ("mine.npz", _data),
    "csv": ("mine.csv", _data),
    "trace": ("trace.csv", _trace),
    "state": ("state.json", _read_facts),
    "run-config": ("config.toml", _run),
}


def main() -> None:
    """One target for so many seconds, or all of them one after the other, each in a process of its own."""
    words = sys.argv[1:]
    name, seconds = words[0] if words else "all", int(words[1]) if len(words) > 1 else SECONDS
    if name == "all":
        codes = [os.spawnv(os.P_WAIT, sys.executable, _words(target, seconds)) for target in TARGETS]
        print(*(f"{target}: {'held' if code == 0 else 'FAILED'}" for target, code in zip(TARGETS, codes, strict=True)))
        raise SystemExit(any(codes))
    file, read = TARGETS[name]

    def one(content: bytes) -> None:
        (FOLDER / file).write_bytes(content)
        try:
            read(FOLDER / file)
        except UserError as error:
            if "\n" in str(error):
                raise AssertionError("more than one line") from error

    corpus = FOLDER / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(_seeds(name)):
        (corpus / str(number)).write_bytes(seed)
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096", "-verbosity=0", str(corpus)], one)
    atheris.Fuzz()


def _words(target: str, seconds: int) -> list[str]:
    return [sys.executable, "-m", "chaos.fuzz", target, str(seconds)]


def _seeds(name: str) -> list[bytes]:
    """Good files to begin with."""
    import io

    import numpy as np

    archive = io.BytesIO()
    np.savez(archive, x=np.ones((4, 2), np.float32), y=np.arange(4) % 2)
    text = b'[run]\nseed = 3\nrounds = 4\n[incongruence]\ngroups = [1, 2]\n[custom]\na = "x"\n'
    return {
        "npz": [archive.getvalue()],
        "csv": [b"device,a,b,y,split\np,1.5,2,0,train\nq,3,-4e2,1,test\nq,0,0,1,train\np,1,1,0,test\n"],
        "trace": [b"round,device,gain_db\n1,0,-80\n1,1,-81\n1,2,-82\n2,0,-80\n2,1,-81\n2,2,-82\n"],
        "state": [b'{"format": 1, "tensors": "round-000001.safetensors", "seal": ""}'],
    }.get(name, [text])


if __name__ == "__main__":
    main()
