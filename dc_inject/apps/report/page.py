"""A report as a page: one HTML file that loads nothing else.

It is read in light and dark, on a phone, and printed; ratios have a sign beside their colour. All words in it are
escaped, since names, reasons and notes come from others. Its policy lets a browser fetch nothing, and run nothing
but the one script that sorts tables (page.js), which is named there by its hash: whatever else got into the page
would not run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from dc_inject.apps.report import pictures
from dc_inject.apps.report.sections import heading, sections, title
from dc_inject.apps.report.tables import Cell, Report, Section, Table
from dc_inject.model.redaction import visible

SCRIPT, LIVE = (
    files("dc_inject.apps.report").joinpath(name).read_text(encoding="utf-8") for name in ("page.js", "live.js")
)
FOLDED = ("over-time", "wan")  # sections whose table is the picture again
MANY = 12  # columns: tables with more are printed smaller
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d0d7de; --soft: #f3f5f7; --link: #0550ae;
  --green: #c7ebcf; --yellow: #faeaa0; --orange: #ffd0a1; --red: #ffb9b3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --paper: #15181c; --line: #3a4149; --soft: #20252b;
  --link: #7ab8ff; --green: #14532d; --yellow: #5c4a00; --orange: #7a3b00; --red: #7f1d1d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 80rem; color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, "DejaVu Sans", Verdana, sans-serif; }
a { color: var(--link); }
h1 { margin: 0; font-size: 1.7rem; } h2 { margin: 2.2rem 0 .5rem; font-size: 1.2rem; }
nav { margin: 1rem 0; padding: .5rem .8rem; background: var(--soft); border-radius: .4rem; }
nav a { margin-right: 1.1rem; white-space: nowrap; }
.big { font-size: 1.15rem; margin: .3rem 0; } .big:last-of-type { margin-bottom: .8rem; }
#now p { margin: 0; padding: .15rem .4rem; overflow-wrap: anywhere; }
#renewed { float: right; margin: 0; padding: 0 .4rem; }
.wide { overflow-x: auto; }
svg { display: block; max-width: 100%; height: auto; margin: .5rem 0; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { background: var(--soft); font-weight: 600; white-space: nowrap; }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0; text-align: inherit;
  cursor: pointer; }
th[aria-sort=ascending] button::after { content: " \\25B4"; }
th[aria-sort=descending] button::after { content: " \\25BE"; }
th.n, td.n { text-align: right; white-space: nowrap; }
th:first-child, td:first-child { position: sticky; left: 0; } td:first-child { background: var(--paper); }
td.t { overflow-wrap: anywhere; min-width: 7rem; max-width: 28rem; }
.many { font-size: .7rem; } .many th, .many td { padding: .15rem .2rem; } .many th.n { white-space: normal;
  overflow-wrap: anywhere; min-width: 3.3rem; } .many td.t { min-width: 5.6rem; }
.many td.t + td.t { min-width: 8.5rem; }
.green { background: var(--green); } .yellow { background: var(--yellow); }
.orange { background: var(--orange); } .red { background: var(--red); }
summary { cursor: pointer; color: var(--link); margin: .3rem 0; }
@media (max-width: 50rem) { body { padding: .6rem; } svg { max-width: none; } td.t { min-width: 7.4rem; }
  td.t + td.t { min-width: 4rem; }
  th, td { padding: .2rem .4rem; } }
@page { size: A4 landscape; margin: 12mm; }
@media print { :root { --ink: #000; --paper: #fff; --line: #bbb; --soft: #f3f5f7; --green: #c7ebcf;
  --yellow: #faeaa0; --orange: #ffd0a1; --red: #ffb9b3; }
  body { padding: 0; max-width: none; font-size: 10pt; -webkit-print-color-adjust: exact;
    print-color-adjust: exact; }
  nav, summary, #renewed, details:not([open]) { display: none; }
  .wide { overflow: visible; } details { margin-top: .8rem; } th:first-child, td:first-child { position: static; }
  h2 { margin: 1rem 0 .3rem; } table { font-size: 7.5pt; } table.many { font-size: 6.5pt; }
  th, th.n { white-space: normal; overflow-wrap: anywhere; } th button { display: contents; }
  th, td { padding: .1rem .3rem; } .many th, .many td { padding: .1rem .15rem; }
  svg { max-height: 165mm; } svg, tr, #day-types, #day-sites { break-inside: avoid; }
  h2, p, thead { break-after: avoid; } }
"""


