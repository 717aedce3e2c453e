"""Does a finished run keep the constraints of the paper's problem P1?"""

from fedclade.runs.reader import Run
from fedclade.scheduling.constraints import Constraint, check_rounds


def check_run(run: Run) -> list[Constraint]:
    """P1.0 to P1.5 of a finished run."""
    config = run.config
    return check_rounds(
        run.rounds,
        run.uploads,
        run.evaluations,
        run.devices.set_index("device")["train_samples"],
        subchannels=config.edge.subchannels,
        budget=config.run.time_budget_seconds,
        epsilon=config.run.epsilon,
    )
