# `delayq serve`, or `delayq transfer` in place of its arguments: docs/how-to/kubernetes.md. It writes no file.
FROM python:3.13.16-slim-bookworm AS build
WORKDIR /src
COPY . .
ENV PIP_CONSTRAINT=/src/.ci/constraints.txt PIP_BUILD_CONSTRAINT=/src/.ci/constraints.txt
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[serve,journal]'

FROM python:3.13.16-slim-bookworm
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels --root-user-action ignore 'kombu-delayq[serve,journal]'
# HEALTH_PORT is where the health check asks: with `transfer` that of --metrics-port.
ENV PYTHONUNBUFFERED=1 DELAYQ_TOKENS=/etc/delayq/tokens.json HEALTH_PORT=5556
USER 10001:10001
EXPOSE 5556
HEALTHCHECK --start-period=30s CMD ["python", "-c", "import os, sys; from http.client import HTTPConnection; to = HTTPConnection('127.0.0.1', int(os.environ['HEALTH_PORT']), timeout=9); to.request('GET', '/healthz'); sys.exit(to.getresponse().status != 200)"]
ENTRYPOINT ["delayq"]
CMD ["serve", "--host", "0.0.0.0"]
