"""Sphinx configuration: ``python -m sphinx -W -b html docs docs/_build/html``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

from reference import link_of_source

import arrowdev

project = "arrowdev"
author = "the arrowdev authors"
html_show_copyright = False
version = release = arrowdev.__version__

REPOSITORY = "https://github.com/arrowdev/arrowdev"

extensions = [
    "myst_parser",
    "sphinx.ext.linkcode",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "diagrams",
    "reference",
    "layout",
]
exclude_patterns = ["_build"]
smartquotes = False  # 'fill' is what to type
pygments_style = "default"  # every colour has a contrast of 4.5 at least
pygments_dark_style = "github-dark"
html_theme = "furo"
html_title = f"arrowdev {release}"
html_logo = html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["arrowdev.css"]
html_search_scorer = str(Path(__file__).parent / "extensions" / "search_scorer.js")
html_theme_options = {
    "source_repository": REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
    "footer_icons": [{"name": "GitHub", "url": REPOSITORY, "html": "GitHub", "class": ""}],
}
copybutton_prompt_text = r">>> |\.\.\. |[$#] "
copybutton_prompt_is_regexp = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

napoleon_google_docstring = False
napoleon_use_ivar = True
default_role = "literal"
add_module_names = False
python_use_unqualified_type_names = True
python_display_short_literal_types = True
python_maximum_signature_line_length = 72
toc_object_entries_show_parents = "hide"
linkcode_resolve = link_of_source(REPOSITORY)
