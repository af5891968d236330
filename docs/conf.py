"""Sphinx configuration: ``python -m sphinx -W -b html docs docs/_build/html``."""

import re

import arrowdev

project = "arrowdev"
author = "the arrowdev authors"
html_show_copyright = False
version = release = arrowdev.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"arrowdev {release}"
html_static_path = ["_static"]
html_css_files = ["arrowdev.css"]

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


def setup(app):
    app.connect("autodoc-process-docstring", drop_text_signature)
    app.connect("autodoc-process-docstring", make_source_a_section, priority=400)
