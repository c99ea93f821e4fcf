"""A report as a page: one HTML file that loads nothing else, from the template `page.html`.

It is read in light and dark, on a phone, and printed; ratios have a sign next to their colour. All words in it are
escaped, since names, reasons and notes come from others. Its policy lets a browser fetch nothing, and run nothing
but our scripts, which are named there by their hashes: whatever else got into the page would not run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from dc_inject.apps.report import pictures
from dc_inject.apps.report.sections import heading, sections, title
from dc_inject.apps.report.tables import Report
from dc_inject.model.redaction import visible
from dc_inject.summary.criteria import DARK, LIGHT

# `page.js` sorts tables; `live.js` renews a page that is served.
SCRIPT, LIVE = (files(__package__).joinpath(name).read_text("utf-8") for name in ("page.js", "live.js"))


def policy(*scripts: str, connect: str = "'none'") -> str:
    """Return a Content-Security-Policy that allows these scripts and no other; `connect` is where they may ask."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; connect-src {connect}; "
        "form-action 'none'; base-uri 'none'"
    )


def html(report: Report, renewed_every: float = 0, first_lines: Sequence[str] = ()) -> str:
    """Return the page; raises UsageError where the libraries that make it are not installed.

    One that is served is renewed by its second script so often, in seconds, and begins with the first lines.
    """
    scripts = [SCRIPT, LIVE] if renewed_every else [SCRIPT]
    return render(
        title(report),
        [heading(report)],
        policy=policy(*scripts, connect="'self'" if renewed_every else "'none'"),
        scripts=scripts,
        renewed_every=renewed_every,
        first_lines=first_lines,
        sections=list(sections(report)),
        drawings={name: pictures.svg(spec) for name, spec in pictures.pictures(report)},
    )


def render(name: str, words: Sequence[str], **parts: Any) -> str:
    """Return a page with a title, sentences below it, and the other parts that the template knows."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  an extra

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # not what is marked as safe
        loader=PackageLoader("dc_inject.apps.report", ""),
    )
    return environment.get_template("page.html").render(title=name, words=words, light=LIGHT, dark=DARK, **parts)
