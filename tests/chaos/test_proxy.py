"""The proxy does what its counts say: a request is carried out, or not, and the client sees what it should."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from tests.chaos.proxy import CALM, CARRIED_OUT, Fault, Proxy, Weather, kind_of

ANSWER = b'{"rule": "0123456789"}' * 20
STATUS = {Fault.S429: 429, Fault.S500: 500, Fault.S502: 502, Fault.S503: 503, Fault.S504: 504, Fault.S401: 401,
          Fault.S502_AFTER: 502, Fault.S504_AFTER: 504, Fault.DATABASE: 500, Fault.HTML: 200,
          Fault.HTML_AFTER: 200}  # fmt: skip
BROKEN = {Fault.DROP_BEFORE, Fault.DROP_AFTER, Fault.TRUNCATE, Fault.AWAY}
WHOLE = {Fault.DELAY, Fault.LATE, Fault.DRIP}


class Service(ThreadingHTTPServer):
    """Answers every request the same, and keeps what it carried out."""

    daemon_threads = True

    def __init__(self):
        self.done = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                service.done.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(201)
                if self.path.endswith("stream"):
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    for piece in (ANSWER[:100], ANSWER[100:], b""):
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                else:
                    self.send_header("Content-Length", str(len(ANSWER)))
                    self.end_headers()
                    self.wfile.write(ANSWER)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def service():
    made = Service()
    thread = threading.Thread(target=made.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join(30)


@pytest.fixture
def proxy(service):
    with Proxy(f"http://127.0.0.1:{service.server_address[1]}", "seed") as made:
        yield made


def _only(fault, part=1.0):
    return Weather(
        part=part, weights={fault: 1.0}, delay=(0.0, 0.01), late=0.01, drip=(0.0, 0.01), away=(0.01, 0.01)
    )


@pytest.mark.parametrize("path", ["/rules/", "/rules/stream"])
def test_without_faults_everything_passes_over_one_connection(proxy, service, path):
    with requests.Session() as session:
        for _ in range(3):
            answer = session.post(proxy.url + path, data=b"body", timeout=30)
            assert (answer.status_code, answer.content) == (201, ANSWER)
    assert service.done == [(path, b"body")] * 3
    assert (proxy.requests, proxy.faults.total()) == (3, 0)


@pytest.mark.parametrize("fault", Fault)
def test_each_fault_carries_the_request_out_or_not_as_it_says(proxy, service, fault):
    proxy.begin("seed", _only(fault))
    told = None
    try:
        told = requests.post(f"{proxy.url}/rules/", data=b"body", timeout=30)
    except requests.RequestException:
        assert fault in BROKEN
    else:
        assert fault not in BROKEN
        assert told.status_code == STATUS.get(fault, 201)
        assert (told.content == ANSWER) == (fault in WHOLE)
    assert (len(service.done) == 1) == (fault in CARRIED_OUT)
    assert proxy.faults == {fault: 1}
    assert len(proxy.log) == 1


def test_a_token_that_has_ended_is_refused_whatever_the_service_remembers_and_counts_as_no_fault(proxy, service):
    proxy.refused = ("us-old-",)
    for token, status in (("us-old-unknown-123", 401), ("us-new-unknown-123", 201)):
        answer = requests.post(f"{proxy.url}/rules/", data=b"x", headers={"X-Rucio-Auth-Token": token}, timeout=30)
        assert answer.status_code == status
    old = {"X-Rucio-Auth-Token": "us-old-unknown-123"}  # which a client sends along when it asks for another one
    assert requests.post(f"{proxy.url}/auth/userpass", data=b"x", headers=old, timeout=30).status_code == 201
    assert (len(service.done), proxy.faults.total()) == (2, 0)


def test_the_same_seed_deals_the_same_faults_to_the_same_requests_in_any_order(service):
    """Whatever else is asked between them."""
    drawn = []
    for between in (0, 3):
        with Proxy(f"http://127.0.0.1:{service.server_address[1]}", 7) as proxy:
            proxy.begin(7, Weather(part=0.5))
            blows = []
            for _ in range(50):
                blow = proxy.blow("POST", "/rules/")
                blows.append(blow and (blow.fault, blow.seconds))
                for _ in range(between):
                    proxy.blow("GET", "/rses/")
            drawn.append(blows)
    assert drawn[0] == drawn[1]
    assert 10 < sum(blow is not None for blow in drawn[0]) < 40


def test_places_have_their_own_weather(proxy):
    proxy.begin("seed", Weather(part=0.0, places=[("^POST /rules", 1.0)]))
    assert proxy.blow("GET", "/rules/") is None
    assert proxy.blow("POST", "/rules/") is not None
    proxy.begin("seed", CALM)
    assert proxy.blow("POST", "/rules/") is None


def test_ids_and_queries_do_not_make_a_kind_of_request():
    assert kind_of("GET", "/rules/0123456789abcdef0123456789abcdef?x=1") == "GET /rules/ID"
    assert kind_of("GET", "/jobs/01234567-89ab-cdef-0123-456789abcdef/files") == "GET /jobs/ID/..."
