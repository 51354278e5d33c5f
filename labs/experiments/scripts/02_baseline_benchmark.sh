#!/bin/sh
. "$(dirname "$0")/_vitrine.sh" && exec "$vitrine" lab experiments 2 "$@"
