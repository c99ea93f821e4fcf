"""The codes of findings: what may look wrong in menus that can work. A menu accepts a finding by its code.

`analysis.lint` finds those that menus alone show; `check --online` asks services for the rest.
"""

from __future__ import annotations

CODES = {
    "site-over-wan": "the rates at a site sum to more than its WAN",
    "site-over-limit": "the rates at a site sum to more than our own limit there, so that some are held",
    "total-over-limit": "the rates, scaled, sum to more than our own limit in total, so that some are held",
    "rate-outlier": "a link has a rate far above or below those of its neighbours",
    "smallest-first": "small datasets are taken first, which makes many small files",
    "long-lifetime": "rules and jobs may live for more than a day, also if the injector dies",
    "unused-catch-up": "`catch_up` is set where control is off, so that it does nothing",
    "space-overfilled": "an RSE has too little space even for the shortest lifetime",
    "tape-buffer": "the buffer of a tape system does not hold what its drives read in two cycles",
    "coarse-datasets": "a link moves less than the smallest dataset that it may take in an hour",
    "fts-link-limit": "a link needs more transfers at a time than FTS allows on it",
    "fts-ramp": "a step is over before FTS has grown to the transfers that it takes",
    "scenarios-overlap": "scenarios use a link at one time, so that monitoring cannot distinguish them",
    "window-gap": "between two menus of a campaign nothing is in force",
    "window-overlap": "a menu begins before the one before it ends",
    "target-differs": "the rates of a menu do not sum to its target",
    "far-ahead": "a menu begins in more than 300 days: its year may be wrong",
    "idle-exclusion": "an exclusion takes nothing out: it is outside of the menu's dates, or no link is meant",
    "unsized-files": "a source list has files without a size, which has to be asked for at the storage",
    "unused-files": "a source list has files that are below no source of the menu",
    # Those below need answers of services: `check --online` finds them.
    "fts-storage-limit": "the links of a storage need more transfers at a time than FTS allows into or out of it",
    "storage-unreachable": "a storage does not answer, or its RSE is not available in Rucio",
    "storage-verbs": "a storage does not allow what copies, or their deletion, need",
    "wrong-size": "a source file that is listed has another size at the storage",
    "source-on-tape": "a source file is on tape only, so that its copy fails until it is staged",
    "no-distance": "Rucio has no distance for a link, so that it moves nothing there",
    "no-third-party-copy": "the ends of a link have no protocols for third-party copy that go together",
    "unknown-activity": "an activity is not in the schema of the Rucio client",
    "account-limit": "the account's limit at an RSE is too small",
    "free-space": "an RSE has too little free space even for the shortest lifetime",
    "deletions-off": "Rucio deletes nothing at an RSE, so that the space of ended rules does not come back",
    "expired-data": "an RSE has much that has expired and is not deleted yet",
    "pool-small": "a source has too few different datasets for a link",
    "credentials-expire": "credentials expire before the menus end",
    "clock-differs": "this machine's clock and a service's differ by more than a minute",
    "no-source-files": "a source has no file that may be injected",
    "another-injector": "a service has rules or jobs of the campaign that no ledger here knows",
    "unmatched-datasets": "entries of `datasets` match no dataset of any source: each is named with the reason",
    "unmatched-exclude": "entries of `exclude` match no dataset of any source, so that they keep nothing out",
    "nothing-usable": "a last check finds no dataset of a source that can be injected",
}
# Nothing can work, or what is meant to be kept out goes out, unless the menu accepts them.
ERRORS = frozenset({"no-source-files", "nothing-usable", "unmatched-exclude"})
