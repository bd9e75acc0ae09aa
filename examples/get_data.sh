#!/bin/sh
# sh examples/get_data.sh fashion|mnist|kjv
#
# Puts the files of a data set into data/SET/ and checks the SHA-256 of their content: the four uncompressed idx files of
# Fashion-MNIST or MNIST, or kjv.txt, the King James Bible, one verse per line, <|endoftext|> between chapters. Files that
# are already there and correct are kept, so a second run needs no network. It looks in this order:
#   $TN_DATA_DIR and $TN_DATA_DIR/SET   files that you already have, plain or .gz
#   Debian's packages                   dataset-fashion-mnist, bible-kjv: installed as root, else only unpacked
#   the network, by curl or wget        fashion and mnist, from the addresses below; TN_DATA_URL replaces them
# It runs with any POSIX shell, and needs gunzip and one of sha256sum, shasum, sha256 and openssl.
set -eu

usage() {
    echo "usage: sh examples/get_data.sh fashion|mnist|kjv
TinyStories is not one of them: pass the path of its text to tn train FILE --out RUN." >&2
    exit 2
}
[ $# -eq 1 ] || usage
set_name=$1

sums() {
    case $set_name in
    fashion) cat <<'END'
c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888 train-images-idx3-ubyte
bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9 train-labels-idx1-ubyte
5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b t10k-images-idx3-ubyte
0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34 t10k-labels-idx1-ubyte
END
        ;;
    mnist) cat <<'END'
ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db train-images-idx3-ubyte
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5 train-labels-idx1-ubyte
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7 t10k-images-idx3-ubyte
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2 t10k-labels-idx1-ubyte
END
        ;;
    kjv) echo "864b753100ba395e693551f547e2307708817aac57121a679f6da6ba89e1d476 kjv.txt" ;;
    *) usage ;;
    esac
}

[ -n "$(sums)" ] || exit 2
yours=
if [ -n "${TN_DATA_DIR:-}" ]; then
    yours=$(cd "$TN_DATA_DIR" 2> /dev/null && pwd) || {
        echo "get_data: TN_DATA_DIR is $TN_DATA_DIR, which is not a folder" >&2
        exit 1
    }
fi
cd "$(dirname "$0")/.."
data=data/$set_name
part=$data/.part.$$
trap 'rm -rf "$part"; rmdir "$data" data 2> /dev/null || :' EXIT
trap 'exit 1' HUP INT TERM
# What a run left that was killed. The folders of runs that are still at work stay.
for left in "$data"/.part.*; do
    if [ -d "$left" ] && ! kill -0 "${left##*.}" 2> /dev/null; then rm -rf "$left"; fi
done

has() { command -v "$1" > /dev/null 2>&1; }

if   has sha256sum; then sha256() { sha256sum | cut -d ' ' -f 1; }
elif has shasum;    then sha256() { shasum -a 256 | cut -d ' ' -f 1; }
elif has sha256;    then sha256() { command sha256 -q; }
elif has openssl;   then sha256() { openssl dgst -sha256 | sed 's/.* //'; }
else echo "get_data: none of sha256sum, shasum, sha256 and openssl is installed, so that nothing can be checked" >&2; exit 1
fi

# take FOLDER [SOURCE]: moves every file that is still missing, and correct in FOLDER, to data/SET. The move comes last and
# is atomic, so that a file of this name always has this content, whenever the script is interrupted.
take() {
    [ -d "$1" ] || return 0
    mkdir -p "$part"
    sums | while read -r sum name; do
        [ ! -f "$data/$name" ] || continue
        if [ -f "$1/$name" ]; then cp "$1/$name" "$part/$name"
        elif [ -f "$1/$name.gz" ]; then gunzip -c "$1/$name.gz" > "$part/$name" 2> /dev/null || : > "$part/$name"
        else continue; fi
        if [ "$(sha256 < "$part/$name")" = "$sum" ]; then mv "$part/$name" "$data/$name"
        else
            echo "get_data: ${2:-$1}/$name is not the $set_name file of that name: the SHA-256 of its content differs" >&2
            rm -f "$part/$name"
        fi
    done
}

missing() { sums | while read -r sum name; do [ -f "$data/$name" ] || printf ' %s' "$name"; done; }

packages='' size='' urls=''
case $set_name in
fashion)
    packages='dataset-fashion-mnist' size='31 MB'
    urls='http://fashion-mnist.s3-website.eu-central-1.amazonaws.com
          https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion' ;;
mnist)
    urls='https://ossci-datasets.s3.amazonaws.com/mnist
          https://storage.googleapis.com/cvdf-datasets/mnist' ;;
kjv)
    packages='bible-kjv bible-kjv-text' size='3 MB' ;;
