"""What runs on the SuperLink: one run of the server with the devices that are there.

The run config has fedclade's own fields as ``section.field`` (``flwr run … -c 'run.rounds=5'``) and these:

================  =====================================================================================================
``preset``        where the other fields come from: a preset's name or a TOML file on the server
``set``           more fields, ``section.field=value``, several with ; between them
``out``           the run directory on the server; empty: ``runs/deployed``, with a number if that is taken
``resume``        a run directory: go on with that run, or send the devices their models if it is finished
``devices``       how many to wait for at the start; 0: ``population.devices``
``wait-seconds``  how long to wait for them, and later for anybody at all
``grace-seconds``  what a round may take on top of three times what was measured
``classes``       number of classes; 0: as many as the devices there at the start know
``data``          where devices have their data from, unless they know better: see ``fedclade.deployment.flower.data``
================  =====================================================================================================
"""

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch  # noqa: F401 - first of all: imported later, beside Flower's threads, it was seen half imported
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedclade import config as configuration
from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.core.records import Event
from fedclade.deployment.flower.federation import Federation
from fedclade.deployment.register import Register
from fedclade.deployment.run import Deployment, known_devices
from fedclade.report.listener import Listener, Progress
from fedclade.runs import Run, free_folder, read_config

Setting: TypeAlias = bool | float | int | str
TOLD = ("joined", "split", "stop", "reopen", "moved", "merge", "placed", "missed", "rejected", "incident")
OWN = ("preset", "set", "out", "resume", "devices", "wait-seconds", "grace-seconds", "classes", "data")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run or resume, and tell of it."""
    _end_with_parent()
    try:
        run = deploy(grid, context.run_config)
    except UserError as error:
        print(f"fedclade: {error}", flush=True)
        raise
    print(f"Run         {run.folder.resolve()}", flush=True)


def _end_with_parent() -> None:
    """Once the SuperLink is gone the run has failed for good: do not wait for it, or else nobody could resume.

    All finished rounds are on disk, so this may happen at any moment.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def deploy(grid: Grid, settings: Mapping[str, Setting]) -> Run:
    """One run with the devices of a Grid, new or resumed, to its end; then every device has its model."""
    resumed = Path(str(settings["resume"])) if settings.get("resume") else None
    config = read_config(resumed) if resumed else config_of(settings)
    federation = Federation(grid, config, int(_number(settings, "classes", 0)))
    if resumed:
        federation.register.remember(known_devices(resumed))
    wait_seconds = _number(settings, "wait-seconds", 300)
    wanted = int(_number(settings, "devices", 0)) or config.population.devices
    print(f"Waiting for {wanted} devices, {wait_seconds:g} s at most", flush=True)
    federation.gather(wanted, wait_seconds)
    print("\n  ".join([f"{len(federation.present)} devices are there", *federation.incidents]), flush=True)
    deployment = Deployment(config, federation, _number(settings, "grace-seconds", 60), wait_seconds)
    if resumed:
        run = deployment.resume(resumed, [Teller(federation.register)])
    else:
        out = str(settings.get("out", ""))
        folder = Path(out) if out else free_folder(Path("runs"), "deployed")
        run = deployment.run(folder, [Teller(federation.register)])
    taken = deployment.deliver(run)
    print(f"{taken} devices have their models", flush=True)
    return run


def config_of(settings: Mapping[str, Setting]) -> Config:
    """The whole config; what would make no sense on real devices is changed."""
    for name in settings:
        if "." not in name and name not in OWN:
            raise UserError(f"run config: {name}: no such setting; known: {', '.join(OWN)}, and section.field")
    fields = [f"{name}={_as_toml(value)}" for name, value in settings.items() if "." in name]
    fields += [field for field in str(settings.get("set", "")).split(";") if field.strip()]
    config = configuration.load(str(settings.get("preset") or "quickstart"), fields)
    # a checkpoint costs little beside a round of messages; the comparison would make everybody train twice
    run = config.run.model_copy(update={"checkpoint_every": 1, "conventional": "frozen"})
    return config.model_copy(update={"run": run})


def _number(settings: Mapping[str, Setting], name: str, otherwise: float) -> float:
    value = settings.get(name, otherwise)
    if isinstance(value, bool | str) or value < 0:
        raise UserError(f"run config: {name} = {value!r}: must be a number from 0")
    return value


def _as_toml(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Teller(Listener):
    """Prints a line for each round, and one for each event that an operator of devices wants to know of."""

    def __init__(self, register: Register) -> None:
        self._register = register

    def round_ended(self, progress: Progress) -> None:
        """Tell of a round."""
        record, state = progress.record, progress.state
        heard, clusters = len(record.timeline.arrived), len(state.tree.leaves())
        line = f"Round {record.round}/{progress.rounds}: {heard} of {len(record.timeline.device)} heard"
        line += f", {clusters} cluster{'' if clusters == 1 else 's'}, {record.seconds:.1f} s"
        if record.evaluation is not None and not np.isnan(record.evaluation.score).all():
            line += f", {progress.score.title} {progress.score.text(float(np.nanmean(record.evaluation.score)))}"
        print("\n  ".join([line, *(self._told(event) for event in record.events if event.kind in TOLD)]), flush=True)

    def _told(self, event: Event) -> str:
        """One event, with the device's own name beside its number."""
        who = "" if event.device is None else f" device {event.device} ({self._register.devices[event.device].name})"
        where = f" of {event.node}" if event.node else ""
        what = event.detail.get("what") or event.detail.get("reason")
        return f"{event.kind}{who}{where}{f': {what}' if what else ''}"
