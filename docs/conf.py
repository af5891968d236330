"""Sphinx configuration: ``python -m sphinx -W -b html docs docs/_build/html``."""

import re

from sphinx.addnodes import pending_xref

import arrowdev

project = "arrowdev"
author = "the arrowdev authors"
html_show_copyright = False
version = release = arrowdev.__version__

REPOSITORY = "https://github.com/arrowdev/arrowdev"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build"]
smartquotes = False  # 'fill' is what to type
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme = "furo"
html_title = f"arrowdev {release}"
html_logo = html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["arrowdev.css"]
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
autodoc_member_order = "groupwise"
autodoc_typehints = "none"


def drop_text_signature(app, what, name, obj, options, lines):
    """Attributes that hold a method begin like a C method: "name($self, ...)", "--"."""
    text = "\n".join(lines)
    lines[:] = re.sub(r"\A\s*\w+\(\$self.*?\n--\n+", "", text, flags=re.S).split("\n")


def make_source_a_section(app, what, name, obj, options, lines):
    """A last paragraph "Source: ..." is no entry of the section before it."""
    text = "\n".join(lines)
    section = r"\nReferences\n----------\n\1\n"
    lines[:] = re.sub(r"\nSource: (.*?)\n(?=\n|\Z)", section, text, flags=re.S).split("\n")


def keep_first_line(app, what, name, obj, options, lines):
    """napoleon takes the first line of an attribute for "type: text"; a comment has no colon."""
    if what in ("attribute", "property", "data"):
        lines[:0] = ["..", ""]


def take_types_by_name(app, doctree):
    """A type such as bytes is not whatever has a member of that name, as sphinx assumes."""
    for reference in doctree.findall(pending_xref):
        if reference.get("reftype") == "class":
            reference.attributes.pop("refspecific", None)


def setup(app):
    app.connect("autodoc-process-docstring", drop_text_signature)
    app.connect("autodoc-process-docstring", make_source_a_section, priority=400)
    app.connect("autodoc-process-docstring", keep_first_line, priority=450)
    app.connect("doctree-read", take_types_by_name)
