"""What the end of a link means: an RSE, the one RSE of a site, those of an expression, or a URL prefix of FTS.

Expressions are known only to Rucio, and resolved when a menu comes into force. Until then one stands for itself,
as if it were one RSE, so that a menu can be checked without asking a service.
"""

from __future__ import annotations

from collections.abc import Mapping

from dc_inject.menu import addresses, values
from dc_inject.menu.fields import Endpoint
from dc_inject.menu.nodes import Complain
from dc_inject.menu.schema import Document


class EndpointResolver:
    """Tells what the ends in one menu mean."""

    def __init__(
        self, document: Document, meanings: Mapping[str, tuple[str, ...]] | None, complain: Complain
    ) -> None:
        """Take the menu, what its expressions mean if that is known, and where to complain."""
        self._sites = document.sites
        self._rses = {rse for site in document.sites.values() for rse in site.rses}
        self._meanings = meanings
        self._complain = complain
        self._prefixes: dict[str, str] = {}  # what was written -> its canonical form
        self.expressions: dict[tuple[str, str], None] = {}  # an ordered set of (through, expression)

    def rses(self, end: Endpoint, through: str) -> tuple[str, ...]:
        """Return the RSEs (through FTS: the URL prefixes) that an end means, none after a complaint."""
        text = end.text
        if text in self._sites and text not in self._rses:
            return self._of_site(end, through)
        if through == "fts":
            return self._prefix(end)
        if addresses.is_url(text):
            self._complain(end.place, "a URL as an end through Rucio", "write `through: fts`, or name an RSE")
            return ()
        if text in self._rses or values.is_name(text):
            return (text,)
        self.expressions[through, text] = None
        if self._meanings is None:
            return (text,)
        rses = self._meanings.get(text)
        if rses is None:
            self._complain(end.place, f"the RSE expression {text!r} was not resolved", "name RSEs instead")
        elif not rses:
            self._complain(
                end.place, f"the RSE expression {text!r} means no RSE now", "try it with `rucio list-rses`"
            )
        return tuple(sorted(set(rses or ())))

    def is_open(self, name: str) -> bool:
        """Tell whether a name is an expression that stands for itself: it may mean several RSEs."""
        return self._meanings is None and ("rucio", name) in self.expressions

    def _prefix(self, end: Endpoint) -> tuple[str, ...]:
        """Return the canonical URL of an end through FTS."""
        text = end.text
        if text not in self._prefixes:
            if not addresses.is_url(text):
                what = f"{values.shown(text)} is no URL, but the link goes through FTS"
                self._complain(end.place, what, f"such as {addresses.EXAMPLE}, or write `through: rucio`")
                return ()
            try:
                self._prefixes[text] = addresses.prefix(text)
            except values.WrongError as error:
                self._complain(end.place, error.message, error.hint)
                return ()
        return (self._prefixes[text],)

    def _of_site(self, end: Endpoint, through: str) -> tuple[str, ...]:
        noun = "URL prefix" if through == "fts" else "RSE"
        names = tuple(n for n in self._sites[end.text].rses if addresses.is_url(n) == (through == "fts"))
        if len(names) == 1 or self._sites[end.text].has_refused("rses"):
            return names[:1]
        if names:
            several = f"several {noun}{'es' if through == 'fts' else 's'}"
            self._complain(end.place, f"the site {end.text} has {several}: {', '.join(names)}", "name one of them")
        else:
            self._complain(
                end.place,
                f"the site {end.text} has no {noun}",
                f"list its {noun} under `sites`, or name the {noun}",
            )
        return ()
