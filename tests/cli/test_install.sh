#!/bin/bash
# `make install` gives a tree that a stranger's program can be built against: header, both libraries, pkg-config file, man
# page, program. Only for the release build, which is what gets installed.
set -u
cd "$(dirname "$0")/../.." || exit 1
n=0
say() { n=$((n + 1)); echo "$1 $n - $2"; [ "$1" = ok ] || bad=1; }
check() { what=$1; shift; if "$@" >"$tmp/log" 2>&1; then say ok "$what"; else sed 's/^/# /' "$tmp/log"; say "not ok" "$what"; fi; }
bad=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tmp="$scratch/a folder" # whose name has a space
mkdir "$tmp"
if [ "$(basename "${VITRINE_BUILD:-build/release}")" != release ]; then
    echo "ok 1 - install # skip only the release build is installed"
    echo "1..1"
    exit 0
fi

check "make install into an empty DESTDIR" make -s install DESTDIR="$tmp/root" PREFIX=/opt/vitrine
root=$tmp/root/opt/vitrine
for f in bin/vitrine include/vitrine.h include/vitrine_kernel.h lib/libvitrine.a lib/libvitrine.so lib/libvitrine.so.0 share/man/man1/vitrine.1 \
    lib/pkgconfig/vitrine.pc share/bash-completion/completions/vitrine share/zsh/site-functions/_vitrine \
    share/fish/vendor_completions.d/vitrine.fish; do
    check "$f is installed" test -s "$root/$f"
done
check "the pkg-config file names the prefix" grep -qx 'prefix=/opt/vitrine' "$root/lib/pkgconfig/vitrine.pc"
check "the installed program runs" "$root/bin/vitrine" --version
check "an example builds against the shared library" \
    cc -std=c17 -Wall -Wextra -Werror -I"$root/include" -o "$tmp/complete" examples/complete.c -L"$root/lib" -lvitrine \
    -Wl,-rpath,"$root/lib"
check "and runs" env VITRINE_MODEL=dummy:none sh -c "'$tmp/complete' 2>&1 | grep -q 'dummy:none\|none'"
check "an example builds against the static library" \
    cc -std=c17 -I"$root/include" -o "$tmp/static" examples/complete.c "$root/lib/libvitrine.a" -ljansson -lm -ldl -lpthread
labs=$root/share/vitrine/labs
for f in PLAN.md GLOSSARY.md physics.md sglang/02_radix_cache_analysis.md mini-sglang/scripts/00_check_env.py; do
    check "labs/$f is installed" test -s "$labs/$f"
done
left=$(find "$labs" -path '*/results/local/*')
check "this machine's results are not ($left)" test -z "$left"
check "a script of the labs runs the installed program" sh -c \
    "cd '$labs/mini-sglang' && env -u VITRINE PATH=/usr/bin:/bin python3 scripts/00_check_env.py --help | grep -q 'vitrine lab'"
check "and so does one of the experiments" sh -c \
    "cd '$labs/experiments' && env -u VITRINE PATH=/usr/bin:/bin bash 02_baseline_benchmark.sh --help | grep -q 'vitrine lab'"
printf '#include <vitrine.h>\nint main() { return vt_version()[0] == 0; }\n' > "$tmp/a.cpp"
if command -v c++ >/dev/null 2>&1; then
    check "the header is C++ too" c++ -Wall -Wextra -Werror -I"$root/include" -o "$tmp/a" "$tmp/a.cpp" -L"$root/lib" -lvitrine \
        -Wl,-rpath,"$root/lib"
fi
exported=$(nm -D --defined-only "$root/lib/libvitrine.so" | awk '$2 ~ /[TDBR]/ {print $3}' | grep -v '^vt_' | grep -v '^_')
check "the shared library exports vt_ names only ($exported)" test -z "$exported"
exported=$(nm -g --defined-only "$root/lib/libvitrine.a" | awk 'NF == 3 {print $3}' | grep -v '^vt_')
check "the static library exports vt_ names only ($exported)" test -z "$exported"
check "the program needs libc and libm only" sh -c \
    "! readelf -d '$root/bin/vitrine' | grep NEEDED | grep -vE 'libc\.so|libm\.so|ld-linux|libdl|libpthread'"
check "every page of the labs is installed" test "$(find labs -name '*.md' -not -path '*/results/local/*' | wc -l)" = \
    "$(find "$labs" -name '*.md' | wc -l)"
