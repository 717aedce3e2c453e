"""Everything a user may set: sections of frozen models, TOML files, packaged presets, ``--set`` overrides.

The only package that knows field names as text.
"""

from fedclade.config.files import fields_of, load, presets, section_fields, to_toml
from fedclade.config.methods import CrossEvaluationConfig, IfcaConfig, NormThresholdsConfig
from fedclade.config.section import Section
from fedclade.config.sections import (
    AggregationConfig,
    AttackConfig,
    ClusteringConfig,
    CompareConfig,
    Config,
    DeploymentConfig,
    DriftConfig,
    EdgeConfig,
    IncongruenceConfig,
    ModelConfig,
    PopulationConfig,
    RunConfig,
    SchedulingConfig,
    TrainingConfig,
)

__all__ = [
    "AggregationConfig",
    "AttackConfig",
    "ClusteringConfig",
    "CompareConfig",
    "Config",
    "CrossEvaluationConfig",
    "DeploymentConfig",
    "DriftConfig",
    "EdgeConfig",
    "IfcaConfig",
    "IncongruenceConfig",
    "ModelConfig",
    "NormThresholdsConfig",
    "PopulationConfig",
    "RunConfig",
    "SchedulingConfig",
    "Section",
    "TrainingConfig",
    "fields_of",
    "load",
    "presets",
    "section_fields",
    "to_toml",
]
