#!/bin/sh
# sh tests/cuda_host/planted.sh BUILD [--matrix]: runs BUILD/cuda-host/planted and its kin of cuda-asan and cuda-check.
# In every way of running, all correct twins are silent; every mistake is found in the ways that planted.cu lists for it.
# --matrix prints what each way finds beyond that. The last line is `N passed, N failed, N skipped`.
set -u
build=$1 matrix=${2:-}
part=$(mktemp)
trap 'rm -f "$part"' EXIT
passed=0 failed=0
ways="forward reversed random lazy protect check"
skipped=0
if [ -x "$build/cuda-asan/planted" ]; then ways="$ways asan"; else skipped=1; echo "SKIP planted: needs asan: no build/cuda-asan"; fi

run() {   # WAY [NAME]
    case $1 in
    forward)  "$build/cuda-host/planted" ${2:+"$2"} ;;
    reversed) TNCH_ORDER=reversed TNCH_DEVICE=80 "$build/cuda-host/planted" ${2:+"$2"} ;;
    random)   TNCH_ORDER=random:1 "$build/cuda-host/planted" ${2:+"$2"} ;;
    lazy)     TNCH_LAZY=1 "$build/cuda-host/planted" ${2:+"$2"} ;;
    protect)  TNCH_PROTECT=1 "$build/cuda-host/planted" ${2:+"$2"} ;;
    asan)     ASAN_OPTIONS=detect_leaks=0 "$build/cuda-asan/planted" ${2:+"$2"} ;;
    check)    "$build/cuda-check/planted" ${2:+"$2"} ;;
    esac > "$part" 2>&1
}

for way in $ways; do
    if run "$way"; then passed=$((passed + 1)); else
        failed=$((failed + 1)); echo "FAIL $way: something was found in the correct twins"; sed 's/^/     /' "$part"
    fi
done
[ -z "$matrix" ] || printf '%-28s%s\n' mistake "$ways"
list=$("$build/cuda-host/planted" --list) || exit 1
while IFS=: read -r name expected says; do
    line=
    for way in $ways; do
        must=
        case " $expected " in *" $way "* | " all ") must=yes ;; esac
        [ -n "$must$matrix" ] || continue
        if run "$way" "$name"; then
            line="$line ."
            [ -z "$must" ] || { failed=$((failed + 1)); echo "FAIL $name: not found by $way"; }
        else
            line="$line ${must:-also}"
            if [ "$way" = check ] && [ -n "$says" ] && ! grep -qE -- "$says" "$part"; then
                failed=$((failed + 1)); echo "FAIL $name: the checker does not say \"$says\" but"; sed 's/^/     /' "$part"
            elif [ -n "$must" ]; then passed=$((passed + 1)); fi
        fi
    done
    [ -z "$matrix" ] || printf '%-28s%s\n' "$name" "$line"
done <<LIST
$list
LIST
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
