"""The documentation site: Sphinx reads the Markdown pages of this folder. ``make docs`` builds it."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from generated import filled

project = "fedclade"
author = "The fedclade developers"
copyright = author
release = version = installed_version("fedclade")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

# The tutorials are notebooks: they are run whenever the site is built, and a cell that fails fails the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_merge_streams = True

exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "fedclade"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}


def setup(app):
    """Put what is made from the code into its pages before they are read."""
    app.connect("source-read", lambda app, name, source: source.__setitem__(0, filled(source[0])))
