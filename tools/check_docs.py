"""Looks at the documentation in a browser: headless Chromium (Debian: apt install chromium).

    python tools/check_docs.py                   builds the pages and checks all of them
    python tools/check_docs.py --html DIR        checks what is built already
    python tools/check_docs.py --shots DIR       also takes screenshots of some pages
    python tools/check_docs.py --shots DIR --pages index performance

Every page is laid out at three widths, light, and at the middle one dark. The check fails where a
page is wider than the screen, a table is and does not scroll, a table breaks a word, a picture is
missing, a link leads to no page or to no anchor of it, a search does not show first what it has
to, or Sphinx has made a type of other text. Links out of the documentation are not followed.
"""

import argparse
import contextlib
import functools
import html.parser
import http.server
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
WIDTHS = (400, 1000, 1400)
THEMES = ("light", "dark")
SHOWN = ("index", "performance", "devices", "libraries/pyarrow", "conformance")
LAYOUTS = [*((width, "light") for width in WIDTHS), (WIDTHS[1], "dark")]
# What is searched for, and how the link of the first result begins.
SEARCHES = {
    "convert": "reference/functions.html#arrowdev.convert",
    "record_batch": "reference/functions.html#arrowdev.record_batch",
    "to_pylist": "reference/array.html#arrowdev.Array.to_pylist",
    "null_count": "reference/array.html#arrowdev.Array.null_count",
    "ExchangeError": "reference/exceptions.html#arrowdev.ExchangeError",
    "check_producer": "reference/testing.html#arrowdev.testing.check_producer",
    "parquet": "how_to",
    "image": "how_to",
    "getting started": "getting_started.html",
    "nulls": "how_to/nulls.html",
    "nullable polars torch": "how_to/nulls.html",
    "why copied": "how_to/why_copied.html",
    "devices": "reference/functions.html#arrowdev.devices",
    "pickle": "pickling.html",
}
# Anchors of former pages, and where they lead.
MOVED = {"reference.html#arrowdev.Array.to": "reference/array.html#arrowdev.Array.to"}
HEIGHT = 1200
GENERATED = {"genindex", "py-modindex", "search"}  # laid out by Sphinx
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# A page of ours holds the page to look at in a frame, so that it can have any width, and says what
# was found as text that --dump-dom prints.
SHELL = """<!doctype html><meta charset="utf-8">
<style>html, body {{ margin: 0; background: #888 }} iframe {{ border: 0; display: block }}</style>
<script>
const jobs = {jobs}, searches = {searches}, moved = {moved};
const found = [];

function name(element) {{
    const before = [...element.ownerDocument.querySelectorAll("h1, h2, h3")].filter(
        heading => heading.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING);
    const heading = before.length ? before[before.length - 1].innerText : "";
    return `${{element.tagName.toLowerCase()}} under "${{heading.replace(/\\s*[¶#]$/, "")}}"`;
}}

function look(frame, job) {{
    const page = frame.contentDocument, root = page.documentElement;
    const say = what => found.push([job.page, job.width, job.theme, what]);
    if (!page.querySelector("article")) say("the page did not load");
    if (root.scrollWidth > root.clientWidth) say(`the page is ${{root.scrollWidth}} px wide`);
    const article = page.querySelector("article").getBoundingClientRect();
    for (const table of page.querySelectorAll("article table")) {{
        const box = table.parentElement, width = table.getBoundingClientRect().width;
        const scrolls = getComputedStyle(box).overflowX === "auto";
        if (box.scrollWidth > box.clientWidth + 1 && !scrolls)
            say(`${{name(table)}} is ${{Math.round(width)}} px wide in ${{box.clientWidth}} px`);
        for (const word of brokenWords(table)) say(`${{name(table)}} breaks "${{word}}"`);
    }}
    for (const image of page.querySelectorAll("article img, article svg.diagram")) {{
        const right = (image.closest(".scroll") || image).getBoundingClientRect().right;
        const file = image.getAttribute("src") || image.getAttribute("aria-label");
        if (image.naturalWidth === 0) say(`${{file}} is not shown`);
        else if (right > article.right + 1) say(`${{file}} is cut off`);
    }}
}}

function* brokenWords(table) {{
    const page = table.ownerDocument, texts = page.createTreeWalker(table, NodeFilter.SHOW_TEXT);
    const range = page.createRange();
    while (texts.nextNode())
        for (const word of texts.currentNode.data.matchAll(/\\w{{2,}}/g)) {{
            range.setStart(texts.currentNode, word.index);
            range.setEnd(texts.currentNode, word.index + word[0].length);
            const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
            if (lines.size > 1) yield word[0];
        }}
}}

async function search(query, wanted) {{
    const frame = document.createElement("iframe");
    frame.src = `search.html?q=${{encodeURIComponent(query)}}`;
    await new Promise(done => {{ frame.onload = done; document.body.append(frame); }});
    let link = null;
    for (let tries = 0; tries < 100 && !link; tries++) {{
        await new Promise(done => setTimeout(done, 50));
        link = frame.contentDocument.querySelector("ul.search li a");
    }}
    const first = link ? link.getAttribute("href") : "nothing";
    if (!first.startsWith(wanted)) found.push(["search", query, wanted, `finds ${{first}} first`]);
    frame.remove();
}}

async function follow(old, wanted) {{
    const frame = document.createElement("iframe");
    frame.src = old;
    document.body.append(frame);
    let reached = old;
    for (let tries = 0; tries < 100 && !reached.endsWith(wanted); tries++) {{
        await new Promise(done => setTimeout(done, 50));
        reached = frame.contentWindow.location.href;
    }}
    if (!reached.endsWith(wanted)) found.push(["link", old, wanted, `leads to ${{reached}}`]);
    frame.remove();
}}

async function main() {{
    for (const job of jobs) {{
        localStorage.setItem("theme", job.theme);
        const frame = document.createElement("iframe");
        frame.width = job.width;
        frame.height = {height};
        frame.src = job.page + ".html";
        await new Promise(done => {{ frame.onload = done; document.body.append(frame); }});
        frame.contentDocument.body.dataset.theme = job.theme;
        look(frame, job);
        if (jobs.length > 1) frame.remove();
    }}
    for (const [query, wanted] of Object.entries(searches)) await search(query, wanted);
    for (const [old, wanted] of Object.entries(moved)) await follow(old, wanted);
    document.title = "done";
    const result = document.createElement("pre");
    result.id = "result";
    result.hidden = true;
    result.textContent = JSON.stringify(found);
    document.body.append(result);
}}
</script><body onload="main()"></body>
"""


