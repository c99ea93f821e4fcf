# dc-inject as a service: docker build -t dc-inject . && docker run --rm dc-inject --help
# At run time mount a menu, a rucio.cfg with its credentials, and a folder for the ledger.
FROM python:3.13-slim AS build
WORKDIR /src
# M2Crypto, a part of FTS's client, has to be compiled; its swig comes from the lock.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev libssl-dev
COPY requirements-dev.txt requirements-fts.txt ./
RUN pip install --no-cache-dir --require-hashes -r requirements-dev.txt
RUN pip wheel --no-cache-dir --require-hashes --no-build-isolation --wheel-dir /wheels -r requirements-fts.txt
COPY pyproject.toml README.md LICENSE ./
COPY dc_inject ./dc_inject
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.13-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-deps --no-index /wheels/*.whl && rm -r /wheels
RUN useradd --create-home --uid 1000 dcinject && install -d -o dcinject -m 0700 /ledger
USER dcinject
WORKDIR /ledger
# The ledger outlives the container: docker run -v ledger:/ledger ...
ENV XDG_STATE_HOME=/ledger
VOLUME /ledger
ENTRYPOINT ["dc-inject"]
