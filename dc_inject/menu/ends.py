"""The ends of links: which RSEs a text means, and which pairs with which shares a scenario makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dc_inject.menu import addresses, values
from dc_inject.menu.fields import Endpoint, Endpoints
from dc_inject.menu.nodes import Complain, Place
from dc_inject.menu.schema import Document

MOST_LINKS = 100_000  # of one menu
Pairs = dict[tuple[str, str], float]  # (source, destination) -> share of the rate


class Naming:
    """Tells what an end means: an RSE, the one RSE of a site, or those of an expression; through FTS a URL prefix.

    Without `found` (what expressions mean) an expression stands for itself, as if it were one RSE.
    """

    def __init__(
        self, document: Document, found: Mapping[str, tuple[str, ...]] | None, complain: Complain
    ) -> None:
        """Take the menu, what its expressions mean if that is known, and where to complain."""
        self._sites = document.sites
        self._rses = {rse for site in document.sites.values() for rse in site.rses}
        self._found = found
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
        if self._found is None:
            return (text,)
        found = self._found.get(text)
        if found is None:
            self._complain(end.place, f"the RSE expression {text!r} was not resolved", "name RSEs instead")
        elif not found:
            self._complain(
                end.place, f"the RSE expression {text!r} means no RSE now", "try it with `rucio list-rses`"
            )
        return tuple(sorted(set(found or ())))

    def open(self, name: str) -> bool:
        """Tell whether a name is an expression that stands for itself: it may mean several RSEs."""
        return self._found is None and ("rucio", name) in self.expressions

    def weights(self, ends: Endpoints, through: str) -> dict[str, float]:
        """Return RSEs with their shares: those of a map, divided among the RSEs of an expression; else 1 each."""
        weights: dict[str, float] = {}
        written: set[str] = set()
        for end in ends:
            names = self.rses(end, through)
            for name in names:
                if name in weights and (
                    through == "fts" or end.share is not None or end.text in written or end.text == name
                ):
                    self._complain(
                        end.place, f"{name} is named twice", "name it once; `expression\\NAME` leaves it out"
                    )
                weights[name] = 1.0 if end.share is None else end.share / len(names)
            written.add(end.text)
        return weights

    def products(self, sources: Endpoints, destinations: Endpoints, through: str, place: Place) -> Pairs:
        """Return all pairs but self-pairs, with the products of their shares."""
        left, right = self.weights(sources, through), self.weights(destinations, through)
        if self._too_many(len(left) * len(right), place):
            return {}
        pairs = {
            (a, b): left[a] * right[b]
            for a in left
            for b in right
            if (a != b or self.open(a)) and left[a] * right[b] != 0
        }
        if left and right and not pairs:
            one = next(iter(left))
            what = f"{one} is source and destination" if set(left) == set(right) else "the shares leave no link"
            self._complain(place, what, "a link has two different ends, and a share above 0")
        return pairs

    def mesh(self, ends: Endpoints, through: str) -> Pairs:
        """Return every ordered pair, in equal shares."""
        names = list(self.weights(ends, through))
        if self._too_many(len(names) ** 2, ends[0].place):
            return {}
        if len(names) == 1 and not self.open(names[0]):
            self._complain(ends[0].place, f"a mesh of one, {names[0]}, has no link", "name two RSEs or more")
        return {(a, b): 1.0 for a in names for b in names if a != b or self.open(a)}

    def both_ways(self, pairs: Pairs, place: Place) -> Pairs:
        """Return pairs with their reverses, which have the same shares."""
        turned = {(b, a): share for (a, b), share in pairs.items()}
        twice = [f"{a}:{b}" for a, b in turned if (a, b) in pairs and not self.open(a)]
        if twice:
            self._complain(
                place, f"`both_ways` makes {_some(twice)} a second time", "remove `both_ways`, or write a `mesh`"
            )
        return pairs | turned

    def _too_many(self, links: int, place: Place) -> bool:
        if links > MOST_LINKS:
            self._complain(place, f"these would be {links} links", f"a menu has at most {MOST_LINKS}")
        return links > MOST_LINKS

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


def _some(names: Iterable[str]) -> str:
    """Write up to three names."""
    names = list(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