for f in $(sed 's/ .*//; s|usr/lib/\*/|lib/|; s|^usr/||' debian/*.install); do
    check "Debian's packages take $f, which is installed" test -e "$root/$f"
done
check "Debian's packages have the program's version" test "$("$root/bin/vitrine" --version)" = \
    "vitrine $(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)"
for f in $(sed -n 's|^COPY --from=build /out/usr/local/\([^ ]*\) .*|\1|p' Containerfile); do
    check "the container takes $f, which is installed" test -e "$root/$f"
done
check "the second example builds" \
    cc -std=c17 -Wall -Wextra -Werror -I"$root/include" -o "$tmp/many" examples/many.c -L"$root/lib" -lvitrine -lpthread \
    -Wl,-rpath,"$root/lib"
tiny="$tmp/a tiny model"
check "a model for the examples" python3 -c '
import sys
sys.path.insert(0, "tests/cli")
import tiny_model
tiny_model.make(sys.argv[1], tiny_model.CHATML)' "$tiny"
check "the examples answer" env VITRINE_MODEL="$tiny" sh -c "'$tmp/complete' a > '$tmp/one' && '$tmp/many' a b c > '$tmp/three' && test -s '$tmp/one' &&
    grep -q '^c' '$tmp/three'"
if command -v pkg-config >/dev/null 2>&1; then
    ln -s "$root" "$scratch/installed" # without a space in its path
    check "an example builds with the installed pkg-config file, and runs" sh -c "export PKG_CONFIG_LIBDIR='$root/lib/pkgconfig'
        cc -o '$tmp/by-config' examples/many.c -lpthread \$(pkg-config --define-variable=prefix=$scratch/installed --cflags --libs vitrine) &&
        LD_LIBRARY_PATH='$root/lib' VITRINE_MODEL='$tiny' '$tmp/by-config' a"
fi
check "make dist" make -s dist
dist=build/dist
check "its sums hold" sh -c "cd $dist && sha256sum --check --strict SHA256SUMS"
check "it lists every file" test "$(sed 's/.*  //' $dist/SHA256SUMS | sort)" = "$(cd $dist && find . -type f ! -name SHA256SUMS | sed 's|^./||' | sort)"
check "the same tree gives the same files" sh -c "cp $dist/SHA256SUMS '$tmp/sums' && make -s dist && grep tar.gz $dist/SHA256SUMS > '$tmp/again' &&
    grep tar.gz '$tmp/sums' | cmp - '$tmp/again'"
check "the source is the tracked files" test "$(tar -tzf "$(find $dist -name "*.tar.gz" ! -name "*linux*")" | grep -vc '/$')" = "$(git ls-files | wc -l)"
mkdir "$tmp/dist"
check "the program's archive is one folder" tar -C "$tmp/dist" -xzf "$(echo $dist/vitrine-*-linux-*.tar.gz)"
tree=$(echo "$tmp"/dist/vitrine-*-linux-*)
check "its program runs" "$tree/bin/vitrine" --version
check "it needs nothing but the C library" sh -c "! readelf -d '$tree/bin/vitrine' '$tree/lib/libvitrine.so.0' | grep NEEDED |
    grep -vE 'libc\.so|libm\.so|libdl\.so|libpthread\.so|ld-linux'"
if command -v pkg-config >/dev/null 2>&1; then
    check "pkg-config finds it wherever it lies" sh -c "export PKG_CONFIG_PATH='$tree/lib/pkgconfig'
        eval cc -o \"'$tmp/moved'\" examples/complete.c \"\$(pkg-config --cflags --libs vitrine)\" && test -x '$tmp/moved'"
fi
for way in 'pip install build/wheel/vitrine-.*make wheel' 'apt install ./build/deb/vitrine_.*make deb' 'make run ' 'docs/install.md'; do
    check "README's first screen has: $way" sh -c "head -n 20 README.md | grep -q '$way'"
done
check "every function of the header has a comment" python3 -c '
import re
text = open("include/vitrine.h").read()
found = re.findall(r"(?<=\n)(?=(.*)\nVT_API[^;]*?(\w+)\([^;]*;(.*))", text)
bare = [name for above, name, behind in found if not above.endswith("*/") and "/*" not in behind]
assert len(found) == text.count("\nVT_API") and not bare, bare'
touch "$root/bin/another"
check "make uninstall" make -s uninstall DESTDIR="$tmp/root" PREFIX=/opt/vitrine
left=$(cd "$root" && find . ! -type d)
check "takes every file away and nothing else ($left)" test "$left" = ./bin/another
echo "1..$n"
exit $bad
