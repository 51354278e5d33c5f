#!/bin/sh
# The familiar name: the lab, and the kernel under ncu where that is installed.
exec "$(dirname "$(readlink -f "$0")")/../../run-lab" sglang 05 --ncu "$@"
