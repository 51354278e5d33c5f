#!/bin/sh
# The familiar name: the lab, and the same load under nsys where that is installed.
exec "$(dirname "$(readlink -f "$0")")/../../run-lab" sglang 04 --nsys "$@"
