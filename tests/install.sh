#!/bin/sh
# sh tests/install.sh files|pkg-config|cmake|vcpkg|setup: installs into a new folder, whose name has a blank, and takes the
# library from there as another project would. `files` looks at what an installation puts where, and that uninstall removes
# all of it; `setup` runs tools/setup.sh on systems other than Debian, imitated by stand-ins for uname and package managers.
set -eu
way=$1
case $way in
files|setup) ;;
vcpkg) command -v cmake >/dev/null || exec sh tests/missing.sh cmake ;;
*)     command -v "$way" >/dev/null || exec sh tests/missing.sh "$way" ;;
esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prefix="$folder/a prefix"
# What is compiled only to be found and linked is the smallest library, which takes a tenth of the time.
small=$(sed -n 's/^#define \(TN_[A-Z0-9_]*\) *\(.*\)/-D\1=\2/p' tests/compile/smallest.h | tr '\n' ' ')
version=$(awk '/^#define TN_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }' tensornet.h)
fail() { echo "FAIL $*"; exit 1; }
quiet() { "$@" >"$folder/log" 2>&1 || { cat "$folder/log"; fail "$*"; }; }
install_() { quiet make -s --no-print-directory TN="$folder/tn" SHARED="$folder/shared" "$@"; }
# Here tn is a script with its options for installing. tests/tn.sh has what tn itself answers.
cat > "$folder/tn" <<'END'
#!/bin/sh
case "$*" in man|"completions bash"|"completions zsh"|"completions fish") echo "tn $*" ;; *) exit 2 ;; esac
END
chmod +x "$folder/tn"
echo "the shared library" > "$folder/shared"

