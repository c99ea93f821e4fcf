"""What MkDocs has to be told of our Markdown, which is written to be read in the repository as well."""

from __future__ import annotations

import re

LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+)([^)#\s]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page, **_) -> str:
    """Give named examples a title, and name files outside docs/ where the repository has a link to them."""
    markdown = re.sub(r"^```(\w+) (\S+)$", r'```\1 title="\2"', markdown, flags=re.MULTILINE)
    depth = page.file.src_uri.count("/")

    def named(link: re.Match[str]) -> str:
        outside = link[2].count("../") > depth
        return f"{link[1]} (`{link[3]}`)" if outside else link[0]

    return LINK.sub(named, markdown)
