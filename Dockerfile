# dc-inject as a service: docker build -t dc-inject . && docker run --rm dc-inject --help
# At run time mount a menu, a rucio.cfg with its credentials, and a folder for the ledger.
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements-dev.txt ./
RUN pip install --no-cache-dir --require-hashes -r requirements-dev.txt
COPY pyproject.toml README.md LICENSE ./
COPY dc_inject ./dc_inject
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.13-slim
COPY requirements.txt ./
RUN pip install --no-cache-dir --require-hashes -r requirements.txt && rm requirements.txt
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-deps --no-index /wheels/*.whl && rm -r /wheels
RUN useradd --create-home --uid 1000 dcinject && install -d -o dcinject -m 0700 /ledger
USER dcinject
WORKDIR /ledger
# The ledger outlives the container: docker run -v ledger:/ledger ...
ENV XDG_STATE_HOME=/ledger
VOLUME /ledger
ENTRYPOINT ["dc-inject"]
