#!/bin/sh
# sh tests/contents.sh tensornet.h: the table of contents in the first comment and the banners agree. A banner is a tag alone or first on
# its line, under a line of =; each stands once in the contents, and each tag of the contents has its banner.
set -eu
awk '
    function tag(s) { return substr(s, RSTART, RLENGTH) }
    !body {
        for (line = $0; match(line, />>[a-z0-9_-]+/); line = substr(line, RSTART + RLENGTH)) listed[tag(line)]++
        if (/\*\//) body = 1
        next
    }
    under && match($0, />>[a-z0-9_-]+/) && $1 == tag($0) { banner[$1]++ }
    { under = /={20}/ || /====================/ }
    END {
        listed[">>readme"]--; banner[">>readme"]++          # the first comment is its section
        for (t in listed) if (!banner[t])     bad = bad "FAIL in the contents, but no section: " t "\n"
        for (t in banner) if (listed[t] != 1) bad = bad "FAIL stands " listed[t] + 0 " times in the contents: " t "\n"
        for (t in banner) if (banner[t] != 1) bad = bad "FAIL " banner[t] " sections: " t "\n"
        printf "%s", bad
        exit bad != ""
    }' "$1"
