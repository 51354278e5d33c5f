# Sets $vitrine to the program: $VITRINE, then build/vitrine in a folder above the scripts, then the one on PATH.
vitrine=$VITRINE
folder=$(cd "$(dirname "$0")" && pwd)
while [ -z "$vitrine" ] && [ "$folder" != / ]; do
    [ -x "$folder/build/vitrine" ] && vitrine=$folder/build/vitrine
    folder=$(dirname "$folder")
done
vitrine=${vitrine:-$(command -v vitrine)}
if [ -z "$vitrine" ]; then
    echo "vitrine was not found: build it (make), put it on PATH, or set VITRINE=/path/to/vitrine" >&2
    exit 127
fi
