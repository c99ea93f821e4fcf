# dc_inject as an image: the tool with the clients of FTS and XRootD, and neither compiler nor pip.
#   docker build -t dc-inject --build-arg VERSION=0.1.0 --build-arg BASE=python:3.13-slim-bookworm@sha256:... .
# At run time it gets menus, a rucio.cfg with its credentials, and a volume for the ledger at /ledger; all else may
# be read-only. docs/how-to/run-in-containers.md has more.
# A tag may change: for a release name the base with its digest, as above.
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS build
# M2Crypto, a part of FTS's client, has to be compiled.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends gcc libc6-dev libssl-dev \
  && include="$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')" \
  && { [ -e "$include/Python.h" ] || apt-get install --yes --no-install-recommends python3-dev python3-venv; }
WORKDIR /src
COPY requirements-dev.txt requirements-image.txt ./
# swig and setuptools come from the developers' lock; they stay in this stage.
RUN python3 -m venv /build && /build/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements-dev.txt
RUN PATH="/build/bin:$PATH" pip wheel --no-cache-dir --no-deps --require-hashes --no-build-isolation \
  --wheel-dir /wheels -r requirements-image.txt
COPY pyproject.toml README.md LICENSE ./
COPY dc_inject ./dc_inject
# Without git the build does not know the version.
ARG VERSION=0.0+unknown
RUN SETUPTOOLS_SCM_PRETEND_VERSION_FOR_DC_INJECT="$VERSION" /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .
RUN python3 -m venv /opt/dc-inject \
  && /opt/dc-inject/bin/pip install --no-cache-dir --no-deps --no-index --find-links /wheels /wheels/*.whl \
  && /opt/dc-inject/bin/pip uninstall --yes --quiet pip

FROM ${BASE}
ARG VERSION=0.0+unknown
LABEL org.opencontainers.image.title="dc_inject" \
  org.opencontainers.image.description="Makes the traffic of WLCG data challenges" \
  org.opencontainers.image.version="$VERSION" \
  org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/dc-inject /opt/dc-inject
# Any user may run it, also one without an entry in passwd, as long as its group is 0 or the volume is its own.
RUN install -d -o 10001 -g 0 -m 0770 /ledger
ENV PATH=/opt/dc-inject/bin:$PATH \
  PYTHONDONTWRITEBYTECODE=1 \
  XDG_STATE_HOME=/ledger
USER 10001:0
WORKDIR /ledger
VOLUME /ledger
HEALTHCHECK --interval=1m --timeout=20s --start-period=5m --retries=5 CMD ["sh", "-c", "dc-inject health || [ $? -eq 4 ]"]
ENTRYPOINT ["dc-inject"]
