"""Make links like those of ATLAS's minimal (200 links) and flexible (1,200 links) models of Data Challenge 2024.

    python menus/atlas/model.py                    # writes _sites.yaml and five tables of links beside itself
    python menus/atlas/model.py --seed 7 --to DIR  # another drawing of the same model, elsewhere

The rates of single links were not published. What was published, and is met exactly: the nine links of the T0
export; what goes into and out of CERN and each Tier-1 in the minimal model, and into them in the flexible model;
the numbers of links. All else is assumed, as follows.

Minimal model, beside the T0 export:

- `t1-t1` (81 links): a Tier-1 sends a third of its egress to CERN and the other Tier-1s, in proportion to what
  they take beyond the T0 export.
- `t1-t2` (60): CERN and each Tier-1 send what is left of their egress to six Tier-2s.
- `t2-t1` (50): CERN and each Tier-1 get what is left of their ingress from five Tier-2s.

Partners are drawn: Tier-2s of the Tier-1's own region first, larger ones more often. Each has an equal part, times
a number drawn evenly from 0.5 to 1.5.

Flexible model, beside all of the minimal one: 1,000 more links between any two sites, of which larger sites have
more. Those to CERN and the Tier-1s (`any-t1`) bring each of them the ingress of the flexible model, in parts drawn
in the same way. Those to Tier-2s (`any-t2`) carry the rest of as much as the minimal model does, since the targets
of all experiments double from the one model to the other (1.2 and 2.4 Tb/s).

Rates are whole Mb/s, rounded so that sums stay exact. Only `random.Random.random` is used, whose numbers are the
same in every version of Python.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

Links = dict[tuple[str, str], int]  # (source, destination) -> Mb/s

CERN = "CERN-PROD"
SEED = 24

# "WLCG/DOMA Data Challenge 2024, Final Report", 3.2. Gb/s: T0 export, ingress, egress, usable WAN.
TIER1 = {
    "BNL-ATLAS": (60.0, 84.5, 67.1, 400),
    "FZK-LCG2": (32.0, 55.9, 35.5, 144),
    "IN2P3-CC": (38.0, 59.8, 43.0, 177),
    "INFN-T1": (23.0, 36.3, 26.0, 62),
    "NDGF-T1": (15.0, 44.6, 33.7, 149),
    "SARA-MATRIX": (15.0, 31.0, 16.4, 238),
    "pic": (11.0, 17.1, 12.5, 85),
    "RAL-LCG2": (38.0, 64.7, 40.3, 177),
    "TRIUMF-LCG2": (25.0, 38.2, 27.8, 100),
}
CERN_INGRESS, CERN_EGRESS, CERN_WAN = 23.4, 282.5, 891
# The same, table 3.2.1a. Gb/s: ingress in the flexible model.
FLEXIBLE = {
    CERN: 88.9,
    "BNL-ATLAS": 119.8,
    "FZK-LCG2": 92.9,
    "IN2P3-CC": 93.5,
    "INFN-T1": 61.2,
    "NDGF-T1": 95.6,
    "SARA-MATRIX": 60.1,
    "pic": 29.0,
    "RAL-LCG2": 92.8,
    "TRIUMF-LCG2": 60.0,
}
# Assumed: which Tier-2s take part, and how large they are compared to each other.
TIER2 = {
    "BNL-ATLAS": "AGLT2 3, MWT2 4, NET2 1, OUHEP_OSG 1, SWT2_CPB 3",
    "FZK-LCG2": "DESY-HH 3, DESY-ZN 1, GOEGRID 2, LRZ-LMU 2, MPPMU 1, UNI-FREIBURG 2, WUPPERTALPROD 2, "
    "CSCS-LCG2 2, CYFRONET-LCG2 1, FMPHI-UNIBA 1, IEPSAS-KOSICE 1, PRAGUELCG2 2, PSNC 1",
    "IN2P3-CC": "GRIF 3, IN2P3-CPPM 1, IN2P3-LAPP 2, IN2P3-LPC 1, IN2P3-LPSC 1, BEIJING-LCG2 1, RO-07-NIPNE 1, "
    "TOKYO-LCG2 3",
    "INFN-T1": "INFN-FRASCATI 1, INFN-MILANO-ATLASC 2, INFN-NAPOLI-ATLAS 2, INFN-ROMA1 2",
    "NDGF-T1": "SIGNET 2, UNIBE-LHEP 1",
    "SARA-MATRIX": "IL-TAU-HEP 1, TECHNION-HEP 1, TR-10-ULAKBIM 1, WEIZMANN-LCG2 1",
    "pic": "EELA-UTFSM 1, IFAE 1, IFIC-LCG2 2, NCG-INGRID-PT 1, UAM-LCG2 1",
    "RAL-LCG2": "UKI-LT2-QMUL 3, UKI-LT2-RHUL 1, UKI-NORTHGRID-LANCS-HEP-CEPH 3, UKI-NORTHGRID-LIV-HEP 1, "
    "UKI-NORTHGRID-MAN-HEP 3, UKI-NORTHGRID-SHEF-HEP 1, UKI-SCOTGRID-ECDF 1, UKI-SCOTGRID-GLASGOW-CEPH 3, "
    "UKI-SOUTHGRID-BHAM-HEP 1, UKI-SOUTHGRID-OX-HEP 1, UKI-SOUTHGRID-RALPP 1",
    "TRIUMF-LCG2": "AUSTRALIA-ATLAS 1, CA-SFU-T2 2, CA-VICTORIA-WESTGRID-T2 1",
    "elsewhere": "TAIWAN-LCG2 1",
}
REGION = {t2.split()[0]: tier1 for tier1, many in TIER2.items() for t2 in many.split(", ")}
WEIGHT = {t2.split()[0]: int(t2.split()[1]) for many in TIER2.values() for t2 in many.split(", ")}
RSE = {"pic": "PIC_DATADISK", "BNL-ATLAS": "BNL-OSG2_DATADISK", "RAL-LCG2": "RAL-LCG2-ECHO_DATADISK"}
WAN = {CERN: CERN_WAN} | {site: figures[3] for site, figures in TIER1.items()} | {"NET2": 10}  # NET2: 4.4

TO_TIER2, FROM_TIER2 = 6, 5  # partners of each: with the mesh and the T0 export, 200 links
MORE_LINKS = 1000
HOME = 4  # how many times more likely a partner is in the own region
TIER1_SIZE = 4  # compared to Tier-2s, when links between any two sites are drawn


def mbps(gbps: float) -> int:
    """Return Gb/s in whole Mb/s."""
    return round(gbps * 1000)


def apportion(total: int, weights: Mapping[tuple[str, str], float]) -> Links:
    """Share a whole number in proportion to weights: rounded down, what is left goes to the largest remainders."""
    whole = sum(weights.values())
    parts = {pair: total * weight / whole for pair, weight in weights.items()}
    shares = {pair: int(part) for pair, part in parts.items()}
    by_remainder = sorted(parts, key=lambda pair: (shares[pair] - parts[pair], pair))
    for pair in by_remainder[: total - sum(shares.values())]:
        shares[pair] += 1
    return shares


class Model:
    """One drawing of the model; the same seed gives the same links."""

    def __init__(self, seed: int) -> None:
        """Draw all links."""
        self._random = random.Random(seed)  # noqa: S311 - numbers for a model, not for secrets
        self.t0 = {(CERN, site): mbps(figures[0]) for site, figures in TIER1.items()}
        ingress = {CERN: mbps(CERN_INGRESS)} | {site: mbps(f[1]) - mbps(f[0]) for site, f in TIER1.items()}
        egress = {CERN: mbps(CERN_EGRESS) - sum(self.t0.values())} | {s: mbps(f[2]) for s, f in TIER1.items()}
        self.t1_t1: Links = {}
        for source in TIER1:
            third = egress[source] // 3
            self.t1_t1 |= apportion(third, {(source, to): ingress[to] for to in ingress if to != source})
            egress[source] -= third
        for (_, to), rate in self.t1_t1.items():
            ingress[to] -= rate
        self.t1_t2: Links = {}
        self.t2_t1: Links = {}
        for site in (CERN, *TIER1):
            sent, got = self._partners(site, TO_TIER2), self._partners(site, FROM_TIER2)
            self.t1_t2 |= apportion(egress[site], {(site, t2): self._spread() for t2 in sent})
            self.t2_t1 |= apportion(ingress[site], {(t2, site): self._spread() for t2 in got})
        self.minimal = self.t0 | self.t1_t1 | self.t1_t2 | self.t2_t1
        self.any_t1, self.any_t2 = self._more()

    def _partners(self, site: str, number: int) -> list[str]:
        """Draw Tier-2s."""
        drawn = {t2: self._luck(size * (HOME if REGION[t2] == site else 1)) for t2, size in WEIGHT.items()}
        return sorted(drawn, key=lambda t2: drawn[t2], reverse=True)[:number]

    def _more(self) -> tuple[Links, Links]:
        """Draw links that the minimal model does not have: to CERN and the Tier-1s, and to Tier-2s."""
        sizes = dict.fromkeys((CERN, *TIER1), TIER1_SIZE) | WEIGHT
        free = [(a, b) for a in sizes for b in sizes if a != b and (a, b) not in self.minimal]
        drawn = {(a, b): self._luck(sizes[a] * sizes[b]) for a, b in free}
        best = sorted(drawn, key=lambda pair: drawn[pair], reverse=True)[:MORE_LINKS]
        parts = {pair: self._spread() for pair in best}
        to_tier1: Links = {}
        for site, rate in FLEXIBLE.items():
            more = mbps(rate) - sum(known for (_, to), known in self.minimal.items() if to == site)
            to_tier1 |= apportion(more, {pair: part for pair, part in parts.items() if pair[1] == site})
        rest = sum(self.minimal.values()) - sum(to_tier1.values())
        return to_tier1, apportion(rest, {pair: part for pair, part in parts.items() if pair[1] not in FLEXIBLE})

    def _luck(self, weight: float) -> float:
        """Draw a number; the largest of many draw without putting back (Efraimidis and Spirakis, 2006)."""
        return math.pow(self._random.random(), 1 / weight)

    def _spread(self) -> float:
        return 0.5 + self._random.random()


def sites() -> str:
    """Return the sites as a part of a menu."""
    lines = ["# Made by model.py. Usable WANs as published; a site without one: not published.", "sites:"]
    for site in (CERN, *TIER1, *WEIGHT):
        wan = f"wan: {WAN[site]} Gb/s, " if site in WAN else ""
        lines.append(f"  {site}: {{{wan}rses: {{{RSE.get(site, f'{site}_DATADISK')}: {{}}}}}}")
    return "\n".join(lines) + "\n"


def table(links: Links) -> str:
    """Return links as a CSV file for a menu."""
    return "from,to,rate\n" + "".join(f"{a},{b},{rate} Mb/s\n" for (a, b), rate in sorted(links.items()))


def files(seed: int) -> Iterable[tuple[str, str]]:
    """Return the names and texts of all files."""
    model = Model(seed)
    yield "_sites.yaml", sites()
    yield "t1-t1.csv", table(model.t1_t1)
    yield "t1-t2.csv", table(model.t1_t2)
    yield "t2-t1.csv", table(model.t2_t1)
    yield "any-t1.csv", table(model.any_t1)
    yield "any-t2.csv", table(model.any_t2)


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=SEED, help="what is drawn (default: %(default)s)")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent, help="folder (default: this file's)")
    given = parser.parse_args()
    for name, text in files(given.seed):
        (given.to / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
