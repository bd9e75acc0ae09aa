#!/bin/sh
# sh tools/install/install.sh install|install-library|uninstall, called by the Makefile with DESTDIR, PREFIX, VERSION, TN, the
# command tn, and SHARED, the shared library, in the environment. PREFIX/share/tensornet/installed lists the files and folders
# that an installation made, so that `uninstall` removes these and no others, whatever its version. To install again removes
# the last installation.
set -eu
umask 022
work=$(mktemp -d)
list=share/tensornet/installed
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
case $PREFIX in /*) ;; *) echo "install: PREFIX is '$PREFIX', expected an absolute path" >&2; exit 2 ;; esac

# note LINE: adds to the list, which is saved each time, so that what a killed installation made can be removed.
note() {
    echo "$1" >> "$work/list"
    save
}
save() {
    [ ! -d "$DESTDIR$PREFIX/${list%/*}" ] || cp "$work/list" "$DESTDIR$PREFIX/$list"
}
# folder PATH: makes a folder, and notes which folders on the way are new. Folders are noted with PREFIX, files without.
folder() {
    [ -n "$1" ] && [ ! -d "$DESTDIR$1" ] || return 0
    folder "${1%/*}"
    note "folder $1"
    mkdir -p "$DESTDIR$1"
}
# put MODE SOURCE FOLDER [NAME]: copies a file to PREFIX/FOLDER
put() {
    name=${4:-${2##*/}}
    folder "$PREFIX/$3"
    note "file $3/$name"
    rm -f "$DESTDIR$PREFIX/$3/$name"
    cp "$2" "$DESTDIR$PREFIX/$3/$name"
    chmod "$1" "$DESTDIR$PREFIX/$3/$name"
}
# put_all FOLDER SOURCE...: copies files, whose names have no blanks, to PREFIX/FOLDER at once
put_all() {
    to=$1
    shift
    folder "$PREFIX/$to"
    for file; do echo "file $to/${file##*/}"; done >> "$work/list"
    save
    cp "$@" "$DESTDIR$PREFIX/$to"
    (cd "$DESTDIR$PREFIX/$to" && chmod 644 $(for file; do echo "${file##*/}"; done))
}
# link TARGET FOLDER NAME: a symbolic link PREFIX/FOLDER/NAME to TARGET
link() {
    note "file $2/$3"
    ln -sf "$1" "$DESTDIR$PREFIX/$2/$3"
}
fill() {   # tensornet.pc and the like, from NAME.in
    prefix=$(echo "$PREFIX" | sed 's/[&\\|]/\\&/g')
    sed "s|@VERSION@|$VERSION|; s|@PREFIX@|$prefix|" "tools/install/$1.in" > "$work/$1"
}

install_library() {
    for file in tensornet.pc tensornetConfig.cmake tensornetConfigVersion.cmake; do fill $file; done
    put 644 tensornet.h                              include
    put 644 tensornet_cuda.cu                        share/tensornet
    put_all share/tensornet/src src/*.h
    for from in src/*/; do
        from=${from%/}
        [ "$from" = src/cuda ] || put_all "share/tensornet/$from" $(ls "$from"/*.c "$from"/*.h "$from"/*.inl 2>/dev/null)
    done
    put 644 "$work/tensornet.pc"                     share/pkgconfig
    put 644 "$work/tensornetConfig.cmake"            share/tensornet
    put 644 "$work/tensornetConfigVersion.cmake"     share/tensornet
    put 644 tools/cmake/tensornetTargets.cmake       share/tensornet
    put 644 LICENSE                                  share/doc/tensornet
}
install_command() {
    for what in man "completions bash" "completions zsh" "completions fish"; do
        "$TN" $what > "$work/${what#* }" || { echo "install: $TN $what failed" >&2; exit 1; }
    done
    put 755 "$TN"         bin                                 tn
    put 644 "$work/man"   share/man/man1                      tn.1
    put 644 "$work/bash"  share/bash-completion/completions   tn
    put 644 "$work/zsh"   share/zsh/site-functions            _tn
    put 644 "$work/fish"  share/fish/vendor_completions.d     tn.fish
    for file in README.md CONTRIBUTING.md docs/*.md docs/images/*; do
        case $file in */*) put 644 "$file" "share/doc/tensornet/${file%/*}" ;; *) put 644 "$file" share/doc/tensornet ;; esac
    done
}
install_shared() {
    fill tensornet-shared.pc
    put 644 "$work/tensornet-shared.pc" share/pkgconfig
    put 755 "$SHARED"                   lib   "libtensornet.so.$VERSION"
    link "libtensornet.so.$VERSION"     lib   "libtensornet.so.${VERSION%.*}"
    link "libtensornet.so.${VERSION%.*}" lib  libtensornet.so
}
uninstall() {
    [ -f "$DESTDIR$PREFIX/$list" ] || return 0
    cp "$DESTDIR$PREFIX/$list" "$work/old"
    sed -n 's/^file //p' "$work/old" | while IFS= read -r path; do rm -f "$DESTDIR$PREFIX/$path"; done
    # The longest path of a folder comes first. What holds other files stays.
    sed -n 's/^folder //p' "$work/old" | LC_ALL=C sort -r | while IFS= read -r path; do
        rmdir "$DESTDIR$path" 2> /dev/null || :
    done
}

case $1 in
uninstall)
    [ -f "$DESTDIR$PREFIX/$list" ] || echo "uninstall: nothing is installed in $DESTDIR$PREFIX"
    uninstall ;;
install|install-library)
    uninstall
    folder "$PREFIX/${list%/*}"
    note "file $list"
    install_library
    if [ "$1" = install ]; then install_shared; install_command; fi ;;
*)  echo "install: the goal is $1, expected install, install-library or uninstall" >&2
    exit 2 ;;
esac
