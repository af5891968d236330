"""What stubs and sources say of a public object: its kind, signatures, members and place.

The extension has no annotations, so they come from _core.pyi, and for Python code from the code.
"""

import ast
import copy
import functools
import importlib
import inspect
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "arrowdev" / "_core.pyi"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PROTOCOL = re.compile(r"__(?:arrow|dlpack|array|cuda_array|sycl_usm|cuda_stream).*__")
# Where the tables of methods and attributes of each class are, in csrc.
TABLES = {
    "Array": ("python/types/array_type.c", "python/types/prompt.c"),
    "Tensor": ("python/types/tensor_type.c",),
    "Buffer": ("python/types/tensor_type.c",),
    "Schema": ("python/types/schema_type.c",),
    "Device": ("python/types/device_type.c",),
    "ArrayStream": ("python/types/array_stream_type.c",),
    "": ("python/functions/functions.c",),
}


@dataclass
class Definition:
    """An object, or a member of a class, as the reference shows it."""

    name: str  # "Array.to"
    module: str  # "arrowdev"
    kind: str  # "class", "exception", "function", "method", "property" or "attribute"
    nodes: list  # of the definition; several for overloads
    tree: "Tree"
    object: object
    doc: str

    @property
    def short_name(self):
        return self.name.rpartition(".")[2]

    @property
    def is_async(self):
        return isinstance(self.nodes[0], ast.AsyncFunctionDef)

    @property
    def is_classmethod(self):
        return "classmethod" in decorators(self.nodes[0])

    @property
    def is_protocol(self):
        return PROTOCOL.fullmatch(self.short_name) is not None

    @property
    def summary(self):
        """The first sentence of the docstring."""
        paragraph = " ".join(self.doc.split("\n\n")[0].split())
        return re.split(r"(?<=[\w)`\"])\. (?=[\w`])|[.:]$", paragraph)[0] + "."

    def signatures(self):
        """Pairs of the parameters, "(device: str)", and the type of the result or ""."""
        return [self.tree.signature(node, self.kind) for node in self.nodes]

    def annotation(self):
        """The type of a property or an attribute."""
        node = self.nodes[0]
        return self.tree.text(node.returns if isinstance(node, FUNCTIONS) else node.annotation)


def decorators(node):
    return {
        part.attr if isinstance(part, ast.Attribute) else part.id
        for part in getattr(node, "decorator_list", ())
        if isinstance(part, ast.Attribute | ast.Name)
    }


class Tree:
    """A stub or a source."""

    def __init__(self, path):
        self.path = path
        self.module = ast.parse(path.read_text(encoding="utf-8"))
        self.top = {}
        for node in ast.walk(self.module):
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node in self.module.body:
                self.top.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.top.setdefault(node.targets[0].id, []).append(node)

    def members(self, name):
        """Nodes of the members of a class by name, those of private bases last."""
        [node] = self.top[name]
        found = {}
        for part in node.body:
            if isinstance(part, FUNCTIONS) and not decorators(part) & {"setter"}:
                found.setdefault(part.name, []).append(part)
            elif isinstance(part, ast.AnnAssign):
                found[part.target.id] = [part]
        for base in node.bases:
            base = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(base, ast.Name) and base.id.startswith("_") and base.id in self.top:
                for key, nodes in self.members(base.id).items():
                    found.setdefault(key, nodes)
        return found

    def call_of(self, node):
        """The signature of a method that is there in some states only, and so a property."""
        returned = node.returns
        if isinstance(returned, ast.Name) and returned.id.startswith("_"):
            return self.members(returned.id).get("__call__", [None])[0]
        return None

    def doc_after(self, name, member):
        """The string below an attribute of a class."""
        [node] = self.top[name]
        for part, after in zip(node.body, node.body[1:], strict=False):
            if isinstance(part, ast.AnnAssign) and part.target.id == member:
                is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                return inspect.cleandoc(after.value.value) if is_text else ""
        return ""

    def signature(self, node, kind):
        copied = copy.deepcopy(node.args)
        if kind != "function" and "staticmethod" not in decorators(node):
            del (copied.posonlyargs or copied.args)[0]
        text = ast.unparse(Published(self).visit(copied))
        return f"({text})", self.text(node.returns) if node.returns else ""

    def text(self, annotation):
        return ast.unparse(Published(self).visit(copy.deepcopy(annotation)))


