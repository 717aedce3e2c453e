"""A run of real devices without a network: begun, or gone on with, and what must come of it however often it died."""

import json
import sys
from pathlib import Path

from fedclade import UserError
from fedclade import config as configuration
from fedclade.deployment.run import LATENCIES, MESSAGES, Deployment, known_devices, read_latencies
from fedclade.runs import read_config
from made_up_transport import MadeUpTransport
from tiny_runs import TINY, files

REAL = ("run.rounds=2", "run.checkpoint_every=1", "run.conventional=frozen", "training.engine=sequential")


def begin_or_go_on(folder: Path) -> None:
    """As the server does; what a user is told is told as the command line tells it."""
    resumed = (folder / "config.toml").is_file()
    try:
        config = read_config(folder) if resumed else configuration.load(TINY, REAL)
        transport = MadeUpTransport(config)
        if resumed:
            transport.register.remember(known_devices(folder))
        transport.gather(6, 1.0)
        deployment = Deployment(config, transport, 300.0, 1.0)
        (deployment.resume if resumed else deployment.run)(folder)
    except UserError as error:
        print(f"fedclade: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def outcome(folder: Path) -> dict[str, object]:
    """What does not hang on the clock: models, who the devices are, and that its logs can be read."""
    for line in (folder / MESSAGES).read_text("utf-8").splitlines():
        json.loads(line)
    models, tree = files(folder / "models"), json.loads((folder / "models/tree.json").read_text("utf-8"))
    return {
        **models,
        "tree.json": [{**node, "split": (node["split"] or {}).get("parts")} for node in tree],
        "devices.json": known_devices(folder),
        "latencies.csv": {number: len(seconds) for number, (seconds, _) in read_latencies(folder / LATENCIES).items()},
    }
