"""The page of one run: an HTML file that needs neither a server nor a network.

Python gathers the numbers, small and rounded; the page's own script draws them with plotly, which is inside the
file, or beside it where many runs share one folder.
"""

from fedclade.report.page.run import RunPage, models_data, run_data, write_run_page
from fedclade.report.page.shell import Json, made_from, packed, rounded, score_data, shared_folder, write_page

__all__ = [
    "Json",
    "RunPage",
    "made_from",
    "models_data",
    "packed",
    "rounded",
    "run_data",
    "score_data",
    "shared_folder",
    "write_page",
    "write_run_page",
]
