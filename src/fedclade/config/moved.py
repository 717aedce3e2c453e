"""Fields that were renamed or replaced, so that an old file or habit is told what to write now."""

from collections.abc import Mapping

# A former "section.field", or a former section's name -> what to write instead.
MOVED: Mapping[str, str] = {
    "compare.trials": "compare.seeds",
    "clustering.enabled": 'clustering.method = "none"',
    "clustering.thresholds": 'clustering.method = "cross-evaluation" (was "auto") or "norm-thresholds" (was "fixed")',
    "cross_evaluation.survey_images": "cross_evaluation.survey_work",
    **{f"cross_evaluation.absurd_{what}": f"aggregation.absurd_{what}" for what in ("factor", "compared", "telling")},
    **{f"clustering.{field}": f"cross_evaluation.{field}" for field in ("level", "patience", "review_every")},
    **{
        f"clustering.{field}": f"norm_thresholds.{field}"
        for field in ("epsilon1", "epsilon2", "norm", "weighting", "gamma")
    },
    **{
        f"clustering.{field}": f"norm_thresholds.{field} or cross_evaluation.{field}"
        for field in ("bipartition", "warmup_rounds")
    },
}
