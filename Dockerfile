# fedclade in a container: docker build -t fedclade . && docker run --rm -v "$PWD/runs:/home/fedclade/runs" fedclade run quickstart
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /opt/fedclade \
 && /opt/fedclade/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt '.[figures]'

FROM python:3.11-slim
COPY --from=build /opt/fedclade /opt/fedclade
RUN useradd --create-home --home-dir /home/fedclade fedclade
USER fedclade
WORKDIR /home/fedclade
ENTRYPOINT ["/opt/fedclade/bin/fedclade"]
CMD ["--help"]
