"""Moves what stdin says in SimGrid: `/usr/bin/python3 in_simgrid.py < one.json`; prints when each job was done.

It runs where SimGrid is installed, so it imports nothing else; `simgrid_check.py` calls it. A link has so many
slots, which take the files of its jobs one after the other; a file moves at most at the link's `speed`.
"""

import json
import sys
from collections import deque

from simgrid import Actor, Comm, Engine, Link, LinkInRoute, NetZone, this_actor

IDEAL = (  # bandwidth is shared max-min and used wholly; TCP's windows and latencies are left out
    "network/model:CM02",
    "network/bandwidth-factor:1.0",
    "network/latency-factor:1.0",
    "network/weight-S:0.0",
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
)


def main():
    """Read, simulate, print."""
    wanted = json.load(sys.stdin)
    words = [f"--cfg={one}" for one in IDEAL]
    engine = Engine(["in_simgrid", *words, "--log=root.thresh:warning"])
    zone = NetZone.create_full_zone("grid")
    hosts = {name: zone.create_host(name, 1e9) for name in wanted["storages"]}
    shared = {name: zone.create_link(name, rate) for name, rate in wanted["resources"].items()}
    done = {}
    for number, link in enumerate(wanted["links"]):
        source, destination = link["ends"]
        each = zone.create_link(f"file {number}", link["speed"])  # bounds each file, and not their sum
        each.set_sharing_policy(Link.SharingPolicy.FATPIPE, None)
        passes = [each, *(shared[name] for name in link["passes"])]
        ends = hosts[source].netpoint, hosts[destination].netpoint
        zone.add_route(*ends, None, None, [LinkInRoute(one) for one in passes], False)
        waiting, left = deque(), {}

        def brings(jobs=link["jobs"], waiting=waiting, left=left, number=number):
            for order, job in enumerate(jobs):
                this_actor.sleep_until(job["at"])
                left[order] = job["files"]
                waiting.extend([(order, job["size"])] * job["files"])

        def moves(link=link, waiting=waiting, left=left, number=number):
            source, destination = (hosts[name] for name in link["ends"])
            more = max(job["at"] for job in link["jobs"])
            while waiting or Engine.clock <= more:
                if not waiting:
                    this_actor.sleep_for(1)
                    continue
                order, size = waiting.popleft()
                this_actor.sleep_for(link["overhead"])
                Comm.sendto_init(source, destination).set_payload_size(int(size)).wait()
                left[order] -= 1
                if not left[order]:
                    done[f"{number} {order}"] = Engine.clock

        Actor.create(f"queue {number}", hosts[source], brings)
        for slot in range(link["slots"]):
            Actor.create(f"slot {number} {slot}", hosts[source], moves)

    def changes():
        for at, name, rate in wanted["changes"]:
            this_actor.sleep_until(at)
            shared[name].set_bandwidth(rate)

    Actor.create("changes", next(iter(hosts.values())), changes)
    zone.seal()
    engine.run()
    json.dump(done, sys.stdout)


if __name__ == "__main__":
    main()
