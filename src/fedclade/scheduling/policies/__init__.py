"""Who takes part in a round: the protocol and registry, and one file for each family of policies."""

from fedclade.scheduling.policies import baselines, fair, patient, rivals  # importing them registers their policies

__all__ = ["baselines", "fair", "patient", "rivals"]
