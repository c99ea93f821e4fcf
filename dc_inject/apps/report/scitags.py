"""Scitags: the numbers by which networks recognise whose traffic a flow is, and for which activity.

A scitag, or flow label, is a number from 65 to 65535: 64 times the number of an experiment, plus the number of one
of its activities. The registry of the Scitags project gives both numbers out. Rucio marks a transfer with the one
whose activity has the very name of the rule's activity; through FTS a menu says the number itself.

Only what is needed to name a data challenge's traffic stands here: all experiments, and the activities that its
menus are likely to have. What is not here is not known, and stays unknown.
"""

from __future__ import annotations

from typing import NamedTuple

ACTIVITIES = 64  # numbers of activities that an experiment can have

# As registered on 2024-02-01.
EXPERIMENTS = {
    "default": 1,
    "atlas": 2,
    "cms": 3,
    "lhcb": 4,
    "alice": 5,
    "belleii": 6,
    "ska": 7,
    "dune": 8,
    "lsst": 9,
    "ilc": 10,
    "auger": 11,
    "juno": 12,
    "nova": 13,
    "xenon": 14,
}
_SMALL = ("default", "lhcb", "alice", "belleii", "ska", "dune", "lsst", "ilc", "auger")
ACTIVITY_IDS = {
    **{(name, "DataChallenge"): 4 for name in _SMALL},
    **{("atlas", activity): number for activity, number in (
        ("Data Consolidation", 4), ("Data Rebalancing", 8), ("Functional Test", 11), ("Production Input", 15),
        ("Production Output", 16), ("Staging", 19), ("T0 Export", 20), ("Data Challenge", 26),
    )},
    **{("cms", activity): number for activity, number in (
        ("Data Challenge", 4), ("Data Consolidation", 6), ("Data rebalancing", 7), ("Functional Test", 10),
        ("Production Input", 12), ("Production Output", 13), ("Staging", 16), ("T0 Export", 17),
    )},
}  # fmt: skip
_NAMES = {number: name for name, number in EXPERIMENTS.items()}


class Marking(NamedTuple):
    """Whose a flow is and what for, as far as that is known."""

    experiment: str | None
    experiment_id: int | None
    activity_id: int | None
    scitag: int | None


def marking(experiment: str, activity: str, scitag: int | None = None) -> Marking:
    """Return the marking of a flow: of its `scitag`, if a menu says one, else of the names of the registry.

    `experiment` is what somebody said it to be, or empty; a scitag counts more.
    """
    if scitag is not None:
        number, activity_number = divmod(scitag, ACTIVITIES)
        return Marking(_NAMES.get(number), number, activity_number, scitag)
    experiment_id = EXPERIMENTS.get(experiment)
    activity_id = ACTIVITY_IDS.get((experiment, activity))
    label = None if experiment_id is None or activity_id is None else experiment_id * ACTIVITIES + activity_id
    return Marking(experiment or None, experiment_id, activity_id, label)
