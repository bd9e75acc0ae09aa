#!/bin/sh
# sh examples/get_data.sh fashion|mnist
#
# Puts the four uncompressed idx files of a data set into data/SET/, after checking the SHA-256 of what is in them. Files that are
# there and right are left alone, so a second run needs no network. It looks in this order:
#   $TN_DATA_DIR and $TN_DATA_DIR/SET   files you already have, plain or .gz
#   the Debian package                  Fashion-MNIST only: dataset-fashion-mnist, installed as root, else just unpacked
set -eu

usage() { echo "usage: sh examples/get_data.sh fashion|mnist" >&2; exit 2; }
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
    *) usage ;;
    esac
}

[ -n "$(sums)" ] || exit 2
yours=${TN_DATA_DIR:+$(cd "$TN_DATA_DIR" && pwd)}
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

package=dataset-fashion-mnist

# Root keeps the package installed, so that the next checkout needs no network; anybody else only unpacks it.
take_from_package() {
    take /usr/share/datasets/fashion-mnist
    [ -n "$(missing)" ] && command -v apt-get >/dev/null || return 0
    mkdir -p "$part"
    if [ "$(id -u)" -eq 0 ]; then
        echo "get_data: installing the package $package (31 MB)"
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y -o DPkg::Lock::Timeout=300 --no-install-recommends "$package" > "$part/log" 2>&1 || failed install
        take /usr/share/datasets/fashion-mnist
    else
        echo "get_data: unpacking the package $package (31 MB)"
        { (cd "$part" && apt-get download -qq "$package") && dpkg-deb -x "$part"/*.deb "$part"; } > "$part/log" 2>&1 || failed download
        take "$part/usr/share/datasets/fashion-mnist"
    fi
}

failed() { cat "$part/log" >&2; echo "get_data: apt-get $1 $package failed; apt-get update may help" >&2; }

# A damaged file from elsewhere or a full disk: gone, and fetched again.
sums | while read -r sum name; do
    if [ -f "$data/$name" ] && [ "$(sha256 < "$data/$name")" != "$sum" ]; then
        echo "get_data: $data/$name is damaged and will be replaced" >&2
        rm "$data/$name"
    fi
done
if [ -z "$(missing)" ]; then echo "get_data: $data is complete"; exit 0; fi

if [ -n "$yours" ]; then take "$yours"; take "$yours/$set_name"; fi
if [ "$set_name" = fashion ] && [ -n "$(missing)" ]; then take_from_package; fi

if [ -n "$(missing)" ]; then
    {
        echo "get_data: still missing in $data:$(missing)"
        echo "Have the files, plain or .gz, under these names in a folder FOLDER and run"
        echo "    TN_DATA_DIR=FOLDER sh examples/get_data.sh $set_name"
        [ "$set_name" != fashion ] || echo "On Debian and Ubuntu the package $package has them."
    } >&2
    exit 1
fi
echo "get_data: $data is complete"
