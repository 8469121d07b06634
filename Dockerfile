# The command in a small image, built from source:
#
#   docker build -t pellucid .
#   docker run --rm -v "$PWD:/data" pellucid sql "SELECT count(*) FROM 'a.parquet'"
FROM rust:1.95-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /pellucid
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/pellucid/target \
    cargo build --release --locked --workspace --features pellucid-cli/all --bins \
    && strip -o /usr/local/bin/pellucid target/release/pellucid

FROM debian:bookworm-slim
# For stores and files behind HTTPS.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 pellucid
COPY --from=build /usr/local/bin/pellucid /usr/local/bin/pellucid
USER pellucid
WORKDIR /data
ENTRYPOINT ["pellucid"]
