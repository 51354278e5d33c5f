#!/bin/sh
# The familiar name: the lab, and the kernel under ncu where that is installed.
. "$(dirname "$0")/_vitrine.sh" && exec "$vitrine" lab sglang 05 --ncu "$@"