prints_version() {   # PROGRAM
    said=$("$1") || fail "$1 does not run"
    [ "$said" = "$version" ] || fail "$1 says $said, not $version"
}
files_in() { (cd "$1" && find . -type f | sed 's|^\./||' | LC_ALL=C sort | tr '\n' ' '); }
tree() { (cd "$1" && find . | LC_ALL=C sort); }
# The files of src/ that the target tensornet::implementation is compiled from
source=$(for file in src/*.h src/*/*.c src/*/*.h src/*/*.inl; do
             case $file in src/cuda/*) ;; *) echo "share/tensornet/$file" ;; esac
         done | LC_ALL=C sort | tr '\n' ' ')
library="include/tensornet.h share/doc/tensornet/LICENSE share/pkgconfig/tensornet.pc share/tensornet/installed \
${source}share/tensornet/tensornetConfig.cmake share/tensornet/tensornetConfigVersion.cmake \
share/tensornet/tensornetTargets.cmake share/tensornet/tensornet_cuda.cu "

case $way in
files)
    # Folders and files of others, in places that we use, too.
    stage="$folder/a stage" place="$folder/a stage/opt/tn"
    mkdir -p "$place/include" "$place/share/man/man1" "$place/share/tensornet" "$place/empty"
    echo other | tee "$place/include/other.h" "$place/share/man/man1/other.1" > "$place/share/tensornet/other.cmake"
    tree "$stage" > "$folder/before"

    install_ install DESTDIR="$stage" PREFIX=/opt/tn
    cmp tensornet.h "$place/include/tensornet.h" || fail "the header is another one"
    cmp tensornet_cuda.cu "$place/share/tensornet/tensornet_cuda.cu" || fail "tensornet_cuda.cu is another one"
    for file in include/tensornet.h share/tensornet/tensornet_cuda.cu share/man/man1/tn.1; do
        case $(ls -l "$place/$file") in -rw-r--r--*) ;; *) fail "the mode of $file: $(ls -l "$place/$file")" ;; esac
    done
    for part in "bin/tn" "share/man/man1/tn.1 tn man" "share/bash-completion/completions/tn tn completions bash" \
                "share/zsh/site-functions/_tn tn completions zsh" \
                "share/fish/vendor_completions.d/tn.fish tn completions fish"; do
        [ -f "$place/${part%% *}" ] || fail "not installed: ${part%% *}"
        case $part in *" "*) [ "$(cat "$place/${part%% *}")" = "${part#* }" ] || fail "another content: ${part%% *}" ;; esac
    done
    [ -x "$place/bin/tn" ] || fail "bin/tn cannot be run"
    cmp "$folder/shared" "$place/lib/libtensornet.so" || fail "the shared library is another one"
    for name in "libtensornet.so libtensornet.so.${version%.*}" "libtensornet.so.${version%.*} libtensornet.so.$version"; do
        [ "$(readlink "$place/lib/${name% *}")" = "${name#* }" ] || fail "${name% *} does not lead to ${name#* }"
    done
    for document in README.md CONTRIBUTING.md docs/*.md docs/images/*; do
        cmp "$document" "$place/share/doc/tensornet/$document" || fail "not installed: $document"
    done
    grep -q '^prefix=/opt/tn$' "$place/share/pkgconfig/tensornet.pc" || fail "DESTDIR is in tensornet.pc, or PREFIX is not"
    if grep -n '@[A-Z]*@' "$place"/share/pkgconfig/* "$place"/share/tensornet/*.cmake; then fail "not filled in"; fi

    # The second of two installations removes the first; what uninstall leaves is what there was.
    install_ install-library DESTDIR="$stage" PREFIX=/opt/tn
    [ ! -e "$place/bin" ] || fail "install-library left the command of an earlier installation"
    install_ install DESTDIR="$stage" PREFIX=/opt/tn
    install_ uninstall DESTDIR="$stage" PREFIX=/opt/tn
    tree "$stage" | diff "$folder/before" - || fail "uninstall left or removed something"
    install_ uninstall DESTDIR="$stage" PREFIX=/opt/tn
    grep -q "^uninstall: nothing is installed in $stage/opt/tn\$" "$folder/log" || fail "uninstall of nothing is silent"

    # What a killed installation made can be removed.
    echo 'kill -9 $PPID' > "$folder/tn"
    if make -s --no-print-directory TN="$folder/tn" SHARED="$folder/shared" install DESTDIR="$stage" PREFIX=/opt/tn \
        2>"$folder/log"; then
        fail "an installation survived its end"
    fi
    [ -f "$place/include/tensornet.h" ] || fail "the killed installation did not begin"
    install_ uninstall DESTDIR="$stage" PREFIX=/opt/tn
    tree "$stage" | diff "$folder/before" - || fail "uninstall after a killed installation left or removed something"

    # A failure on the way is reported, and what there is can be removed.
    echo 'exit 1' > "$folder/tn"
    if make -s --no-print-directory TN="$folder/tn" SHARED="$folder/shared" install DESTDIR="$stage" PREFIX=/opt/tn \
        2>"$folder/log"; then
        fail "install succeeded without a manual page"
    fi
    grep -q 'tn man failed' "$folder/log" || { cat "$folder/log"; fail "no word about the manual page"; }
    install_ uninstall DESTDIR="$stage" PREFIX=/opt/tn
    tree "$stage" | diff "$folder/before" - || fail "uninstall after a failure left or removed something"

    install_ install-library PREFIX="$prefix"
    [ "$(files_in "$prefix")" = "$library" ] || fail "installed: $(files_in "$prefix")"
    ;;
pkg-config)
    install_ install-library PREFIX="$prefix"
    export PKG_CONFIG_PATH="$prefix/share/pkgconfig"
    [ "$(pkg-config --modversion tensornet)" = "$version" ] || fail "its version is $(pkg-config --modversion tensornet)"
    # As a Makefile does it: what pkg-config says is read by a shell.
    flags=$(pkg-config --cflags tensornet) libs=$(pkg-config --libs tensornet)
    eval "cc -std=c99 $small $flags tests/install/program.c -o \"$folder/c\" $libs"
    eval "c++ -std=c++17 -O1 $small $flags tests/install/program.cpp -o \"$folder/cpp\" $libs"
    prints_version "$folder/c"
    prints_version "$folder/cpp"
    # The kernels for GPUs, as the C++ compiler reads them for the engine of tests/cuda_host.
    cuda=$(pkg-config --variable=cuda_source tensornet)
    eval "c++ -x c++ -std=c++17 -fsyntax-only -w -DTN_CUDA_HOST -Itests/cuda_host $flags \"$cuda\"" || fail "$cuda"
    ;;
cmake)
    install_ install-library PREFIX="$prefix"
    # A configuration of our own, because for none and for Debug the implementation is compiled with -O2, which takes long.
    for how in find_package FetchContent add_subdirectory; do
        quiet cmake -S tests/install -B "$folder/$how" -DWAY=$how -DCMAKE_PREFIX_PATH="$prefix" -DWANTED="$version" \
            -DCHECKOUT="$PWD" -DCMAKE_BUILD_TYPE=Quick -DCMAKE_C_FLAGS_QUICK="$small" -DCMAKE_CXX_FLAGS_QUICK="-O1 $small"
        # FetchContent compiles the files that add_subdirectory does.
        [ $how != FetchContent ] || continue
        quiet cmake --build "$folder/$how" --target program_library
        prints_version "$folder/$how/program_library"
    done
    quiet cmake --build "$folder/find_package"
    prints_version "$folder/find_package/program_c"
    prints_version "$folder/find_package/program_cpp"

    # Which versions will do, asked of the version file alone.
    for asked in "$version TRUE" "99.0 FALSE" "${version%.*}.999 FALSE" "${version%.*} TRUE"; do
        printf 'set(PACKAGE_FIND_VERSION %s)\ninclude("%s")\nmessage("${PACKAGE_VERSION_COMPATIBLE}")\n' "${asked% *}" \
            "$prefix/share/tensornet/tensornetConfigVersion.cmake" > "$folder/ask.cmake"
        said=$(cmake -P "$folder/ask.cmake" 2>&1)
        [ "$said" = "${asked#* }" ] || fail "asked for ${asked% *}, it says $said"
    done

    # Without make: the same files, but for the list that uninstall needs.
    quiet cmake -S tools/cmake -B "$folder/alone" -DCMAKE_INSTALL_PREFIX="$folder/by cmake"
    quiet cmake --install "$folder/alone"
    [ "$(files_in "$folder/by cmake")" = "$(echo "$library" | sed 's|share/tensornet/installed ||')" ] ||
        fail "cmake --install: $(files_in "$folder/by cmake")"
    for file in share/tensornet/tensornetConfig.cmake share/tensornet/tensornetConfigVersion.cmake; do
        cmp "$prefix/$file" "$folder/by cmake/$file" || fail "cmake and make install different files $file"
    done

    # tensornet_cuda.cu without the language CUDA is refused in clear words; with it, nvcc gets an architecture that will do.
    for how in find_package FetchContent; do
        if cmake -S tests/install/no_cuda -B "$folder/no_cuda_$how" -DWAY=$how -DCMAKE_PREFIX_PATH="$prefix" \
            -DCHECKOUT="$PWD" >"$folder/log" 2>&1; then fail "$how: the CUDA target without the language CUDA"; fi
        tr '\n' ' ' < "$folder/log" | grep -q 'project(NAME *LANGUAGES' || { cat "$folder/log"; fail "$how: unclear"; }
    done
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || { echo "LEFT OUT nvcc is not here"; exit 0; }
    for how in find_package FetchContent; do
        quiet cmake -S tests/install -B "$folder/cuda_$how" -DWAY=$how -DCMAKE_PREFIX_PATH="$prefix" -DCHECKOUT="$PWD" \
            -DTENSORNET_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES=75
        grep -q 'CMAKE_CUDA_ARCHITECTURES has 75, expected 80 or more' "$folder/log" || { cat "$folder/log"; fail "sm_75"; }
        make -n -C "$folder/cuda_$how" tensornet_cuda 2>&1 | grep -q 'sm_90.*tensornet_cuda\.cu' || fail "$how: no nvcc"
    done
    ;;
vcpkg)
    # vcpkg itself is not here: tests/install/vcpkg_mock.cmake stands in for the functions that the port calls.
    quiet cmake -DPORT_DIR="$PWD/tools/vcpkg/tensornet" -DPACKAGES="$folder/packages" -P tests/install/vcpkg_mock.cmake
    found=$(files_in "$folder/packages")
    expected="include/tensornet.h share/pkgconfig/tensornet.pc share/tensornet/copyright ${source}\
share/tensornet/tensornetConfig.cmake share/tensornet/tensornetConfigVersion.cmake \
share/tensornet/tensornetTargets.cmake share/tensornet/tensornet_cuda.cu share/tensornet/usage "
    [ "$found" = "$expected" ] || fail "the port installs: $found"
    ;;
setup)
    # Each names its command, and runs neither a package manager nor sudo: the stand-ins would say so.
    while read -r system manager command; do
        bin="$folder/$system-$manager"
        mkdir "$bin"
        for tool in awk cat dirname grep gunzip make mktemp rm sed sh; do ln -s "$(command -v $tool)" "$bin/$tool"; done
        for name in sudo "$manager" $([ "$system" = Linux ] || echo apt-get); do
            printf '#!/bin/sh\necho "%s $*" >> "%s"\n' "$name" "$folder/ran" > "$bin/$name"
        done
        printf '#!/bin/sh\necho %s\n' "$system" > "$bin/uname"
        printf '#!/bin/sh\n' > "$bin/true"
        chmod +x "$bin"/sudo "$bin"/"$manager" "$bin"/uname "$bin"/true
        if PATH="$bin" "$bin/sh" tools/setup.sh >"$folder/log" 2>&1; then fail "$system: ready without a compiler"; fi
        grep -q 'missing: a C compiler (cc)$' "$folder/log" || { cat "$folder/log"; fail "$system: what is missing"; }
        grep -q "install with: $command" "$folder/log" || { cat "$folder/log"; fail "$system: no command"; }
        [ ! -e "$folder/ran" ] || fail "$system: setup ran $(cat "$folder/ran")"
    done <<END
Darwin brew xcode-select --install
Linux dnf dnf install gcc
Linux pacman pacman -S base-devel
Linux apk apk add build-base
Linux zypper zypper install gcc
FreeBSD pkg pkg install gmake
MINGW64_NT-10.0 pacman pacman -S make mingw-w64
END
    ;;
esac
