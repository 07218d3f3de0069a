# The base of the training image where no registry can be reached: Debian's Python on the system that debootstrap made.
FROM fleet/base
RUN apt-get update -qq && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-venv > /dev/null && \
    apt-get clean && rm -rf /var/lib/apt/lists/*