esac
urls=${TN_DATA_URL:-$urls}

# take_package ROOT: takes the files from the packages that are unpacked under ROOT (empty: installed)
take_package() {
    case $set_name in
    fashion) take "$1/usr/share/datasets/fashion-mnist" ;;
    kjv)
        bible=$(command -v "$1/usr/bin/bible") && [ -f "$1/usr/lib/bible.data" ] || return 0
        mkdir -p "$part/text"
        # Of "Ge1:2 And the earth ..." the reference is removed. Verse 1 begins a chapter.
        "$bible" -f -l100000 -p "$1/usr/lib" gen1:1-rev22:21 < /dev/null | awk '{
            verse = $1; sub(/.*:/, "", verse); sub(/^[^ ]* /, "")
            if (verse == 1 && NR > 1) print "<|endoftext|>"
            print }' > "$part/text/kjv.txt"
        take "$part/text" ;;
    esac
}

# As root the packages are installed, so that another checkout needs no network; other users only unpack them.
take_from_packages() {
    take_package ''
    [ -n "$(missing)" ] && has apt-get || return 0
    mkdir -p "$part"
    if [ "$(id -u)" -eq 0 ]; then
        echo "get_data: installing $packages ($size)"
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y -o DPkg::Lock::Timeout=300 --no-install-recommends \
            $packages > "$part/log" 2>&1 || failed install
        take_package ''
    else
        echo "get_data: unpacking $packages ($size)"
        (cd "$part" && apt-get download -qq $packages && for deb in ./*.deb; do dpkg-deb -x "$deb" .; done) \
            > "$part/log" 2>&1 || failed download
        take_package "$PWD/$part"
    fi
}

failed() {
    sed 's/^/    /' "$part/log" >&2
    echo "get_data: apt-get $1 $packages failed; apt-get update may help" >&2
}

# fetch URL FILE: a broken connection leaves a part in FILE, and the next attempt continues there. Where that brings nothing
# more, since the server cannot continue, it begins again. An address that has sent nothing at all is not tried again.
fetch() {
    before=0 attempt=1
    until fetch_once "$1" "$2"; do
        after=0
        [ ! -f "$2" ] || after=$(($(wc -c < "$2")))
        if [ $((before + after)) -eq 0 ] || [ $attempt -eq 5 ]; then return 1; fi
        if [ $after -le $before ]; then rm -f "$2"; after=0; fi
        before=$after attempt=$((attempt + 1))
        sleep 1
    done
}
fetch_once() {
    if has curl; then curl -fsSL -C - --connect-timeout 20 --speed-limit 1000 --speed-time 30 -o "$2" "$1"
    else wget -q -c -O "$2" "$1"; fi   # no -T: some versions of busybox crash at it
}

# An address that does not send a file is left for the next one, which is also asked for files whose content is wrong.
take_from_network() {
    has curl || has wget || { echo "get_data: neither curl nor wget is installed to download with" >&2; return 0; }
    mkdir -p "$part/net"
    for url in $urls; do
        for name in $(missing); do
            echo "get_data: downloading $url/$name.gz"
            if ! fetch "$url/$name.gz" "$part/net/$name.gz"; then
                echo "get_data: $url/$name.gz could not be downloaded" >&2
                break
            fi
            take "$part/net" "$url"
            rm "$part/net/$name.gz"
        done
    done
}

# A file that was damaged later, or by a full disk, is removed and fetched again.
sums | while read -r sum name; do
    if [ -f "$data/$name" ] && [ "$(sha256 < "$data/$name")" != "$sum" ]; then
        echo "get_data: $data/$name is damaged and will be replaced" >&2
        rm "$data/$name"
    fi
done
if [ -z "$(missing)" ]; then echo "get_data: $data is complete"; exit 0; fi

if [ -n "$yours" ]; then take "$yours"; take "$yours/$set_name"; fi
if [ -n "$packages" ] && [ -n "$(missing)" ]; then take_from_packages; fi
if [ -n "$urls" ] && [ -n "$(missing)" ]; then take_from_network; fi

if [ -n "$(missing)" ]; then
    {
        echo "get_data: still missing in $data:$(missing)"
        if [ -n "$urls" ]; then
            echo "Download them on a machine with a network, with .gz after each name, from"
            for url in $urls; do echo "    $url/"; done
        else
            echo "On Debian and Ubuntu the file is made from the packages $packages. Elsewhere use any other text:"
            echo "    tn train FILE --out RUN, or --data FILE of the studies"
        fi
        echo "Put them, plain or .gz, into a folder FOLDER and run"
        echo "    TN_DATA_DIR=FOLDER sh examples/get_data.sh $set_name"
    } >&2
    exit 1
fi
echo "get_data: $data is complete"
