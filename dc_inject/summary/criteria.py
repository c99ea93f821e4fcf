"""The numbers that decide what views and reports call short, stale, growing, silent or poor, with their reasons.

They decide what is shown, in which colours, and who is called; no plan depends on them. What plans, control and
the engine act on stands where they act, and what a campaign is judged by is in its menus (`thresholds`).
"""

from __future__ import annotations

from datetime import timedelta

# --------------------------------------------------------------------------- a link, of its due

ENOUGH = 0.7  # moved less than that: short, as what reports show in orange
LITTLE = 2 / 3  # on its way, of the due of a cycle: control alone lets 0.44 be, and a part of a dataset
WORKS = 1 / 3  # moved in the last closed cycle: who carries such a link works
GRADES = ((0.9, "green", "++"), (ENOUGH, "yellow", "+"), (0.5, "orange", "!"), (float("-inf"), "red", "!!"))
# The shades of these colours: RGB on light paper and in spreadsheets, RGB on dark pages, and rich's on terminals.
LIGHT = {"green": "C7EBCF", "yellow": "FAEAA0", "orange": "FFD0A1", "red": "FFB9B3"}
DARK = {"green": "14532D", "yellow": "5C4A00", "orange": "7A3B00", "red": "7F1D1D"}
TERMINAL = {"green": "green", "yellow": "gold3", "orange": "dark_orange3", "red": "bold red"}

# --------------------------------------------------------------------------- cycles

JUDGED = 4  # closed ones by which a link is judged: in one of them a large dataset may just not have arrived
RETURNS = 8  # in which a link that moves something may return to its rate, as long as it takes after failures
CURRENT = 2  # lengths after which a cycle that closed, or began, is no longer the current one: one may be late

# --------------------------------------------------------------------------- what FTS does

QUEUED = 0.25  # of what arrives in a cycle: with less on its way, no limit of FTS is what keeps a link back
LESS = 0.8  # of the most that a link has moved in a cycle: with less FTS is not growing

# --------------------------------------------------------------------------- an injector

SILENT = timedelta(hours=1)  # without anything that arrives, though something is due
LEAST_FREE = 100_000_000  # bytes on the ledger's disk: less may not be enough to write what is still to come
