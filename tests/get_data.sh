#!/bin/sh
# sh tests/get_data.sh: examples/get_data.sh with four small files in place of a data set's, fetched from a folder and from a
# server on this machine: by every shell, downloader and program for SHA-256 that is installed; damaged, broken off, absent.
# The last line is `N passed, N failed, N skipped`.
set -u
folder=$(mktemp -d) || exit 1
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$folder"' EXIT
passed=0 failed=0 skipped=0
missing() {   # NEED FOR: one skipped part, or a failed one where TN_REQUIRE lists it
    if sh tests/missing.sh "$@"; then :; elif [ $? = 77 ]; then skipped=$((skipped + 1)); else failed=$((failed + 1)); fi
}

# A checkout with the script alone, whose sums for MNIST are those of four files of noise, and what an address has of them.
names='train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte'
mkdir -p "$folder/a checkout/examples" "$folder/good" "$folder/damaged" "$folder/cut" "$folder/html" "$folder/empty"
script="$folder/a checkout/examples/get_data.sh" data="$folder/a checkout/data"
cp examples/get_data.sh "$script"
for name in $names; do
    awk -v seed="${#name}" 'BEGIN { srand(seed); for (i = 0; i < 60000; i++) printf "%c", 33 + int(90 * rand()) }' \
        > "$folder/$name"
    gzip -9 -c "$folder/$name" > "$folder/good/$name.gz"
    sum=$(sha256sum 2> /dev/null < "$folder/$name" || shasum -a 256 < "$folder/$name")
    awk -v name="$name" -v sum="${sum%% *}" '
        /^    mnist\) cat/ { mnist = 1 }
        mnist && $2 == name { $1 = sum; mnist = name != last }
        { print }' last=t10k-labels-idx1-ubyte "$script" > "$folder/script" && mv "$folder/script" "$script"
    { cat "$folder/$name"; echo; } | gzip -c > "$folder/damaged/$name.gz"
    head -c 20000 "$folder/good/$name.gz" > "$folder/cut/$name.gz"
    echo '<html>Please log in.</html>' > "$folder/html/$name.gz"
done

# use TOOL...: PATH has the standard tools that the script needs, and these. Nobody sleeps.
use() {
    rm -rf "$folder/bin"
    mkdir "$folder/bin"
    printf '#!/bin/sh\n' > "$folder/bin/sleep"
    chmod +x "$folder/bin/sleep"
    for needed in awk cat cp cut dirname env gunzip gzip id ls mkdir mv rm rmdir sed sh wc "$@"; do
        path=$(command -v "$needed") && ln -s "$path" "$folder/bin/$needed"
    done
    [ ! -x /usr/bin/printf ] || ln -s /usr/bin/printf "$folder/bin/printf"
}
# get SHELL SET [VARIABLE=VALUE...]: the exit status is the script's, its words are in $said
get() {
    shell=$1 set_name=$2
    shift 2
    said=$(cd "$folder" && env -u TN_DATA_DIR -u TN_DATA_URL PATH="$folder/bin" "$@" $shell "$script" "$set_name" 2>&1)
}
check() {   # WHAT CONDITION...
    what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $what: $said"; fi
}
complete() {
    for name in $names; do cmp -s "$folder/$name" "$data/mnist/$name" || return 1; done
    [ "$(ls -A "$data/mnist" | wc -l)" -eq 4 ]
}
nothing_left() { [ ! -e "$data" ]; }
says() { case $said in *"$1"*) ;; *) return 1 ;; esac; }
fetched() { get "$@" && complete && rm -rf "$data"; }
refused() { ! get "$@" && nothing_left; }

# ---- every shell, and every program that computes SHA-256

