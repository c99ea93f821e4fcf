"""The menus in force: read again in each cycle, with their expressions resolved once and then fixed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dc_inject import menu
from dc_inject.engine import admission
from dc_inject.ledger import Ledger
from dc_inject.menu import differences
from dc_inject.model import Campaign
from dc_inject.model.errors import MenuError, Permanent, Problem
from dc_inject.model.ports import Backend, Clock
from dc_inject.model.services import SERVICES
from dc_inject.model.shards import Shard
from dc_inject.planning import shards
from dc_inject.system import files

SHARDS = "shards"  # what a ledger keeps besides what expressions mean: in which shard a destination is

log = logging.getLogger(__name__)


class Menus:
    """Reads menu files into the campaign they make; what has not changed is not checked again."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        ledger: Ledger,
        backends: Mapping[str, Backend],
        clock: Clock,
        links: Sequence[str] = (),
        scale: float = 1.0,
        shard: Shard | None = None,
        admits: Callable[[Campaign], None] = lambda _: None,
    ) -> None:
        """Take files or folders; `links` (`SRC:DST`) narrows them, `scale` multiplies every rate.

        With `shard` they are narrowed to its destinations, after all of them have been checked.
        `admits` raises MenuError for what cannot be done here, such as `admission.storages`.
        """
        self._paths = paths
        self._ledger = ledger
        self._backends = backends
        self._clock = clock
        self._links = frozenset(links)
        self._scale = scale
        self._shard = shard
        self._admits = admits
        self._digests: tuple[str, ...] = ()
        self._campaign: Campaign | None = None
        self._names: Mapping[tuple[str, str], tuple[str, ...]] = {}  # what (service, expression) means

    def __call__(self) -> Campaign:
        """Return the campaign as the files are now; raises MenuError, and then nothing has changed."""
        return self.take_up(files.read_menus(self._paths))

    def take_up(self, drafts: Sequence[menu.MenuDraft]) -> Campaign:
        """Put menus in force that were read before; raises MenuError, and then nothing has changed."""
        digests = tuple(draft.digest for draft in drafts)
        if self._campaign is not None and digests == self._digests:
            return self._campaign
        for draft in drafts:
            if unknown := sorted(draft.services - set(self._backends)):
                message = f"this run has no connection to {', '.join(unknown)}"
                raise MenuError([Problem(draft.name, 0, message, "start `run` again to use another service")])
        names = {
            (through, expression): self._resolve(draft, through, expression)
            for draft in drafts
            for through, expression in draft.expressions
        }
        menus = [
            draft.resolve({expression: meaning for (_, expression), meaning in names.items()}) for draft in drafts
        ]
        campaign = menu.narrowed(menu.campaign(menus), self._links, self._scale)
        if self._campaign is not None:
            for name in ("name", "cycle"):
                if getattr(campaign, name) != getattr(self._campaign, name):
                    message = f"the campaign's {name} cannot change while it is in force"
                    raise MenuError([Problem(menus[0].name, 0, message, "use another name for a new campaign")])
            self._same_endpoint(self._campaign, campaign)
        self._admits(campaign)
        admission.findings(campaign)
        admission.ends(campaign, lambda service, rses: self._backends[service].sites(rses))
        now = self._clock.now()
        if self._shard is not None:
            names |= self._assigned(campaign, self._shard)
            campaign = shards.part(campaign, self._shard)
        texts = [(draft.name, draft.digest, draft.text) for draft in drafts]
        self._ledger.put_in_force(texts, now, {draft.digest: draft.parts for draft in drafts})
        self._ledger.scale(self._scale, now)
        if self._campaign is not None:
            change = differences.sentence(self._campaign, campaign)
            values = {"change": change}
            log.info("changed menus are in force: %s", change, extra={"event": "menus-changed", "fields": values})
            self._ledger.change("menu files", f"menus edited: {change}", "", now)
        self._digests, self._campaign, self._names = digests, campaign, names
        return campaign

    def move_to(self, ledger: Ledger) -> None:
        """Keep from now on in another ledger what is in force, and what its expressions mean."""
        before, self._ledger, now = self._ledger, ledger, self._clock.now()
        for (service, expression), names in self._names.items():
            ledger.record_resolution(service, expression, names, now)
        records = before.menus_in_force()
        texts = [(record.name, record.digest, record.text) for record in records]
        ledger.put_in_force(texts, now, {record.digest: before.menu_parts(record.digest) for record in records})
        ledger.scale(self._scale, now)

    def _same_endpoint(self, before: Campaign, after: Campaign) -> None:
        """Raise MenuError for another address: this run has no client for it, and it knows none of the jobs."""
        old, new = _endpoint(before), _endpoint(after)
        for service in (SERVICES[name] for name in self._backends):
            in_use = {
                identity.address for identity in self._ledger.identities() if identity.service == service.name
            }
            if service.named_by_menus and new not in {old, *in_use}:
                was = old or ", ".join(in_use)
                message = f"{service.title} is {new or 'not named'}, but {was} in the campaign in force"
                hint = f"start `run` again to use another {service.title}"
                raise MenuError([Problem(after.menus[0].name, 0, message, hint)])

    def _assigned(self, campaign: Campaign, shard: Shard) -> dict[tuple[str, str], tuple[str, ...]]:
        """Keep in which shard each destination is; raises MenuError where another one would get it now."""
        places = shards.assigned(campaign.flows, shard.count)
        for place, index in places.items():
            was = self._ledger.resolution(SHARDS, place)
            if was not in {None, (str(index),)}:
                message = f"{place} would move from shard {''.join(was or ())} to shard {index}"
                hint = "`then` and `volume` join destinations in one shard: write such links as another campaign"
                raise MenuError([Problem(campaign.menus[0].name, 0, message, hint)])
        for place, index in places.items():
            self._ledger.record_resolution(SHARDS, place, [str(index)], self._clock.now())
        return {(SHARDS, place): (str(index),) for place, index in places.items()}

    def _resolve(self, draft: menu.MenuDraft, service: str, expression: str) -> tuple[str, ...]:
        """Return what an expression meant when its menu came into force; asked once, then recorded.

        Raises MenuError for one that means nothing.
        """
        rses = self._ledger.resolution(service, expression)
        if rses is None:
            try:
                rses = self._backends[service].resolve(expression)
            except Permanent as error:
                raise MenuError([draft.wrong(expression, error)]) from None
            self._ledger.record_resolution(service, expression, rses, self._clock.now())
        return rses


def _endpoint(campaign: Campaign) -> str:
    """Return the address of FTS that a campaign names; nothing where the environment does."""
    return next((menu.endpoint for menu in campaign.menus if menu.endpoint), "")
