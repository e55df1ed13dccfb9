# One image for the server, the deployer and the workers. Versions come from requirements.lock.
# CPU build of torch, 5 GB smaller: docker compose build --build-arg PIP_EXTRA_INDEX_URL=<index of CPU wheels>
FROM python:3.11.13-slim-bookworm

ARG PIP_EXTRA_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1 \
    HOME=/home/trajpilot PREFECT_HOME=/home/trajpilot/.prefect DO_NOT_TRACK=1

RUN groupadd --gid 10001 trajpilot \
    && useradd --uid 10001 --gid 10001 --create-home --shell /usr/sbin/nologin trajpilot \
    && install --directory --owner=10001 --group=10001 /artifacts \
    && install --directory /app /data

WORKDIR /app
COPY requirements.lock ./
RUN pip install --requirement requirements.lock

COPY pyproject.toml README.md ./
COPY schemas schemas
COPY trajpilot_core trajpilot_core
COPY tasks tasks
COPY flows flows
COPY deployments deployments
RUN pip install --no-deps --no-build-isolation --editable . && python -m compileall -q .

USER 10001:10001
CMD ["trajpilot", "--help"]