from="TN_DATA_URL=file://$folder/good"
if ! command -v curl > /dev/null; then missing curl "to fetch from file://"
else
    use curl sha256sum shasum
    for shell in sh dash bash mksh zsh busybox; do
        command -v $shell > /dev/null || { missing $shell "to run get_data.sh with it"; continue; }
        mkdir -p "$folder/$shell"
        ln -s "$(command -v $shell)" "$folder/$shell/sh"
        check "$shell as sh" fetched "$folder/$shell/sh" mnist "$from"
    done
    for sum in sha256sum shasum openssl; do
        command -v $sum > /dev/null || { missing $sum; continue; }
        use curl $sum perl
        check "$sum" fetched sh mnist "$from"
    done
    use curl
    check "no program for SHA-256" refused sh mnist "$from"
    check "no program for SHA-256" says "openssl is installed"

    # ---- what is not right leaves nothing

    use curl sha256sum shasum perl
    for way in damaged cut html; do
        check "$way" refused sh mnist "TN_DATA_URL=file://$folder/$way"
        check "$way" says "file://$folder/$way/t10k-labels-idx1-ubyte is not the mnist file of that name"
    done
    check "the second address" fetched sh mnist "TN_DATA_URL=file://$folder/damaged file://$folder/empty file://$folder/good"
    check "nothing there" refused sh mnist "TN_DATA_URL=file://$folder/empty"
    check "nothing there" says "    TN_DATA_DIR=FOLDER sh examples/get_data.sh mnist"
fi
use sha256sum shasum perl
check "no downloader" refused sh mnist
check "no downloader" says "neither curl nor wget"
check "no downloader" says "https://ossci-datasets.s3.amazonaws.com/mnist/"
check "files from a folder" fetched sh mnist "TN_DATA_DIR=$folder/good"
check "a damaged folder" refused sh mnist "TN_DATA_DIR=$folder/damaged"

# What is there is kept, and what was damaged is replaced. A folder that a killed run left is removed.
mkdir -p "$data/mnist"
for name in $names; do cp "$folder/$name" "$data/mnist"; done
check "a complete folder" get sh mnist
sh -c 'exit 0' & dead=$!
wait $dead
mkdir "$data/mnist/.part.$dead" "$data/mnist/.part.$$"
echo x > "$data/mnist/.part.$dead/log"
check "a folder of another run" get sh mnist "TN_DATA_DIR=$folder/good"
check "a folder of a killed run" [ ! -e "$data/mnist/.part.$dead" ]
check "a folder of another run" [ -d "$data/mnist/.part.$$" ]
rmdir "$data/mnist/.part.$$"
echo x >> "$data/mnist/t10k-images-idx3-ubyte"
check "a damaged file" fetched sh mnist "TN_DATA_DIR=$folder/good"

# ---- a server that breaks connections, and one that cannot continue either

loopback='import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); socket.create_connection(s.getsockname())'
if ! command -v python3 > /dev/null; then missing python3 "for a server that breaks connections"
elif ! python3 -c "$loopback" 2> /dev/null; then missing loopback "(an interface with 127.0.0.1), for such a server"
else
    python3 tests/get_data_server.py "$folder/good" > "$folder/port" &
    server=$!
    echo 'tries = 1' > "$folder/wgetrc"
    export WGETRC="$folder/wgetrc" no_proxy=127.0.0.1
    tries=0
    until [ -s "$folder/port" ] || [ $((tries += 1)) -gt 100 ]; do sleep 0.1; done
    address="http://127.0.0.1:$(cat "$folder/port")"
    for tool in curl wget busybox; do
        command -v $tool > /dev/null || { missing $tool; continue; }
        use $tool sha256sum shasum perl
        [ $tool != busybox ] || ln -s "$(command -v busybox)" "$folder/bin/wget"
        check "$tool" fetched sh mnist "TN_DATA_URL=$address/whole/$tool"
        check "$tool, broken" fetched sh mnist "TN_DATA_URL=$address/broken/$tool"
        check "$tool, a third at a time" fetched sh mnist "TN_DATA_URL=$address/thirds/$tool"
        check "$tool, broken, no ranges" fetched sh mnist "TN_DATA_URL=$address/broken_no_ranges/$tool"
        check "$tool, 404" refused sh mnist "TN_DATA_URL=$address/absent/$tool"
        check "$tool, 404" says "$address/absent/$tool/train-images-idx3-ubyte.gz could not be downloaded"
    done
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
