"""The directives ``api`` and ``summary``, public objects with their types, and links to sources.

.. api:: arrowdev.array arrowdev.tensor     functions, with a table on top
.. api:: arrowdev.Array                     a class, its members, and a table of them
   :constructor:                            shows how the class is called
.. summary:: arrowdev.array arrowdev.tensor  the table alone
"""

import builtins
import re

from definitions import definition_of, members_of, place_of
from docutils.nodes import Text
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.ext.napoleon import NumpyDocstring
from sphinx.util.docutils import SphinxDirective

# Code that docstrings leave unmarked: __dlpack__, Tensor.__dlpack__, hasattr().
CODE = re.compile(r"(``.*?``|`.*?`)|(?<![\w.])((?:\w+\.)*(?:__\w+__|\w+(?=\(\)))(?:\(\))?)", re.S)
GROUPS = ("Attributes", "Methods", "Protocols")


def indented(lines):
    return [f"   {line}" if line else "" for line in lines]


def with_code_marked(text):
    """The docstring, in which code is literal; what follows Examples is left alone."""
    prose, heading, rest = text.partition("\nExamples\n")
    marked = CODE.sub(lambda found: found[1] or f"``{found[2]}``", prose)
    return marked + heading + rest


def group_of(member):
    if member.is_protocol:
        return "Protocols"
    return "Methods" if member.kind == "method" else "Attributes"


def table(title, definitions):
    """Names that link to their descriptions, each with its first sentence."""
    lines = [".. list-table::", "   :class: summary", "   :widths: auto", ""]
    if title:
        lines[:0] = [f".. rubric:: {title}", ""]
    for found in definitions:
        target = f"{found.module}.{found.name}"
        call = "()" if found.kind in ("function", "method") else ""
        lines.append(f"   * - :py:obj:`{found.short_name}{call} <{target}>`")
        lines.append(f"     - {with_code_marked(found.summary)}")
    return [*lines, ""]


class Api(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {"constructor": directives.flag}

    def run(self):
        found = [definition_of(name) for name in self.arguments[0].split()]
        is_summed_up = len(found) > 1
        lines = table(None, found) if is_summed_up else []
        for definition in found:
            lines += [
                f".. py:currentmodule:: {definition.module}",
                "",
                *self.described(definition),
            ]
        source = self.get_source_info()[0]
        return self.parse_text_to_nodes(StringList(lines, source=source))

    def described(self, definition):
        lines = self.docstring(definition)
        if definition.kind in ("class", "exception"):
            members = members_of(definition)
            for group in GROUPS:
                chosen = [member for member in members if group_of(member) == group]
                lines += table(group, chosen) if chosen else []
            for member in members:
                lines += self.described(member)
        return [*self.header(definition), "", *indented(lines), ""]

    def header(self, definition):
        """The directive of the object, with its signatures and options."""
        kind = definition.kind
        start = f".. py:{kind}:: "
        if kind in ("function", "method"):
            signatures = [f"{text} -> {result}" for text, result in definition.signatures()]
        elif kind == "class" and "constructor" in self.options:
            signatures = [self.constructor(definition)]
        else:
            signatures = [""]
        lines = [
            f"{start if n == 0 else ' ' * len(start)}{definition.name}{signature}"
            for n, signature in enumerate(signatures)
        ]
        lines += ["   :async:"] if definition.is_async else []
        lines += ["   :classmethod:"] if definition.is_classmethod else []
        if kind in ("property", "attribute"):
            lines.append(f"   :type: {definition.annotation()}")
        return lines

    def constructor(self, definition):
        members = definition.tree.members(definition.object.__name__)
        if "__init__" not in members:
            return ""
        return definition.tree.signature(members["__init__"][0], "method")[0]

    def docstring(self, definition):
        # A last paragraph "Source: ..." is no entry of the section before it.
        section = r"\nReferences\n----------\n\1\n"
        text = re.sub(
            r"\nSource: (.*?)\n*(?=\n\n|\Z)", section, with_code_marked(definition.doc), flags=re.S
        )
        what = "method" if definition.kind in ("property", "attribute") else definition.kind
        parsed = NumpyDocstring(text, self.config, self.env.app, what, definition.name)
        return [*str(parsed).split("\n"), ""]


class Summary(SphinxDirective):
    """A table of objects that are described on other pages."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        lines = table(None, map(definition_of, self.arguments[0].split()))
        return self.parse_text_to_nodes(StringList(lines, source=self.get_source_info()[0]))


def drop_links_of_builtins(app, doctree):
    """A type such as bytes is not the member of that name, as Sphinx assumes."""
    for reference in list(doctree.findall(pending_xref)):
        if reference.get("refdomain") != "py" or reference.get("reftype") not in ("class", "obj"):
            continue
        reference.attributes.pop("refspecific", None)
        if hasattr(builtins, reference["reftarget"]):
            reference.replace_self(Text(reference["reftarget"]))


def draw_dashes(app, doctree):
    """The dash between a parameter and its description, without smartquotes."""
    for text in list(doctree.findall(Text)):
        if text == " -- ":
            text.parent.replace(text, Text(" \N{EN DASH} "))


def link_of_source(repository):
    def resolve(domain, info):
        place = place_of(info["module"], info["fullname"])
        return place and f"{repository}/blob/main/{place[0]}#L{place[1]}"

    return resolve


def setup(app):
    app.add_directive("api", Api)
    app.add_directive("summary", Summary)
    app.connect("doctree-read", drop_links_of_builtins)
    app.connect("doctree-read", draw_dashes)
    return {"parallel_read_safe": True}
