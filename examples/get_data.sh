#!/bin/sh
# sh examples/get_data.sh fashion|mnist|kjv
#
# Puts the files of a data set into data/SET/, after checking the SHA-256 of what is in them: the four uncompressed idx files of
# Fashion-MNIST or MNIST, or kjv.txt, the King James Bible, a verse a line, <|endoftext|> between chapters. Files that are
# there and right are left alone, so a second run needs no network. It looks in this order:
#   $TN_DATA_DIR and $TN_DATA_DIR/SET   files you already have, plain or .gz
#   the Debian packages                 dataset-fashion-mnist, bible-kjv: installed as root, else just unpacked; MNIST has none
set -eu

usage() {
    echo "usage: sh examples/get_data.sh fashion|mnist|kjv
TinyStories need no place of theirs: tn train FILE --out RUN takes the text file wherever it lies." >&2
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
    yours=$(cd "$TN_DATA_DIR" 2> /dev/null && pwd) || { echo "get_data: TN_DATA_DIR is $TN_DATA_DIR, and there is no such folder" >&2; exit 1; }
fi
cd "$(dirname "$0")/.."
data=data/$set_name
part=$data/.part.$$
trap 'rm -rf "$part"' EXIT
trap 'exit 1' HUP INT TERM

sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d ' ' -f 1; }

# take FOLDER: every file that is still missing and right in FOLDER goes to data/. The move comes last and is atomic, so that a
# file with the right name is a file with the right content, whenever this is interrupted.
take() {
    [ -d "$1" ] || return 0
    mkdir -p "$part"
    sums | while read -r sum name; do
        [ ! -f "$data/$name" ] || continue
        if [ -f "$1/$name" ]; then cp "$1/$name" "$part/$name"
        elif [ -f "$1/$name.gz" ]; then gunzip -c "$1/$name.gz" > "$part/$name" || continue
        else continue; fi
        if [ "$(sha256 < "$part/$name")" = "$sum" ]; then mv "$part/$name" "$data/$name"
        else echo "get_data: $1/$name is not the $set_name file of that name (its SHA-256 differs)" >&2; fi
    done
}

missing() { sums | while read -r sum name; do [ -f "$data/$name" ] || printf ' %s' "$name"; done; }

case $set_name in
fashion) packages='dataset-fashion-mnist' size='31 MB' ;;
kjv)     packages='bible-kjv bible-kjv-text' size='3 MB' ;;
*)       packages='' size='' ;;
esac

# take_package ROOT: what is wanted of the packages that lie unpacked under ROOT (empty: installed)
take_package() {
    case $set_name in
    fashion) take "$1/usr/share/datasets/fashion-mnist" ;;
    kjv)
        bible=$(command -v "$1/usr/bin/bible") && [ -f "$1/usr/lib/bible.data" ] || return 0
        mkdir -p "$part/text"
        # "Ge1:2 And the earth ...": the reference goes, a chapter begins at its verse 1
        "$bible" -f -l100000 -p "$1/usr/lib" gen1:1-rev22:21 < /dev/null | awk '{
            verse = $1; sub(/.*:/, "", verse); sub(/^[^ ]* /, "")
            if (verse == 1 && NR > 1) print "<|endoftext|>"
            print }' > "$part/text/kjv.txt"
        take "$part/text" ;;
    esac
}

# Root keeps the packages installed, so that the next checkout needs no network; anybody else only unpacks them.
take_from_packages() {
    take_package ''
    [ -n "$(missing)" ] && command -v apt-get >/dev/null || return 0
    mkdir -p "$part"
    if [ "$(id -u)" -eq 0 ]; then
        echo "get_data: installing $packages ($size)"
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y -o DPkg::Lock::Timeout=300 --no-install-recommends $packages > "$part/log" 2>&1 || failed install
        take_package ''
    else
        echo "get_data: unpacking $packages ($size)"
        { (cd "$part" && apt-get download -qq $packages && for deb in ./*.deb; do dpkg-deb -x "$deb" .; done); } > "$part/log" 2>&1 || failed download
        take_package "$PWD/$part"
    fi
}

failed() { cat "$part/log" >&2; echo "get_data: apt-get $1 $packages failed; apt-get update may help" >&2; }

# A damaged file from elsewhere or a full disk: gone, and fetched again.
sums | while read -r sum name; do
    if [ -f "$data/$name" ] && [ "$(sha256 < "$data/$name")" != "$sum" ]; then
        echo "get_data: $data/$name is damaged and will be replaced" >&2
        rm "$data/$name"
    fi
done
if [ -z "$(missing)" ]; then echo "get_data: $data is complete"; exit 0; fi

if [ -n "$yours" ]; then take "$yours"; take "$yours/$set_name"; fi
if [ -n "$packages" ] && [ -n "$(missing)" ]; then take_from_packages; fi

if [ -n "$(missing)" ]; then
    {
        echo "get_data: still missing in $data:$(missing)"
        echo "Have the files, plain or .gz, under these names in a folder FOLDER and run"
        echo "    TN_DATA_DIR=FOLDER sh examples/get_data.sh $set_name"
        [ -z "$packages" ] || echo "On Debian and Ubuntu they come from $packages."
    } >&2
    exit 1
fi
echo "get_data: $data is complete"