class Published(ast.NodeTransformer):
    """Names of annotations as a reader knows them: private aliases are written out."""

    def __init__(self, tree):
        self.tree = tree

    def visit_Constant(self, node):
        return node

    def visit_Attribute(self, node):
        return ast.Name(node.attr) if ast.unparse(node.value) == "builtins" else node

    def visit_Name(self, node):
        if node.id in importlib.import_module("arrowdev.typing").__all__:
            return ast.Name(f"arrowdev.typing.{node.id}")
        if not node.id.startswith("_"):
            return node
        [definition] = self.tree.top.get(node.id, [None])
        if isinstance(definition, ast.ClassDef):
            return ast.Name("contextlib.AbstractContextManager")
        if definition is None or "TypeVar" in ast.unparse(definition.value):
            return ast.Name(node.id.lstrip("_"))
        return self.visit(copy.deepcopy(definition.value))


@functools.cache
def tree_of(path):
    return Tree(path)


def tree_of_object(found):
    module = found.__module__
    if module in ("arrowdev", "arrowdev._core"):
        return tree_of(STUB)
    path = ROOT.joinpath(*module.split("."))  # not the file of an installed arrowdev
    return tree_of(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))


def kind_of(found):
    if inspect.isclass(found):
        return "exception" if issubclass(found, BaseException) else "class"
    return "function"


def definition_of(full_name):
    """The Definition of "arrowdev.Array" or "arrowdev.testing.Queue"."""
    module, _, name = full_name.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    tree = tree_of_object(found)
    nodes = [node for node in tree.top[found.__name__] if not isinstance(node, ast.Assign)]
    return Definition(name, module, kind_of(found), nodes, tree, found, inspect.getdoc(found))


def kind_of_member(node):
    if isinstance(node, ast.AnnAssign):
        return "attribute"
    return "property" if decorators(node) & {"property", "cached_property"} else "method"


def members_of(definition):
    """The Definitions of the documented members of a class, its protocols last."""
    cls, tree = definition.object, definition.tree
    found = []
    for name, nodes in tree.members(cls.__name__).items():
        if name.startswith("_") and not PROTOCOL.fullmatch(name):
            continue
        kind = kind_of_member(nodes[0])
        doc = tree.doc_after(cls.__name__, name) if kind == "attribute" else ""
        member = inspect.getattr_static(cls, name, None)
        if not doc and kind != "attribute":
            doc = inspect.getdoc(member) or ""
        doc = re.sub(r"\A\s*\w+\(\$self.*?\n--\n+", "", doc, flags=re.S)
        if kind == "property" and tree.call_of(nodes[0]):
            kind, nodes = "method", [tree.call_of(nodes[0])]
        if doc:
            qualified = f"{definition.name}.{name}"
            found.append(Definition(qualified, definition.module, kind, nodes, tree, member, doc))
    return sorted(found, key=lambda member: member.is_protocol)


@functools.cache
def c_files():
    """The lines of each C file that may define an object, in the order to look."""
    patterns = ("python/types/common_getters.c", "protocol/*.c", "python/**/*.c", "support/*.c")
    paths = [path for text in patterns for path in sorted((ROOT / "csrc").glob(text))]
    return {path: path.read_text(encoding="utf-8").splitlines() for path in paths}


def find_line(paths, pattern):
    """(path, number, line) of the first line that the pattern is found in."""
    for path in paths:
        for number, line in enumerate(c_files()[path], 1):
            if re.search(pattern, line):
                return path, number
    return None


def place_in_c(name):
    """(path, line) of the C function of "convert" or "Array.to", or of its line in a table."""
    cls, _, member = name.rpartition(".")
    first = [ROOT / "csrc" / path for path in TABLES[cls]]
    entry = rf'\{{"{member}",|^\s+"{member}", (AD_METHOD|get_)'
    table, number = find_line([*first, *c_files()], entry)
    entry = " ".join(c_files()[table][number - 1 : number + 1])
    function = re.search(rf'"{member}",\s*(?:AD_METHOD\()?(\w+)', entry)[1]
    defined = rf"^{function}\(|^(?:static )?AD_ENTRY\({function},"
    others = c_files() if function.startswith("ad_") else ()  # else it is static
    return find_line([table, *others], defined) or (table, number)


def place_of(module, name):
    """(path, line) of the definition of "Array.to" of a module; None for what is only data."""
    outer, _, member = name.partition(".")
    found = getattr(importlib.import_module(module), outer)
    if not inspect.isclass(found) and not inspect.isroutine(found):
        return None
    tree = tree_of_object(found)
    if tree.path != STUB:
        node = tree.members(found.__name__)[member][0] if member else tree.top[found.__name__][0]
        path, line = tree.path, node.lineno
    elif member or not inspect.isclass(found):
        path, line = place_in_c(name)
    else:
        path, line = find_line(c_files(), rf'"(arrowdev\.)?{outer}"')
    return str(path.relative_to(ROOT)), line
