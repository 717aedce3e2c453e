"""A run of real devices, played back in the simulator."""

from pathlib import Path

from fedclade import Experiment
from fedclade.clustering import find_method
from fedclade.core.stopwatch import Stopwatch
from fedclade.deployment.measured_edge import RecordedEdge
from fedclade.deployment.run import read_latencies
from fedclade.fleet.simulated.fleet import SimulatedFleet
from fedclade.runs import Run
from fedclade.server import Server


def simulated(run: Run, out: Path) -> Run:
    """The simulator with the same config and the same latencies."""

    class Replayed(Experiment):
        @property
        def server(self):
            bits = 32.0 * self.trainer.parameters
            edge = RecordedEdge(read_latencies(run.folder / "latencies.csv"), self.config.edge.subchannels, bits)
            stopwatch = Stopwatch()
            fleet = SimulatedFleet(self.config, self.trainer, edge, self.population.samples, stopwatch)
            return Server(self.config, fleet, edge, find_method(self.config), stopwatch)

    return Replayed(run.config).run(out)
