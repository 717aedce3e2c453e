"""The page of one run: a single HTML file that needs neither a server nor a network.

Python gathers the numbers, small and rounded; the page's own script draws them with plotly, which is inside the file.
"""

from fedclade.report.page.run import RunPage, models_data, run_data, write_run_page
from fedclade.report.page.shell import Json, made_from, packed, rounded, write_page

__all__ = [
    "Json",
    "RunPage",
    "made_from",
    "models_data",
    "packed",
    "rounded",
    "run_data",
    "write_page",
    "write_run_page",
]
