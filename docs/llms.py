"""A Sphinx extension: each page also as plain Markdown next to its HTML, and ``llms.txt``, an index of them.

A page is its own source, with the files that it includes. What autodoc writes into a page is taken from the document
tree.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from docutils.utils import new_document
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.writers.text import TextTranslator

_INCLUDE = re.compile(r"^:::\{literalinclude\} (\S+)\n((?::[\w-]+:.*\n)*):::$", re.MULTILINE)
_OPTION = re.compile(r"^:([\w-]+): *(.*)$", re.MULTILINE)
_TOCTREE = re.compile(r"^:::\{toctree\}\n.*?^:::\n?", re.MULTILINE | re.DOTALL)
_MARKS = re.compile(r"^(?:<!--.*-->|\([\w-]+\)=)\n", re.MULTILINE)
_IMAGE = re.compile(r"(!\[[^\]]*\]\()[^)]*?([^/)]+\))")
_LINK = re.compile(r"\]\(([^)#\s]+)")
_BLANK_LINES = re.compile(r"\n{3,}")
_SENTENCE = re.compile(r".*?[.:](?=\s|$)", re.DOTALL)


def setup(app: Sphinx) -> dict[str, bool]:
    """Lets Sphinx write the files after a build of HTML."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write(app: Sphinx, error: Exception | None) -> None:
    """Writes ``PAGE.md`` for each page, and ``llms.txt``."""
    if error is not None or app.builder.name != "html":
        return
    for page in app.env.found_docs:
        target = Path(app.outdir, f"{page}.md")
        target.parent.mkdir(parents=True, exist_ok=True)
        text = markdown(app, page)
        target.write_text(text, encoding="utf-8")
        _copy_linked(text, Path(app.env.doc2path(page)).parent, target.parent)
    Path(app.outdir, "llms.txt").write_text("\n".join(index(app.env)) + "\n", encoding="utf-8")


def _copy_linked(text: str, source: Path, target: Path) -> None:
    """Copies the files that a page links to, other pages aside, such as alert rules."""
    for link in _LINK.findall(text):
        if not link.endswith(".md") and (source / link).is_file():
            (target / link).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / link, target / link)


def index(env: BuildEnvironment) -> Iterator[str]:
    """Yields the lines of ``llms.txt``: a link with a sentence for each page, below the page whose menu has it."""
    root = env.config.root_doc
    below = env.toctree_includes
    yield from (f"# {env.config.project}", "", f"> {_summary(env, root)}", "", _link(env, root))
    yield from (_link(env, page) for page in below[root] if page not in below)
    for page in (page for page in below[root] if page in below):
        yield from ("", f"## {env.titles[page].astext()}", "", _link(env, page))
        yield from (_link(env, each) for each in _descendants(env, page))


def _descendants(env: BuildEnvironment, page: str) -> Iterator[str]:
    for each in env.toctree_includes.get(page, ()):
        yield each
        yield from _descendants(env, each)


def _link(env: BuildEnvironment, page: str) -> str:
    summary = _summary(env, page)
    return f"- [{env.titles[page].astext()}]({env.config.html_baseurl}{page}.md)" + (f": {summary}" if summary else "")


def _summary(env: BuildEnvironment, page: str) -> str:
    """Returns the first sentence of a page; a page may begin with a table, and then has none."""
    [section, *_] = env.get_doctree(page).findall(nodes.section)
    first = next((child for child in section.children if not isinstance(child, nodes.title)), None)
    text = " ".join(first.astext().split()) if isinstance(first, nodes.paragraph) else ""
    sentence = _SENTENCE.match(text)
    return sentence[0].removesuffix(":") if sentence else text


def markdown(app: Sphinx, page: str) -> str:
    """Returns a page as plain Markdown."""
    path = Path(app.env.doc2path(page))
    source = path.read_text(encoding="utf-8")
    if "```{eval-rst}" in source:
        text = "\n\n".join(_of_tree(app, app.env.get_doctree(page), 0))
    else:
        text = _INCLUDE.sub(lambda found: _included(path.parent / found[1], found[2]), _TOCTREE.sub("", source))
        text = _IMAGE.sub(rf"\1{'../' * page.count('/')}_images/\2", _MARKS.sub("", text))
    return _BLANK_LINES.sub("\n\n", text).strip() + "\n"


def _included(path: Path, options: str) -> str:
    """Returns the part of a file that a ``literalinclude`` shows, as a block of code."""
    given = dict(_OPTION.findall(options))
    unknown = given.keys() - {"language", "start-at", "end-before"}
    if unknown:
        raise ValueError(f"docs/llms.py does not know the options {unknown} of literalinclude")
    lines = path.read_text(encoding="utf-8").splitlines()
    if "start-at" in given:
        lines = lines[next(at for at, line in enumerate(lines) if given["start-at"].strip('"') in line) :]
    if "end-before" in given:
        lines = lines[: next(at for at, line in enumerate(lines) if given["end-before"].strip('"') in line)]
    return "\n".join((f"```{given.get('language', '')}", *lines, "```"))


def _of_tree(app: Sphinx, node: nodes.Element, level: int) -> Iterator[str]:
    """Yields the paragraphs of a node: a heading for each section and each object that is described."""
    for child in node.children:
        match child:
            case nodes.section():
                yield from _of_tree(app, child, level + 1)
            case nodes.title():
                yield f"{'#' * level} {child.astext()}"
            case addnodes.desc():
                *signatures, content = child.children
                yield from (f"{'#' * (level + 1)} `{signature.astext()}`" for signature in signatures)
                yield from _of_tree(app, content, level + 1)
            case nodes.literal_block():
                yield f"```{child.get('language', '')}\n{child.astext()}\n```"
            case addnodes.toctree() | addnodes.index() | nodes.comment() | nodes.target():
                pass
            case _:
                yield _text(app, child)


class _Translator(TextTranslator):
    """Writes text with code in backticks; types that autodoc emphasizes stay plain."""

    def visit_literal(self, node: nodes.Element) -> None:
        self.add_text("`")

    depart_literal = visit_literal

    def visit_emphasis(self, node: nodes.Element) -> None:
        pass

    depart_emphasis = visit_literal_emphasis = depart_literal_emphasis = visit_emphasis


def _text(app: Sphinx, node: nodes.Node) -> str:
    document = new_document("")
    document += node.deepcopy()
    translator = _Translator(document, app.builder)
    document.walkabout(translator)
    return translator.body.strip()
