# One image for server and client; small, non-root, installed from the lock file.
FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements-runtime.lock ./
RUN python -m venv /opt/awe \
    && /opt/awe/bin/pip install --no-cache-dir --require-hashes -r requirements-runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY shared_models ./shared_models
COPY awe_server ./awe_server
COPY awe_client ./awe_client
RUN /opt/awe/bin/pip install --no-cache-dir --no-deps .

FROM python:3.12-slim
RUN groupadd --system --gid 10001 awe \
    && useradd --system --uid 10001 --gid awe --home-dir /var/lib/awe --create-home awe \
    && install --directory --owner=awe --group=awe /var/lib/awe/data /var/lib/awe/work
COPY --from=build /opt/awe /opt/awe
ENV PATH=/opt/awe/bin:$PATH PYTHONUNBUFFERED=1
USER awe
WORKDIR /var/lib/awe
EXPOSE 8001
CMD ["awe-server", "serve", "--host", "0.0.0.0", "--port", "8001", "--data", "/var/lib/awe/data"]
