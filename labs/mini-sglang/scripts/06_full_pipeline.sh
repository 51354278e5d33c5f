#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/../../run-lab" mini-sglang 06 "$@"
