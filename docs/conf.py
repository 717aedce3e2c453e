"""The documentation site: Sphinx reads the Markdown pages of this folder. ``make docs`` builds it."""

from importlib.metadata import version as installed_version

project = "fedclade"
author = "The fedclade developers"
copyright = author
release = version = installed_version("fedclade")

extensions = ["myst_nb"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "off"

exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "fedclade"
