"""What the end of a link means: an RSE, the one RSE of a site, those of an expression, or a URL prefix of FTS.

Expressions are known only to Rucio, and resolved when a menu comes into force. Until then one stands for itself,
as if it were one RSE, so that a menu can be checked without asking a service.
"""

from __future__ import annotations

from collections.abc import Mapping

from dc_inject.menu import addresses, values
from dc_inject.menu.fields import LinkEnd
from dc_inject.menu.nodes import Complain
from dc_inject.menu.schema import Document
from dc_inject.model.services import SERVICES, Service, by_end


class EndpointResolver:
    """Resolves the ends of links in one menu."""

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

    def rses(self, end: LinkEnd, service: Service, *, destination: bool = False) -> tuple[str, ...]:
        """Return the RSEs (through FTS: the URL prefixes) that an end means, none after a complaint.

        The `destination` of reads is the name of the site where the workers are; their source may be an RSE.
        """
        text = end.text
        is_site = text in self._sites and text not in self._rses
        if service.reads and values.is_name(text) and (destination or not is_site):
            return (text,)
        if destination and service.reads:
            message = f"{values.shown(text)} is no site, but the link goes through {service.title}"
            self._complain(end.place, message, "name the site where the workers run, such as T2_DE_DESY")
            return ()
        if is_site:
            return self._resolve_site(end, service)
        if service.ends_are_urls:
            return self._prefix(end, service)
        if addresses.meant_as_url(text):
            hint = f"write `through: {by_end(is_url=True).name}`, or name an RSE"
            self._complain(end.place, f"a link through {service.title} has RSEs as ends, not URLs", hint)
            return ()
        if text in self._rses or values.is_name(text):
            return (text,)
        self.expressions[service.name, text] = None
        if self._meanings is None:
            return (text,)
        rses = self._meanings.get(text)
        if rses is None:
            self._complain(end.place, f"the RSE expression {text!r} was not resolved", "name RSEs instead")
        elif not rses:
            self._complain(
                end.place, f"the RSE expression {text!r} matches no RSE now", "try it with `rucio list-rses`"
            )
        return tuple(sorted(set(rses or ())))

    def is_open(self, name: str) -> bool:
        """Return whether a name is an expression that stands for itself: it may mean several RSEs."""
        return self._meanings is None and any((service, name) in self.expressions for service in SERVICES)

    def _prefix(self, end: LinkEnd, service: Service) -> tuple[str, ...]:
        """Return the canonical URL of an end that is one."""
        text = end.text
        if text not in self._prefixes:
            if not addresses.meant_as_url(text):
                message = f"{values.shown(text)} is not a URL, but the link goes through {service.title}"
                hint = f"such as {addresses.EXAMPLE}, or write `through: {by_end(is_url=False).name}`"
                self._complain(end.place, message, hint)
                return ()
            try:
                self._prefixes[text] = addresses.prefix(text)
            except values.WrongError as error:
                self._complain(end.place, error.message, error.hint)
                return ()
        return (self._prefixes[text],)

    def _resolve_site(self, end: LinkEnd, service: Service) -> tuple[str, ...]:
        noun, nouns = ("URL prefix", "URL prefixes") if service.ends_are_urls else ("RSE", "RSEs")
        rses = tuple(self._sites[end.text].rses)
        names = tuple(n for n in rses if addresses.meant_as_url(n) == service.ends_are_urls)
        names = names or (rses if service.reads else ())
        if len(names) == 1 or self._sites[end.text].has_refused("rses"):
            return names[:1]
        if names:
            message, hint = f"the site {end.text} has several {nouns}: {', '.join(names)}", "name one of them"
        else:
            message, hint = (
                f"the site {end.text} has no {noun}",
                f"list its {noun} under `sites`, or name the {noun}",
            )
        self._complain(end.place, message, hint)
        return ()
