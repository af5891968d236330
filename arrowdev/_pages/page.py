"""One self-contained HTML page: no file and no address is needed beside it."""

import html

from arrowdev._core import _shown

STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --faint: #59636e; --line: #d1d9e0;
  --back: #fff; --raised: #f6f8fa; --good: #1a7f37; --bad: #c0303c; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --faint: #9198a1; --line: #3d444d;
  --back: #0d1117; --raised: #151b23; --good: #3fb950; --bad: #f47067; } }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem 1rem 4rem; background: var(--back);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p { margin: .4rem 0; } .faint, caption { color: var(--faint); }
.lead { font-size: 1.15rem; margin: .2rem 0; } .lead b { font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; } svg { display: block; max-width: none; }
table { border-collapse: collapse; font-size: 13px; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: left;
  vertical-align: top; overflow-wrap: anywhere; }
th { white-space: nowrap; }
.numbers td, .numbers th { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.numbers th:first-child, .numbers td:first-child { text-align: left; }
.numbers th { vertical-align: bottom; }
.turned { writing-mode: vertical-rl; rotate: 180deg; text-align: left; margin-left: auto; }
.numbers td.below { padding-left: 1.6rem; color: var(--faint); }
.good { color: var(--good); } .bad { color: var(--bad); }
button { font: inherit; color: inherit; background: var(--raised); border: 1px solid var(--line);
  border-radius: 6px; padding: .35rem .9rem; cursor: pointer; }
pre { overflow-x: auto; background: var(--raised); border-radius: 6px; padding: .8rem;
  font-size: 12px; line-height: 1.35; }
"""

# The clipboard is there on https and localhost only; a page from a file selects the text.
_SCRIPT = """
const report = document.getElementById("report"), button = document.getElementById("copy");
button.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(report.textContent);
  } catch {
    report.closest("details").open = true;
    getSelection().selectAllChildren(report);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
});
"""


def escaped(text):
    return html.escape(_shown(str(text), True))


def heading(text):
    return f"<h2>{escaped(text)}</h2>"


def paragraph(text, kind=""):
    return f'<p class="{kind}">{escaped(text)}</p>'


def cell(content, tag="td", kind=None):
    attribute = f' class="{kind}"' if kind else ""
    return f"<{tag}{attribute}>{escaped(content)}</{tag}>"


def table(rows, head=(), kind=""):
    """Return an HTML table of rows of cells, which have been escaped."""
    heads = "".join(f"<tr>{''.join(cells)}</tr>" for cells in head)
    body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return (
        f'<div class="scroll"><table class="{kind}"><thead>{heads}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def turned(text):
    """Return the heading of a narrow column: a whole name, from the bottom to the top."""
    return f'<th><div class="turned">{escaped(text)}</div></th>'


def document(title, parts, report, style="", script=""):
    """Return a page of parts; `report` is the text that the button copies."""
    body = "\n".join(parts)
    return skeleton(
        title,
        STYLE + style,
        f"""<h1>{escaped(title)}</h1>
{body}
<h2>As text</h2>
<p><button id="copy" type="button">Copy for a bug report</button></p>
<details><summary>Show it</summary><pre id="report">{escaped(report)}</pre></details>
<script>{_SCRIPT}{script}</script>""",
    )


def skeleton(title, style, body):
    """Return a page with what goes into its body."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escaped(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
