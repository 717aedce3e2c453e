"""Fields that were renamed or replaced, so that an old file or habit is told what to write now."""

from collections.abc import Mapping

# A former "section.field", or a former section's name -> what to write instead.
MOVED: Mapping[str, str] = {
    "compare.trials": "compare.seeds",
}
