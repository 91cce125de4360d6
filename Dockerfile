# syntax=docker/dockerfile:1
ARG PYTHON_VERSION=3.12

FROM python:${PYTHON_VERSION}-slim AS build
WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY mocker_core ./mocker_core
COPY app ./app
# The environment has no pip of its own, so none reaches the final stage.
RUN python -m venv --without-pip /opt/mocker \
    && python -m pip --python /opt/mocker/bin/python install --no-cache-dir \
       --constraint constraints.txt ".[interpolated,tokenizers,otel]"

FROM python:${PYTHON_VERSION}-slim
LABEL org.opencontainers.image.title="llm-mocker" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN python -m pip uninstall --yes --quiet pip \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin mocker
COPY --from=build /opt/mocker /opt/mocker
ENV PATH=/opt/mocker/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /tmp
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ.get('MOCKER_PORT', '8000') + '/health', timeout=2)"]
ENTRYPOINT ["mocker"]
CMD ["serve"]