def policy(*scripts: str, connect: str = "'none'") -> str:
    """Return a Content-Security-Policy that allows these scripts and no other; `connect` is where they may ask."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; connect-src {connect}; "
        "form-action 'none'; base-uri 'none'"
    )


def html(report: Report, renewed_every: float = 0, first_lines: Sequence[str] = ()) -> str:
    """Return the page; raises UsageError where the library that draws is not installed.

    One that is served is renewed by its second script so often, in seconds, and begins with the first lines.
    """
    scripts = [SCRIPT, LIVE] if renewed_every else [SCRIPT]
    allowed = policy(*scripts, connect="'self'" if renewed_every else "'none'")
    renewed = f'<p id="renewed" role="status" data-every="{renewed_every:g}"></p>' if renewed_every else ""
    drawn = {name: pictures.svg(spec) for name, spec in pictures.pictures(report)}
    parts = list(sections(report))
    links = " ".join(f'<a href="#{section.name}">{_text(section.title)}</a>' for section in parts)
    name = _text(title(report))
    lines = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
        f"{renewed}<main>\n{_first(first_lines)}",
        f'<header id="top"><h1>{name}</h1>\n<p>{_text(heading(report))}</p></header>',
        f'<nav id="parts">{links}</nav>',
    ]
    for section in parts:
        lines += _section(section, drawn.get(section.name, ""))
    ends = [f"<script>{script}</script>" for script in scripts]
    return "\n".join([*lines, "</main>", *ends, "</body>\n</html>"]) + "\n"


def _first(lines: Sequence[str]) -> str:
    shown = (f"<p{' class=red' if line.startswith('!') else ''}>{_text(line)}</p>" for line in lines)
    return f'<section id="now">{"".join(shown)}</section>' if lines else ""


def _section(section: Section, drawing: str) -> Iterator[str]:
    """Yield a section; a table that has a row for each step is folded."""
    yield f'<section id="{section.name}">\n<h2>{_text(section.title)}</h2>'
    if section.name == "method":
        yield "<ul>" + "".join(f"<li>{_text(words)}</li>" for words in section.words) + "</ul>"
    else:
        kind = ' class="big"' if section.name == "verdict" else ""
        yield from (f"<p{kind}>{_text(words)}</p>" for words in section.words)
    if drawing:
        yield f'<div class="wide">{drawing}</div>'
    if section.table is not None:
        table = _table(section.table)
        folded = f"<details>\n<summary>The same as a table</summary>\n{table}\n</details>"
        yield folded if section.name in FOLDED else table
    yield "</section>"


def _table(table: Table) -> str:
    heads = "".join(
        f'<th class="{"t" if number < table.texts else "n"}" scope="col">'
        f'<button type="button">{_text(head)}</button></th>'
        for number, head in enumerate(table.heads)
    )
    rows = "\n".join(f"<tr>{''.join(_cells(row, table.texts))}</tr>" for row in table.rows)
    kind = ' class="many"' if len(table.heads) > MANY else ""
    head = f"<thead><tr>{heads}</tr></thead>"
    return f'<div class="wide"><table{kind}>\n{head}\n<tbody>\n{rows}\n</tbody>\n</table></div>'


def _cells(row: tuple[Cell, ...], texts: int) -> Iterator[str]:
    for number, cell in enumerate(row):
        kinds = " ".join(["t" if number < texts else "n", *([cell.grade] if cell.grade else [])])
        value = "" if cell.value is None else f' data-v="{cell.value:.6g}"'
        yield f'<td class="{kinds}"{value}>{_text(cell.text)}</td>'


def _text(words: str) -> str:
    return escape(visible(words))
