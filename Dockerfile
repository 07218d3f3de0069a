# The training image: a pinned torch in an environment of its own, and little else. `make image` builds it (docs/images.md).
#
# BASE is a Debian-like image with Python 3 and its venv module, named by digest. GPU is one of the four stages below. WITH
# names further packages, none by default. The build context holds requirements.lock, which pins torch, those packages and
# all they need, and wheels/, which may be empty. pip reads PIP_INDEX_URL, PIP_EXTRA_INDEX_URL and PIP_NO_INDEX by itself;
# nothing of them stays in the image.
ARG BASE
ARG GPU=cpu

FROM ${BASE} AS builder
RUN python3 -m venv /opt/train
ENV PATH=/opt/train/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_FIND_LINKS=/context/wheels

# Pascal: only the builds for CUDA 12.6 still have kernels for sm_60.
FROM builder AS p100
ENV BUILD=+cu126 KERNELS=sm_60

# Turing and Ampere: the current build.
FROM builder AS titanrtx
ENV BUILD= KERNELS=sm_75

FROM builder AS a100
ENV BUILD= KERNELS=sm_80

FROM builder AS cpu
ENV BUILD= KERNELS=

FROM ${GPU} AS torch
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_NO_INDEX
RUN --mount=type=bind,target=/context \
    torch="$(grep '^torch==' /context/requirements.lock)$BUILD" && \
    pip install --quiet --only-binary=:all: --constraint /context/requirements.lock "$torch" numpy
# By a step of its own, so that images with other packages share the one above. No word of WITH is read as an option.
ARG WITH=
RUN --mount=type=bind,target=/context \
    set -f && if [ -n "$WITH" ]; then \
    pip install --quiet --only-binary=:all: --constraint /context/requirements.lock -- $WITH; fi
# What no training needs: torch's own tests, headers for a compiler that is not here, and pip.
RUN cd /opt/train/lib/python3*/site-packages && \
    find torch/bin -mindepth 1 ! -name torch_shm_manager -delete && \
    rm -r torch/test torch/include && \
    pip uninstall --quiet --yes pip
# What torch itself says: get_arch_list() would need a GPU, the flags of its build do not. `make image` makes labels of it.
RUN python -c "import os, torch; \
    have = (getattr(torch._C, '_cuda_getArchFlags', str)() or '').split(); \
    lacking = set(os.environ['KERNELS'].split()) - set(have); \
    assert not lacking, f'torch {torch.__version__} has no kernels for {lacking}, only for {have}: give another index'; \
    open('/opt/train/torch', 'w').write(torch.__version__); \
    open('/opt/train/archs', 'w').write(' '.join(have))"

FROM ${BASE}
RUN useradd --uid 1000 --no-create-home --home-dir /tmp train
COPY --from=torch /opt/train /opt/train
# compute is what CUDA needs of the driver; a hook of the engine that finds nothing here may bring less.
ENV PATH=/opt/train/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER train
WORKDIR /tmp
CMD ["python"]
