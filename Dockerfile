# `ddpify check` where there is no Python: docker run --rm -v "$PWD:/project" ddpify
FROM python:3.13-slim AS build
COPY . /source
RUN pip install --no-cache-dir --prefix /install /source

FROM python:3.13-slim
COPY --from=build /install /usr/local
# the project is only read; what was read is kept nowhere
USER nobody
WORKDIR /project
ENTRYPOINT ["ddpify"]
CMD ["check", "--no-cache"]
