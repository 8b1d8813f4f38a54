# `ddpify check` where there is no Python: docker run --rm -v "$PWD:/project" ddpify
# What writes (--fix, migrate) needs your number, too: --user "$(id -u):$(id -g)"
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY ddpify ddpify
COPY runtime runtime
RUN pip install --no-cache-dir --prefix /install .

FROM python:3.13-slim
COPY --from=build /install /usr/local
USER nobody
WORKDIR /project
ENTRYPOINT ["ddpify"]
CMD ["check", "--no-cache"]