class Page(html.parser.HTMLParser):
    """The anchors, links and pictures of a page."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.pictures = {""}, [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in ("img", "script") and values.get("src"):
            self.pictures.append(values["src"])


def dead_links(folder):
    """A line for each link and picture that leads nowhere."""
    parse = functools.cache(Page)
    for path in sorted(folder.rglob("*.html")):
        page = parse(path)
        for link in sorted({*page.links, *page.pictures}):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)) if parts.path else path
            where = path.relative_to(folder)
            if not target.exists():
                yield f"{where}: {link} does not exist"
            elif target.suffix == ".html" and unquote(parts.fragment) not in (
                parse(target.resolve()).anchors
            ):
                yield f"{where}: {link} has no such anchor"


INVENTED_TYPE = re.compile(r"<dt[^>]*>Type<[^>]*>:.*?<dd[^>]*>(.*?)</dd>", re.DOTALL)
TYPE_OF_MEMBER = re.compile(r'title="([\w.]*\.[a-z_]\w*)"><em>')


def invented_types(folder):
    """A line for each type that Sphinx makes of a docstring that states none.

    It takes the first line of an attribute for "type: text", and a type such as bytes for a
    member of that name.
    """
    for path in sorted(folder.rglob("*.html")):
        text = path.read_text(encoding="utf-8")
        where = path.relative_to(folder)
        for found in INVENTED_TYPE.findall(text):
            yield f"{where}: the type of an attribute is {re.sub('<[^>]*>', '', found).strip()!r}"
        for found in TYPE_OF_MEMBER.findall(text):
            yield f"{where}: a type leads to the member {found}"


class Handler(http.server.SimpleHTTPRequestHandler):
    """The built pages, and the shell around some of them."""

    shells = {}

    def do_GET(self):
        shell = self.shells.get(self.path)
        if shell is None:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(shell.encode())

    def copyfile(self, source, outputfile):
        with contextlib.suppress(BrokenPipeError):  # the browser has seen enough
            super().copyfile(source, outputfile)

    def log_message(self, *arguments):
        pass


class Browser:
    def __init__(self, folder):
        names = [found for found in map(shutil.which, BROWSERS) if found]
        if not names:
            sys.exit(f"no browser was found, looked for {', '.join(BROWSERS)}")
        self.program = names[0]
        handler = functools.partial(Handler, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def run(self, jobs, *options, searches=(), moved=()):
        """Chromium on a shell with these jobs; what it prints."""
        path = f"/shell-{len(Handler.shells)}.html"
        Handler.shells[path] = SHELL.format(
            jobs=json.dumps(jobs),
            searches=json.dumps(dict(searches)),
            moved=json.dumps(dict(moved)),
            height=HEIGHT,
        )
        url = f"http://127.0.0.1:{self.server.server_port}{path}"
        with tempfile.TemporaryDirectory() as profile:
            command = [
                *(self.program, "--headless=new", "--no-sandbox", "--disable-gpu"),
                *("--hide-scrollbars", f"--user-data-dir={profile}", *options, url),
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if done.returncode:
            sys.exit(f"{self.program} failed: {done.stderr[-2000:]}")
        return done.stdout

    def complaints(self, pages):
        jobs = [
            {"page": page, "width": width, "theme": theme}
            for page in pages
            for width, theme in LAYOUTS
        ]
        options = ("--virtual-time-budget=600000", "--dump-dom")
        dom = self.run(jobs, *options, searches=SEARCHES, moved=MOVED)
        result = re.search(r'<pre id="result"[^>]*>(.*?)</pre>', dom, re.S)
        if result is None:
            sys.exit("the browser did not come to its end")
        return json.loads(html.unescape(result[1]))

    def shoot(self, page, width, theme, file):
        job = {"page": page, "width": width, "theme": theme}
        self.run(
            [job], f"--window-size={width},{HEIGHT}", f"--screenshot={file}",
            "--virtual-time-budget=5000",
        )  # fmt: skip


def take_shots(browser, pages, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for page in pages:
        for width in WIDTHS:
            for theme in THEMES:
                file = folder / f"{page.replace('/', '-')}-{width}-{theme}.png"
                browser.shoot(page, width, theme, file)
                print(compressed(file))


def compressed(file):
    """The picture as WebP at two thirds, a tenth of the bytes, if Pillow is installed."""
    try:
        from PIL import Image
    except ImportError:
        return file
    target = file.with_suffix(".webp")
    with Image.open(file) as picture:
        size = (picture.width * 2 // 3, picture.height * 2 // 3)
        picture.convert("RGB").resize(size).save(target, quality=40, method=6)
    file.unlink()
    return target


def build(folder):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    subprocess.run([*command, ROOT / "docs", folder], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--html", type=Path, help="the built pages; built anew without it")
    parser.add_argument("--shots", type=Path, help="folder of the screenshots")
    parser.add_argument("--pages", nargs="*", help="pages of the screenshots")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.html or Path(temporary)
        if arguments.html is None:
            build(folder)
        found = {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.html")}
        names = sorted(found - GENERATED)
        lines = [*dead_links(folder), *invented_types(folder)]
        browser = Browser(folder)
        lines += [
            f"{page}, {width}, {theme}: {what}"
            for page, width, theme, what in browser.complaints(map(quote, names))
        ]
        if arguments.shots:
            take_shots(browser, arguments.pages or SHOWN, arguments.shots)
    print(
        "\n".join(lines)
        or f"{len(names)} pages, {len(LAYOUTS)} layouts, {len(SEARCHES)} searches: fine"
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
