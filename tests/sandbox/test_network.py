"""The links of the sandbox: arithmetic of what arrives when."""

from __future__ import annotations

import json

import pytest

from dc_inject.sandbox.server.network import Flight, Link, Network


def flight(size: float, starts: float = 0.0, job: str = "job") -> Flight:
    return Flight(job, "file", 0, size, starts)


@pytest.mark.parametrize(
    ("sizes", "streams", "seconds", "arrived", "left"),
    [
        ([100], 4, 5, [], [50]),
        ([100], 4, 10, [0], []),
        ([100, 100], 4, 10, [], [50, 50]),  # shared evenly
        ([20, 100], 4, 8, [0], [40]),  # what the short one leaves over goes to the long one
        ([100, 100], 1, 10, [0], [100]),  # one at a time, in order
        ([30, 30, 30], 2, 6, [0, 1], [30]),
        ([30, 30, 30], 2, 7.5, [0, 1], [15]),
        ([100], 4, 0, [], [100]),
    ],
)
def test_files_share_a_link_of_ten_bytes_per_second(sizes, streams, seconds, arrived, left):
    link = Link(0.0, {str(number): flight(size) for number, size in enumerate(sizes)})
    assert list(link.advance(seconds, 10.0, streams)) == [str(number) for number in arrived]
    assert [one.remaining for one in link.flights.values()] == pytest.approx(left)


def test_nothing_moves_before_its_latency_is_over():
    link = Link(0.0, {"slow": flight(10, starts=5.0)})
    assert link.advance(4.0, 100.0, 4) == {}
    assert link.advance(6.0, 100.0, 4) == {}
    assert list(link.advance(7.0, 100.0, 4)) == ["slow"]


@pytest.fixture
def network(tmp_path):
    def write(**default):
        settings = {"rate": 10.0, "latency": 0.0, "failures": 0.0, "streams": 4} | default
        file = tmp_path / "new"
        file.write_text(json.dumps({"seed": 1, "default": settings, "links": {"A:B": {"rate": 1000.0}}}))
        file.replace(tmp_path / "links.json")

    write()
    made = Network(tmp_path / "links.json")
    made.write = write
    return made


def test_each_link_has_its_own_speed(network):
    network.add("fast", ("A", "B"), flight(100), now=0.0)
    network.add("slow", ("B", "A"), flight(100), now=0.0)
    assert network.advance(1.0) == {"fast": True}
    assert network.advance(10.0) == {"slow": True}


def test_a_changed_file_counts_from_the_next_step(network):
    network.add("one", ("B", "A"), flight(1000), now=0.0)
    assert network.advance(1.0) == {}
    network.write(rate=1e6, failures=1.0)
    assert network.advance(2.0) == {"one": False}


def test_a_cancelled_job_is_on_its_way_no_longer(network):
    network.add("one", ("B", "A"), flight(1000, job="gone"), now=0.0)
    network.add("two", ("B", "A"), flight(10, job="stays"), now=0.0)
    network.cancel("gone")
    assert "one" not in network.known()
    assert network.advance(1.0) == {"two": True}


def test_about_as_many_files_fail_as_the_link_says_and_the_same_ones_every_time(network, tmp_path):
    network.write(failures=0.3)
    again = Network(tmp_path / "links.json")

    def outcomes(net):
        for number in range(1000):
            net.add(str(number), ("A", "B"), Flight("job", f"file{number}", 0, 1e-6, 0), now=0.0)
        return net.advance(100.0)

    first = outcomes(network)
    assert 250 < sum(not well for well in first.values()) < 350
    assert first == outcomes(again)
